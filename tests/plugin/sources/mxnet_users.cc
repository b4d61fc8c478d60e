// Operators as MXNet's users wrote them: expressions of mshadow, functions of mshadow_op, types
// that have to be known, a dispatch of devices, names that are added to a property afterwards.
#include <dmlc/logging.h>
#include <dmlc/parameter.h>
#include <mxnet/operator.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace mxnet {
namespace op {

// ---- y = gamma x + beta by channels, as a property ---------------------------------------------

namespace affine {
enum Inputs { kData, kGamma, kBeta };
}

struct AffineParam : public dmlc::Parameter<AffineParam> {
  bool fix_gamma;
  float scale;
  DMLC_DECLARE_PARAMETER(AffineParam) {
    DMLC_DECLARE_FIELD(fix_gamma).set_default(false).describe("Leave gamma as it is.");
    DMLC_DECLARE_FIELD(scale).set_default(0.5f).describe("Factor of the gradients.");
  }
};

template <typename xpu, typename DType>
class AffineOp : public Operator {
 public:
  explicit AffineOp(AffineParam param) : param_(param) {}
  void Forward(const OpContext& ctx, const std::vector<TBlob>& in_data,
               const std::vector<OpReqType>& req, const std::vector<TBlob>& out_data,
               const std::vector<TBlob>&) override {
    using namespace mshadow;
    using namespace mshadow::expr;
    Stream<xpu>* s = ctx.get_stream<xpu>();
    Tensor<xpu, 3, DType> data = in_data[affine::kData].get<xpu, 3, DType>(s);
    Tensor<xpu, 3, DType> out = out_data[0].get<xpu, 3, DType>(s);
    Tensor<xpu, 1, DType> gamma = in_data[affine::kGamma].get<xpu, 1, DType>(s);
    Tensor<xpu, 1, DType> beta = in_data[affine::kBeta].get<xpu, 1, DType>(s);
    CHECK_EQ(data.CheckContiguous(), true);
    CHECK_EQ(data.MSize(), out.shape_.Size());
    CHECK(data.stream_ == s && data.stride_ == data.size(2));
    Assign(out, req[0],
           broadcast<1>(gamma, data.shape_) * data + broadcast<1>(beta, data.shape_));
  }
  void Backward(const OpContext& ctx, const std::vector<TBlob>& out_grad,
                const std::vector<TBlob>& in_data, const std::vector<TBlob>&,
                const std::vector<OpReqType>& req, const std::vector<TBlob>& in_grad,
                const std::vector<TBlob>&) override {
    using namespace mshadow;
    using namespace mshadow::expr;
    Stream<xpu>* s = ctx.get_stream<xpu>();
    Tensor<xpu, 3, DType> data = in_data[affine::kData].get<xpu, 3, DType>(s);
    Tensor<xpu, 3, DType> dy = out_grad[0].get<xpu, 3, DType>(s);
    Tensor<xpu, 1, DType> gamma = in_data[affine::kGamma].get<xpu, 1, DType>(s);
    Tensor<xpu, 3, DType> dx = in_grad[affine::kData].get<xpu, 3, DType>(s);
    Tensor<xpu, 1, DType> dgamma = in_grad[affine::kGamma].get<xpu, 1, DType>(s);
    Tensor<xpu, 1, DType> dbeta = in_grad[affine::kBeta].get<xpu, 1, DType>(s);
    const DType scale = static_cast<DType>(param_.scale);
    Assign(dx, req[affine::kData],
           dy * broadcast<1>(gamma, data.shape_) * ScalarExp<DType>(scale));
    Assign(dbeta, req[affine::kBeta], sumall_except_dim<1>(dy) * ScalarExp<DType>(scale));
    if (param_.fix_gamma) {
      Assign(dgamma, req[affine::kGamma], scalar<DType>(DType(0)));
    } else {
      Assign(dgamma, req[affine::kGamma], sumall_except_dim<1>(dy * data) * scale);
    }
  }

 private:
  AffineParam param_;
};

template <typename xpu>
Operator* CreateOp(AffineParam param, int dtype);

#if DMLC_USE_CXX11
class AffineProp : public OperatorProperty {
 public:
  void Init(const std::vector<std::pair<std::string, std::string>>& kwargs) override {
    param_.Init(kwargs);
  }
  std::map<std::string, std::string> GetParams() const override { return param_.__DICT__(); }
  std::vector<std::string> ListArguments() const override { return {"data", "gamma", "beta"}; }
  bool InferShape(std::vector<TShape>* in_shape, std::vector<TShape>* out_shape,
                  std::vector<TShape>*) const override {
    using namespace mshadow;
    const TShape& dshape = in_shape->at(affine::kData);
    if (dshape.ndim() == 0) return false;
    CHECK_EQ(dshape.ndim(), 3U) << "data: [batch, channel, place]";
    SHAPE_ASSIGN_CHECK(*in_shape, affine::kGamma, Shape1(dshape[1]));
    SHAPE_ASSIGN_CHECK(*in_shape, affine::kBeta, Shape1(dshape[1]));
    out_shape->assign(1, dshape);
    return true;
  }
  bool InferType(std::vector<int>* in_type, std::vector<int>* out_type,
                 std::vector<int>*) const override {
    const int dtype = (*in_type)[0];
    CHECK_NE(dtype, -1) << "First input must have specified type";
    for (size_t i = 0; i < in_type->size(); ++i) {
      if ((*in_type)[i] == -1) (*in_type)[i] = dtype;
      CHECK_EQ((*in_type)[i], dtype) << "of " << ListArguments()[i];
    }
    out_type->assign(1, dtype);
    return true;
  }
  OperatorProperty* Copy() const override { return new AffineProp(*this); }
  std::string TypeString() const override { return "user_affine"; }
  std::vector<int> DeclareBackwardDependency(const std::vector<int>& out_grad,
                                             const std::vector<int>& in_data,
                                             const std::vector<int>&) const override {
    return {out_grad[0], in_data[affine::kData], in_data[affine::kGamma]};
  }
  Operator* CreateOperator(Context) const override {
    LOG(FATAL) << "Not Implemented.";
    return NULL;
  }
  Operator* CreateOperatorEx(Context ctx, std::vector<TShape>* in_shape,
                             std::vector<int>* in_type) const override;

 private:
  AffineParam param_;
};
#endif

template <>
Operator* CreateOp<cpu>(AffineParam param, int dtype) {
  Operator* op = NULL;
  MSHADOW_REAL_TYPE_SWITCH(dtype, DType, { op = new AffineOp<cpu, DType>(param); })
  return op;
}
Operator* AffineProp::CreateOperatorEx(Context ctx, std::vector<TShape>* in_shape,
                                       std::vector<int>* in_type) const {
  std::vector<TShape> out_shape, aux_shape;
  std::vector<int> out_type, aux_type;
  CHECK(InferType(in_type, &out_type, &aux_type));
  CHECK(InferShape(in_shape, &out_shape, &aux_shape));
  DO_BIND_DISPATCH(CreateOp, param_, (*in_type)[0]);
}

DMLC_REGISTER_PARAMETER(AffineParam);
MXNET_REGISTER_OP_PROPERTY(user_affine, AffineProp)
    .describe("y = gamma x + beta by channels.")
    .add_argument("data", "NDArray-or-Symbol", "Three axes.")
    .add_arguments(AffineParam::__FIELDS__());
NNVM_REGISTER_OP(user_affine)
    .add_alias("UserAffine")
    .set_attr<nnvm::FSetInputVarAttrOnCompose>(
        "FSetInputVarAttrOnCompose", [](const nnvm::NodeAttrs&, nnvm::ObjectPtr, const int) {});

// ---- y = tanh(x w'), with products of matrices -------------------------------------------------

template <typename xpu>
void DenseForward(const nnvm::NodeAttrs&, const OpContext& ctx, const std::vector<TBlob>& in,
                  const std::vector<OpReqType>& req, const std::vector<TBlob>& out) {
  using namespace mshadow;
  using namespace mshadow::expr;
  Stream<xpu>* s = ctx.get_stream<xpu>();
  MSHADOW_REAL_TYPE_SWITCH(out[0].type_flag_, DType, {
    Tensor<xpu, 2, DType> x = in[0].FlatTo2D<xpu, DType>(s), w = in[1].FlatTo2D<xpu, DType>(s);
    Tensor<xpu, 2, DType> y = out[0].FlatTo2D<xpu, DType>(s);
    Assign(y, req[0], F<mshadow_op::tanh>(tcast<DType>(dot(x, w.T()))));
  });
}
template <typename xpu>
void DenseBackward(const nnvm::NodeAttrs&, const OpContext& ctx, const std::vector<TBlob>& in,
                   const std::vector<OpReqType>& req, const std::vector<TBlob>& out) {
  using namespace mshadow;
  using namespace mshadow::expr;
  Stream<xpu>* s = ctx.get_stream<xpu>();
  MSHADOW_REAL_TYPE_SWITCH(out[0].type_flag_, DType, {
    Tensor<xpu, 2, DType> dy = in[0].FlatTo2D<xpu, DType>(s), x = in[1].FlatTo2D<xpu, DType>(s);
    Tensor<xpu, 2, DType> w = in[2].FlatTo2D<xpu, DType>(s), y = in[3].FlatTo2D<xpu, DType>(s);
    Tensor<xpu, 2, DType> dx = out[0].FlatTo2D<xpu, DType>(s), dw = out[1].FlatTo2D<xpu, DType>(s);
    Tensor<cpu, 2, DType> dz = NewTensor<cpu>(y.shape_, DType(0));
    dz += dy * F<mshadow_op::tanh_grad>(y);
    Assign(dx, req[0], dot(dz, w));
    Assign(dw, req[1], dot(dz.T(), x));
    FreeSpace(&dz);
  });
}
inline bool DenseShape(const nnvm::NodeAttrs&, std::vector<TShape>* in, std::vector<TShape>* out) {
  if ((*in)[0].ndim() == 0 || (*in)[1].ndim() == 0) return false;
  SHAPE_ASSIGN_CHECK(*out, 0, mshadow::Shape2((*in)[0][0], (*in)[1][0]));
  return true;
}
inline bool DenseType(const nnvm::NodeAttrs& attrs, std::vector<int>* in, std::vector<int>* out) {
  CHECK_NE((*in)[0], -1) << "First input must have specified type";
  return ElemwiseType<2, 1>(attrs, in, out);
}
NNVM_REGISTER_OP(user_dense)
    .set_num_inputs(2)
    .set_num_outputs(1)
    .set_attr<nnvm::FListInputNames>(
        "FListInputNames",
        [](const nnvm::NodeAttrs&) { return std::vector<std::string>{"data", "weight"}; })
    .set_attr<nnvm::FInferShape>("FInferShape", DenseShape)
    .set_attr<nnvm::FInferType>("FInferType", DenseType)
    .set_attr<FCompute>("FCompute<cpu>", DenseForward<cpu>)
    .set_attr<nnvm::FGradient>("FGradient", ElemwiseGradUseInOut{"_backward_user_dense"});
NNVM_REGISTER_OP(_backward_user_dense)
    .set_num_inputs(4)
    .set_num_outputs(2)
    .set_attr<nnvm::TIsBackward>("TIsBackward", true)
    .set_attr<FCompute>("FCompute<cpu>", DenseBackward<cpu>);

// ---- Functions of elements ---------------------------------------------------------------------

struct cubed {
  template <typename DType>
  MSHADOW_XINLINE static DType Map(DType a) { return DType(a * a * a); }
};
struct cubed_grad {
  template <typename DType>
  MSHADOW_XINLINE static DType Map(DType a) { return DType(DType(3) * a * a); }
};
MXNET_OPERATOR_REGISTER_UNARY(user_cubed)
    .set_attr<FCompute>("FCompute<cpu>", UnaryOp::Compute<cpu, cubed>)
    .set_attr<nnvm::FGradient>("FGradient", ElemwiseGradUseIn{"_backward_user_cubed"});
MXNET_OPERATOR_REGISTER_BINARY(_backward_user_cubed)
    .set_attr<FCompute>("FCompute<cpu>", ElemwiseBinaryOp::Compute<cpu, unary_bwd<cubed_grad>>);

// Rows of a softmax less one, repeated vectors, and other pieces that only have to be right.
inline void Pieces(const nnvm::NodeAttrs&, const OpContext& ctx, const std::vector<TBlob>& in,
                   const std::vector<OpReqType>& req, const std::vector<TBlob>& out) {
  using namespace mshadow;
  using namespace mshadow::expr;
  Stream<cpu>* s = ctx.get_stream<cpu>();
  Tensor<cpu, 2> x = in[0].get<cpu, 2, float>(s), y = out[0].get<cpu, 2, float>(s);
  std::vector<float> label(x.size(0), 1);
  Softmax(y, x);
  SoftmaxGrad(y, y, Tensor<cpu, 1>(label.data(), Shape1(x.size(0))));

  std::vector<float> sums(x.size(1));
  Tensor<cpu, 1> sum(sums.data(), Shape1(x.size(1)), s);
  sum = sum_rows(F<mshadow_op::abs>(-x));
  y += repmat(sum, x.size(0));
  y -= F<mshadow_op::maximum>(reshape(x.FlatTo1D(), x.shape_), scalar(0.0f));
  CHECK_NOTNULL(y.dptr_);
  float* same = CHECK_NOTNULL(y.dptr_);
  DCHECK_EQ(same, y.dptr_);
  LOG_IF(INFO, x.size(0) == 1) << "one row";
  LOG_IF(INFO, x.size(0) == 1) << "of pieces";
  if (req[0] == kNullOp) Fill<false>(s, out[0], req[0], 7);
  for (openmp_index_t i = 0; i < x.size(0); ++i) y[i][0] += Shape5(1, 1, 1, 1, 2).Size();
}
NNVM_REGISTER_OP(user_pieces)
    .set_attr<nnvm::FInferShape>("FInferShape", ElemwiseShape<1, 1>)
    .set_attr<FCompute>("FCompute<cpu>", Pieces);

}  // namespace op
}  // namespace mxnet

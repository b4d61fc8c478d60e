// Operators by MXNet's names: parameter structs, attributes of operators, gradients of both kinds,
// auxiliary states, resources, and a class of OperatorProperty.
#include <dmlc/parameter.h>
#include <mxnet/operator.h>

namespace mxnet {
namespace op {

// y = a x^2 + b x + c
struct PolyParam : public dmlc::Parameter<PolyParam> {
  float a, b, c;
  int mode;
  dmlc::optional<int> axis;
  nnvm::TShape sizes;
  DMLC_DECLARE_PARAMETER(PolyParam) {
    DMLC_DECLARE_FIELD(a).set_default(0.0).describe("Coefficient of the square.");
    DMLC_DECLARE_FIELD(b).set_default(1.0).set_range(-10, 10).describe("Coefficient of x.");
    DMLC_DECLARE_FIELD(c).set_default(0.0).describe("Constant.");
    DMLC_DECLARE_FIELD(mode).add_enum("plain", 0).add_enum("negated", 1).set_default(0).describe(
        "The sign.");
    DMLC_DECLARE_FIELD(axis).set_default(dmlc::optional<int>()).describe("Not used.");
    DMLC_DECLARE_FIELD(sizes).set_default(nnvm::TShape()).describe("Not used.");
  }
};
DMLC_REGISTER_PARAMETER(PolyParam);

inline bool PolyShape(const nnvm::NodeAttrs&, std::vector<TShape>* in, std::vector<TShape>* out) {
  CHECK_EQ(in->size(), 1U);
  SHAPE_ASSIGN_CHECK(*out, 0, in->at(0));
  SHAPE_ASSIGN_CHECK(*in, 0, out->at(0));
  return out->at(0).ndim() != 0U && out->at(0).Size() != 0U;
}
inline bool PolyType(const nnvm::NodeAttrs&, std::vector<int>* in, std::vector<int>* out) {
  TYPE_ASSIGN_CHECK(*out, 0, in->at(0));
  TYPE_ASSIGN_CHECK(*in, 0, out->at(0));
  return out->at(0) != -1;
}

template <int req>
struct poly_forward {
  template <typename DType>
  MSHADOW_XINLINE static void Map(int i, DType* y, const DType* x, float a, float b, float c) {
    KERNEL_ASSIGN(y[i], req, x[i] * (a * x[i] + b) + c);
  }
};
template <int req>
struct poly_backward {
  template <typename DType>
  MSHADOW_XINLINE static void Map(int i, DType* dx, const DType* dy, const DType* x, float a,
                                  float b) {
    KERNEL_ASSIGN(dx[i], req, dy[i] * (2 * a * x[i] + b));
  }
};

template <typename xpu>
void PolyForward(const nnvm::NodeAttrs& attrs, const OpContext& ctx,
                 const std::vector<TBlob>& inputs, const std::vector<OpReqType>& req,
                 const std::vector<TBlob>& outputs) {
  mshadow::Stream<xpu>* s = ctx.get_stream<xpu>();
  const PolyParam& p = nnvm::get<PolyParam>(attrs.parsed);
  float sign = p.mode == 1 ? -1 : 1;
  using namespace mxnet_op;
  MSHADOW_TYPE_SWITCH(outputs[0].type_flag_, DType, {
    MXNET_ASSIGN_REQ_SWITCH(req[0], req_type, {
      Kernel<poly_forward<req_type>, xpu>::Launch(s, outputs[0].Size(), outputs[0].dptr<DType>(),
                                                  inputs[0].dptr<DType>(), sign * p.a, sign * p.b,
                                                  sign * p.c);
    });
  });
}
template <typename xpu>
void PolyBackward(const nnvm::NodeAttrs& attrs, const OpContext& ctx,
                  const std::vector<TBlob>& inputs, const std::vector<OpReqType>& req,
                  const std::vector<TBlob>& outputs) {
  mshadow::Stream<xpu>* s = ctx.get_stream<xpu>();
  const PolyParam& p = nnvm::get<PolyParam>(attrs.parsed);
  float sign = p.mode == 1 ? -1 : 1;
  using namespace mxnet_op;
  MSHADOW_TYPE_SWITCH(outputs[0].type_flag_, DType, {
    MXNET_ASSIGN_REQ_SWITCH(req[0], req_type, {
      Kernel<poly_backward<req_type>, xpu>::Launch(
          s, outputs[0].Size(), outputs[0].dptr<DType>(), inputs[0].dptr<DType>(),
          inputs[1].dptr<DType>(), sign * p.a, sign * p.b);
    });
  });
}

NNVM_REGISTER_OP(mx_poly)
    .describe(R"code(The polynomial y = a x^2 + b x + c.)code" ADD_FILELINE)
    .add_alias("mx_polynomial")
    .set_attr_parser(ParamParser<PolyParam>)
    .set_num_inputs(1)
    .set_num_outputs(1)
    .set_attr<nnvm::FListInputNames>(
        "FListInputNames", [](const NodeAttrs&) { return std::vector<std::string>{"data"}; })
    .set_attr<nnvm::FInferShape>("FInferShape", PolyShape)
    .set_attr<nnvm::FInferType>("FInferType", PolyType)
    .set_attr<FCompute>("FCompute<cpu>", PolyForward<cpu>)
    .set_attr<bool>("TAccumulates", true)
    .set_attr<nnvm::FGradient>("FGradient", ElemwiseGradUseIn{"_backward_mx_poly"})
    .set_attr<nnvm::FInplaceOption>("FInplaceOption",
                                    [](const NodeAttrs&) {
                                      return std::vector<std::pair<int, int>>{{0, 0}};
                                    })
    .add_argument("data", "NDArray-or-Symbol", "Input ndarray")
    .add_arguments(PolyParam::__FIELDS__());
NNVM_REGISTER_OP(_backward_mx_poly)
    .set_attr_parser(ParamParser<PolyParam>)
    .set_num_inputs(2)
    .set_num_outputs(1)
    .set_attr<nnvm::TIsBackward>("TIsBackward", true)
    .set_attr<bool>("TAccumulates", true)
    .set_attr<FCompute>("FCompute<cpu>", PolyBackward<cpu>);

// y = x, with a gradient of nodes (3 dy), a state that counts calls, and random numbers added.
void NoisyForward(const nnvm::NodeAttrs&, const OpContext& ctx, const std::vector<TBlob>& in,
                  const std::vector<OpReqType>&, const std::vector<TBlob>& out) {
  mshadow::Stream<cpu>* s = ctx.get_stream<cpu>();
  index_t n = static_cast<index_t>(in[0].Size());
  auto noise = ctx.requested[1].get_space<cpu>(mshadow::Shape1(n), s);
  ctx.requested[0].get_random<cpu, float>(s)->SampleUniform(&noise, 0, 1);
  for (index_t i = 0; i < n; ++i) out[0].dptr<float>()[i] = in[0].dptr<float>()[i] + noise[i];
  in[1].dptr<float>()[0] += 1;
}
NNVM_REGISTER_OP(mx_noisy)
    .set_num_inputs(2)
    .set_num_outputs(1)
    .set_attr<nnvm::FListInputNames>("FListInputNames",
                                     [](const NodeAttrs&) {
                                       return std::vector<std::string>{"data", "calls"};
                                     })
    .set_attr<nnvm::FMutateInputs>("FMutateInputs",
                                   [](const NodeAttrs&) { return std::vector<uint32_t>{1}; })
    .set_attr<nnvm::FInferShape>("FInferShape",
                                 [](const NodeAttrs&, std::vector<TShape>* in,
                                    std::vector<TShape>* out) {
                                   SHAPE_ASSIGN_CHECK(*out, 0, in->at(0));
                                   SHAPE_ASSIGN_CHECK(*in, 1, TShape(1, 1));
                                   return shape_is_known(out->at(0));
                                 })
    .set_attr<FResourceRequest>("FResourceRequest",
                                [](const NodeAttrs&) {
                                  return std::vector<ResourceRequest>{
                                      ResourceRequest::kRandom, ResourceRequest::kTempSpace};
                                })
    .set_attr<FCompute>("FCompute<cpu>", NoisyForward)
    .set_attr<nnvm::FGradient>(
        "FGradient", [](const nnvm::NodePtr& n, const std::vector<nnvm::NodeEntry>& ograds) {
          std::vector<nnvm::NodeEntry> dy = {ograds[0]}, calls = {n->inputs[1]};
          std::unordered_map<std::string, std::string> three = {{"scalar", "3.0"}};
          return std::vector<nnvm::NodeEntry>{
              {MakeNode("_mul_scalar", n->attrs.name + "_grad", &dy, &three), 0, 0},
              {MakeNode("zeros_like", "", &calls, nullptr), 0, 0}};
        });

// A dense layer as a class.
struct DenseParam : public dmlc::Parameter<DenseParam> {
  int num_hidden;
  bool no_bias;
  DMLC_DECLARE_PARAMETER(DenseParam) {
    DMLC_DECLARE_FIELD(num_hidden).set_lower_bound(1).describe("Number of outputs.");
    DMLC_DECLARE_FIELD(no_bias).set_default(false).describe("Is there no bias?");
  }
};
class DenseOp : public Operator {
 public:
  explicit DenseOp(DenseParam param) : param_(param) {}
  void Forward(const OpContext&, const std::vector<TBlob>& in, const std::vector<OpReqType>& req,
               const std::vector<TBlob>& out, const std::vector<TBlob>& aux) override {
    CHECK_EQ(in.size(), param_.no_bias ? 2U : 3U);
    CHECK_EQ(aux.size(), 1U);
    auto x = in[0].FlatTo2D<cpu, float>(), y = out[0].FlatTo2D<cpu, float>();
    auto w = in[1].get<cpu, 2, float>();
    for (index_t i = 0; i < x.size(0); ++i) {
      for (index_t j = 0; j < w.size(0); ++j) {
        float sum = param_.no_bias ? 0 : in[2].dptr<float>()[j];
        for (index_t k = 0; k < x.size(1); ++k) sum += x[i][k] * w[j][k];
        KERNEL_ASSIGN(y[i][j], req[0], sum);
      }
    }
    aux[0].dptr<float>()[0] += 1;
  }
  void Backward(const OpContext&, const std::vector<TBlob>& out_grad,
                const std::vector<TBlob>& in, const std::vector<TBlob>& out,
                const std::vector<OpReqType>& req, const std::vector<TBlob>& in_grad,
                const std::vector<TBlob>&) override {
    CHECK(out[0].dptr_ == nullptr) << "the output was not declared";
    auto g = out_grad[0].FlatTo2D<cpu, float>(), x = in[0].FlatTo2D<cpu, float>();
    auto w = in[1].get<cpu, 2, float>();
    auto dx = in_grad[0].FlatTo2D<cpu, float>(), dw = in_grad[1].FlatTo2D<cpu, float>();
    for (index_t k = 0; k < x.size(1); ++k) {
      for (index_t i = 0; i < x.size(0); ++i) {
        float sum = 0;
        for (index_t j = 0; j < w.size(0); ++j) sum += g[i][j] * w[j][k];
        KERNEL_ASSIGN(dx[i][k], req[0], sum);
      }
      for (index_t j = 0; j < w.size(0); ++j) {
        float sum = 0;
        for (index_t i = 0; i < x.size(0); ++i) sum += g[i][j] * x[i][k];
        KERNEL_ASSIGN(dw[j][k], req[1], sum);
      }
    }
    for (index_t j = 0; j < w.size(0) && !param_.no_bias; ++j) {
      float sum = 0;
      for (index_t i = 0; i < x.size(0); ++i) sum += g[i][j];
      KERNEL_ASSIGN(in_grad[2].dptr<float>()[j], req[2], sum);
    }
  }

 private:
  DenseParam param_;
};
class DenseProp : public OperatorProperty {
 public:
  void Init(const std::vector<std::pair<std::string, std::string>>& kwargs) override {
    param_.Init(kwargs);
  }
  std::map<std::string, std::string> GetParams() const override { return param_.__DICT__(); }
  std::vector<std::string> ListArguments() const override {
    if (param_.no_bias) return {"data", "weight"};
    return {"data", "weight", "bias"};
  }
  std::vector<std::string> ListAuxiliaryStates() const override { return {"calls"}; }
  bool InferShape(std::vector<TShape>* in, std::vector<TShape>* out,
                  std::vector<TShape>* aux) const override {
    const TShape data = in->at(0);
    if (data.ndim() == 0) return false;
    SHAPE_ASSIGN_CHECK(*in, 1, mshadow::Shape2(param_.num_hidden, data.ProdShape(1, data.ndim())));
    if (!param_.no_bias) SHAPE_ASSIGN_CHECK(*in, 2, mshadow::Shape1(param_.num_hidden));
    out->assign(1, mshadow::Shape2(data[0], param_.num_hidden));
    aux->assign(1, mshadow::Shape1(1));
    return true;
  }
  std::string TypeString() const override { return "MxDense"; }
  std::vector<int> DeclareBackwardDependency(const std::vector<int>& out_grad,
                                             const std::vector<int>& in_data,
                                             const std::vector<int>&) const override {
    return {out_grad[0], in_data[0], in_data[1]};
  }
  std::vector<std::pair<int, void*>> BackwardInplaceOption(
      const std::vector<int>&, const std::vector<int>& in_data, const std::vector<int>&,
      const std::vector<void*>& in_grad) const override {
    (void)in_data;
    (void)in_grad;
    return {};
  }
  Operator* CreateOperator(Context) const override { return new DenseOp(param_); }

 private:
  DenseParam param_;
};
MXNET_REGISTER_OP_PROPERTY(MxDense, DenseProp)
    .describe("A dense layer.")
    .add_argument("data", "NDArray-or-Symbol", "Input.")
    .add_argument("weight", "NDArray-or-Symbol", "Weights.")
    .add_argument("bias", "NDArray-or-Symbol", "Bias.")
    .add_arguments(DenseParam::__FIELDS__());

}  // namespace op
}  // namespace mxnet

// y = by x, as operators are registered with NNVM, and as a class of the older interface.
#include <rsnet/mxnet.h>

namespace mxnet {
namespace op {
struct ScaleParam : public dmlc::Parameter<ScaleParam> {
  float by;
  DMLC_DECLARE_PARAMETER(ScaleParam) { DMLC_DECLARE_FIELD(by); }
};
DMLC_REGISTER_PARAMETER(ScaleParam);

void Scale(const nnvm::NodeAttrs& attrs, const OpContext&, const std::vector<TBlob>& in,
           const std::vector<OpReqType>&, const std::vector<TBlob>& out) {
  const float by = nnvm::get<ScaleParam>(attrs.parsed).by;
  const float* x = in[0].dptr<float>();
  float* y = out[0].dptr<float>();
  for (size_t i = 0; i < in[0].Size(); ++i) y[i] = by * x[i];
}

NNVM_REGISTER_OP(nnvm_scale)
    .set_attr_parser(ParamParser<ScaleParam>)
    .set_num_inputs(1)
    .set_num_outputs(1)
    .set_attr<mxnet::FInferShape>("FInferShape", ElemwiseShape<1, 1>)
    .set_attr<nnvm::FInferType>("FInferType", ElemwiseType<1, 1>)
    .set_attr<FCompute>("FCompute<cpu>", Scale)
    .add_argument("x", "NDArray-or-Symbol", "")
    .add_arguments(ScaleParam::__FIELDS__());

class ScaleOp : public Operator {
 public:
  explicit ScaleOp(float by) : by_(by) {}
  void Forward(const OpContext&, const std::vector<TBlob>& in, const std::vector<OpReqType>&,
               const std::vector<TBlob>& out, const std::vector<TBlob>&) override {
    const float* x = in[0].dptr<float>();
    float* y = out[0].dptr<float>();
    for (size_t i = 0; i < in[0].Size(); ++i) y[i] = by_ * x[i];
  }

 private:
  float by_;
};

class ScaleProp : public OperatorProperty {
 public:
  void Init(const std::vector<std::pair<std::string, std::string>>& kwargs) override {
    param_.Init(kwargs);
  }
  std::map<std::string, std::string> GetParams() const override { return param_.__DICT__(); }
  std::string TypeString() const override { return "property_scale"; }
  OperatorProperty* Copy() const override { return new ScaleProp(*this); }
  bool InferShape(mxnet::ShapeVector* in, mxnet::ShapeVector* out,
                  mxnet::ShapeVector*) const override {
    out->assign(1, in->at(0));
    return true;
  }
  Operator* CreateOperator(Context) const override { return new ScaleOp(param_.by); }

 private:
  ScaleParam param_;
};

MXNET_REGISTER_OP_PROPERTY(property_scale, ScaleProp)
    .add_argument("data", "NDArray-or-Symbol", "")
    .add_arguments(ScaleParam::__FIELDS__());
}  // namespace op
}  // namespace mxnet

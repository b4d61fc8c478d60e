// y = by x, as a class of MXNet's older interface.
#include <rsnet/mxnet.h>

namespace mxnet {
namespace op {
struct ScaleParam : public dmlc::Parameter<ScaleParam> {
  float by;
  DMLC_DECLARE_PARAMETER(ScaleParam) { DMLC_DECLARE_FIELD(by); }
};
DMLC_REGISTER_PARAMETER(ScaleParam);

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

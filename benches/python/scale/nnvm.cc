// y = by x, as operators are registered with NNVM.
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
}  // namespace op
}  // namespace mxnet

// Names that sources of MXNet 1.9 use beside those of the tutorials.
#include <mxnet/operator.h>

namespace mxnet {
namespace op {

struct NamesParam : public dmlc::Parameter<NamesParam> {
  int a, b;
  DMLC_DECLARE_PARAMETER(NamesParam) {
    DMLC_DECLARE_FIELD(a).set_default(1);
    DMLC_DECLARE_FIELD(b).set_default(2);
  }
};
DMLC_REGISTER_PARAMETER(NamesParam);

// y = x + s + a + 10 b + number of unknown parameters, from parameters that are updated.
void NamesForward(const nnvm::NodeAttrs& attrs, const OpContext& ctx,
                  const std::vector<TBlob>& in, const std::vector<OpReqType>&,
                  const std::vector<TBlob>& out) {
  using namespace mxnet_op;
  NamesParam param;
  std::map<std::string, std::string> given = {{"a", "5"}, {"other", "1"}};
  size_t unknown = param.InitAllowUnknown(given).size();
  given = {{"b", std::to_string(nnvm::get<NamesParam>(attrs.parsed).b)}};
  unknown += param.UpdateAllowUnknown(given).size();
  const size_t n = out[0].Size();
  float* y = out[0].dptr<float>();
  Kernel<set_zero, cpu>::Launch(ctx.get_stream<cpu>(), n, y);
  for (size_t i = 0; i < n; ++i) {
    y[i] += in[0].dptr<float>()[i] + in[1].dptr<float>()[i] + param.a + 10 * param.b + unknown;
  }
}

bool NamesShape(const nnvm::NodeAttrs&, std::vector<TShape>* in, std::vector<TShape>* out) {
  if (!mxnet::ndim_is_known(in->at(0)) || !mxnet::dim_size_is_known(in->at(0), 0)) return false;
  std::vector<int> dims(in->at(0).begin(), in->at(0).end());
  TShape shape;
  shape.assign(dims.begin(), dims.end());
  SHAPE_ASSIGN_CHECK(*out, 0, shape);
  SHAPE_ASSIGN_CHECK(*in, 1, shape);
  return true;
}

NNVM_REGISTER_OP(mx_names)
    .set_attr_parser(ParamParser<NamesParam>)
    .set_num_inputs(2)
    .set_attr<nnvm::FListInputNames>(
        "FListInputNames",
        [](const NodeAttrs&) { return std::vector<std::string>{"data", "sum"}; })
    .set_attr<mxnet::FInferShape>("FInferShape", NamesShape)
    .set_attr<FInferStorageType>(
        "FInferStorageType",
        [](const NodeAttrs&, int, DispatchMode*, std::vector<int>*, std::vector<int>*) {
          return true;
        })
    .set_attr<FExecType>("FExecType", [](const NodeAttrs&) { return ExecType::kSync; })
    .set_attr<nnvm::FSetInputVarAttrOnCompose>(
        "FSetInputVarAttrOnCompose", [](const NodeAttrs&, nnvm::ObjectPtr, const int) {})
    .set_attr<THasDeterministicOutput>("THasDeterministicOutput", true)
    .set_attr<FResourceRequest>(
        "FResourceRequest",
        [](const NodeAttrs&) { return std::vector<ResourceRequest>{ResourceRequest::kTempSpace}; })
    .set_attr<nnvm::FGradient>("FGradient", CloneGradient{"_backward_mx_names"})
    .set_attr<FCompute>("FCompute<cpu>", NamesForward, 10)
    .add_arguments(NamesParam::__FIELDS__());

}  // namespace op
}  // namespace mxnet

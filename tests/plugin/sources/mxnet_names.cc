// Names that sources of MXNet 1.9 use beside those of the tutorials.
#include <mxnet/operator.h>

#include <numeric>

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

struct TuplesParam : public dmlc::Parameter<TuplesParam> {
  nnvm::Tuple<double> reals;
  nnvm::Tuple<dmlc::optional<int>> maybe;
  nnvm::Tuple<int> whole;
  float single;
  DMLC_DECLARE_PARAMETER(TuplesParam) {
    DMLC_DECLARE_FIELD(reals).set_default(nnvm::Tuple<double>{0.1, 2});
    DMLC_DECLARE_FIELD(maybe).set_default(nnvm::Tuple<dmlc::optional<int>>{dmlc::nullopt, 7});
    DMLC_DECLARE_FIELD(whole).set_default(nnvm::Tuple<int>{3});
    DMLC_DECLARE_FIELD(single).set_default(0.1f);
  }
};
DMLC_REGISTER_PARAMETER(TuplesParam);

// The sum of `reals`, `maybe` with -1 for None, the sum of `whole`, and `single`.
void TuplesForward(const nnvm::NodeAttrs& attrs, const OpContext&, const std::vector<TBlob>&,
                   const std::vector<OpReqType>&, const std::vector<TBlob>& out) {
  NodeAttrs again = attrs;
  again.op->attr_parser(&again);
  const TuplesParam& p = nnvm::get<TuplesParam>(again.parsed);
  double* y = out[0].dptr<double>();
  y[0] = std::accumulate(p.reals.begin(), p.reals.end(), 0.0);
  y[1] = p.maybe[0].value_or(-1);
  y[2] = p.maybe[1].value_or(-1);
  y[3] = std::accumulate(p.whole.begin(), p.whole.end(), 0.0);
  y[4] = p.single;
}

NNVM_REGISTER_OP(mx_tuples)
    .set_attr_parser(ParamParser<TuplesParam>)
    .set_attr<nnvm::FInferShape>("FInferShape", ElemwiseShape<1, 1>)
    .set_attr<nnvm::FInferType>("FInferType", ElemwiseType<1, 1>)
    .set_attr<FCompute>("FCompute<cpu>", TuplesForward)
    .add_arguments(TuplesParam::__FIELDS__());

// As rules were written before there were scalars: no axes, nothing known.
bool RestShape(const nnvm::NodeAttrs&, std::vector<TShape>* in, std::vector<TShape>* out) {
  const TShape& shape = in->at(0);
  if (shape.ndim() == 0) return false;
  SHAPE_ASSIGN_CHECK(*out, 0, TShape(shape.begin() + 1, shape.end()));
  return true;
}

NNVM_REGISTER_OP(mx_first)
    .set_attr<nnvm::FInferShape>("FInferShape", RestShape)
    .set_attr<FCompute>("FCompute<cpu>", [](const nnvm::NodeAttrs&, const OpContext&,
                                            const std::vector<TBlob>& in,
                                            const std::vector<OpReqType>&,
                                            const std::vector<TBlob>& out) {
      std::copy_n(in[0].dptr<float>(), out[0].Size(), out[0].dptr<float>());
    });

}  // namespace op
}  // namespace mxnet

// Expressions over tensors of every dtype, slices and copies; a text by another name.
#include <rsnet/mxnet.h>

namespace mxnet {
namespace op {

struct LabelParam : public dmlc::Parameter<LabelParam> {
  std::string label;
  uint64_t big;
  DMLC_DECLARE_PARAMETER(LabelParam) {
    DMLC_DECLARE_FIELD(label).set_default("own");
    DMLC_DECLARE_ALIAS(label, title);
    DMLC_DECLARE_FIELD(big).set_default(18446744073709551615u);
  }
};
DMLC_REGISTER_PARAMETER(LabelParam);

// The first row of y is 2 x + 1, the second the sum of x's rows.
void Forward(const nnvm::NodeAttrs&, const OpContext& ctx, const std::vector<TBlob>& in,
             const std::vector<OpReqType>& req, const std::vector<TBlob>& out) {
  using namespace mshadow;
  using namespace mshadow::expr;
  Stream<cpu>* s = ctx.get_stream<cpu>();
  MSHADOW_TYPE_SWITCH(out[0].type_flag_, DType, {
    Tensor<cpu, 2, DType> x = in[0].FlatTo2D<cpu, DType>(s);
    Tensor<cpu, 2, DType> y = out[0].FlatTo2D<cpu, DType>(s);
    Copy(y, x, s);
    y.Slice(1, 2) += x.Slice(0, 1);
    Tensor<cpu, 1, DType> first = y[0];
    Assign(first, req[0], x[0] * DType(2) + DType(1));
    first *= DType(1);
  })
}

// Says its parameters.
void Say(const nnvm::NodeAttrs& attrs, const OpContext& ctx, const std::vector<TBlob>& in,
         const std::vector<OpReqType>&, const std::vector<TBlob>& out) {
  using namespace mshadow;
  const LabelParam& param = nnvm::get<LabelParam>(attrs.parsed);
  const std::string& label = param.label;
  Stream<cpu>* s = ctx.get_stream<cpu>();
  Tensor<cpu, 2, float> x = in[0].FlatTo2D<cpu, float>(s), y = out[0].FlatTo2D<cpu, float>(s);
  if (label == "slice") y.Slice(1, 3) += x.Slice(0, 1);
  if (label == "copy") Copy(y.Slice(0, 1), x, s);
  LOG(FATAL) << "label is " << label << ", big is " << param.big;
}

NNVM_REGISTER_OP(mx_expressions)
    .set_num_inputs(1)
    .set_num_outputs(1)
#ifdef GROUP
    .include("NoSuchGroup")
#endif
    .set_attr<nnvm::FInferShape>("FInferShape", ElemwiseShape<1, 1>)
    .set_attr<nnvm::FInferType>("FInferType", ElemwiseType<1, 1>)
    .set_attr<FCompute>("FCompute<cpu>", Forward);

NNVM_REGISTER_OP(mx_labelled)
    .set_num_inputs(1)
    .set_num_outputs(1)
    .set_attr_parser(ParamParser<LabelParam>)
    .set_attr<nnvm::FInferShape>("FInferShape", ElemwiseShape<1, 1>)
    .set_attr<nnvm::FInferType>("FInferType", ElemwiseType<1, 1>)
    .set_attr<FCompute>("FCompute<cpu>", Say)
    .add_arguments(LabelParam::__FIELDS__());

}  // namespace op
}  // namespace mxnet

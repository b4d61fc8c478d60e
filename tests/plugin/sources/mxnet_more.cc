// Aliases of parameters, groups of operators, expressions over tensors, numbers of 64 bits.
#include <rsnet/mxnet.h>

namespace mxnet {
namespace op {

struct MoreParam : public dmlc::Parameter<MoreParam> {
  float slope;
  uint64_t big;
  int size;
  DMLC_DECLARE_PARAMETER(MoreParam) {
    DMLC_DECLARE_FIELD(slope).set_default(2);
    DMLC_DECLARE_ALIAS(slope, alpha);
    DMLC_DECLARE_FIELD(big).set_default(18446744073709551615u).describe("Shown in errors.");
    DMLC_DECLARE_FIELD(size);
  }
};
DMLC_REGISTER_PARAMETER(MoreParam);

struct twice {
  template <typename DType>
  MSHADOW_XINLINE static DType Map(DType a) {
    return DType(2 * a);
  }
};
struct less_of {
  template <typename DType>
  MSHADOW_XINLINE static DType Map(DType a, DType b) {
    return a < b ? a : b;
  }
};

// y = min(2 x, slope + x / 2 - 3 x x) + size, in steps; refuses a `big` that is even.
void MoreForward(const nnvm::NodeAttrs& attrs, const OpContext& ctx, const std::vector<TBlob>& in,
                 const std::vector<OpReqType>& req, const std::vector<TBlob>& out) {
  using namespace mshadow;
  using namespace mshadow::expr;
  const MoreParam& param = nnvm::get<MoreParam>(attrs.parsed);
  CHECK_EQ(param.big % 2, 1u) << "big is " << param.big;
  Stream<cpu>* s = ctx.get_stream<cpu>();
  MSHADOW_REAL_TYPE_SWITCH(out[0].type_flag_, DType, {
    Tensor<cpu, 1, DType> x = in[0].FlatTo1D<cpu, DType>(s);
    Tensor<cpu, 1, DType> y = out[0].FlatTo1D<cpu, DType>(s);
    Tensor<cpu, 1, DType> z =
        ctx.requested[0].get_space_typed<cpu, 1, DType>(Shape1(x.size(0)), s);
    z = 0;
    z += x * x;
    z *= 3;
    Assign(y, req[0], F<less_of>(F<twice>(x), scalar<DType>(param.slope) + x / 2 - z));
    y += param.size;
  })
}

NNVM_REGISTER_OP_GROUP(MoreGroup)
    .set_attr<nnvm::FInferType>("FInferType", ElemwiseType<1, 1>)
    .set_attr<nnvm::FInferShape>("FInferShape", ElemwiseShape<1, 1>);

NNVM_REGISTER_OP(mx_more)
    .set_attr_parser(ParamParser<MoreParam>)
    .include("MoreGroup")
    .set_attr<FResourceRequest>(
        "FResourceRequest",
        [](const NodeAttrs&) { return std::vector<ResourceRequest>{ResourceRequest::kTempSpace}; })
    .set_attr<FCompute>("FCompute<cpu>", MoreForward)
    .add_arguments(MoreParam::__FIELDS__());

}  // namespace op
}  // namespace mxnet

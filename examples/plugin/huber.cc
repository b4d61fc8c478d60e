// The Huber function, quadratic near 0 and linear beyond delta, and its gradient as a backward
// operator. By MXNet's names: a parameter struct, functions for shapes and dtypes, kernels that are
// written per element.
#include <rsnet/mxnet.h>

namespace mxnet {
namespace op {

struct HuberParam : public dmlc::Parameter<HuberParam> {
  float delta;
  DMLC_DECLARE_PARAMETER(HuberParam) {
    DMLC_DECLARE_FIELD(delta).set_default(1.0).set_range(1e-6, 1e6).describe(
        "Where the function becomes linear.");
  }
};
DMLC_REGISTER_PARAMETER(HuberParam);

// The output has the input's shape and dtype, whichever of the two is known.
inline bool HuberShape(const nnvm::NodeAttrs&, std::vector<TShape>* in, std::vector<TShape>* out) {
  SHAPE_ASSIGN_CHECK(*out, 0, in->at(0));
  SHAPE_ASSIGN_CHECK(*in, 0, out->at(0));
  return out->at(0).ndim() != 0U;
}
inline bool HuberType(const nnvm::NodeAttrs&, std::vector<int>* in, std::vector<int>* out) {
  TYPE_ASSIGN_CHECK(*out, 0, in->at(0));
  TYPE_ASSIGN_CHECK(*in, 0, out->at(0));
  return out->at(0) != -1;
}

template <int req>
struct huber_forward {
  template <typename DType>
  MSHADOW_XINLINE static void Map(int i, DType* y, const DType* x, const DType delta) {
    const DType size = x[i] < 0 ? -x[i] : x[i];
    KERNEL_ASSIGN(y[i], req, size < delta ? x[i] * x[i] / 2 : delta * (size - delta / 2));
  }
};
template <int req>
struct huber_backward {
  template <typename DType>
  MSHADOW_XINLINE static void Map(int i, DType* dx, const DType* dy, const DType* x,
                                  const DType delta) {
    const DType slope = x[i] < -delta ? -delta : x[i] > delta ? delta : x[i];
    KERNEL_ASSIGN(dx[i], req, dy[i] * slope);
  }
};

template <typename xpu>
void HuberForward(const nnvm::NodeAttrs& attrs, const OpContext& ctx,
                  const std::vector<TBlob>& inputs, const std::vector<OpReqType>& req,
                  const std::vector<TBlob>& outputs) {
  const HuberParam& param = nnvm::get<HuberParam>(attrs.parsed);
  MSHADOW_REAL_TYPE_SWITCH(outputs[0].type_flag_, DType, {
    MXNET_ASSIGN_REQ_SWITCH(req[0], req_type, {
      mxnet_op::Kernel<huber_forward<req_type>, xpu>::Launch(
          ctx.get_stream<xpu>(), outputs[0].Size(), outputs[0].dptr<DType>(),
          inputs[0].dptr<DType>(), static_cast<DType>(param.delta));
    });
  });
}
template <typename xpu>
void HuberBackward(const nnvm::NodeAttrs& attrs, const OpContext& ctx,
                   const std::vector<TBlob>& inputs, const std::vector<OpReqType>& req,
                   const std::vector<TBlob>& outputs) {
  const HuberParam& param = nnvm::get<HuberParam>(attrs.parsed);
  MSHADOW_REAL_TYPE_SWITCH(outputs[0].type_flag_, DType, {
    MXNET_ASSIGN_REQ_SWITCH(req[0], req_type, {
      mxnet_op::Kernel<huber_backward<req_type>, xpu>::Launch(
          ctx.get_stream<xpu>(), outputs[0].Size(), outputs[0].dptr<DType>(),
          inputs[0].dptr<DType>(), inputs[1].dptr<DType>(), static_cast<DType>(param.delta));
    });
  });
}

NNVM_REGISTER_OP(huber)
    .describe("The Huber function of every element.")
    .set_attr_parser(ParamParser<HuberParam>)
    .set_num_inputs(1)
    .set_num_outputs(1)
    .set_attr<nnvm::FListInputNames>(
        "FListInputNames",
        [](const NodeAttrs&) { return std::vector<std::string>{"data"}; })
    .set_attr<nnvm::FInferShape>("FInferShape", HuberShape)
    .set_attr<nnvm::FInferType>("FInferType", HuberType)
    .set_attr<FCompute>("FCompute<cpu>", HuberForward<cpu>)
    .set_attr<nnvm::FGradient>("FGradient", ElemwiseGradUseIn{"_backward_huber"})
    .add_argument("data", "NDArray-or-Symbol", "Any array of floating-point numbers.")
    .add_arguments(HuberParam::__FIELDS__());

NNVM_REGISTER_OP(_backward_huber)
    .set_attr_parser(ParamParser<HuberParam>)
    .set_num_inputs(2)
    .set_num_outputs(1)
    .set_attr<nnvm::TIsBackward>("TIsBackward", true)
    .set_attr<FCompute>("FCompute<cpu>", HuberBackward<cpu>);

}  // namespace op
}  // namespace mxnet

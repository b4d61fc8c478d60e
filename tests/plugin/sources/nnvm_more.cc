// Operators by NNVM's names: parsers of their own, hidden outputs in gradients, functors, and any
// number of arrays.
#include <rsnet/mxnet.h>

namespace mxnet {
namespace op {

using Arrays = std::vector<TBlob>;
using Requests = std::vector<OpReqType>;

struct NoScale : dmlc::Parameter<NoScale> {
  double scalar;
  DMLC_DECLARE_PARAMETER(NoScale) { DMLC_DECLARE_FIELD(scalar).set_default(3); }
};
#define OF_VALUE(name, value) \
  NNVM_REGISTER_OP(name).set_attr<FInferShape>("FInferShape", ElemwiseShape<1, 1>) \
      .set_attr<FCompute>("FCompute<cpu>", [](const NodeAttrs& attrs, const OpContext&, \
                                              const Arrays&, const Requests&, const Arrays& out) { \
        out[0].dptr<float>()[0] = static_cast<float>(value); \
      }) \
      .add_argument("data", "NDArray-or-Symbol", "")
OF_VALUE(no_struct, nnvm::get<NoScale>(attrs.parsed).scalar).set_attr_parser([](NodeAttrs* attrs) {
  NoScale param;
  param.Init(attrs->dict);
  attrs->parsed = std::move(param);
});
OF_VALUE(no_text, nnvm::get<double>(attrs.parsed))
    .add_argument("scalar", "float", "The value.")
    .set_attr_parser([](NodeAttrs* attrs) { attrs->parsed = std::stod(attrs->dict["scalar"]); });
OF_VALUE(no_dict, attrs.dict.count("scalar") ? std::stod(attrs.dict.at("scalar")) : 3.0)
    .add_argument("scalar", "float, optional", "The value.");

#define FORWARD(name) \
  NNVM_REGISTER_OP(name).set_num_outputs(2) \
      .set_attr<nnvm::FNumVisibleOutputs>("FNumVisibleOutputs", [](const NodeAttrs&) { return 1; }) \
      .set_attr<FInferShape>("FInferShape", ElemwiseShape<1, 2>) \
      .set_attr<FCompute>("FCompute<cpu>", [](const NodeAttrs&, const OpContext&, const Arrays& in, \
                                              const Requests&, const Arrays& out) { \
        for (size_t i = 0; i < in[0].Size(); ++i) { \
          float x = in[0].dptr<float>()[i]; \
          out[0].dptr<float>()[i] = x * x; \
          out[1].dptr<float>()[i] = 2 * x; \
        } \
      })
// The gradient that arrives times array `factor`, plus array `zeros`.
#define BACKWARD(name, n, factor, zeros) \
  NNVM_REGISTER_OP(name).set_num_inputs(n).set_attr<nnvm::TIsBackward>("TIsBackward", true) \
      .set_attr<FCompute>("FCompute<cpu>", [](const NodeAttrs&, const OpContext&, const Arrays& in, \
                                              const Requests& req, const Arrays& out) { \
        for (size_t i = 0; i < out[0].Size(); ++i) { \
          KERNEL_ASSIGN(out[0].dptr<float>()[i], req[0], \
                        in[0].dptr<float>()[i] * in[factor].dptr<float>()[i] + \
                            in[zeros].dptr<float>()[i]); \
        } \
      })
FORWARD(no_all).set_attr<nnvm::FGradient>("FGradient", ElemwiseGradUseInOut{"_backward_no_all"});
BACKWARD(_backward_no_all, 5, 4, 1);
FORWARD(no_nodes).set_attr<nnvm::FGradient>(
    "FGradient", [](const nnvm::NodePtr& n, const std::vector<nnvm::NodeEntry>& ograds) {
      std::vector<nnvm::NodeEntry> heads(ograds.begin(), ograds.end());
      for (uint32_t i = 0; i < n->num_outputs(); ++i) heads.emplace_back(n, i, 0);
      return MakeGradNode("_backward_no_nodes", n, heads, n->attrs.dict);
    });
BACKWARD(_backward_no_nodes, 4, 3, 1);
FORWARD(no_few).set_attr<nnvm::FGradient>("FGradient", ElemwiseGradUseNone{"_backward_no_few"});
BACKWARD(_backward_no_few, 3, 2, 1);

#define UNARY(function) \
  NNVM_REGISTER_OP(no_##function).set_attr<FInferShape>("FInferShape", ElemwiseShape<1, 1>) \
      .set_attr<nnvm::FInferType>("FInferType", ElemwiseType<1, 1>) \
      .set_attr<FCompute>("FCompute<cpu>", UnaryOp::Compute<cpu, mshadow_op::function>)
UNARY(relu);
UNARY(floor);
UNARY(ceil);
UNARY(round);
#define BINARY(function) \
  NNVM_REGISTER_OP(no_##function).set_num_inputs(2) \
      .set_attr<FInferShape>("FInferShape", ElemwiseShape<2, 1>) \
      .set_attr<FCompute>("FCompute<cpu>", [](const NodeAttrs&, const OpContext&, const Arrays& in, \
                                              const Requests&, const Arrays& out) { \
        out[0].dptr<float>()[0] = \
            mshadow_op::function::Map(in[0].dptr<float>()[0], in[1].dptr<float>()[0]); \
      })
BINARY(maximum);
BINARY(minimum);

struct NoMany : dmlc::Parameter<NoMany> {
  int num_args;
  DMLC_DECLARE_PARAMETER(NoMany) { DMLC_DECLARE_FIELD(num_args).set_default(1); }
};
NNVM_REGISTER_OP(no_many).set_attr_parser(ParamParser<NoMany>)
    .set_num_inputs([](const NodeAttrs& attrs) {
      return static_cast<uint32_t>(nnvm::get<NoMany>(attrs.parsed).num_args);
    })
    .set_attr<std::string>("key_var_num_args", "num_args")
    .set_attr<FInferShape>("FInferShape", ElemwiseShape<-1, 1>)
    .set_attr<FCompute>("FCompute<cpu>", [](const NodeAttrs&, const OpContext&, const Arrays&,
                                            const Requests&, const Arrays&) {});

// 1000 times the number of axes, 100 times the last axis, and the sizes of types.
NNVM_REGISTER_OP(no_switches)
    .set_attr<FInferShape>("FInferShape", ElemwiseShape<1, 1>)
    .set_attr<FCompute>("FCompute<cpu>", [](const NodeAttrs&, const OpContext& ctx,
                                            const Arrays& in, const Requests&, const Arrays& out) {
      int axes = in[0].shape_.ndim();
      float value = static_cast<float>(100 * CheckAxis(-1, axes));
      MXNET_NDIM_SWITCH(axes, ndim, { value += 1000 * std::integral_constant<int, ndim>::value; });
      MSHADOW_IDX_TYPE_SWITCH(mshadow::kInt64, IType, { value += sizeof(IType); });
      MXNET_NO_FLOAT16_TYPE_SWITCH(mshadow::kUint8, DType, { value += sizeof(DType); });
      MSHADOW_REAL_TYPE_SWITCH_EX(mshadow::kFloat16, DType, Large, {
        value += sizeof(DType) + sizeof(Large);
      });
      using Set = mxnet_op::Kernel<mxnet_op::set_to<kWriteTo>, cpu>;
      Set::LaunchTuned<mshadow_op::identity, float>(ctx.get_stream<cpu>(), out[0].Size(),
                                                    out[0].dptr<float>(), value);
    });

struct NoSingle : dmlc::Parameter<NoSingle> {
  float eps, low;
  DMLC_DECLARE_PARAMETER(NoSingle) {
    DMLC_DECLARE_FIELD(eps).set_default(1e-3f).set_lower_bound(1e-3f);
    DMLC_DECLARE_FIELD(low).set_default(0.5f).set_range(0.1f, 0.9f);
  }
};
OF_VALUE(no_single, nnvm::get<NoSingle>(attrs.parsed).low).set_attr_parser(ParamParser<NoSingle>);

}  // namespace op
}  // namespace mxnet

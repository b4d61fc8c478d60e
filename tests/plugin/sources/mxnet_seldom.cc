// What few operators by MXNet's names use: gradients with parameters of their own, states, ignored
// inputs, identities, tensors without a stream, messages that throw, shapes that are None.
#include <rsnet/mxnet.h>

#include <thread>

namespace mxnet {
namespace op {

using Arrays = std::vector<TBlob>;
using Requests = std::vector<OpReqType>;
using Entries = std::vector<nnvm::NodeEntry>;

#define KERNEL [](const NodeAttrs & attrs, const OpContext& ctx, const Arrays& in, \
                  const Requests&, const Arrays& out)
#define USED (void)attrs, (void)ctx, (void)in, (void)out
float& Element(const TBlob& blob, size_t i = 0) { return blob.dptr<float>()[i]; }

#define OPERATOR(name, n_in, n_out)                                                     \
  NNVM_REGISTER_OP(name).set_num_inputs(n_in).set_num_outputs(n_out)                    \
      .set_attr<FInferShape>("FInferShape", ElemwiseShape<n_in, n_out>)                 \
      .set_attr<nnvm::FInferType>("FInferType", ElemwiseType<n_in, n_out>)
#define BACKWARD(name, n_in) \
  NNVM_REGISTER_OP(name).set_num_inputs(n_in).set_attr<nnvm::TIsBackward>("TIsBackward", true)

// ---- Parameters of a backward node -------------------------------------------------------------

struct MsScale : dmlc::Parameter<MsScale> {
  float scale;
  DMLC_DECLARE_PARAMETER(MsScale) { DMLC_DECLARE_FIELD(scale).set_default(1.0f); }
};
const auto Scale = KERNEL {
  USED;
  float scale = dmlc::get<MsScale>(attrs.parsed).scale;
  for (size_t i = 0; i < in[0].Size(); ++i) Element(out[0], i) = scale * Element(in[0], i);
};
#define SCALED(name, dict)                                                              \
  OPERATOR(name, 1, 1).set_attr_parser(ParamParser<MsScale>)                            \
      .set_attr<FCompute>("FCompute<cpu>", Scale)                                       \
      .set_attr<nnvm::FGradient>("FGradient",                                           \
                                 [](const nnvm::NodePtr& n, const Entries& ograds) {    \
                                   std::unordered_map<std::string, std::string> all dict; \
                                   return MakeGradNode("_backward_ms_scaled", n, ograds, all); \
                                 })                                                     \
      .add_arguments(MsScale::__FIELDS__())
SCALED(ms_seven, ({{"scale", "7"}}));
SCALED(ms_none, ;);
SCALED(ms_same, (n->attrs.dict));
SCALED(ms_unknown, ({{"sacle", "7"}}));
BACKWARD(_backward_ms_scaled, 1).set_attr_parser(ParamParser<MsScale>)
    .set_attr<FCompute>("FCompute<cpu>", Scale);

// ---- Standard gradients in functions -----------------------------------------------------------

const auto Copies = KERNEL {
  USED;
  for (size_t k = 0; k < out.size(); ++k) Element(out[k]) = static_cast<float>(k + 2) * Element(in[0]);
};
// The digits of the number are the arrays.
const auto Digits = KERNEL {
  USED;
  float sum = 0, unit = 1;
  for (const TBlob& blob : in) sum += unit * Element(blob), unit *= 10;
  Element(out[0]) = sum;
};
#define TWO(name, Standard)                                                             \
  OPERATOR(name, 1, 2).set_attr<FCompute>("FCompute<cpu>", Copies)                      \
      .set_attr<nnvm::FGradient>("FGradient", [](const nnvm::NodePtr& n, const Entries& ograds) { \
        return Standard{"_backward_" #name}(n, ograds);                                 \
      });                                                                               \
  BACKWARD(_backward_##name, (std::is_same_v<Standard, ElemwiseGradUseOut> ? 4 : 3))    \
      .set_attr<FCompute>("FCompute<cpu>", Digits)
TWO(ms_two_in, ElemwiseGradUseIn);
TWO(ms_two_out, ElemwiseGradUseOut);
struct MsNonloss {
  const char* op_name;
  Entries operator()(const nnvm::NodePtr& n, const Entries& ograds) const {
    return MakeNonlossGradNode(op_name, n, ograds, n->inputs, n->attrs.dict);
  }
};
TWO(ms_two_nonloss, MsNonloss);

// A rule that fails, of which rsnet knows the reason.
OPERATOR(ms_why, 1, 1).set_attr<FCompute>("FCompute<cpu>", Copies)
    .set_attr<nnvm::FGradient>("FGradient", [](const nnvm::NodePtr& n, const Entries&) {
      Entries in{nnvm::NodeEntry{n, 3, 0}};
      return Entries{nnvm::NodeEntry{MakeNode("negative", "", &in, nullptr, &n), 0, 0}};
    });

// ---- States ------------------------------------------------------------------------------------

struct MsRuns {
  size_t arrays;
  int type, runs = 0;
};
OPERATOR(ms_state, 1, 1)
    .set_attr<FCreateOpState>("FCreateOpState",
                              [](const NodeAttrs&, Context, const ShapeVector& shapes,
                                 const std::vector<int>& types) {
                                return OpStatePtr::Create<MsRuns>(MsRuns{shapes.size(), types[0]});
                              })
    .set_attr<FStatefulCompute>("FStatefulCompute<cpu>",
                                [](const OpStatePtr& state, const OpContext&, const Arrays& in,
                                   const Requests&, const Arrays& out) {
                                  MsRuns& own = state.get_state<MsRuns>();
                                  ++own.runs;
                                  Element(out[0]) = Element(in[0]) * own.runs + 100 * own.arrays +
                                                    1000 * (own.type == mshadow::kFloat32);
                                })
    .set_attr<nnvm::FGradient>("FGradient", ElemwiseGradUseNone{"_backward_ms_state"});
BACKWARD(_backward_ms_state, 1).set_attr<FStatefulCompute>(
    "FStatefulCompute<cpu>", [](const OpStatePtr& state, const OpContext&, const Arrays& in,
                                const Requests&, const Arrays& out) {
      Element(out[0]) = Element(in[0]) * state.get_state<MsRuns>().runs;
    });

// ---- Hints -------------------------------------------------------------------------------------

OPERATOR(ms_like, 2, 1).set_attr<FCompute>("FCompute<cpu>", UnaryOp::IdentityCompute<cpu>)
    .set_attr<nnvm::FIgnoreInputs>("FIgnoreInputs",
                                   [](const NodeAttrs&) { return std::vector<uint32_t>{1}; });
#define SHARING(name, identity)                                                         \
  OPERATOR(name, 1, 1).set_attr<FCompute>("FCompute<cpu>", UnaryOp::IdentityCompute<cpu>) \
      .set_attr<nnvm::FInplaceOption>(                                                  \
          "FInplaceOption",                                                             \
          [](const NodeAttrs&) { return std::vector<std::pair<int, int>>{{0, 0}}; })    \
      .set_attr<nnvm::FInplaceIdentity>(                                                \
          "FInplaceIdentity", [](const NodeAttrs&) { return std::vector<bool>{identity}; })
SHARING(ms_identity, true);
SHARING(ms_copy, false);

// ---- Streams, messages, resources --------------------------------------------------------------

struct MsDouble {
  static void Map(index_t i, float* out, const float* in) { out[i] = 2 * in[i]; }
};
OPERATOR(ms_no_stream, 1, 1).set_attr<FCompute>("FCompute<cpu>", KERNEL {
  USED;
  mshadow::Tensor<cpu, 1, float> to = out[0].FlatTo1D<cpu, float>();
  mxnet_op::Kernel<MsDouble, cpu>::Launch(to.stream_, to.MSize(), to.dptr_, in[0].dptr<float>());
});
OPERATOR(ms_stream, 1, 1).set_attr<FCompute>("FCompute<cpu>", KERNEL {
  USED;
  mxnet_op::Kernel<MsDouble, cpu>::Launch(ctx.run_ctx.get_stream<cpu>(), out[0].Size(),
                                          out[0].dptr<float>(), in[0].dptr<float>());
});
OPERATOR(ms_throws, 1, 1).set_attr<FCompute>("FCompute<cpu>", KERNEL {
  USED;
  std::vector<int> none;
  CHECK_EQ(in.size(), 2U) << "the second has " << none.at(1);
});
OPERATOR(ms_fatal, 1, 1).set_attr<FCompute>("FCompute<cpu>", KERNEL {
  USED;
  std::vector<int> none;
  if (Element(in[0]) == 1) LOG(FATAL) << "one";
  else LOG(FATAL) << none.at(1);
});
OPERATOR(ms_no_resource, 1, 1).set_attr<FCompute>("FCompute<cpu>", KERNEL {
  USED;
  ctx.requested[0].get_space_typed<cpu, 1, float>(mshadow::Shape1(1));
});
// 1 for every comparison that should fail and does not, or the other way round.
OPERATOR(ms_checks, 1, 1).set_attr<FCompute>("FCompute<cpu>", KERNEL {
  USED;
  CHECK_LE(2, 2) << "equal";
  CHECK_GE(2, 2) << "equal";
  CHECK_LE(1, 2);
  CHECK_GE(2, 1);
  auto fails = [](auto check) {
    try {
      check();
    } catch (const std::exception&) {
      return true;
    }
    return false;
  };
  Element(out[0]) = !fails([] { CHECK_LE(3, 2); }) + !fails([] { CHECK_GE(2, 3); }) +
                    !fails([] { CHECK_LT(2, 2); }) + !fails([] { CHECK_GT(2, 2); });
});
// Done by a thread of its own, after the kernel has returned.
void Later(const OpContext& ctx, float* y) {
  std::thread([done = ctx.async_on_complete, y] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    *y = 5;
    done();
  }).detach();
}
OPERATOR(ms_async, 1, 1)
    .set_attr<FExecType>("FExecType", [](const NodeAttrs&) { return kAsync; })
    .set_attr<FCreateOpState>("FCreateOpState",
                              [](const NodeAttrs&, Context, const ShapeVector&,
                                 const std::vector<int>&) { return OpStatePtr::Create<int>(0); })
    .set_attr<FStatefulCompute>("FStatefulCompute<cpu>",
                                [](const OpStatePtr&, const OpContext& ctx, const Arrays&,
                                   const Requests&,
                                   const Arrays& out) { Later(ctx, out[0].dptr<float>()); });
// Of operators whose output has the shape of their input, without parameters.
class MsPlainProp : public OperatorProperty {
 public:
  void Init(const dmlc::Kwargs&) override {}
  std::map<std::string, std::string> GetParams() const override { return {}; }
  bool InferShape(ShapeVector* in, ShapeVector* out, ShapeVector*) const override {
    out->assign(1, (*in)[0]);
    return shape_is_known((*in)[0]);
  }
};
class MsLaterOp : public Operator {
 public:
  void Forward(const OpContext& ctx, const Arrays&, const Requests&, const Arrays& out,
               const Arrays&) override {
    Later(ctx, out[0].dptr<float>());
  }
  ExecType exec_type() const override { return kAsync; }
};
class MsLaterProp : public MsPlainProp {
 public:
  std::string TypeString() const override { return "ms_later"; }
  ExecType exec_type() const override { return kAsync; }
  Operator* CreateOperator(Context) const override { return new MsLaterOp; }
};
MXNET_REGISTER_OP_PROPERTY(ms_later, MsLaterProp).add_argument("data", "NDArray-or-Symbol", "");
// Half precision of numbers between two of it.
NNVM_REGISTER_OP(ms_half)
    .set_attr<FInferShape>("FInferShape", ElemwiseShape<1, 1>)
    .set_attr<nnvm::FInferType>("FInferType",
                                [](const NodeAttrs&, std::vector<int>* in, std::vector<int>* out) {
                                  TYPE_ASSIGN_CHECK(*in, 0, mshadow::kFloat32);
                                  TYPE_ASSIGN_CHECK(*out, 0, mshadow::kFloat16);
                                  return true;
                                })
    .set_attr<FCompute>("FCompute<cpu>", KERNEL {
      USED;
      for (size_t i = 0; i < in[0].Size(); ++i) {
        out[0].dptr<mshadow::half::half_t>()[i] = mshadow::half::half_t(Element(in[0], i));
      }
    });
#ifdef NULL_COMPUTE
OPERATOR(ms_null, 1, 1).set_attr<FCompute>("FCompute<cpu>", FCompute());
#endif

// ---- Shapes that are None ----------------------------------------------------------------------

struct MsShape : dmlc::Parameter<MsShape> {
  TShape shape, known;
  DMLC_DECLARE_PARAMETER(MsShape) {
    DMLC_DECLARE_FIELD(shape).set_default(TShape()).describe("By default that of the input.");
    DMLC_DECLARE_FIELD(known).set_default(TShape(0, 0));
  }
};
NNVM_REGISTER_OP(ms_shape).set_attr_parser(ParamParser<MsShape>)
    .set_attr<FInferShape>("FInferShape",
                           [](const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
                             const MsShape& p = nnvm::get<MsShape>(attrs.parsed);
                             CHECK(p.known.ndim_is_known()) << p.known << " and " << TShape();
                             SHAPE_ASSIGN_CHECK(*out, 0, ndim_is_known(p.shape) ? p.shape : (*in)[0]);
                             return shape_is_known((*out)[0]);
                           })
    .set_attr<FCompute>("FCompute<cpu>", KERNEL {
      USED;
      for (size_t i = 0; i < out[0].Size(); ++i) Element(out[0], i) = 1;
    })
    .add_argument("data", "NDArray-or-Symbol", "")
    .add_arguments(MsShape::__FIELDS__());

// ---- A property with two auxiliary states ------------------------------------------------------

class MsAuxOp : public Operator {
 public:
  void Forward(const OpContext&, const Arrays& in, const Requests&, const Arrays& out,
               const Arrays& aux) override {
    Element(out[0]) = Element(in[0]) * Element(aux[0]) + Element(aux[1]);
  }
  void Backward(const OpContext& ctx, const Arrays& out_grad, const Arrays&, const Arrays&,
                const Requests&, const Arrays& in_grad, const Arrays& aux) override {
    auto space = ctx.requested[0].get_space<cpu>(mshadow::Shape1(1));
    space[0] = Element(aux[0]) + 10 * Element(aux[1]);
    Element(in_grad[0]) = Element(out_grad[0]) * space[0];
  }
};
class MsAuxProp : public OperatorProperty {
 public:
  void Init(const dmlc::Kwargs&) override {}
  std::map<std::string, std::string> GetParams() const override { return {}; }
  std::vector<std::string> ListAuxiliaryStates() const override { return {"a", "b"}; }
  bool InferShape(ShapeVector* in, ShapeVector* out, ShapeVector* aux) const override {
    if (!shape_is_known((*in)[0])) {
      out->assign(2, mshadow::Shape1(9));  // more than there are: a rule that fails may leave that
      return false;
    }
    out->assign(1, (*in)[0]);
    aux->assign(2, (*in)[0]);
    return true;
  }
  std::string TypeString() const override { return "ms_aux"; }
  std::vector<ResourceRequest> BackwardResource(const ShapeVector&) const override {
    return {ResourceRequest::kTempSpace};
  }
  Operator* CreateOperator(Context) const override { return new MsAuxOp; }
};
MXNET_REGISTER_OP_PROPERTY(ms_aux, MsAuxProp).add_argument("data", "NDArray-or-Symbol", "");

// ---- Properties that declare little, or wrongly ------------------------------------------------

class MsTwiceOp : public Operator {
 public:
  void Forward(const OpContext&, const Arrays& in, const Requests&, const Arrays& out,
               const Arrays&) override {
    Element(out[0]) = 2 * Element(in[0]);
  }
  void Backward(const OpContext&, const Arrays& out_grad, const Arrays&, const Arrays&,
                const Requests&, const Arrays& in_grad, const Arrays&) override {
    Element(in_grad[0]) = 2 * Element(out_grad[0]);
  }
};
// Declares an entry twice.
class MsTwiceProp : public MsPlainProp {
 public:
  std::vector<int> DeclareBackwardDependency(const std::vector<int>& out_grad,
                                             const std::vector<int>&,
                                             const std::vector<int>&) const override {
    return {out_grad[0], out_grad[0]};
  }
  std::string TypeString() const override { return "ms_twice"; }
  Operator* CreateOperator(Context) const override { return new MsTwiceOp; }
};
MXNET_REGISTER_OP_PROPERTY(ms_twice, MsTwiceProp).add_argument("data", "NDArray-or-Symbol", "");

// Has no resources for its gradient.
class MsPoorProp : public MsTwiceProp {
 public:
  std::string TypeString() const override { return "ms_poor"; }
  std::vector<ResourceRequest> BackwardResource(const ShapeVector&) const override {
    LOG(FATAL) << "no space for gradients";
    return {};
  }
};
MXNET_REGISTER_OP_PROPERTY(ms_poor, MsPoorProp).add_argument("data", "NDArray-or-Symbol", "");

// Infers, and says that it has not.
class MsUnsureProp : public MsTwiceProp {
 public:
  std::string TypeString() const override { return "ms_unsure"; }
  bool InferShape(ShapeVector* in, ShapeVector* out, ShapeVector* aux) const override {
    MsPlainProp::InferShape(in, out, aux);
    return false;
  }
};
MXNET_REGISTER_OP_PROPERTY(ms_unsure, MsUnsureProp).add_argument("data", "NDArray-or-Symbol", "");

}  // namespace op
}  // namespace mxnet

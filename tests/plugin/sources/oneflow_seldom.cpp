// What few operators by OneFlow's names use: optional outputs, inputs that are modified or of which
// only the header matters, gradients by name, and mistakes of which rsnet has to say what they are.
#include "oneflow/core/framework/framework.h"

namespace oneflow {
namespace {
using namespace user_op;

Maybe<void> Like(InferContext* ctx) {
  for (const auto& [name, i] : ctx->outputs()) *ctx->OutputShape(name, i) = ctx->InputShape("x", 0);
  return Maybe<void>::Ok();
}

float& Element(KernelComputeContext* ctx, const char* arg) {
  return ctx->Tensor4ArgNameAndIndex(arg, 0)->mut_dptr<float>()[0];
}

#define KERNEL(Name, always, ...)                                             \
  class Name final : public OpKernel {                                        \
    void Compute(KernelComputeContext* ctx) const override { __VA_ARGS__ }    \
    bool AlwaysComputeWhenAllOutputsEmpty() const override { return always; } \
  }
KERNEL(Copy, false, Element(ctx, "y") = Element(ctx, "x"););
#define OPERATOR(name, Kernel, ...)                        \
  REGISTER_USER_KERNEL(name).SetCreateFn<Kernel>();        \
  REGISTER_USER_OP(name).Input("x") __VA_ARGS__
#define LIKE .Output("y").SetTensorDescInferFn(Like)

// ---- Messages that cannot be made --------------------------------------------------------------

OPERATOR("os_check", Copy, .Output("y"))
    .SetTensorDescInferFn([](InferContext* ctx) -> Maybe<void> {
      CHECK_EQ(ctx->InputDType("x", 0), kFloat) << "x has the shape " << ctx->InputShape("x", 0);
      return Like(ctx);
    });

// ---- Arguments by name -------------------------------------------------------------------------

// x - 100 a. The attribute must be given, and a must be there, so that no least call is allowed.
KERNEL(Subtract, false, Element(ctx, "y") = Element(ctx, "x") - 100 * Element(ctx, "a"););
REGISTER_USER_OP("os_subtract")
    .OptionalInput("a")
    .InputWithMinimum("x", 1)
    .Attr("must", UserOpAttrType::kAtInt32)
    .SetCheckAttrFn([](const UserOpDefWrapper&, const UserOpConfWrapper& conf) -> Maybe<void> {
      CHECK_OR_RETURN(conf.has_input("a", 0)) << "a is needed";
      return Maybe<void>::Ok();
    }) LIKE;
REGISTER_USER_KERNEL("os_subtract").SetCreateFn<Subtract>();
OPERATOR("os_named", Copy, LIKE);
REGISTER_USER_OP_GRAD("os_named").SetBackwardOpConfGenFn([](BackwardOpConfContext* ctx) {
  ctx->DefineOp("g", [ctx](BackwardOpBuilder& b) {
    return b.OpTypeName("os_subtract")
        .InputBind("x", ctx->FwOp().output_grad("y", 0))
        .InputBind("a", ctx->FwOp().input("x", 0))
        .Attr<int32_t>("must", 1)
        .Output("y")
        .Build();
  });
  ctx->FwOp().InputGradBind(OpArg("x", 0), [ctx]() -> const std::string& {
    return ctx->GetOp("g").output("y", 0);
  });
});

// ---- Outputs that are optional -----------------------------------------------------------------

KERNEL(Optional, false, {
  Element(ctx, "y") = Element(ctx, "x");
  if (ctx->Tensor4ArgNameAndIndex("z", 0) != nullptr) Element(ctx, "z") = Element(ctx, "y") = 7;
});
OPERATOR("os_optional", Optional, .Output("y").OptionalOutput("z").SetTensorDescInferFn(Like));
OPERATOR("os_spelling", Copy, .Output("y").OptionalOutputWithMininum("z", 2).SetTensorDescInferFn(Like));
// The gradient 5, by an operator that leaves its optional output out.
OPERATOR("os_uses_optional", Copy, LIKE);
REGISTER_USER_OP_GRAD("os_uses_optional").SetGenBackwardOpConfFn([](const UserOpWrapper& op,
                                                                    AddOpFn AddOp) {
  auto g = UserOpConfWrapperBuilder("g").Op("os_optional")
               .Input("x", op.GetGradTensorWithOpOutput("y", 0)).Output("y").Build();
  AddOp(g);
  op.BindGradTensorWithOpInput(g.output("y", 0), "x", 0);
});

// ---- Gradients ---------------------------------------------------------------------------------

// The gradient of y; negated if none arrives at z.
KERNEL(Both, false, Element(ctx, "y") = Element(ctx, "z") = Element(ctx, "x"););
OPERATOR("os_arrives", Both, .Output("y").Output("z").SetTensorDescInferFn(Like));
REGISTER_USER_OP_GRAD("os_arrives").SetGenBackwardOpConfFn([](const UserOpWrapper& op, AddOpFn AddOp) {
  if (!op.HasGradTensor4OpOutput("y", 0)) return;
  const std::string dy = op.GetGradTensorWithOpOutput("y", 0);
  if (op.HasGradTensor4OpOutput("z", 0)) return op.BindGradTensorWithOpInput(dy, "x", 0);
  auto g = UserOpConfWrapperBuilder("g").Op("negative").Input("x", dy).Output("y").Build();
  AddOp(g);
  op.BindGradTensorWithOpInput(g.output("y", 0), "x", 0);
});
// An operator of the gradient with a name that is taken.
void Multiply(const UserOpWrapper& op, const AddOpFn& add, const std::string& name) {
  auto g = UserOpConfWrapperBuilder(name).Op("multiply")
               .Input("x", op.GetGradTensorWithOpOutput("y", 0)).Input("y", op.input("x", 0))
               .Output("x").Build();
  op.BindGradTensorWithOpInput(g.output("x", 0), "x", 0);
  add(g);
}
OPERATOR("os_same_name", Copy, LIKE);
REGISTER_USER_OP_GRAD("os_same_name").SetGenBackwardOpConfFn([](const UserOpWrapper& op, AddOpFn add) {
  Multiply(op, add, op.op_name());
});
OPERATOR("os_twice", Copy, LIKE);
REGISTER_USER_OP_GRAD("os_twice").SetGenBackwardOpConfFn([](const UserOpWrapper& op, AddOpFn add) {
  Multiply(op, add, "g");
  Multiply(op, add, "g");
});
OPERATOR("os_defines_own_name", Copy, LIKE);
REGISTER_USER_OP_GRAD("os_defines_own_name").SetBackwardOpConfGenFn([](BackwardOpConfContext* ctx) {
  ctx->DefineOp(ctx->FwOp().op_name(), [](BackwardOpBuilder& b) { return b.Build(); });
});
// dy times 0.5, although an integer stands there, too.
OPERATOR("os_half", Copy, LIKE);
REGISTER_USER_OP_GRAD("os_half").SetGenBackwardOpConfFn([](const UserOpWrapper& op, AddOpFn AddOp) {
  auto g = UserOpConfWrapperBuilder("g").Op("scalar_mul")
               .Input("in", op.GetGradTensorWithOpOutput("y", 0))
               .Attr<bool>("has_int_operand", false).Attr<int64_t>("int_operand", 7)
               .Attr<bool>("has_float_operand", true).Attr<double>("float_operand", 0.5)
               .Output("out").Build();
  AddOp(g);
  op.BindGradTensorWithOpInput(g.output("out", 0), "x", 0);
});

// ---- Flags of inputs ---------------------------------------------------------------------------

KERNEL(Counts, false, Element(ctx, "y") = ++Element(ctx, "s"););
OPERATOR("os_mutable", Counts, .Input("s") LIKE)
    .SetInputArgModifyFn([](GetInputArgModifier get, const UserOpConfWrapper&) {
      get("s", 0)->set_is_mutable(true);
      get("s", 0)->set_requires_grad(false);
    });
OPERATOR("os_header", Copy, .Input("like") LIKE)
    .SetInputArgModifyFn([](GetInputArgModifier get, const UserOpConfWrapper&) {
      get("like", 0)->set_use_header_only(true);
    });

// ---- Kernels -----------------------------------------------------------------------------------

int runs = 0;
KERNEL(Always, true, (void)ctx; ++runs;);
OPERATOR("os_always", Always, LIKE);
KERNEL(Runs, false, Element(ctx, "y") = static_cast<float>(runs););
OPERATOR("os_runs", Runs, LIKE);
KERNEL(Nested, false, {
  { const rsnet::Reused<Tensors> other; }
  Element(ctx, "y") = KernelComputeContext::Running() == ctx;
});
OPERATOR("os_nested", Nested, LIKE);
KERNEL(Texts, false, {
  const auto& texts = ctx->Attr<std::vector<std::string>>("texts");
  Element(ctx, "y") = texts == std::vector<std::string>{"a\\b", "it's", "\\'"};
});
OPERATOR("os_texts", Texts,
         .Attr<std::vector<std::string>>("texts", {"a\\b", "it's", "\\'"}) LIKE);
KERNEL(Chars, false, ctx->Tensor4ArgNameAndIndex("y", 0)->mut_dptr<char>()[0] = -5;);
OPERATOR("os_chars", Chars, .Output("y"))
    .SetTensorDescInferFn([](InferContext* ctx) -> Maybe<void> {
      *ctx->OutputDType("y", 0) = kChar;
      return Like(ctx);
    });
OPERATOR("os_one_to_two", Both,
         .Output("y").Output("z").SetTensorDescInferFn(TensorDescInferFnUtil::InOutCorrespond));
KERNEL(Named, false, {
  const std::string& type = ctx->user_op_conf().op_type_name();
  const std::string other(64, 'x');  // in memory that was freed, had `type` been a temporary's
  Element(ctx, "y") = type == "os_named_by_a_text_of_more_than_fifteen_letters" && other[0] == 'x';
});
OPERATOR("os_named_by_a_text_of_more_than_fifteen_letters", Named, LIKE);
KERNEL(NoSize, false, Element(ctx, "y") = Element(ctx, "tmp_buffer"););
OPERATOR("os_no_size", NoSize, LIKE);
KERNEL(Beyond, false, {
  Element(ctx, "y") = ctx->Tensor4ArgNameAndIndex("x", 1)->dptr<float>()[0];
});
OPERATOR("os_beyond", Beyond, LIKE);

}  // namespace
}  // namespace oneflow

// Forms of OneFlow's registries that are easily mixed up: gradients of operators with optional
// inputs, arguments whose names differ by a digit, sizes and inference that look at dtypes.
#include "oneflow/core/framework/framework.h"

namespace oneflow {
namespace {

#define RULE [](user_op::BackwardOpConfContext * ctx)

struct Copy final : user_op::OpKernel {
  void Compute(user_op::KernelComputeContext* ctx) const override {
    const auto* x = ctx->Tensor4ArgNameAndIndex("x", 0);
    auto* y = ctx->Tensor4ArgNameAndIndex("y", 0);
    std::copy_n(x->dptr<float>(), x->shape().elem_cnt(), y->mut_dptr<float>());
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};

// y = 100 a + b + 1000 c + 10^6 e
struct Places final : user_op::OpKernel {
  void Compute(user_op::KernelComputeContext* ctx) const override {
    auto* y = ctx->Tensor4ArgNameAndIndex("y", 0);
    for (int64_t i = 0; i < y->shape().elem_cnt(); ++i) {
      float sum = 0;
      auto add = [&](const char* arg, float factor) {
        const auto* t = ctx->Tensor4ArgNameAndIndex(arg, 0);
        if (t != nullptr) sum += factor * t->dptr<float>()[i];
      };
      add("a", 100);
      add("b", 1);
      add("c", 1000);
      add("e", 1e6f);
      y->mut_dptr<float>()[i] = sum;
    }
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
REGISTER_USER_OP("form_places")
    .Input("a")
    .Input("b")
    .OptionalInput("c")
    .OptionalInput("e")
    .Output("y")
    .SetTensorDescInferFn(user_op::TensorDescInferFnUtil::Unchanged);
REGISTER_USER_KERNEL("form_places").SetCreateFn<Places>().SetIsMatchedHob(user_op::HobTrue());

// y = x, of which the "gradient" shows where its operator got its inputs.
REGISTER_USER_OP("form_copy").Input("x").Output("y").SetTensorDescInferFn(
    user_op::TensorDescInferFnUtil::Unchanged);
REGISTER_USER_KERNEL("form_copy").SetCreateFn<Copy>().SetIsMatchedHob(user_op::HobTrue());
REGISTER_USER_OP_GRAD("form_copy").SetBackwardOpConfGenFn(RULE {
  ctx->DefineOp("g", [ctx](user_op::BackwardOpBuilder& builder) {
    return builder.OpTypeName("form_places")
        .InputBind("b", ctx->FwOp().output_grad("y", 0))
        .InputBind("a", ctx->FwOp().input("x", 0))
        .InputBind("e", ctx->FwOp().input("x", 0))
        .Output("y")
        .Build();
  });
  ctx->FwOp().InputGradBind(user_op::OpArg("x", 0), [ctx]() -> const std::string& {
    return ctx->GetOp("g").output("y", 0);
  });
});

// The same with inputs x1 and x: y = 100 x1 + x.
struct Digits final : user_op::OpKernel {
  void Compute(user_op::KernelComputeContext* ctx) const override {
    auto* y = ctx->Tensor4ArgNameAndIndex("y", 0);
    const float* first = ctx->Tensor4ArgNameAndIndex("x1", 0)->dptr<float>();
    const float* second = ctx->Tensor4ArgNameAndIndex("x", 0)->dptr<float>();
    for (int64_t i = 0; i < y->shape().elem_cnt(); ++i) {
      y->mut_dptr<float>()[i] = 100 * first[i] + second[i];
    }
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
REGISTER_USER_OP("form_digits").Input("x1").Input("x").Output("y").SetTensorDescInferFn(
    user_op::TensorDescInferFnUtil::Unchanged);
REGISTER_USER_KERNEL("form_digits").SetCreateFn<Digits>().SetIsMatchedHob(user_op::HobTrue());
REGISTER_USER_OP("form_same").Input("x").Output("y").SetTensorDescInferFn(
    user_op::TensorDescInferFnUtil::Unchanged);
REGISTER_USER_KERNEL("form_same").SetCreateFn<Copy>().SetIsMatchedHob(user_op::HobTrue());
REGISTER_USER_OP_GRAD("form_same").SetBackwardOpConfGenFn(RULE {
  ctx->DefineOp("g", [ctx](user_op::BackwardOpBuilder& builder) {
    return builder.OpTypeName("form_digits")
        .InputBind("x", ctx->FwOp().output_grad("y", 0))
        .InputBind("x1", ctx->FwOp().input("x", 0))
        .Output("y")
        .Build();
  });
  ctx->FwOp().InputGradBind(user_op::OpArg("x", 0), [ctx]() -> const std::string& {
    return ctx->GetOp("g").output("y", 0);
  });
});

// y = x_0 + 2 x_1 + 3 x_2 ...; one operator makes the gradients of all inputs.
struct Weighted final : user_op::OpKernel {
  void Compute(user_op::KernelComputeContext* ctx) const override {
    auto* y = ctx->Tensor4ArgNameAndIndex("y", 0);
    std::fill_n(y->mut_dptr<float>(), y->shape().elem_cnt(), 0.0f);
    for (const auto& [arg, k] : ctx->inputs()) {
      const float* x = ctx->Tensor4ArgNameAndIndex(arg, k)->dptr<float>();
      for (int64_t i = 0; i < y->shape().elem_cnt(); ++i) y->mut_dptr<float>()[i] += (k + 1) * x[i];
    }
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
struct Parts final : user_op::OpKernel {
  void Compute(user_op::KernelComputeContext* ctx) const override {
    const auto* dy = ctx->Tensor4ArgNameAndIndex("dy", 0);
    for (const auto& [arg, k] : ctx->outputs()) {
      float* dx = ctx->Tensor4ArgNameAndIndex(arg, k)->mut_dptr<float>();
      for (int64_t i = 0; i < dy->shape().elem_cnt(); ++i) dx[i] = (k + 1) * dy->dptr<float>()[i];
    }
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
REGISTER_USER_OP("form_weighted")
    .InputWithMinimum("x", 1)
    .Output("y")
    .SetTensorDescInferFn([](user_op::InferContext* ctx) -> Maybe<void> {
      for (const auto& [arg, k] : ctx->inputs()) {
        CHECK_EQ_OR_RETURN(*ctx->Shape4ArgNameAndIndex(arg, k), ctx->InputShape("x", 0));
      }
      return Maybe<void>::Ok();
    });
REGISTER_USER_OP("form_parts").Input("dy").OutputWithMinimum("dx", 1).SetTensorDescInferFn(
    user_op::TensorDescInferFnUtil::Unchanged);
REGISTER_USER_KERNEL("form_weighted")
    .SetCreateFn<Weighted>()
    .SetIsMatchedHob(user_op::HobTrue())
    .SetPriority(user_op::kKernelPriorityFallback);
REGISTER_USER_KERNEL("form_parts").SetCreateFn<Parts>().SetIsMatchedHob(user_op::HobTrue());
REGISTER_USER_OP_GRAD("form_weighted")
    .SetGenBackwardOpConfFn([](const user_op::UserOpWrapper& op, user_op::AddOpFn add) {
      user_op::UserOpConfWrapperBuilder builder(op.op_name() + "_grad");
      const int32_t n = op.input_size("x");
      user_op::UserOpConfWrapper grad = builder.Op("form_parts")
                                            .Input("dy", op.GetGradTensorWithOpOutput("y", 0))
                                            .Output("dx", n)
                                            .Build();
      for (int32_t i = 0; i < n; ++i) {
        if (!op.NeedGenGradTensor4OpInput("x", i)) continue;
        op.BindGradTensorWithOpInput(grad.output("dx", i), "x", i);
      }
      add(grad);
    });

// Every kernel insists on the dtype of its condition when it is asked for temporary space.
template <typename T>
struct Checked final : user_op::OpKernel {
  void Compute(user_op::KernelComputeContext* ctx) const override {
    const auto* x = ctx->Tensor4ArgNameAndIndex("x", 0);
    T* tmp = reinterpret_cast<T*>(ctx->Tensor4ArgNameAndIndex("tmp_buffer", 0)->mut_dptr<char>());
    const int64_t n = x->shape().elem_cnt();
    std::copy_n(x->dptr<T>(), n, tmp);
    std::copy_n(tmp, n, ctx->Tensor4ArgNameAndIndex("y", 0)->mut_dptr<T>());
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
REGISTER_USER_OP("form_tmp").Input("x").Output("y").SetTensorDescInferFn(
    user_op::TensorDescInferFnUtil::Unchanged);
#define REGISTER_TMP(T)                                                              \
  REGISTER_USER_KERNEL("form_tmp")                                                   \
      .SetCreateFn<Checked<T>>()                                                     \
      .SetIsMatchedHob(user_op::HobDataType("x", 0) == GetDataType<T>::value)        \
      .SetInferTmpSizeFn([](user_op::InferContext* ctx) -> size_t {                  \
        CHECK(*ctx->Dtype4ArgNameAndIndex("x", 0) == GetDataType<T>::value);         \
        return ctx->Shape4ArgNameAndIndex("x", 0)->elem_cnt() * sizeof(T);           \
      });
REGISTER_TMP(float)
REGISTER_TMP(double)

// Asks for as much temporary space as the caller says, and uses none of it.
REGISTER_USER_OP("form_space").Input("x").Output("y").Attr<int64_t>("bytes").SetTensorDescInferFn(
    user_op::TensorDescInferFnUtil::Unchanged);
REGISTER_USER_KERNEL("form_space")
    .SetCreateFn<Copy>()
    .SetIsMatchedHob(user_op::HobTrue())
    .SetInferTmpSizeFn(
        [](user_op::InferContext* ctx) -> size_t { return ctx->Attr<int64_t>("bytes"); });

// Inference that insists on integers.
REGISTER_USER_OP("form_index").Input("x").Output("y").SetTensorDescInferFn(
    [](user_op::InferContext* ctx) -> Maybe<void> {
      CHECK_OR_RETURN(*ctx->Dtype4ArgNameAndIndex("x", 0) == kInt32);
      *ctx->Shape4ArgNameAndIndex("y", 0) = *ctx->Shape4ArgNameAndIndex("x", 0);
      *ctx->Dtype4ArgNameAndIndex("y", 0) = kFloat;
      return Maybe<void>::Ok();
    });
REGISTER_USER_KERNEL("form_index").SetCreateFn<Copy>().SetIsMatchedHob(user_op::HobTrue());

// An operator that has a kernel of a GPU only.
REGISTER_USER_OP("form_gpu").Input("x").Output("y").SetTensorDescInferFn(
    user_op::TensorDescInferFnUtil::Unchanged);
REGISTER_USER_KERNEL("form_gpu").SetCreateFn<Copy>().SetIsMatchedHob(
    user_op::HobDeviceTag() == DeviceType::kGPU);

// y = by x: an operator of the library with the name of a built-in one of gradients.
struct Scaled final : user_op::OpKernel {
  void Compute(user_op::KernelComputeContext* ctx) const override {
    const float* x = ctx->Tensor4ArgNameAndIndex("in", 0)->dptr<float>();
    auto* y = ctx->Tensor4ArgNameAndIndex("out", 0);
    float* to = y->mut_dptr<float>();
    auto part = [&](int64_t i) {
      if (x[i] < 0) throw rsnet::Failure("an element is below 0", RSNET_UNSUPPORTED);
      to[i] = ctx->Attr<float>("by") * x[i];
    };
    MultiThreadLoop(static_cast<size_t>(y->shape().elem_cnt()), part);
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
REGISTER_USER_OP("scalar_add").Input("in").Output("out").Attr<float>("by", 10).SetTensorDescInferFn(
    user_op::TensorDescInferFnUtil::Unchanged);
REGISTER_USER_KERNEL("scalar_add").SetCreateFn<Scaled>().SetIsMatchedHob(user_op::HobTrue());
REGISTER_USER_OP_GRAD("scalar_add").SetBackwardOpConfGenFn(RULE {
  ctx->DefineOp("g", [ctx](user_op::BackwardOpBuilder& builder) {
    return builder.OpTypeName("scalar_add")
        .InputBind("in", ctx->FwOp().output_grad("out", 0))
        .Attr("by", ctx->FwOp().attr<float>("by"))
        .Output("out")
        .Build();
  });
  ctx->FwOp().InputGradBind(user_op::OpArg("in", 0), [ctx]() -> const std::string& {
    return ctx->GetOp("g").output("out", 0);
  });
});

// y = x, whose gradient uses a built-in operator wrongly, as `mode` says.
REGISTER_USER_OP("form_misuse")
    .Input("x")
    .Output("y")
    .Attr<std::string>("mode", "input")
    .SetTensorDescInferFn(user_op::TensorDescInferFnUtil::Unchanged);
REGISTER_USER_KERNEL("form_misuse").SetCreateFn<Copy>().SetIsMatchedHob(user_op::HobTrue());
REGISTER_USER_OP_GRAD("form_misuse").SetBackwardOpConfGenFn(RULE {
  const std::string mode = ctx->FwOp().attr<std::string>("mode");
  ctx->DefineOp("g", [ctx, mode](user_op::BackwardOpBuilder& builder) {
    builder.OpTypeName("scalar_mul").InputBind("in", ctx->FwOp().output_grad("y", 0));
    if (mode == "input") builder.InputBind("x", ctx->FwOp().input("x", 0));
    if (mode == "attribute") builder.Attr("factor", 2.0f);
    return builder.Output("out").Build();
  });
  ctx->FwOp().InputGradBind(user_op::OpArg("x", 0), [ctx]() -> const std::string& {
    return ctx->GetOp("g").output("out", 0);
  });
});

}  // namespace
// An extent of -1 is what is left.
REGISTER_USER_OP("no_reshape").Input("in").Output("out").Attr<Shape>("shape")
    .SetTensorDescInferFn([](user_op::InferContext* ctx) -> Maybe<void> {
      const Shape& in = *ctx->Shape4ArgNameAndIndex("in", 0);
      const Shape& shape = ctx->Attr<Shape>("shape");
      Shape* out = ctx->Shape4ArgNameAndIndex("out", 0);
      int64_t known = 1, open = -1;
      for (int64_t i = 0; i < shape.NumAxes(); ++i) {
        if (shape.At(i) == -1) open = i;
        else known *= shape.At(i);
      }
      *out = shape;
      if (open >= 0) out->Set(open, in.elem_cnt() / known);
      CHECK_EQ_OR_RETURN(out->elem_cnt(), in.elem_cnt());
      return Maybe<void>::Ok();
    });

REGISTER_USER_OP("no_pairs").Input("a").Input("b").Output("c").Output("d")
    .SetTensorDescInferFn(user_op::TensorDescInferFnUtil::InOutCorrespond);

}  // namespace oneflow

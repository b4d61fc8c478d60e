// y = x σ(βx), and its gradient as an operator of its own. By OneFlow's names; docs/plugins.md
// shows how it is compiled and used.
#include "oneflow/core/framework/framework.h"

namespace oneflow {
namespace {

template <typename T>
class SwishKernel final : public user_op::OpKernel {
  void Compute(user_op::KernelComputeContext* ctx) const override {
    const user_op::Tensor* in = ctx->Tensor4ArgNameAndIndex("in", 0);
    const T* x = in->dptr<T>();
    T* y = ctx->Tensor4ArgNameAndIndex("out", 0)->mut_dptr<T>();
    const T beta = static_cast<T>(ctx->Attr<float>("beta"));
    ctx->ParallelFor(in->shape().elem_cnt(), 4096, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = x[i] / (1 + std::exp(-beta * x[i]));
    });
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};

template <typename T>
class SwishGradKernel final : public user_op::OpKernel {
  void Compute(user_op::KernelComputeContext* ctx) const override {
    const user_op::Tensor* in = ctx->Tensor4ArgNameAndIndex("x", 0);
    const T* x = in->dptr<T>();
    const T* dy = ctx->Tensor4ArgNameAndIndex("dy", 0)->dptr<T>();
    T* dx = ctx->Tensor4ArgNameAndIndex("dx", 0)->mut_dptr<T>();
    const T beta = static_cast<T>(ctx->Attr<float>("beta"));
    ctx->ParallelFor(in->shape().elem_cnt(), 4096, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T s = 1 / (1 + std::exp(-beta * x[i]));
        dx[i] = dy[i] * (s + beta * x[i] * s * (1 - s));
      }
    });
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};

REGISTER_USER_OP("swish")
    .Doc("y = x σ(βx), element by element.")
    .Input("in")
    .Output("out")
    .Attr<float>("beta", 1.0f)
    .SetTensorDescInferFn([](user_op::InferContext* ctx) -> Maybe<void> {
      *ctx->Shape4ArgNameAndIndex("out", 0) = *ctx->Shape4ArgNameAndIndex("in", 0);
      *ctx->Dtype4ArgNameAndIndex("out", 0) = *ctx->Dtype4ArgNameAndIndex("in", 0);
      return Maybe<void>::Ok();
    })
    .SetGetSbpFn(user_op::GetSbpFnUtil::SplitForEachAxis);

REGISTER_USER_OP("swish_grad")
    .Input("x")
    .Input("dy")
    .Output("dx")
    .Attr<float>("beta", 1.0f)
    .SetTensorDescInferFn(user_op::TensorDescInferFnUtil::Unchanged);

REGISTER_USER_OP_GRAD("swish").SetBackwardOpConfGenFn([](user_op::BackwardOpConfContext* ctx) {
  const auto name = ctx->FwOp().op_name() + "_grad";
  ctx->DefineOp(name, [ctx](user_op::BackwardOpBuilder& builder) {
    return builder.OpTypeName("swish_grad")
        .InputBind("x", ctx->FwOp().input("in", 0))
        .InputBind("dy", ctx->FwOp().output_grad("out", 0))
        .Attr("beta", ctx->FwOp().attr<float>("beta"))
        .Output("dx")
        .Build();
  });
  ctx->FwOp().InputGradBind(user_op::OpArg("in", 0), [&]() -> const std::string& {
    return ctx->GetOp(name).output("dx", 0);
  });
});

#define REGISTER_SWISH(T)                                                     \
  REGISTER_USER_KERNEL("swish")                                               \
      .SetCreateFn<SwishKernel<T>>()                                          \
      .SetIsMatchedHob((user_op::HobDeviceTag() == "cpu") &                   \
                       (user_op::HobDataType("out", 0) == GetDataType<T>::value)); \
  REGISTER_USER_KERNEL("swish_grad")                                          \
      .SetCreateFn<SwishGradKernel<T>>()                                      \
      .SetIsMatchedHob((user_op::HobDeviceTag() == "cpu") &                   \
                       (user_op::HobDataType("dx", 0) == GetDataType<T>::value));
REGISTER_SWISH(float)
REGISTER_SWISH(double)

}  // namespace
}  // namespace oneflow

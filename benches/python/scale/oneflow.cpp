// y = by x, as operators and kernels are registered with OneFlow.
#include "oneflow/core/framework/framework.h"

namespace oneflow {
namespace {

REGISTER_USER_OP("oneflow_scale")
    .Input("x")
    .Output("y")
    .Attr<float>("by", 1.0f)
    .SetTensorDescInferFn(user_op::TensorDescInferFnUtil::Unchanged);

class ScaleKernel final : public user_op::OpKernel {
 public:
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }

 private:
  void Compute(user_op::KernelComputeContext* ctx) const override {
    const user_op::Tensor* x = ctx->Tensor4ArgNameAndIndex("x", 0);
    user_op::Tensor* y = ctx->Tensor4ArgNameAndIndex("y", 0);
    const float by = ctx->Attr<float>("by");
    const int64_t n = x->shape().elem_cnt();
    const float* in = x->dptr<float>();
    float* out = y->mut_dptr<float>();
    for (int64_t i = 0; i < n; ++i) out[i] = by * in[i];
  }
};

REGISTER_USER_KERNEL("oneflow_scale")
    .SetCreateFn<ScaleKernel>()
    .SetIsMatchedHob((user_op::HobDeviceTag() == "cpu") &
                     (user_op::HobDataType("y", 0) == DataType::kFloat));

}  // namespace
}  // namespace oneflow

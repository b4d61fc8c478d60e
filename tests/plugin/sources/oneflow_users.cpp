// Operators as OneFlow's users wrote them at the time of 0.2 and 0.3: batch axes, kinds of
// attributes by number, loops over ranges and over threads, a kernel state that reads a file of its
// own.
#include "oneflow/core/framework/framework.h"

namespace oneflow {

namespace {

class OffsetsState final : public user_op::OpKernelState {
 public:
  explicit OffsetsState(const std::string& text) : offset_(static_cast<float>(text.size())) {}
  ~OffsetsState() override = default;
  float offset() const { return offset_; }

 private:
  float offset_;
};

}  // namespace

REGISTER_USER_OP("user_boxes")
    .Input("boxes")
    .Input("labels")
    .Output("area")
    .Output("index")
    .Attr("threshold", UserOpAttrType::kAtFloat)
    .Attr("anchors", UserOpAttrType::kAtListInt32)
    .Attr<std::string>("path", AttrType::kAtString, "abc")
    .SetTensorDescInferFn([](user_op::InferContext* ctx) -> Maybe<void> {
      const user_op::TensorDesc* boxes = ctx->TensorDesc4ArgNameAndIndex("boxes", 0);
      const user_op::TensorDesc* labels = ctx->TensorDesc4ArgNameAndIndex("labels", 0);
      const int64_t n = boxes->shape().At(0);
      CHECK_EQ_OR_RETURN(n, labels->shape().At(0));
      CHECK_EQ(labels->data_type(), DataType::kInt32);
      DimVector dims(boxes->shape().NumAxes() - 1);
      FOR_RANGE(size_t, i, 0, dims.size()) { dims[i] = boxes->shape().At(i); }
      *ctx->Shape4ArgNameAndIndex("area", 0) = Shape(dims);
      *ctx->Shape4ArgNameAndIndex("index", 0) = Shape({n});
      *ctx->Dtype4ArgNameAndIndex("index", 0) = DataType::kInt32;
      return Maybe<void>::Ok();
    })
    .SetInputArgModifyFn([](user_op::GetInputArgModifier GetInputArgModifierFn,
                            const user_op::UserOpConfWrapper&) {
      user_op::InputArgModifier* labels = GetInputArgModifierFn("labels", 0);
      labels->set_requires_grad(false);
    })
    .SetBatchAxisInferFn([](user_op::BatchAxisContext* ctx) -> Maybe<void> {
      *ctx->BatchAxis4ArgNameAndIndex("area", 0) = *ctx->BatchAxis4ArgNameAndIndex("boxes", 0);
      ctx->BatchAxis4ArgNameAndIndex("index", 0)->set_value(0);
      return Maybe<void>::Ok();
    })
    .SetGetSbpFn([](user_op::SbpContext* ctx) -> Maybe<void> {
      const auto& boxes = ctx->LogicalTensorDesc4InputArgNameAndIndex("boxes", 0);
      FOR_RANGE(int64_t, i, 0, boxes.shape().NumAxes() - 1) {
        ctx->NewBuilder()
            .Split(user_op::OpArg("boxes", 0), i)
            .Broadcast(user_op::OpArg("labels", 0))
            .Split(user_op::OpArg("area", 0), i)
            .Broadcast(user_op::OpArg("index", 0))
            .Build();
      }
      return Maybe<void>::Ok();
    });

REGISTER_USER_OP_GRAD("user_boxes")
    .SetGenBackwardOpConfFn([](const user_op::UserOpWrapper& op, user_op::AddOpFn AddOp) {
      if (op.NeedGenGradTensor4OpInput("boxes", 0)) {
        user_op::UserOpConfWrapper twice =
            user_op::UserOpConfWrapperBuilder(op.op_name() + "_grad")
                .Op("user_spread")
                .Input("dy", op.GetGradTensorWithOpOutput("area", 0))
                .Input("like", op.input("boxes", 0))
                .Output("dx")
                .Build();
        op.BindGradTensorWithOpInput(twice.output("dx", 0), "boxes", 0);
        AddOp(twice);
      }
    });

REGISTER_USER_OP("user_spread")
    .Input("dy")
    .Input("like")
    .Output("dx")
    .SetTensorDescInferFn([](user_op::InferContext* ctx) -> Maybe<void> {
      *ctx->TensorDesc4ArgNameAndIndex("dx", 0) = *ctx->TensorDesc4ArgNameAndIndex("like", 0);
      return Maybe<void>::Ok();
    })
    .SetBatchAxisInferFn(user_op::BatchAxisInferFnUtil::DefaultAsFirstHasValueInput);

class BoxesKernel final : public user_op::OpKernel {
 public:
  std::shared_ptr<user_op::OpKernelState> CreateOpKernelState(
      user_op::KernelInitContext* ctx) const override {
    return std::shared_ptr<user_op::OpKernelState>(
        new OffsetsState(ctx->Attr<std::string>("path")));
  }

 private:
  void Compute(user_op::KernelComputeContext* ctx, user_op::OpKernelState* state) const override {
    auto* offsets = dynamic_cast<OffsetsState*>(state);
    CHECK_NOTNULL(offsets);
    const user_op::Tensor* boxes = ctx->Tensor4ArgNameAndIndex("boxes", 0);
    const user_op::Tensor* labels = ctx->Tensor4ArgNameAndIndex("labels", 0);
    user_op::Tensor* area = ctx->Tensor4ArgNameAndIndex("area", 0);
    user_op::Tensor* index = ctx->Tensor4ArgNameAndIndex("index", 0);
    const int64_t width = boxes->shape().At(boxes->shape().NumAxes() - 1);
    const auto& anchors = ctx->Attr<std::vector<int32_t>>("anchors");
    const float threshold = ctx->Attr<float>("threshold");
    user_op::MultiThreadLoopInOpKernel(
        area->shape().elem_cnt(), [&](size_t i) {
          float sum = offsets->offset() - 3;
          FOR_RANGE(int64_t, k, 0, width) { sum += boxes->dptr<float>()[i * width + k]; }
          area->mut_dptr<float>()[i] = sum > threshold ? sum : 0;
        });
    MultiThreadLoop(index->shape().elem_cnt(), [&](size_t i) {
      index->mut_dptr<int32_t>()[i] = labels->dptr<int32_t>()[i] + anchors.at(0);
    });
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
REGISTER_USER_KERNEL("user_boxes")
    .SetCreateFn<BoxesKernel>()
    .SetIsMatchedHob((user_op::HobDeviceType() == DeviceType::kCPU)
                     & (user_op::HobDataType("boxes", 0) == DataType::kFloat)
                     & (user_op::HobDataType("labels", 0) == DataType::kInt32))
    .SetInferTmpSizeFn([](const oneflow::user_op::InferContext*) { return 0; });

// A condition on a float, which is in single precision in C++ and in double precision in Python.
REGISTER_USER_OP("user_rate")
    .Input("x")
    .Output("y")
    .Attr<float>("rate", 0.1)
    .SetTensorDescInferFn(user_op::TensorDescInferFnUtil::Unchanged);

template <int value>
class RateKernel final : public user_op::OpKernel {
  void Compute(user_op::KernelComputeContext* ctx) const override {
    user_op::Tensor* y = ctx->Tensor4ArgNameAndIndex("y", 0);
    FOR_RANGE(int64_t, i, 0, y->shape().elem_cnt()) { y->mut_dptr<float>()[i] = value; }
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
REGISTER_USER_KERNEL("user_rate")
    .SetCreateFn<RateKernel<1>>()
    .SetIsMatchedHob(user_op::HobAttr<float>("rate") == 0.1f);
REGISTER_USER_KERNEL("user_rate")
    .SetCreateFn<RateKernel<2>>()
    .SetIsMatchedHob(user_op::HobAttr<float>("rate") > 0.1f);

class SpreadKernel final : public user_op::OpKernel {
  void Compute(user_op::KernelComputeContext* ctx) const override {
    const user_op::Tensor* dy = ctx->Tensor4ArgNameAndIndex("dy", 0);
    user_op::Tensor* dx = ctx->Tensor4ArgNameAndIndex("dx", 0);
    const int64_t n = dy->shape().elem_cnt(), all = dx->shape().elem_cnt();
    FOR_RANGE(int64_t, i, 0, all) { dx->mut_dptr<float>()[i] = dy->dptr<float>()[i / (all / n)]; }
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
REGISTER_USER_KERNEL("user_spread")
    .SetCreateFn<SpreadKernel>()
    .SetIsMatchedHob(~(user_op::HobDeviceTag() == DeviceType::kCUDA));

}  // namespace oneflow

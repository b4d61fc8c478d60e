// Operators by OneFlow's names: every form of arguments and attributes, kernels chosen by dtype and
// device, temporary space, state, and gradients in both styles.
#include "oneflow/core/framework/framework.h"

namespace oneflow {
namespace {

Maybe<void> LikeIn(user_op::InferContext* ctx) {
  *ctx->Shape4ArgNameAndIndex("out", 0) = *ctx->Shape4ArgNameAndIndex("in", 0);
  *ctx->Dtype4ArgNameAndIndex("out", 0) = *ctx->Dtype4ArgNameAndIndex("in", 0);
  return Maybe<void>::Ok();
}

// y = max(x, 0), and its gradient by an operator of its own, in the older style.
template <DeviceType device, typename T>
class RampKernel final : public user_op::OpKernel {
  void Compute(user_op::KernelComputeContext* ctx) const override {
    const user_op::Tensor* in = ctx->Tensor4ArgNameAndIndex("in", 0);
    user_op::Tensor* out = ctx->Tensor4ArgNameAndIndex("out", 0);
    for (int64_t i = 0; i < in->shape().elem_cnt(); ++i) {
      out->mut_dptr<T>()[i] = std::max(in->dptr<T>()[i], T(0));
    }
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
REGISTER_USER_OP("of_ramp").Input("in").Output("out").SetTensorDescInferFn(LikeIn).SetGetSbpFn(
    user_op::GetSbpFnUtil::SplitForEachAxis);
#define REGISTER_RAMP(device, T)                                               \
  REGISTER_USER_KERNEL("of_ramp").SetCreateFn<RampKernel<device, T>>().SetIsMatchedHob( \
      (user_op::HobDeviceTag() == device) &                                    \
      (user_op::HobDataType("out", 0) == GetDataType<T>::value));
REGISTER_RAMP(DeviceType::kCPU, float)
REGISTER_RAMP(DeviceType::kCPU, double)
REGISTER_RAMP(DeviceType::kGPU, float)

template <typename T>
class RampGradKernel final : public user_op::OpKernel {
  void Compute(user_op::KernelComputeContext* ctx) const override {
    const T* y = ctx->Tensor4ArgNameAndIndex("y", 0)->dptr<T>();
    const T* dy = ctx->Tensor4ArgNameAndIndex("dy", 0)->dptr<T>();
    user_op::Tensor* dx = ctx->Tensor4ArgNameAndIndex("dx", 0);
    T* out = dx->mut_dptr<T>();
    ctx->ParallelFor(dx->shape().elem_cnt(), 1024, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = y[i] > 0 ? dy[i] : T(0);
    });
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
REGISTER_USER_OP("of_ramp_grad").Input("y").Input("dy").Output("dx").SetTensorDescInferFn(
    user_op::TensorDescInferFnUtil::Unchanged);
REGISTER_USER_KERNEL("of_ramp_grad")
    .SetCreateFn<RampGradKernel<float>>()
    .SetIsMatchedHob(user_op::HobDataType("dx", 0) == kFloat)
    .SetInplaceProposalFn([](const user_op::InferContext&,
                             user_op::AddInplaceArgPair add) -> Maybe<void> {
      OF_RETURN_IF_ERROR(add("dx", 0, "dy", 0, true));
      return Maybe<void>::Ok();
    });
REGISTER_USER_KERNEL("of_ramp_grad")
    .SetCreateFn<RampGradKernel<double>>()
    .SetIsMatchedHob(user_op::HobDataType("dx", 0) == kDouble);
REGISTER_USER_OP_GRAD("of_ramp").SetGenBackwardOpConfFn(
    [](const user_op::UserOpWrapper& op, user_op::AddOpFn AddOp) {
      if (!op.NeedGenGradTensor4OpInput("in", 0)) return;
      user_op::UserOpConfWrapperBuilder builder(op.op_name() + "_grad");
      auto grad = builder.Op("of_ramp_grad")
                      .Input("y", op.output("out", 0))
                      .Input("dy", op.GetGradTensorWithOpOutput("out", 0))
                      .Output("dx")
                      .Build();
      op.BindGradTensorWithOpInput(grad.output("dx", 0), "in", 0);
      AddOp(grad);
    });

// y = 3 x^2, with a gradient of OneFlow's own operators.
template <typename T>
class TripleSquareKernel final : public user_op::OpKernel {
  void Compute(user_op::KernelComputeContext* ctx) const override {
    const T* x = ctx->Tensor4ArgNameAndIndex("in", 0)->dptr<T>();
    user_op::Tensor* out = ctx->Tensor4ArgNameAndIndex("out", 0);
    for (int64_t i = 0; i < out->shape().elem_cnt(); ++i) out->mut_dptr<T>()[i] = 3 * x[i] * x[i];
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
REGISTER_USER_OP("of_triple_square").Input("in").Output("out").SetTensorDescInferFn(LikeIn);
REGISTER_USER_KERNEL("of_triple_square")
    .SetCreateFn<TripleSquareKernel<float>>()
    .SetIsMatchedHob((user_op::HobDeviceTag() == "cpu") &
                     (user_op::HobDataType("in", 0) == GetDataType<float>::value));
REGISTER_USER_OP_GRAD("of_triple_square")
    .SetBackwardOpConfGenFn([](user_op::BackwardOpConfContext* ctx) {
      const auto product = ctx->FwOp().op_name() + "_product";
      ctx->DefineOp(product, [&ctx](user_op::BackwardOpBuilder& builder) {
        return builder.OpTypeName("multiply")
            .InputBind("x", ctx->FwOp().input("in", 0))
            .InputBind("y", ctx->FwOp().output_grad("out", 0))
            .Output("out")
            .Build();
      });
      const auto scaled = ctx->FwOp().op_name() + "_scaled";
      ctx->DefineOp(scaled, [&ctx, &product](user_op::BackwardOpBuilder& builder) {
        return builder.OpTypeName("scalar_mul")
            .InputBind("in", ctx->GetOp(product).output("out", 0))
            .Attr("has_float_operand", true)
            .Attr("has_int_operand", false)
            .Attr("float_operand", static_cast<double>(6))
            .Attr("int_operand", static_cast<int64_t>(6))
            .Output("out")
            .Build();
      });
      ctx->FwOp().InputGradBind(user_op::OpArg("in", 0), [&ctx, &scaled]() -> const std::string& {
        return ctx->GetOp(scaled).output("out", 0);
      });
    });

// The sum of two or more arrays, and an optional one; as many copies of it as outputs.
class TotalKernel final : public user_op::OpKernel {
  void Compute(user_op::KernelComputeContext* ctx) const override {
    const user_op::Tensor* extra = ctx->Tensor4ArgNameAndIndex("extra", 0);
    for (const auto& [name, index] : ctx->outputs()) {
      user_op::Tensor* out = ctx->Tensor4ArgNameAndIndex(name, index);
      for (int64_t i = 0; i < out->shape().elem_cnt(); ++i) {
        float sum = extra ? extra->dptr<float>()[i] : 0;
        for (int32_t k = 0; k < ctx->input_size("in"); ++k) {
          sum += ctx->Tensor4ArgNameAndIndex("in", k)->dptr<float>()[i];
        }
        out->mut_dptr<float>()[i] = sum;
      }
    }
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
REGISTER_USER_OP("of_total")
    .InputWithMinimum("in", 2)
    .OptionalInput("extra")
    .OutputWithMinimum("out", 1)
    .SetTensorDescInferFn(user_op::TensorDescInferFnUtil::Unchanged)
    .SetGetSbpFn([](user_op::SbpContext* ctx) {
      int64_t axes = ctx->LogicalTensorDesc4InputArgNameAndIndex("in", 0).shape().NumAxes();
      for (int64_t i = 0; i < axes; ++i) {
        ctx->NewBuilder().Split(ctx->inputs(), i).Split(ctx->outputs(), i).Build();
      }
      ctx->NewBuilder().PartialSum(ctx->inputs()).PartialSum(ctx->outputs()).Build();
      return Maybe<void>::Ok();
    });
REGISTER_USER_KERNEL("of_total").SetCreateFn<TotalKernel>();

// All kinds of attributes: the output is a checksum of what the kernel read.
class AttrsKernel final : public user_op::OpKernel {
  void Compute(user_op::KernelComputeContext* ctx) const override {
    double sum = ctx->Attr<int32_t>("a_int32") + ctx->Attr<int64_t>("a_int64") +
                 ctx->Attr<bool>("a_bool") + ctx->Attr<float>("a_float") +
                 ctx->Attr<double>("a_double") + ctx->Attr<std::string>("a_string").size() +
                 ctx->Attr<Shape>("a_shape").elem_cnt() + ctx->Attr<DataType>("a_type");
    for (int32_t v : ctx->Attr<std::vector<int32_t>>("l_int32")) sum += v;
    for (int64_t v : ctx->Attr<std::vector<int64_t>>("l_int64")) sum += v;
    for (float v : ctx->Attr<std::vector<float>>("l_float")) sum += v;
    for (DataType v : ctx->Attr<std::vector<DataType>>("l_type")) sum += v;
    for (const Shape& v : ctx->Attr<std::vector<Shape>>("l_shape")) sum += v.elem_cnt();
    for (const auto& v : ctx->Attr<std::vector<std::string>>("l_string")) sum += v.size();
    ctx->Tensor4ArgNameAndIndex("out", 0)->mut_dptr<float>()[0] = static_cast<float>(sum);
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
REGISTER_USER_OP("of_attrs")
    .Input("in")
    .Output("out")
    .Attr<int32_t>("a_int32", 1)
    .Attr<int64_t>("a_int64", int64_t(1) << 40)
    .Attr<bool>("a_bool", true)
    .Attr<float>("a_float", 0.5f)
    .Attr<double>("a_double", 0.25)
    .Attr<std::string>("a_string", "four")
    .Attr<Shape>("a_shape", Shape({2, 3}))
    .Attr<DataType>("a_type", kDouble)
    .Attr<std::vector<int32_t>>("l_int32", std::vector<int32_t>{10, 11, 12})
    .Attr<std::vector<int64_t>>("l_int64", std::vector<int64_t>{5})
    .Attr<std::vector<float>>("l_float", std::vector<float>{0.5f, 1.5f})
    .Attr<std::vector<DataType>>("l_type", std::vector<DataType>{kFloat, kInt32})
    .Attr<std::vector<Shape>>("l_shape", std::vector<Shape>{Shape({2, 2}), Shape({3})})
    .Attr<std::vector<std::string>>("l_string", std::vector<std::string>{"it's", "two"})
    .SetTensorDescInferFn([](user_op::InferContext* ctx) -> Maybe<void> {
      *ctx->Shape4ArgNameAndIndex("out", 0) = Shape({1});
      return Maybe<void>::Ok();
    });
REGISTER_USER_KERNEL("of_attrs").SetCreateFn<AttrsKernel>();

// Checked attributes, a kernel for one value of one of them, and one that is created with them.
class LayoutKernel final : public user_op::OpKernel {
 public:
  explicit LayoutKernel(user_op::KernelCreateContext* ctx) : by_(ctx->Attr<float>("by")) {}

 private:
  void Compute(user_op::KernelComputeContext* ctx) const override {
    user_op::Tensor* out = ctx->Tensor4ArgNameAndIndex("out", 0);
    for (int64_t i = 0; i < out->shape().elem_cnt(); ++i) out->mut_dptr<float>()[i] = by_;
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
  float by_;
};
class LastKernel final : public user_op::OpKernel {
  void Compute(user_op::KernelComputeContext* ctx) const override {
    user_op::Tensor* out = ctx->Tensor4ArgNameAndIndex("out", 0);
    for (int64_t i = 0; i < out->shape().elem_cnt(); ++i) out->mut_dptr<float>()[i] = -1;
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
REGISTER_USER_OP("of_layout")
    .Input("in")
    .Output("out")
    .Attr<std::string>("data_format", "channels_first")
    .Attr<float>("by", 2)
    .SetCheckAttrFn([](const user_op::UserOpDefWrapper&,
                       const user_op::UserOpConfWrapper& conf) -> Maybe<void> {
      std::string format = conf.attr<std::string>("data_format");
      if (format == "channels_first" || format == "channels_last") return Maybe<void>::Ok();
      return oneflow::Error::CheckFailed() << "data_format is " << format;
    })
    .SetTensorDescInferFn(LikeIn);
REGISTER_USER_KERNEL("of_layout")
    .SetCreateWithCtxFn<LayoutKernel>()
    .SetIsMatchedHob((user_op::HobAttr<std::string>("data_format") == "channels_first") &
                     (user_op::HobNumAxes("in", 0) <= 4));
REGISTER_USER_KERNEL("of_layout")
    .SetCreateFn<LastKernel>()
    .SetIsMatchedHob(~(user_op::HobAttr<std::string>("data_format") == "channels_first"));

// Temporary space of the kernel, and a state that counts runs.
struct Runs final : user_op::OpKernelState {
  float n = 0;
};
class RunsKernel final : public user_op::OpKernel {
  std::shared_ptr<user_op::OpKernelState> CreateOpKernelState(
      user_op::KernelInitContext*) const override {
    return std::make_shared<Runs>();
  }
  void Compute(user_op::KernelComputeContext* ctx, user_op::OpKernelState* state) const override {
    float n = ++static_cast<Runs*>(state)->n;
    user_op::Tensor* tmp = ctx->Tensor4ArgNameAndIndex("tmp_buffer", 0);
    CHECK(tmp != nullptr) << "no temporary space";
    CHECK_EQ(tmp->shape().elem_cnt(), 1024);
    std::memset(tmp->mut_dptr<char>(), 1, 1024);
    user_op::Tensor* out = ctx->Tensor4ArgNameAndIndex("out", 0);
    for (int64_t i = 0; i < out->shape().elem_cnt(); ++i) out->mut_dptr<float>()[i] = n;
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return true; }
};
REGISTER_USER_OP("of_runs").Input("in").Output("out").SetTensorDescInferFn(LikeIn);
REGISTER_USER_KERNEL("of_runs").SetCreateFn<RunsKernel>().SetInferTmpSizeFn(
    [](const oneflow::user_op::InferContext*) { return 1024; });

// Mistakes: a kernel that reads another dtype than it has.
class WrongTypeKernel final : public user_op::OpKernel {
  void Compute(user_op::KernelComputeContext* ctx) const override {
    ctx->Tensor4ArgNameAndIndex("in", 0)->dptr<float>();
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
REGISTER_USER_OP("of_wrong_type").Input("in").Output("out").SetTensorDescInferFn(LikeIn);
REGISTER_USER_KERNEL("of_wrong_type").SetCreateFn<WrongTypeKernel>();

}  // namespace
}  // namespace oneflow

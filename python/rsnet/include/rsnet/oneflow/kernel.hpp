// REGISTER_USER_KERNEL: OneFlow's kernel registry. See rsnet/oneflow.hpp.
#ifndef RSNET_ONEFLOW_KERNEL_HPP
#define RSNET_ONEFLOW_KERNEL_HPP

#include <rsnet/oneflow/op.hpp>

namespace oneflow {
namespace user_op {

// ---- Conditions --------------------------------------------------------------------------------

// A condition as the program that plugin.h describes.
class Hob {
 public:
  struct Step {
    rsnet_match match;
    std::string name, text;
  };
  static Hob Leaf(int32_t op, int32_t compare, std::string name, int32_t index, rsnet_dtype dtype,
                  int64_t number, std::string text) {
    Hob hob;
    hob.steps_.push_back(
        {{op, compare, nullptr, index, dtype, number, nullptr}, std::move(name), std::move(text)});
    return hob;
  }
  friend Hob operator&(const Hob& a, const Hob& b) { return Join(a, b, RSNET_M_AND); }
  friend Hob operator|(const Hob& a, const Hob& b) { return Join(a, b, RSNET_M_OR); }
  friend Hob operator~(const Hob& a) { return Join(a, Hob(), RSNET_M_NOT); }
  friend Hob operator&&(const Hob& a, const Hob& b) { return a & b; }
  friend Hob operator||(const Hob& a, const Hob& b) { return a | b; }
  friend Hob operator!(const Hob& a) { return ~a; }

  // The program; valid as long as the condition.
  std::vector<rsnet_match> Program() const {
    std::vector<rsnet_match> out;
    for (const Step& s : steps_) {
      out.push_back(s.match);
      out.back().name = s.name.c_str();
      out.back().text = s.text.c_str();
    }
    return out;
  }

 private:
  static Hob Join(Hob a, const Hob& b, int32_t op) {
    a.steps_.insert(a.steps_.end(), b.steps_.begin(), b.steps_.end());
    a.steps_.push_back({{op, 0, nullptr, 0, {0, 0, 0}, 0, nullptr}, "", ""});
    return a;
  }
  std::vector<Step> steps_;
};

inline Hob HobTrue() { return Hob::Leaf(RSNET_M_TRUE, 0, "", 0, {0, 0, 0}, 0, ""); }

struct HobDeviceTag {
  Hob operator==(DeviceType device) const {
    return Hob::Leaf(RSNET_M_DEVICE, RSNET_EQ, "", 0, {0, 0, 0}, device, "");
  }
  Hob operator==(const std::string& tag) const {
    if (tag == "cpu") return *this == kCPU;
    return *this == (tag == "gpu" || tag == "cuda" ? kGPU : kInvalidDevice);  // refused by rsnet
  }
  Hob operator==(const char* tag) const { return *this == std::string(tag); }
};
using HobDeviceType = HobDeviceTag;

class HobDataType {
 public:
  HobDataType(std::string arg, int32_t i) : arg_(std::move(arg)), i_(i) {}
  Hob operator==(DataType type) const {
    return Hob::Leaf(RSNET_M_DTYPE, RSNET_EQ, arg_, i_, ToRsnet(type), 0, "");
  }
  Hob operator!=(DataType type) const { return ~(*this == type); }

 private:
  std::string arg_;
  int32_t i_;
};

#define RSNET_OF_COMPARE(T, op, code) \
  Hob operator op(T value) const { return Make(code, value); }
#define RSNET_OF_COMPARES(T)            \
  RSNET_OF_COMPARE(T, ==, RSNET_EQ)     \
  RSNET_OF_COMPARE(T, !=, RSNET_NE)     \
  RSNET_OF_COMPARE(T, <, RSNET_LT)      \
  RSNET_OF_COMPARE(T, <=, RSNET_LE)     \
  RSNET_OF_COMPARE(T, >, RSNET_GT)      \
  RSNET_OF_COMPARE(T, >=, RSNET_GE)

template <typename T>
class HobAttr {
 public:
  explicit HobAttr(std::string name) : name_(std::move(name)) {}
  RSNET_OF_COMPARES(const T&)

 private:
  Hob Make(int32_t compare, const T& value) const {
    return Hob::Leaf(RSNET_M_ATTR, compare, name_, 0, {0, 0, 0}, 0, AttrText(value));
  }
  std::string name_;
};

class HobNumAxes {
 public:
  HobNumAxes(std::string arg, int32_t i) : arg_(std::move(arg)), i_(i) {}
  RSNET_OF_COMPARES(int64_t)

 private:
  Hob Make(int32_t compare, int64_t axes) const {
    return Hob::Leaf(RSNET_M_NDIM, compare, arg_, i_, {0, 0, 0}, axes, "");
  }
  std::string arg_;
  int32_t i_;
};
#undef RSNET_OF_COMPARES
#undef RSNET_OF_COMPARE

// ---- Kernels -----------------------------------------------------------------------------------

class OpKernelState {
 public:
  virtual ~OpKernelState() = default;
};
using OpKernelCache = OpKernelState;

#if defined(__CUDACC__)  // which warns of every kernel that overrides one of both
#pragma nv_diag_suppress 611
#endif
class OpKernel {
 public:
  virtual ~OpKernel() = default;
  // Called once for every node or recorded call.
  virtual std::shared_ptr<OpKernelState> CreateOpKernelState(KernelInitContext*) const {
    return nullptr;
  }
  virtual void Compute(KernelComputeContext* ctx, OpKernelState*) const { Compute(ctx); }
  virtual void Compute(KernelComputeContext*) const {
    throw rsnet::Failure("the kernel does not override Compute(KernelComputeContext*) const",
                         RSNET_UNSUPPORTED);
  }
  virtual bool AlwaysComputeWhenAllOutputsEmpty() const = 0;
};

// Does kernel K create a state? (Also if its function is private, and so cannot be named here.)
template <typename K, typename = void>
struct KeepsState : std::true_type {};
template <typename K>
struct KeepsState<K, std::void_t<decltype(&K::CreateOpKernelState)>>
    : std::bool_constant<!std::is_same_v<decltype(&K::CreateOpKernelState),
                                         decltype(&OpKernel::CreateOpKernelState)>> {};

using InferTmpSizeFn = std::function<size_t(InferContext*)>;
using AddInplaceArgPair =
    std::function<Maybe<void>(const std::string&, int32_t, const std::string&, int32_t, bool)>;
using InplaceProposalFn = std::function<Maybe<void>(const InferContext&, AddInplaceArgPair)>;

// Usual priorities of kernels.
constexpr int32_t kKernelPriorityFallback = -10;
constexpr int32_t kKernelPriorityOptimized = 10;
constexpr int32_t kKernelPriorityExperimental = 100;

class KernelRegistry {
  // A kernel and its state: one for every node or recorded call.
  struct Instance {
    std::shared_ptr<OpKernel> kernel;
    std::shared_ptr<OpKernelState> state;
  };

 public:
  explicit KernelRegistry(std::string op) : op_(std::move(op)) {}

  template <typename K>
  KernelRegistry& SetCreateFn() {
    create_ = [](KernelCreateContext*) { return std::make_shared<K>(); };
    has_state_ = KeepsState<K>::value;
    return *this;
  }
  template <typename K>
  KernelRegistry& SetCreateWithCtxFn() {
    create_ = [](KernelCreateContext* ctx) { return std::make_shared<K>(ctx); };
    has_state_ = true;
    return *this;
  }
  KernelRegistry& SetIsMatchedHob(const Hob& hob) {
    hob_ = hob;
    return *this;
  }
  KernelRegistry& SetInferTmpSizeFn(InferTmpSizeFn f) {
    tmp_size_ = std::move(f);
    return *this;
  }
  KernelRegistry& SetInplaceProposalFn(InplaceProposalFn f) {
    inplace_ = std::move(f);
    return *this;
  }
  KernelRegistry& SetPriority(int32_t priority) {
    priority_ = priority;
    return *this;
  }

  rsnet::Step Step() const {
    auto* self = rsnet::keep(*this);
    return [self](const rsnet_host* host, rsnet_registry* registry) {
      return self->Register(host, registry);
    };
  }

 private:
  rsnet_status Register(const rsnet_host* host, rsnet_registry* registry) {
    if (!create_) {
      throw rsnet::Failure("kernel of '" + op_ + "': SetCreateFn<Kernel>() is missing");
    }
    auto known = known_arguments().find(op_);
    if (known == known_arguments().end()) {
      throw rsnet::Failure("the library has a kernel for '" + op_ +
                           "', which is no operator of this library");
    }
    args_ = known->second;
    std::vector<rsnet_match> program = hob_.Program();
    rsnet_kernel kernel = {};
    kernel.struct_size = sizeof kernel;
    kernel.flags = RSNET_ALWAYS_COMPUTE;  // the kernel itself is asked
    kernel.op = op_.c_str();
    kernel.match = program.data();
    kernel.n_match = static_cast<int32_t>(program.size());
    kernel.priority = priority_;
    kernel.user = this;
    kernel.compute = Compute;
    if (has_state_) {
      kernel.create_state = Create;
      kernel.destroy_state = Destroy;
    } else {
      common_.kernel = create_(nullptr);
    }
    if (tmp_size_) kernel.tmp_bytes = TmpBytes;
    if (inplace_) kernel.inplace = Inplace;
    return host->register_kernel(registry, &kernel);
  }

  static rsnet_status Create(const rsnet_host* host, rsnet_ctx* c, void* user, void** made) {
    return rsnet::protect(host, c, [&] {
      auto* self = static_cast<KernelRegistry*>(user);
      KernelCreateContext create(*self->args_, host, c);
      KernelInitContext init(*self->args_, host, c);
      auto instance = std::make_unique<Instance>();
      instance->kernel = self->create_(&create);
      instance->state = instance->kernel->CreateOpKernelState(&init);
      *made = instance.release();
    });
  }
  static void Destroy(void* made) { delete static_cast<Instance*>(made); }

  static rsnet_status Compute(const rsnet_args* args) {
    return rsnet::protect(args->host, args->ctx, [&] {
      auto* self = static_cast<KernelRegistry*>(args->user);
      auto* own = static_cast<Instance*>(args->kernel_state);
      const Instance* instance = self->has_state_ ? own : &self->common_;
      bool empty = args->n_out > 0;
      for (int32_t i = 0; i < args->n_out; ++i) empty = empty && rsnet_size(&args->out[i]) == 0;
      if (empty && !instance->kernel->AlwaysComputeWhenAllOutputsEmpty()) return;
      KernelComputeContext ctx(*self->args_, args, static_cast<bool>(self->tmp_size_));
      // The base's function: a kernel that overrides one of the two hides the other.
      const OpKernel& kernel = *instance->kernel;
      kernel.Compute(&ctx, instance->state.get());
    });
  }
  static rsnet_status TmpBytes(const rsnet_host* host, rsnet_ctx* c, void* user, void** made) {
    return rsnet::protect(host, c, [&] {
      auto* self = static_cast<KernelRegistry*>(user);
      InferContext ctx(*self->args_, host, c);
      *made = reinterpret_cast<void*>(static_cast<uintptr_t>(self->tmp_size_(&ctx)));
    });
  }
  static rsnet_status Inplace(const rsnet_host* host, rsnet_ctx* c, void* user) {
    return rsnet::protect(host, c, [&] {
      auto* self = static_cast<KernelRegistry*>(user);
      InferContext ctx(*self->args_, host, c, /*arrays=*/false);
      auto add = [&](const std::string& out, int32_t o, const std::string& in, int32_t i,
                     bool) -> Maybe<void> {
        int32_t input = host->find(c, RSNET_INPUT, in.c_str(), i);
        int32_t output = host->find(c, RSNET_OUTPUT, out.c_str(), o);
        rsnet::check(host->add_inplace(c, input, output, 0));
        return Maybe<void>::Ok();
      };
      self->inplace_(ctx, add).GetOrThrow();
    });
  }

  std::string op_;
  const Arguments* args_ = nullptr;
  std::function<std::shared_ptr<OpKernel>(KernelCreateContext*)> create_;
  Hob hob_;
  InferTmpSizeFn tmp_size_;
  InplaceProposalFn inplace_;
  int32_t priority_ = 0;
  bool has_state_ = true;
  Instance common_;  // of a kernel without state
};

}  // namespace user_op
}  // namespace oneflow

#define REGISTER_USER_KERNEL(op)                                             \
  static const ::oneflow::user_op::Registration RSNET_UNIQUE(rsnet_kernel_) = \
      ::oneflow::user_op::KernelRegistry(op)

#endif  // RSNET_ONEFLOW_KERNEL_HPP

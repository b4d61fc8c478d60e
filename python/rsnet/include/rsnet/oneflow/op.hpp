// REGISTER_USER_OP: OneFlow's operator registry. See rsnet/oneflow.hpp.
#ifndef RSNET_ONEFLOW_OP_HPP
#define RSNET_ONEFLOW_OP_HPP

#include <rsnet/oneflow/conf.hpp>

namespace oneflow {
namespace user_op {

// ---- SBP signatures ----------------------------------------------------------------------------

class SbpContext;

class UserOpSbpSignatureBuilder {
 public:
  explicit UserOpSbpSignatureBuilder(SbpContext* ctx) : ctx_(ctx) {}
  UserOpSbpSignatureBuilder& Split(const OpArg& arg, int64_t axis) {
    return Add(arg, "S(" + std::to_string(axis) + ")");
  }
  UserOpSbpSignatureBuilder& Broadcast(const OpArg& arg) { return Add(arg, "B"); }
  UserOpSbpSignatureBuilder& PartialSum(const OpArg& arg) { return Add(arg, "P"); }
  UserOpSbpSignatureBuilder& Split(const ArgPairs& args, int64_t axis) {
    for (const auto& [name, i] : args) Split(OpArg(name, i), axis);
    return *this;
  }
  UserOpSbpSignatureBuilder& Split(const std::vector<OpArg>& args, int64_t axis) {
    for (const OpArg& arg : args) Split(arg, axis);
    return *this;
  }
  UserOpSbpSignatureBuilder& Broadcast(const ArgPairs& args) {
    for (const auto& [name, i] : args) Broadcast(OpArg(name, i));
    return *this;
  }
  UserOpSbpSignatureBuilder& Broadcast(const std::vector<OpArg>& args) {
    for (const OpArg& arg : args) Broadcast(arg);
    return *this;
  }
  UserOpSbpSignatureBuilder& PartialSum(const ArgPairs& args) {
    for (const auto& [name, i] : args) PartialSum(OpArg(name, i));
    return *this;
  }
  UserOpSbpSignatureBuilder& PartialSum(const std::vector<OpArg>& args) {
    for (const OpArg& arg : args) PartialSum(arg);
    return *this;
  }
  inline void Build();

 private:
  UserOpSbpSignatureBuilder& Add(const OpArg& arg, const std::string& sbp) {
    if (!text_.empty()) text_ += " ";
    text_ += arg.name() + "[" + std::to_string(arg.index()) + "]:" + sbp;
    return *this;
  }
  SbpContext* ctx_;
  std::string text_;
};

class SbpContext : public InferContext {
 public:
  using InferContext::InferContext;
  const TensorDesc& LogicalTensorDesc4InputArgNameAndIndex(const std::string& arg, int32_t i) {
    return InputTensorDesc(arg, i);
  }
  UserOpSbpSignatureBuilder NewBuilder() { return UserOpSbpSignatureBuilder(this); }
  void AddSignature(const std::string& text) {
    rsnet::check(host_->add_sbp(ctx_, text.c_str()));
  }
};

inline void UserOpSbpSignatureBuilder::Build() { ctx_->AddSignature(text_); }

struct GetSbpFnUtil {
  static Maybe<void> DefaultBroadcastToBroadcast(SbpContext*) { return Maybe<void>::Ok(); }
  static Maybe<void> SplitForEachAxis(SbpContext* ctx) {
    const ArgPairs &in = ctx->inputs(), &out = ctx->outputs();
    if (in.empty()) throw rsnet::Failure("SplitForEachAxis: the operator has no inputs");
    int64_t axes = ctx->LogicalTensorDesc4InputArgNameAndIndex(in[0].first, in[0].second).NumAxes();
    for (int64_t i = 0; i < axes; ++i) ctx->NewBuilder().Split(in, i).Split(out, i).Build();
    return Maybe<void>::Ok();
  }
};

struct TensorDescInferFnUtil {
  static Maybe<void> Unchanged(InferContext* ctx) {
    const auto& [first, i] = FirstInput(ctx);
    const Shape shape = ctx->InputShape(first, i);
    for (const auto& [name, index] : ctx->inputs()) {
      CHECK_EQ_OR_RETURN(ctx->InputShape(name, index), shape);
    }
    for (const auto& [name, index] : ctx->outputs()) *ctx->OutputShape(name, index) = shape;
    return UnchangedDataType(ctx);
  }
  // Every output is like the input in its place.
  static Maybe<void> InOutCorrespond(InferContext* ctx) {
    CHECK_EQ_OR_RETURN(ctx->inputs().size(), ctx->outputs().size());
    for (size_t i = 0; i < ctx->outputs().size(); ++i) {
      const auto &in = ctx->inputs()[i], &out = ctx->outputs()[i];
      *ctx->OutputShape(out.first, out.second) = ctx->InputShape(in.first, in.second);
      *ctx->OutputDType(out.first, out.second) = ctx->InputDType(in.first, in.second);
    }
    return Maybe<void>::Ok();
  }
  static Maybe<void> UnchangedDataType(InferContext* ctx) {
    const auto& [first, i] = FirstInput(ctx);
    for (const auto& [name, index] : ctx->outputs()) {
      *ctx->OutputDType(name, index) = ctx->InputDType(first, i);
    }
    return Maybe<void>::Ok();
  }

 private:
  static const ArgPairs::value_type& FirstInput(InferContext* ctx) {
    if (!ctx->inputs().empty()) return ctx->inputs()[0];
    throw rsnet::Failure("TensorDescInferFnUtil::Unchanged: the operator has no inputs");
  }
};

// ---- Batch axes --------------------------------------------------------------------------------

// What functions for batch axes are written with. They are never called: every array has all of its
// batch.
struct OptInt64 {
  int64_t value = 0;
  bool has_value() const { return false; }
  void set_value(int64_t axis) { value = axis; }
  void clear_value() { value = 0; }
};
class BatchAxisContext : public InferContext {
 public:
  using InferContext::InferContext;
  OptInt64* BatchAxis4ArgNameAndIndex(const std::string&, int32_t) { return &axis_; }

 private:
  OptInt64 axis_;
};
struct BatchAxisInferFnUtil {
  static Maybe<void> DefaultAsFirstHasValueInput(BatchAxisContext*) { return Maybe<void>::Ok(); }
  static Maybe<void> NaiveInferBatchAxis(BatchAxisContext*) { return Maybe<void>::Ok(); }
};

// ---- Flags of arguments ------------------------------------------------------------------------

class ArgModifier {
 public:
  explicit ArgModifier(rsnet::ArgText* arg) : arg_(arg) {}
  void set_requires_grad(bool requires_grad) { Set(RSNET_NO_GRAD, !requires_grad); }
  void set_is_mutable(bool is_mutable) { Set(RSNET_STATE, is_mutable); }
  void set_use_header_only(bool header_only) { Set(RSNET_IGNORED, header_only); }
  void set_header_infered_before_compute(bool) {}

 private:
  void Set(uint32_t flag, bool on) { arg_->flags = on ? arg_->flags | flag : arg_->flags & ~flag; }
  rsnet::ArgText* arg_;
};
using InputArgModifier = ArgModifier;
using OutputArgModifier = ArgModifier;
using GetInputArgModifier = std::function<ArgModifier*(const std::string&, int32_t)>;
using GetOutputArgModifier = GetInputArgModifier;

// ---- The registry ------------------------------------------------------------------------------

enum class UserOpAttrType {
  kAtInt32 = RSNET_I32,
  kAtInt64 = RSNET_I64,
  kAtBool = RSNET_BOOL,
  kAtFloat = RSNET_F32,
  kAtDouble = RSNET_F64,
  kAtString = RSNET_STR,
  kAtShape = RSNET_SHAPE,
  kAtDataType = RSNET_DTYPE,
  kAtListInt32 = RSNET_LIST_I32,
  kAtListInt64 = RSNET_LIST_I64,
  kAtListFloat = RSNET_LIST_F32,
  kAtListDataType = RSNET_LIST_DTYPE,
  kAtListShape = RSNET_LIST_SHAPE,
  kAtListString = RSNET_LIST_STR
};

using TensorDescInferFn = std::function<Maybe<void>(InferContext*)>;
using CheckAttrFn = std::function<Maybe<void>(const UserOpDefWrapper&, const UserOpConfWrapper&)>;
using GetSbpFn = std::function<Maybe<void>(SbpContext*)>;
using InputArgModifyFn = std::function<void(GetInputArgModifier, const UserOpConfWrapper&)>;

// The arguments of the operators that this library has registered, for its kernels and gradients.
RSNET_LOCAL inline std::map<std::string, const Arguments*>& known_arguments() {
  static std::map<std::string, const Arguments*> all;
  return all;
}

class OpRegistry {
 public:
  explicit OpRegistry(std::string name) { args_.op = std::move(name); }

  OpRegistry& Input(const std::string& n, int32_t k = 1) { return In(n, k, 0); }
  OpRegistry& InputWithMinimum(const std::string& n, int32_t k) { return In(n, k, RSNET_AT_LEAST); }
  OpRegistry& OptionalInput(const std::string& n, int32_t k = 1) { return In(n, k, RSNET_OPTIONAL); }
  OpRegistry& OptionalInputWithMinimum(const std::string& n, int32_t k) {
    return In(n, k, RSNET_OPTIONAL | RSNET_AT_LEAST);
  }
  OpRegistry& OptionalInputWithMininum(const std::string& n, int32_t k) {  // as tutorials spell it
    return OptionalInputWithMinimum(n, k);
  }
  OpRegistry& Output(const std::string& n, int32_t k = 1) { return Out(n, k, 0); }
  OpRegistry& OutputWithMinimum(const std::string& n, int32_t k) {
    return Out(n, k, RSNET_AT_LEAST);
  }
  OpRegistry& OptionalOutput(const std::string& n, int32_t k = 1) {
    return Out(n, k, RSNET_OPTIONAL);
  }
  OpRegistry& OptionalOutputWithMinimum(const std::string& n, int32_t k) {
    return Out(n, k, RSNET_OPTIONAL | RSNET_AT_LEAST);
  }
  OpRegistry& OptionalOutputWithMininum(const std::string& n, int32_t k) {
    return OptionalOutputWithMinimum(n, k);
  }

  // Without a default the attribute is 0, empty, float32.
  template <typename T>
  OpRegistry& Attr(const std::string& name) {
    return Attr<T>(name, DefaultOf<T>());
  }
  template <typename T>
  OpRegistry& Attr(const std::string& name, const T& value) {
    return Attribute(name, AttrKind<T>::kind, true, AttrText(value));
  }
  OpRegistry& Attr(const std::string& name, UserOpAttrType kind) {  // must be set by the caller
    return Attribute(name, static_cast<int32_t>(kind), false, "");
  }
  template <typename T>
  OpRegistry& Attr(const std::string& name, UserOpAttrType kind, const T& value) {
    return Attribute(name, static_cast<int32_t>(kind), true, AttrText(value));
  }

  OpRegistry& SetTensorDescInferFn(TensorDescInferFn f) { return Set(infer_, std::move(f)); }
  OpRegistry& SetLogicalTensorDescInferFn(TensorDescInferFn f) { return Set(infer_, std::move(f)); }
  OpRegistry& SetPhysicalTensorDescInferFn(TensorDescInferFn) { return *this; }
  OpRegistry& SetDataTypeInferFn(TensorDescInferFn f) { return Set(infer_type_, std::move(f)); }
  OpRegistry& SetCheckAttrFn(CheckAttrFn f) { return Set(check_, std::move(f)); }
  OpRegistry& SetGetSbpFn(GetSbpFn f) { return Set(sbp_, std::move(f)); }
  OpRegistry& SetInputArgModifyFn(InputArgModifyFn f) { return Set(modify_inputs_, std::move(f)); }
  OpRegistry& SetOutputArgModifyFn(InputArgModifyFn f) { return Set(modify_outputs_, std::move(f)); }
  // Accepted without effect: batch axes were given up by OneFlow, the rest is for its scheduler.
  template <typename F>
  OpRegistry& SetBatchAxisInferFn(F&&) {
    return *this;
  }
  template <typename F>
  OpRegistry& SetInferSbpSignatureFn(F&&) {
    return *this;
  }
  OpRegistry& SupportCpuOnly() { return *this; }
  OpRegistry& SetOutputBufferNum(int32_t) { return *this; }
  OpRegistry& Doc(const std::string& text) { return Set(doc_, text); }
  // rsnet's own: a call may take long, or wait for another thread (RSNET_LONG).
  OpRegistry& Long() { return Set(flags_, RSNET_LONG); }

  rsnet::Step Step() const {
    auto* self = rsnet::keep(*this);
    known_arguments()[self->args_.op] = &self->args_;
    return [self](const rsnet_host* host, rsnet_registry* registry) {
      return self->Register(host, registry);
    };
  }

 private:
  template <typename T>
  static T DefaultOf() {
    if constexpr (std::is_same_v<T, DataType>) {
      return kFloat;
    } else {
      return T();
    }
  }
  template <typename M, typename V>
  OpRegistry& Set(M& member, V&& value) {
    member = std::forward<V>(value);
    return *this;
  }
  OpRegistry& In(const std::string& n, int32_t k, uint32_t flags) {
    args_.inputs.push_back({n, "", k, flags});
    return *this;
  }
  OpRegistry& Out(const std::string& n, int32_t k, uint32_t flags) {
    args_.outputs.push_back({n, "", k, flags});
    return *this;
  }
  OpRegistry& Attribute(const std::string& name, int32_t kind, bool has_default, std::string text) {
    rsnet::AttrText attr;
    attr.kind = kind;
    attr.name = name;
    attr.has_default = has_default;
    attr.dflt = std::move(text);
    args_.attrs.push_back(std::move(attr));
    return *this;
  }

  void Modify() {
    auto modifier = [this](std::vector<rsnet::ArgText>& args) {
      return [this, &args](const std::string& name, int32_t) -> ArgModifier* {
        for (rsnet::ArgText& arg : args) {
          if (arg.name == name) return &modifiers_.emplace_back(&arg);
        }
        return nullptr;
      };
    };
    const Context unknown(args_, nullptr, nullptr);
    const UserOpConfWrapper conf(unknown);
    if (modify_inputs_) modify_inputs_(modifier(args_.inputs), conf);
    if (modify_outputs_) modify_outputs_(modifier(args_.outputs), conf);
  }

  rsnet_status Register(const rsnet_host* host, rsnet_registry* registry) {
    Modify();
    std::vector<rsnet_arg> in = rsnet::arg_list(args_.inputs), out = rsnet::arg_list(args_.outputs);
    rsnet::AttrList attrs(args_.attrs);
    rsnet_op op = {};
    op.struct_size = sizeof op;
    op.flags = flags_;
    op.name = args_.op.c_str();
    op.doc = doc_.c_str();
    op.inputs = in.data();
    op.n_inputs = static_cast<int32_t>(in.size());
    op.outputs = out.data();
    op.n_outputs = static_cast<int32_t>(out.size());
    op.attrs = attrs.data();
    op.n_attrs = attrs.size();
    op.user = this;
    if (infer_) op.infer = Infer;
    if (check_) op.check = Check;
    if (sbp_) op.sbp = Sbp;
    return host->register_op(registry, &op);
  }

  static rsnet_status Infer(const rsnet_host* host, rsnet_ctx* c, void* user) {
    return rsnet::protect(host, c, [&] {
      auto* self = static_cast<OpRegistry*>(user);
      InferContext ctx(self->args_, host, c);
      ctx.BeginOutputs();
      if (self->infer_type_) self->infer_type_(&ctx).GetOrThrow();
      self->infer_(&ctx).GetOrThrow();
      ctx.EndOutputs();
    });
  }
  static rsnet_status Check(const rsnet_host* host, rsnet_ctx* c, void* user) {
    return rsnet::protect(host, c, [&] {
      auto* self = static_cast<OpRegistry*>(user);
      const Context ctx(self->args_, host, c);
      self->check_(UserOpDefWrapper(self->args_), UserOpConfWrapper(ctx)).GetOrThrow();
    });
  }
  static rsnet_status Sbp(const rsnet_host* host, rsnet_ctx* c, void* user) {
    return rsnet::protect(host, c, [&] {
      auto* self = static_cast<OpRegistry*>(user);
      SbpContext ctx(self->args_, host, c);
      self->sbp_(&ctx).GetOrThrow();
    });
  }

  Arguments args_;
  std::string doc_;
  uint32_t flags_ = 0;
  std::deque<ArgModifier> modifiers_;
  TensorDescInferFn infer_, infer_type_;
  CheckAttrFn check_;
  GetSbpFn sbp_;
  InputArgModifyFn modify_inputs_, modify_outputs_;
};

// A chain of calls on a registry, registered at the end of the statement.
struct Registration : rsnet::Registered {
  template <typename Registry>
  Registration(const Registry& registry) : rsnet::Registered(registry.Step()) {}
};

}  // namespace user_op

// Where sources of 0.2 look for it, and those of 0.3 under its later name.
using user_op::UserOpAttrType;
using AttrType = user_op::UserOpAttrType;
using user_op::OptInt64;

}  // namespace oneflow

#define REGISTER_USER_OP(name)                                           \
  static const ::oneflow::user_op::Registration RSNET_UNIQUE(rsnet_op_) = \
      ::oneflow::user_op::OpRegistry(name)
#define REGISTER_CPU_ONLY_USER_OP(name) REGISTER_USER_OP(name).SupportCpuOnly()

#endif  // RSNET_ONEFLOW_OP_HPP

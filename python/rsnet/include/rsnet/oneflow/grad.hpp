// REGISTER_USER_OP_GRAD: OneFlow's gradient registry. See rsnet/oneflow.hpp.
#ifndef RSNET_ONEFLOW_GRAD_HPP
#define RSNET_ONEFLOW_GRAD_HPP

#include <rsnet/oneflow/op.hpp>

#include <algorithm>
#include <set>

namespace oneflow {
namespace user_op {

class GradOpBuilder {
 public:
  explicit GradOpBuilder(std::string name) : op_(std::move(name)) {}
  GradOpBuilder& OpTypeName(const std::string& type) {
    op_.type_ = type;
    return *this;
  }
  GradOpBuilder& Op(const std::string& type) { return OpTypeName(type); }
  GradOpBuilder& InputBind(const std::string& arg, const std::string& value) {  // appends
    for (auto& [name, values] : op_.inputs_) {
      if (name == arg) {
        values.push_back(value);
        return *this;
      }
    }
    op_.inputs_.push_back({arg, {value}});
    return *this;
  }
  GradOpBuilder& Input(const std::string& arg, const std::string& value) {
    return InputBind(arg, value);
  }
  GradOpBuilder& Output(const std::string& arg, int32_t n = 1) {
    for (int32_t i = 0; i < n; ++i) {
      op_.outputs_.push_back(op_.name_ + "/" + arg + "_" + std::to_string(i));
    }
    return *this;
  }
  template <typename T>
  GradOpBuilder& Attr(const std::string& name, const T& value) {
    op_.attrs_.emplace_back(name, AttrText(value));
    return *this;
  }
  GradOpBuilder& Attr(const std::string& name, const char* value) {
    return Attr(name, std::string(value));
  }
  GradOp Build() const {
    if (op_.type_.empty()) {
      throw rsnet::Failure("operator '" + op_.name_ + "' of a gradient has no type: call Op()");
    }
    return op_;
  }

 private:
  GradOp op_;
};
using BackwardOpBuilder = GradOpBuilder;
using UserOpConfWrapperBuilder = GradOpBuilder;
using AddOpFn = std::function<void(const GradOp&)>;

// OneFlow's own operators in terms of rsnet's: the inputs in rsnet's order, and attributes, all of
// which are named in `known`.
struct BuiltIn {
  const char* type;
  const char* rsnet_op;
  std::vector<std::string> inputs, known;
  std::function<std::vector<std::pair<std::string, std::string>>(
      const std::map<std::string, std::string>&)>
      attrs;
};

RSNET_LOCAL inline const std::vector<BuiltIn>& BuiltIns() {
  using Attrs = const std::map<std::string, std::string>&;
  using Out = std::vector<std::pair<std::string, std::string>>;
  auto scalar = [](Attrs given) -> Out {
    auto is_int = given.find("has_int_operand");
    bool integer = is_int != given.end() && is_int->second == "True";
    auto operand = given.find(integer ? "int_operand" : "float_operand");
    if (operand == given.end()) {
      throw rsnet::Failure(
          "a scalar operator of a gradient has no operand: expected has_int_operand and "
          "int_operand, or has_float_operand and float_operand");
    }
    return {{"scalar", operand->second}};
  };
  const std::vector<std::string> operands = {"has_int_operand", "int_operand", "has_float_operand",
                                             "float_operand"};
  auto renamed = [](std::string from, std::string to) {
    return [from, to](Attrs given) -> Out {
      auto found = given.find(from);
      return found == given.end() ? Out() : Out{{to, found->second}};
    };
  };
  static const std::vector<BuiltIn> all = {
      {"multiply", "elemwise_mul", {"x", "y"}, {}, {}},
      {"broadcast_mul", "broadcast_mul", {"x", "y"}, {}, {}},
      {"broadcast_add", "broadcast_add", {"x", "y"}, {}, {}},
      {"broadcast_sub", "broadcast_sub", {"x", "y"}, {}, {}},
      {"broadcast_div", "broadcast_div", {"x", "y"}, {}, {}},
      {"scalar_mul", "_mul_scalar", {"in"}, operands, scalar},
      {"scalar_add", "_plus_scalar", {"in"}, operands, scalar},
      {"add_n", "add_n", {"in"}, {}, {}},
      {"cast", "Cast", {"in"}, {"dtype"}, renamed("dtype", "dtype")},
      {"reshape", "Reshape", {"in"}, {"shape"}, renamed("shape", "shape")},
      {"reshape_like", "reshape_like", {"in", "like"}, {}, {}},
      {"transpose", "transpose", {"input"}, {"perm"}, renamed("perm", "axes")},
      {"negative", "negative", {"x"}, {}, {}},
      {"square", "square", {"x"}, {}, {}},
      {"sqrt", "sqrt", {"x"}, {}, {}},
      {"exp", "exp", {"x"}, {}, {}},
      {"log", "log", {"x"}, {}, {}},
      {"sigmoid", "sigmoid", {"in"}, {}, {}},
      {"tanh", "tanh", {"x"}, {}, {}},
      {"relu", "relu", {"in"}, {}, {}},
      {"zero_like", "zeros_like", {"like"}, {}, {}},
      {"identity", "identity", {"in"}, {}, {}},
  };
  return all;
}

// The forward node and what is being written of its gradient. BackwardOpConfContext and the
// UserOpWrapper of the older style are two faces of it.
class Gradient : public Context {
 public:
  Gradient(const Arguments& args, const rsnet_host* host, rsnet_ctx* ctx)
      : Context(args, host, ctx) {
    const char* name = host->node_name(ctx);
    name_ = *name ? name : args.op;
  }

  // The forward node.
  const std::string& op_name() const { return name_; }
  const std::string& input(const std::string& arg, int32_t i) const {
    return Value(RSNET_IN_DATA, RSNET_INPUT, arg, i, "");
  }
  const std::string& output(const std::string& arg, int32_t i) const {
    return Value(RSNET_OUT_DATA, RSNET_OUTPUT, arg, i, "");
  }
  // The gradient that arrives at an output; zeros if none does.
  const std::string& output_grad(const std::string& arg, int32_t i) const {
    return Value(RSNET_OUT_GRAD, RSNET_OUTPUT, arg, i, "/grad");
  }
  const std::string& GetGradTensorWithOpOutput(const std::string& arg, int32_t i) const {
    return output_grad(arg, i);
  }
  bool NeedGenGradTensor4OpInput(const std::string& arg, int32_t i) const {
    return host_->wants_grad(ctx_, Number(RSNET_INPUT, arg, i)) != 0;
  }
  bool HasGradTensor4OpOutput(const std::string& arg, int32_t i) const {
    return host_->has_out_grad(ctx_, Number(RSNET_OUTPUT, arg, i)) != 0;
  }
  void BindGradTensorWithOpInput(const std::string& value, const std::string& arg, int32_t i) const {
    bound_[Number(RSNET_INPUT, arg, i)] = value;
  }
  void InputGradBind(const OpArg& arg, const std::function<const std::string&()>& value) const {
    if (NeedGenGradTensor4OpInput(arg.name(), arg.index())) {
      BindGradTensorWithOpInput(value(), arg.name(), arg.index());
    }
  }

  // Operators.
  Gradient& FwOp() { return *this; }
  void DefineOp(const std::string& name, std::function<GradOp(GradOpBuilder&)> make) {
    CheckFree(name, recipes_.emplace(name, std::move(make)).second);
  }
  const GradOp& GetOp(const std::string& name) {
    auto made = made_.find(name);
    if (made != made_.end()) return made->second;
    auto recipe = recipes_.find(name);
    if (recipe == recipes_.end()) {
      throw rsnet::Failure("operator '" + name + "' of a gradient is not defined");
    }
    GradOpBuilder builder(name);
    Begin(name);
    GradOp op = recipe->second(builder);
    begun_.erase(name);
    return made_.emplace(name, std::move(op)).first->second;
  }
  void Add(const GradOp& op) { CheckFree(op.op_name(), made_.emplace(op.op_name(), op).second); }

  // Tells rsnet what was bound.
  void Finish() {
    for (const auto& [input, value] : bound_) {
      rsnet::check(host_->bind_grad(ctx_, input, Entry(value)));
    }
  }

 private:
  int32_t Number(int32_t side, const std::string& arg, int32_t i) const {
    auto [found_side, at] = Find(arg, i);
    if (found_side != side || at < 0) {
      throw rsnet::Failure(std::string("there is no ") + (side == RSNET_INPUT ? "input" : "output") +
                           " '" + arg + "' " + std::to_string(i));
    }
    return at;
  }
  // Values are found by the name of their operator.
  void CheckFree(const std::string& name, bool is_new) const {
    if (name == name_) {
      throw rsnet::Failure("operator '" + name + "' of a gradient has the name of the operator " +
                           "that it is for: expected another one");
    }
    if (!is_new) throw rsnet::Failure("operator '" + name + "' of a gradient is defined twice");
  }
  const std::string& Value(int32_t source, int32_t side, const std::string& arg, int32_t i,
                           const char* suffix) const {
    std::string name = name_ + "/" + arg + "_" + std::to_string(i) + suffix;
    auto [at, fresh] = entries_.try_emplace(name, 0);
    if (fresh) at->second = host_->entry(ctx_, source, Number(side, arg, i));
    return at->first;
  }
  // The handle of a value; its operator is made at its first use.
  rsnet_entry Entry(const std::string& value) {
    auto known = entries_.find(value);
    if (known != entries_.end()) return known->second;
    std::string op = value.substr(0, value.rfind('/'));
    auto made = made_.find(op);
    if (made == made_.end()) {
      throw rsnet::Failure("invalid value '" + value + "': expected one of this gradient (an "
                           "operator of the older style has to be passed to AddOp)");
    }
    Begin(op);
    Make(made->second);
    begun_.erase(op);
    return entries_.at(value);
  }
  void Begin(const std::string& op) {
    if (!begun_.insert(op).second) {
      throw rsnet::Failure("operator '" + op + "' of a gradient depends on its own output");
    }
  }
  void Make(const GradOp& op) {
    std::map<std::string, std::string> attrs(op.attrs_.begin(), op.attrs_.end());
    bool own = known_arguments().count(op.type_) > 0;
    for (const BuiltIn& builtin : BuiltIns()) {
      if (!own && op.type_ == builtin.type) return MakeBuiltIn(op, builtin, attrs);
    }
    std::vector<std::pair<std::string, rsnet_entry>> inputs;
    for (const auto& [arg, values] : op.inputs_) {
      for (const std::string& v : values) inputs.emplace_back(arg, Entry(v));
    }
    rsnet_node node = host_->node(ctx_, op.type_.c_str(), op.name_.c_str());
    for (const auto& [arg, value] : inputs) {
      rsnet::check(host_->node_input(ctx_, node, arg.c_str(), value));
    }
    for (const auto& [key, text] : attrs) {
      rsnet::check(host_->node_attr(ctx_, node, key.c_str(), text.c_str()));
    }
    CountOutputs(op, node);
    for (const std::string& name : op.outputs_) {
      std::string array = name.substr(name.rfind('/') + 1);
      size_t cut = array.rfind('_');
      std::string arg = array.substr(0, cut);
      entries_[name] =
          host_->node_output(ctx_, node, arg.c_str(), std::stoi(array.substr(cut + 1)));
    }
  }
  // Says how many arrays an operator of this library has for each output argument, where that is
  // open.
  void CountOutputs(const GradOp& op, rsnet_node node) {
    auto known = known_arguments().find(op.type_);
    if (known == known_arguments().end()) return;
    std::vector<int32_t> counts;
    bool open = false;
    for (const rsnet::ArgText& arg : known->second->outputs) {
      const std::string first = op.name_ + "/" + arg.name + "_";
      int32_t n = 0;
      while (std::count(op.outputs_.begin(), op.outputs_.end(), first + std::to_string(n)) > 0) ++n;
      counts.push_back(n > 0 || (arg.flags & RSNET_OPTIONAL) ? n : arg.count);
      open = open || (arg.flags & (RSNET_OPTIONAL | RSNET_AT_LEAST));
    }
    if (!open) return;
    const std::string text = rsnet::list_text(counts);
    rsnet::check(host_->node_attr(ctx_, node, "out_counts", text.c_str()));
  }
  static void CheckKnown(const GradOp& op, const char* what, const std::string& name,
                         const std::vector<std::string>& known) {
    if (std::find(known.begin(), known.end(), name) != known.end()) return;
    std::string all;
    for (const std::string& k : known) all += (all.empty() ? "" : ", ") + k;
    throw rsnet::Failure("operator '" + op.name_ + "' of a gradient: invalid " + what + " '" + name +
                         "' of " + op.type_ + ": expected " +
                         (all.empty() ? "none" : "one of: " + all));
  }
  void MakeBuiltIn(const GradOp& op, const BuiltIn& builtin,
                   const std::map<std::string, std::string>& attrs) {
    for (const auto& input : op.inputs_) CheckKnown(op, "input", input.first, builtin.inputs);
    for (const auto& attr : attrs) CheckKnown(op, "attribute", attr.first, builtin.known);
    std::vector<rsnet_entry> inputs;
    for (const std::string& arg : builtin.inputs) {
      for (const auto& [name, values] : op.inputs_) {
        if (name != arg) continue;
        for (const std::string& v : values) inputs.push_back(Entry(v));
      }
    }
    rsnet_node node = host_->node(ctx_, builtin.rsnet_op, op.name_.c_str());
    for (rsnet_entry value : inputs) rsnet::check(host_->node_input(ctx_, node, nullptr, value));
    if (builtin.attrs) {
      for (const auto& [key, text] : builtin.attrs(attrs)) {
        rsnet::check(host_->node_attr(ctx_, node, key.c_str(), text.c_str()));
      }
    }
    for (const std::string& name : op.outputs_) {
      entries_[name] = host_->node_output(ctx_, node, nullptr, 0);
    }
  }

  std::string name_;
  // The older style takes a UserOpWrapper that is const.
  mutable std::map<std::string, rsnet_entry> entries_;
  std::map<std::string, std::function<GradOp(GradOpBuilder&)>> recipes_;
  std::set<std::string> begun_;  // being made: a circle is an error
  std::map<std::string, GradOp> made_;
  mutable std::map<int32_t, std::string> bound_;
};
using BackwardOpConfContext = Gradient;
using UserOpWrapper = Gradient;

class GradRegistry {
 public:
  explicit GradRegistry(std::string op) : op_(std::move(op)) {}
  GradRegistry& SetBackwardOpConfGenFn(std::function<void(BackwardOpConfContext*)> f) {
    generate_ = std::move(f);
    return *this;
  }
  // The older style, used where the other is not given.
  GradRegistry& SetGenBackwardOpConfFn(std::function<void(UserOpWrapper&, AddOpFn)> f) {
    generate_old_ = std::move(f);
    return *this;
  }

  rsnet::Step Step() const {
    auto* self = rsnet::keep(*this);
    return [self](const rsnet_host* host, rsnet_registry* registry) {
      if (!self->generate_ && !self->generate_old_) {
        throw rsnet::Failure("gradient of '" + self->op_ + "': SetBackwardOpConfGenFn is missing");
      }
      auto known = known_arguments().find(self->op_);
      if (known == known_arguments().end()) {
        throw rsnet::Failure("the library has a gradient for '" + self->op_ +
                             "', which is no operator of this library");
      }
      self->args_ = known->second;
      rsnet_grad grad = {};
      grad.struct_size = sizeof grad;
      grad.kind = RSNET_GRAD_RULE;
      grad.op = self->op_.c_str();
      grad.user = self;
      grad.rule = Rule;
      return host->register_grad(registry, &grad);
    };
  }

 private:
  static rsnet_status Rule(const rsnet_host* host, rsnet_ctx* c, void* user) {
    return rsnet::protect(host, c, [&] {
      auto* self = static_cast<GradRegistry*>(user);
      Gradient gradient(*self->args_, host, c);
      if (self->generate_) {
        self->generate_(&gradient);
      } else {
        self->generate_old_(gradient, [&](const GradOp& op) { gradient.Add(op); });
      }
      gradient.Finish();
    });
  }

  std::string op_;
  const Arguments* args_ = nullptr;
  std::function<void(BackwardOpConfContext*)> generate_;
  std::function<void(UserOpWrapper&, AddOpFn)> generate_old_;
};

}  // namespace user_op
}  // namespace oneflow

#define REGISTER_USER_OP_GRAD(op)                                          \
  static const ::oneflow::user_op::Registration RSNET_UNIQUE(rsnet_grad_) = \
      ::oneflow::user_op::GradRegistry(op)

#endif  // RSNET_ONEFLOW_GRAD_HPP

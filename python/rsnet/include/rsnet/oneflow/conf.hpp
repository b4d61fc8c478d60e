// Descriptions of operators that functions receive: UserOpDefWrapper, UserOpConfWrapper. See
// rsnet/oneflow.hpp.
#ifndef RSNET_ONEFLOW_CONF_HPP
#define RSNET_ONEFLOW_CONF_HPP

#include <rsnet/oneflow/context.hpp>

namespace oneflow {
namespace user_op {

// A declared operator.
class UserOpDefWrapper {
 public:
  explicit UserOpDefWrapper(const Arguments& args) : args_(args) {}
  const std::string& name() const { return args_.op; }

 private:
  const Arguments& args_;
};

// A use of an operator. Either that of a context, whose attributes and arrays it tells; or one that
// a gradient describes, made when a bound gradient needs it. There values go by names, as OneFlow's
// logical blobs do: "<op>/<arg>_<i>".
class UserOpConfWrapper {
 public:
  explicit UserOpConfWrapper(const Context& ctx)
      : ctx_(&ctx), name_(ctx.op_name()), type_(ctx.op_type_name()) {}
  explicit UserOpConfWrapper(std::string name = "") : name_(std::move(name)) {}

  const std::string& op_name() const { return name_; }
  const std::string& op_type_name() const { return type_; }
  const std::string& output(const std::string& arg, int32_t i) const {
    std::string name = name_ + "/" + arg + "_" + std::to_string(i);
    for (const std::string& known : outputs_) {
      if (known == name) return known;
    }
    throw rsnet::Failure("operator '" + name_ + "' (" + type_ + ") of a gradient has no output '" +
                         arg + "' " + std::to_string(i) + ": declare it by Output()");
  }
  const std::string& input(const std::string& arg, int32_t i) const {
    for (const auto& [name, values] : inputs_) {
      if (name == arg) return values.at(i);
    }
    throw rsnet::Failure("operator '" + name_ + "' of a gradient has no input '" + arg + "'");
  }
  template <typename T>
  AttrResult<T> attr(const std::string& name) const {
    return context().template Attr<T>(name);
  }
  template <typename T>
  AttrResult<T> Attr(const std::string& name) const {
    return attr<T>(name);
  }
  int32_t input_size(const std::string& arg) const { return context().input_size(arg); }
  int32_t output_size(const std::string& arg) const { return context().output_size(arg); }
  bool has_input(const std::string& arg, int32_t i) const { return context().has_input(arg, i); }
  bool has_output(const std::string& arg, int32_t i) const { return context().has_output(arg, i); }

 private:
  friend class GradOpBuilder;
  friend class Gradient;
  const Context& context() const {
    if (ctx_ != nullptr) return *ctx_;
    throw rsnet::Failure("operator '" + name_ + "' of a gradient is only described: it tells its "
                         "inputs and outputs by name");
  }
  const Context* ctx_ = nullptr;
  std::string name_, type_;
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs_;
  std::vector<std::pair<std::string, std::string>> attrs_;
  std::vector<std::string> outputs_;
};
using GradOp = UserOpConfWrapper;
using BackwardOp = UserOpConfWrapper;

inline const UserOpConfWrapper& Context::user_op_conf() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<const UserOpConfWrapper>& conf = made().conf;
  if (!conf) conf = std::make_shared<const UserOpConfWrapper>(*this);
  return *conf;
}

}  // namespace user_op
}  // namespace oneflow

#endif  // RSNET_ONEFLOW_CONF_HPP

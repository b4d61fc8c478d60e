// OneFlow's contexts: what the functions of operators and kernels are given. See rsnet/oneflow.hpp.
#ifndef RSNET_ONEFLOW_CONTEXT_HPP
#define RSNET_ONEFLOW_CONTEXT_HPP

#include <rsnet/oneflow/types.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

namespace oneflow {
namespace user_op {

// ---- Attributes --------------------------------------------------------------------------------

template <typename T>
struct AttrKind;
#define RSNET_OF_ATTR(T, number, read)                     \
  template <>                                              \
  struct AttrKind<T> {                                     \
    RSNET_LOCAL static constexpr int32_t kind = number;    \
    static T From(const rsnet_value& value) { return read; } \
  };
RSNET_OF_ATTR(int32_t, RSNET_I32, static_cast<int32_t>(value.v.i))
RSNET_OF_ATTR(int64_t, RSNET_I64, value.v.i)
RSNET_OF_ATTR(bool, RSNET_BOOL, value.v.i != 0)
RSNET_OF_ATTR(float, RSNET_F32, static_cast<float>(value.v.f))
RSNET_OF_ATTR(double, RSNET_F64, value.v.f)
RSNET_OF_ATTR(std::string, RSNET_STR, std::string(value.v.s, value.n))
RSNET_OF_ATTR(Shape, RSNET_SHAPE, Shape(DimVector(value.v.is, value.v.is + value.n)))
RSNET_OF_ATTR(DataType, RSNET_DTYPE, FromRsnet(value.v.t))
RSNET_OF_ATTR(std::vector<int32_t>, RSNET_LIST_I32,
              std::vector<int32_t>(value.v.is, value.v.is + value.n))
RSNET_OF_ATTR(std::vector<int64_t>, RSNET_LIST_I64, DimVector(value.v.is, value.v.is + value.n))
RSNET_OF_ATTR(std::vector<float>, RSNET_LIST_F32,
              std::vector<float>(value.v.fs, value.v.fs + value.n))
RSNET_OF_ATTR(std::vector<std::string>, RSNET_LIST_STR,
              std::vector<std::string>(value.v.ss, value.v.ss + value.n))
#undef RSNET_OF_ATTR
template <>
struct AttrKind<std::vector<DataType>> {
  RSNET_LOCAL static constexpr int32_t kind = RSNET_LIST_DTYPE;
  static std::vector<DataType> From(const rsnet_value& value) {
    std::vector<DataType> out;
    for (int32_t i = 0; i < value.n; ++i) out.push_back(FromRsnet(value.v.ts[i]));
    return out;
  }
};
template <>
struct AttrKind<std::vector<Shape>> {
  RSNET_LOCAL static constexpr int32_t kind = RSNET_LIST_SHAPE;
  static std::vector<Shape> From(const rsnet_value& value) {
    std::vector<Shape> out;
    for (int32_t i = 0; i < value.n; ++i) {
      const rsnet_extents& e = value.v.es[i];
      out.emplace_back(DimVector(e.dims, e.dims + e.n));
    }
    return out;
  }
};

RSNET_LOCAL inline const char* KindName(int32_t kind) {
  static const char* const names[] = {
      "none",       "int32",      "int64",          "bool",       "float",
      "double",     "string",     "shape",          "data_type",  "list_int32",
      "list_int64", "list_float", "list_data_type", "list_shape", "list_string"};
  return kind >= 0 && kind < 15 ? names[kind] : "another kind";
}

template <typename T>
std::string AttrText(const T& value) {
  if constexpr (std::is_same_v<T, Shape>) {
    return rsnet::list_text(value.dim_vec());
  } else if constexpr (std::is_same_v<T, DataType>) {
    return NameOf(value);
  } else if constexpr (std::is_same_v<T, std::vector<DataType>>) {
    std::vector<std::string> names;
    for (DataType t : value) names.push_back(NameOf(t));
    return rsnet::list_text(names);
  } else if constexpr (std::is_same_v<T, std::vector<Shape>>) {
    std::string out = "(";
    for (const Shape& s : value) out += rsnet::list_text(s.dim_vec()) + ", ";
    return out + ")";
  } else if constexpr (AttrKind<T>::kind >= RSNET_LIST_I32) {
    return rsnet::list_text(value);
  } else {
    return rsnet::to_text(value);
  }
}

// What reading an attribute returns: lists and texts live as long as the context.
template <typename T>
using AttrResult = std::conditional_t<std::is_class_v<T>, const T&, T>;

// An attribute's value as a C++ value.
template <typename T>
T ReadAttr(const rsnet_value* value, std::string_view name) {
  if (value == nullptr) throw rsnet::Failure("unknown attribute '" + std::string(name) + "'");
  if (value->kind != AttrKind<T>::kind) {
    throw rsnet::Failure("attribute '" + std::string(name) + "' is declared as " +
                         KindName(value->kind) + " and read as " + KindName(AttrKind<T>::kind));
  }
  return AttrKind<T>::From(*value);
}

// ---- Arrays of a call --------------------------------------------------------------------------

using ArgPairs = std::vector<std::pair<std::string, int32_t>>;

class OpArg {
 public:
  OpArg(std::string name, int32_t index) : name_(std::move(name)), index_(index) {}
  const std::string& name() const { return name_; }
  int32_t index() const { return index_; }

 private:
  std::string name_;
  int32_t index_;
};

class TensorDesc {
 public:
  const Shape& shape() const { return shape_; }
  Shape* mut_shape() { return &shape_; }
  DataType data_type() const { return data_type_; }
  DataType* mut_data_type() { return &data_type_; }
  void set_shape(const Shape& shape) { shape_ = shape; }
  void set_data_type(DataType type) { data_type_ = type; }
  bool is_dynamic() const { return is_dynamic_; }
  bool* mut_is_dynamic() { return &is_dynamic_; }
  void set_is_dynamic(bool is_dynamic) { is_dynamic_ = is_dynamic; }
  int64_t NumAxes() const { return shape_.NumAxes(); }

 private:
  Shape shape_;
  DataType data_type_ = kInvalidDataType;
  bool is_dynamic_ = false;
};

// An operator's arguments and attributes, as they are registered.
struct Arguments {
  std::string op;
  std::vector<rsnet::ArgText> inputs, outputs;
  std::vector<rsnet::AttrText> attrs;

  const std::vector<rsnet::ArgText>& Of(int32_t side) const {
    return side == RSNET_INPUT ? inputs : outputs;
  }
};

// The number of arrays that an argument of a call has.
inline int32_t CountOf(const rsnet::ArgText& a, int32_t side, const rsnet_host* host,
                       rsnet_ctx* ctx) {
  const bool is_fixed = (a.flags & (RSNET_OPTIONAL | RSNET_AT_LEAST)) == 0;
  return is_fixed ? std::max(a.count, 1) : host->count(ctx, side, a.name.c_str());
}

// Are two names equal? They are short, and kernels look them up in every call: a function for texts
// of any length would cost as much as the rest of that.
inline bool SameName(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  size_t same = 0;
  while (same < a.size() && a[same] == b[same]) ++same;
  return same == a.size();
}

class UserOpConfWrapper;

// What every context offers. What it returns by reference is made when first asked for, by whatever
// thread of a kernel, and lives as long as the context.
class Context {
 public:
  // `values` are those of the attributes, if they are at hand.
  Context(const Arguments& args, const rsnet_host* host, rsnet_ctx* ctx,
          const rsnet_value* values = nullptr)
      : args_(args), host_(host), ctx_(ctx), values_(values) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  template <typename T>
  AttrResult<T> Attr(std::string_view name) const {
    if constexpr (!std::is_class_v<T>) {
      return ReadAttr<T>(FindAttr(name), name);
    } else {
      std::lock_guard<std::mutex> lock(mutex_);
      auto& attrs = made().attrs;
      std::pair key(std::string(name), AttrKind<T>::kind);
      auto at = attrs.find(key);
      if (at == attrs.end()) {
        std::shared_ptr<const void> read = std::make_shared<const T>(ReadAttr<T>(FindAttr(name), name));
        at = attrs.emplace(std::move(key), std::move(read)).first;
      }
      return *static_cast<const T*>(at->second.get());
    }
  }
  template <typename T>
  AttrResult<T> attr(std::string_view name) const {
    return Attr<T>(name);
  }
  inline const UserOpConfWrapper& user_op_conf() const;
  const std::string& op_name() const { return args_.op; }
  const std::string& op_type_name() const { return args_.op; }
  const ArgPairs& inputs() const { return Pairs(RSNET_INPUT); }
  const ArgPairs& outputs() const { return Pairs(RSNET_OUTPUT); }
  int32_t input_size(const std::string& arg) const {
    return host()->count(ctx_, RSNET_INPUT, arg.c_str());
  }
  int32_t output_size(const std::string& arg) const {
    return host()->count(ctx_, RSNET_OUTPUT, arg.c_str());
  }
  bool has_input(const std::string& arg, int32_t i) const { return i < input_size(arg); }
  bool has_output(const std::string& arg, int32_t i) const { return i < output_size(arg); }

 protected:
  // The value of an attribute; nullptr if there is none of this name.
  const rsnet_value* FindAttr(std::string_view name) const {
    const rsnet_host* known = host();
    const std::vector<rsnet::AttrText>& all = args_.attrs;
    size_t at = 0;
    while (at < all.size() && !SameName(all[at].name, name)) ++at;
    if (at == all.size()) return nullptr;
    return values_ != nullptr ? values_ + at : known->attr(ctx_, static_cast<int32_t>(at));
  }
  // Side and number of an array; the number is -1 if the argument is absent.
  std::pair<int32_t, int32_t> Find(std::string_view arg, int32_t i) const {
    for (int32_t side : {RSNET_INPUT, RSNET_OUTPUT}) {
      int32_t begin = 0;
      for (const rsnet::ArgText& a : args_.Of(side)) {
        const int32_t n = CountOf(a, side, host(), ctx_);
        if (SameName(a.name, arg)) {
          if (i >= 0 && i < n) return {side, begin + i};
          if (n == 0) return {side, -1};
          throw rsnet::Failure("argument '" + a.name + "' has no array " + std::to_string(i) +
                               ": expected 0 to " + std::to_string(n - 1));
        }
        begin += n;
      }
    }
    throw rsnet::Failure("operator '" + args_.op + "' has no argument '" + std::string(arg) + "'");
  }
  const ArgPairs& Pairs(int32_t side) const {
    std::lock_guard<std::mutex> lock(mutex_);
    std::optional<ArgPairs>& known = made().pairs[side];
    if (!known) {
      ArgPairs pairs;
      for (const rsnet::ArgText& a : args_.Of(side)) {
        const int32_t n = CountOf(a, side, host(), ctx_);
        for (int32_t i = 0; i < n; ++i) pairs.emplace_back(a.name, i);
      }
      known = std::move(pairs);
    }
    return *known;
  }
  const rsnet_host* host() const {
    if (host_ != nullptr) return host_;
    throw rsnet::Failure("operator '" + args_.op +
                         "': its attributes and arrays are not known when it is registered");
  }

  const Arguments& args_;
  const rsnet_host* host_;
  rsnet_ctx* ctx_;
  const rsnet_value* values_;
  // What is returned by reference. Few kernels ask for any of it.
  struct Made {
    std::optional<ArgPairs> pairs[2];  // by side
    std::map<std::pair<std::string, int32_t>, std::shared_ptr<const void>> attrs;
    std::map<const void*, TensorDesc> descs;  // of arrays of a running kernel
    std::shared_ptr<const UserOpConfWrapper> conf;
  };
  Made& made() const {  // under the mutex
    if (!made_) made_ = std::make_unique<Made>();
    return *made_;
  }
  mutable std::mutex mutex_;

 private:
  mutable std::unique_ptr<Made> made_;
};

// Descriptions of all arrays of a call; those of outputs may be changed.
class InferContext : public Context {
 public:
  InferContext(const Arguments& args, const rsnet_host* host, rsnet_ctx* ctx, bool arrays = true)
      : Context(args, host, ctx) {
    for (int32_t side : {RSNET_INPUT, RSNET_OUTPUT}) {
      int32_t n = host->n_arrays(ctx, side);
      for (int32_t i = 0; i < n; ++i) {
        TensorDesc desc;
        desc.set_shape(Shape::Unknown());
        const rsnet_tensor* t = arrays ? host->tensor(ctx, side, i) : nullptr;
        if (t != nullptr) {
          desc.mut_shape()->SetToArray(*t);
          desc.set_data_type(FromRsnet(t->dtype));
        }
        descs_[side].push_back(desc);
      }
    }
  }

  TensorDesc* TensorDesc4ArgNameAndIndex(std::string_view arg, int32_t i) {
    auto [side, at] = Find(arg, i);
    return at < 0 ? nullptr : &descs_[side][at];
  }
  const TensorDesc* TensorDesc4ArgNameAndIndex(std::string_view arg, int32_t i) const {
    return const_cast<InferContext*>(this)->TensorDesc4ArgNameAndIndex(arg, i);
  }
  TensorDesc* OutputTensorDesc(std::string_view arg, int32_t i) { return &Desc(arg, i); }
  const TensorDesc& InputTensorDesc(std::string_view arg, int32_t i) { return Desc(arg, i); }
  Shape* Shape4ArgNameAndIndex(std::string_view arg, int32_t i) {
    return Desc(arg, i).mut_shape();
  }
  DataType* Dtype4ArgNameAndIndex(std::string_view arg, int32_t i) {
    return Desc(arg, i).mut_data_type();
  }
  bool* IsDynamic4ArgNameAndIndex(std::string_view arg, int32_t i) {
    return Desc(arg, i).mut_is_dynamic();
  }
  const Shape& InputShape(std::string_view arg, int32_t i) { return Desc(arg, i).shape(); }
  Shape* OutputShape(std::string_view arg, int32_t i) { return Desc(arg, i).mut_shape(); }
  DataType InputDType(std::string_view arg, int32_t i) { return Desc(arg, i).data_type(); }
  DataType* OutputDType(std::string_view arg, int32_t i) { return Desc(arg, i).mut_data_type(); }

  // Every output begins as a copy of the first input.
  void BeginOutputs() {
    if (descs_[RSNET_INPUT].empty()) return;
    for (TensorDesc& out : descs_[RSNET_OUTPUT]) out = descs_[RSNET_INPUT].front();
  }
  // Tells rsnet what was inferred.
  void EndOutputs() {
    for (size_t i = 0; i < descs_[RSNET_OUTPUT].size(); ++i) {
      const TensorDesc& out = descs_[RSNET_OUTPUT][i];
      int32_t at = static_cast<int32_t>(i);
      rsnet::check(host_->set_dtype(ctx_, RSNET_OUTPUT, at, ToRsnet(out.data_type())));
      if (!out.shape().IsKnown()) continue;
      const DimVector& dims = out.shape().dim_vec();
      rsnet::check(host_->set_shape(ctx_, RSNET_OUTPUT, at, static_cast<int32_t>(dims.size()),
                                    dims.data()));
    }
  }

 private:
  TensorDesc& Desc(std::string_view arg, int32_t i) {
    TensorDesc* desc = TensorDesc4ArgNameAndIndex(arg, i);
    if (desc == nullptr) {
      throw rsnet::Failure("argument '" + std::string(arg) + "' of operator '" + args_.op +
                           "' has no array " + std::to_string(i));
    }
    return *desc;
  }
  std::vector<TensorDesc> descs_[2];
};

// ---- Arrays of a running kernel ----------------------------------------------------------------

class Tensor {
 public:
  // The array of a call; the memory of its shape is used again.
  void Set(const rsnet_tensor& t, const std::string& name) {
    shape_.SetToArray(t);
    type_ = FromRsnet(t.dtype);
    data_ = rsnet_data(&t);
    name_ = &name;
  }
  void SetToBytes(void* data, int64_t bytes) {
    shape_ = Shape({bytes});
    type_ = kChar;
    data_ = data;
  }

  const ShapeView& shape() const { return shape_; }
  DataType data_type() const { return type_; }
  template <typename T = void>
  const T* dptr() const {
    return Typed<T>();
  }
  template <typename T = void>
  T* mut_dptr() const {
    return Typed<T>();
  }

 private:
  template <typename T>
  T* Typed() const {
    if constexpr (!std::is_void_v<T> && !std::is_same_v<T, char>) {
      if (type_ != kChar && GetDataType<std::remove_const_t<T>>::value != type_) {
        throw rsnet::Failure("array '" + *name_ + "' has dtype " + NameOf(type_) +
                                 " and is read as " +
                                 NameOf(GetDataType<std::remove_const_t<T>>::value),
                             RSNET_INTERNAL);
      }
    }
    return static_cast<T*>(data_);
  }
  Shape shape_;
  DataType type_ = kInvalidDataType;
  void* data_ = nullptr;
  const std::string* name_ = nullptr;  // of its argument
};

class KernelComputeContext;

// The arrays of a call.
struct Tensors {
  KernelComputeContext* ctx = nullptr;
  std::vector<Tensor> of[2];  // by side
  Tensor tmp;

  void Set(const Arguments& args, int32_t side, const rsnet_args* call) {
    const rsnet_tensor* given = side == RSNET_INPUT ? call->in : call->out;
    size_t at = 0;
    for (const rsnet::ArgText& a : args.Of(side)) {
      const int32_t n = CountOf(a, side, call->host, call->ctx);
      for (int32_t i = 0; i < n; ++i, ++at) {
        if (at == of[side].size()) of[side].emplace_back();
        of[side][at].Set(given[at], a.name);
      }
    }
  }
};

// One call of a kernel.
class KernelComputeContext : public Context {
 public:
  KernelComputeContext(const Arguments& args, const rsnet_args* call, bool has_tmp)
      : Context(args, call->host, call->ctx, call->attrs),
        call_(call),
        device_ctx_(call->stream),
        has_tmp_(has_tmp) {
    tensors_->ctx = this;
    tensors_->Set(args, RSNET_INPUT, call);
    tensors_->Set(args, RSNET_OUTPUT, call);
    if (has_tmp) tensors_->tmp.SetToBytes(call->tmp, static_cast<int64_t>(call->tmp_bytes));
  }

  // The array, which lives as long as the context; nullptr if the argument is absent. 'tmp_buffer'
  // is nullptr if SetInferTmpSizeFn said 0, and an error without that function.
  Tensor* Tensor4ArgNameAndIndex(std::string_view arg, int32_t i) {
    if (SameName(arg, "tmp_buffer")) {
      if (!has_tmp_) {
        throw rsnet::Failure("the kernel reads 'tmp_buffer', and has no SetInferTmpSizeFn");
      }
      return call_->tmp == nullptr ? nullptr : &tensors_->tmp;
    }
    auto [side, at] = Find(arg, i);
    return at < 0 ? nullptr : &tensors_->of[side][at];
  }
  // The array's shape and dtype, which live as long as the context; nullptr if it is absent.
  const TensorDesc* TensorDesc4ArgNameAndIndex(std::string_view arg, int32_t i) {
    const Tensor* tensor = Tensor4ArgNameAndIndex(arg, i);
    if (tensor == nullptr) return nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    auto [at, is_new] = made().descs.try_emplace(tensor);
    if (is_new) {
      at->second.set_shape(tensor->shape());
      at->second.set_data_type(tensor->data_type());
    }
    return &at->second;
  }
  DeviceCtx* device_ctx() { return &device_ctx_; }
  DeviceType device_type() const { return static_cast<DeviceType>(call_->device.device_type); }
  const rsnet_args* raw() const { return call_; }

  // The context of the kernel that runs on this thread; nullptr on threads that help it.
  static KernelComputeContext* Running() {
    const Tensors* running = rsnet::Reused<Tensors>::Innermost();
    return running == nullptr ? nullptr : running->ctx;
  }
  // Calls f(begin, end) on parts of 0..n, on the engine's threads and this one.
  template <typename F>
  void ParallelFor(int64_t n, int64_t grain, const F& f) {
    rsnet::parallel_for(host_, ctx_, n, grain, f);
  }

 private:
  const rsnet_args* call_;
  DeviceCtx device_ctx_;
  bool has_tmp_;
  rsnet::Reused<Tensors> tensors_;
};

// Calls f(i) for every i below n, on the engine's threads where a kernel runs on this one.
template <typename F>
void MultiThreadLoopInOpKernel(size_t n, const F& f) {
  auto part = [&f](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(static_cast<size_t>(i));
  };
  KernelComputeContext* ctx = KernelComputeContext::Running();
  if (ctx == nullptr) return part(0, static_cast<int64_t>(n));
  ctx->ParallelFor(static_cast<int64_t>(n), 1, part);
}

// What a kernel is created with.
class KernelCreateContext : public InferContext {
 public:
  using InferContext::InferContext;
};
class KernelInitContext : public InferContext {
 public:
  using InferContext::InferContext;
};

}  // namespace user_op

using user_op::MultiThreadLoopInOpKernel;
template <typename F>
void MultiThreadLoop(size_t n, const F& f) {
  MultiThreadLoopInOpKernel(n, f);
}

}  // namespace oneflow

#endif  // RSNET_ONEFLOW_CONTEXT_HPP

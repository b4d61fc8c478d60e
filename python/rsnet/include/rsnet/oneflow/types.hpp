// OneFlow's basic types: Maybe, Error, Shape, DataType, DeviceType. See rsnet/oneflow.hpp.
#ifndef RSNET_ONEFLOW_TYPES_HPP
#define RSNET_ONEFLOW_TYPES_HPP

#include <rsnet/checks.hpp>
#include <rsnet/library.hpp>

#include <algorithm>
#include <cmath>
#include <map>

struct CUstream_st;  // what CUDA's cudaStream_t points to

namespace oneflow {

// ---- Errors ------------------------------------------------------------------------------------

class Error {
 public:
  explicit Error(rsnet_status status) : status_(status) {}
  static Error CheckFailed() { return Error(RSNET_INVALID); }
  static Error CheckFailedError() { return CheckFailed(); }
  static Error ValueError(const std::string& text) { return CheckFailed() << text; }
  static Error Unimplemented() { return Error(RSNET_UNSUPPORTED); }
  static Error Todo() { return Unimplemented(); }
  static Error RuntimeError() { return Error(RSNET_INTERNAL); }

  template <typename T>
  Error& operator<<(const T& part) & {
    std::ostringstream out;
    out << part;
    text_ += out.str();
    return *this;
  }
  template <typename T>
  Error&& operator<<(const T& part) && {
    *this << part;
    return std::move(*this);
  }
  const std::string& text() const { return text_; }
  rsnet_status status() const { return status_; }

 private:
  rsnet_status status_;
  std::string text_;
};

// A value, or an error.
template <typename T>
class Maybe {
 public:
  Maybe(T value) : value_(std::make_shared<T>(std::move(value))), error_(RSNET_OK) {}
  Maybe(const Error& error) : error_(error) {}
  bool IsOk() const { return value_ != nullptr; }
  const Error& error() const { return error_; }
  const T& GetOrThrow() const {
    if (!IsOk()) throw rsnet::Failure(error_.text(), error_.status());
    return *value_;
  }

 private:
  std::shared_ptr<T> value_;
  Error error_;
};

template <>
class Maybe<void> {
 public:
  Maybe(const Error& error) : ok_(false), error_(error) {}
  static Maybe<void> Ok() { return Maybe<void>(); }
  bool IsOk() const { return ok_; }
  const Error& error() const { return error_; }
  void GetOrThrow() const {
    if (!ok_) throw rsnet::Failure(error_.text(), error_.status());
  }

 private:
  Maybe() : ok_(true), error_(RSNET_OK) {}
  bool ok_;
  Error error_;
};

// ---- Checks that return ------------------------------------------------------------------------

#define RSNET_OF_RETURN(ok, what) \
  while (!(ok)) return ::oneflow::Error::CheckFailed() << "Check failed: " << what << " "
#define CHECK_OR_RETURN(x) RSNET_OF_RETURN((x), #x)
#define RSNET_OF_RETURN_OP(a, op, b, fails)               \
  while (const auto rsnet_why = ::rsnet::fails((a), (b))) \
  return ::oneflow::Error::CheckFailed() << "Check failed: " #a " " #op " " #b << *rsnet_why << " "
#define CHECK_EQ_OR_RETURN(a, b) RSNET_OF_RETURN_OP(a, ==, b, differ)
#define CHECK_NE_OR_RETURN(a, b) RSNET_OF_RETURN_OP(a, !=, b, equal)
#define CHECK_LT_OR_RETURN(a, b) RSNET_OF_RETURN_OP(a, <, b, not_less)
#define CHECK_LE_OR_RETURN(a, b) RSNET_OF_RETURN_OP(a, <=, b, greater)
#define CHECK_GT_OR_RETURN(a, b) RSNET_OF_RETURN_OP(a, >, b, not_greater)
#define CHECK_GE_OR_RETURN(a, b) RSNET_OF_RETURN_OP(a, >=, b, less)
#define CHECK_NOTNULL_OR_RETURN(x) RSNET_OF_RETURN((x) != nullptr, #x " != nullptr")
#define CHECK_JUST(...) (__VA_ARGS__).GetOrThrow()
#define JUST(...) (__VA_ARGS__).GetOrThrow()
#define OF_RETURN_IF_ERROR(...) (__VA_ARGS__).GetOrThrow()

// ---- Shapes ------------------------------------------------------------------------------------

using DimVector = std::vector<int64_t>;

// Extents. Those of an array may be unknown while shapes are inferred: reading one ends inference
// until it is known. In any other shape, such as an attribute, -1 is a number.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(DimVector dims) : dims_(std::move(dims)) {}
  static Shape Unknown() {
    Shape shape;
    shape.known_ = false;
    return shape;
  }
  // The shape of an array becomes this one's; its memory is used again.
  void SetToArray(const rsnet_tensor& t) {
    known_ = t.ndim >= 0;
    of_array_ = known_;
    dims_.assign(t.shape, t.shape + (known_ ? t.ndim : 0));
  }

  bool IsKnown() const { return known_; }
  int64_t NumAxes() const { return static_cast<int64_t>(dim_vec().size()); }
  int64_t At(int64_t axis) const {
    int64_t n = NumAxes();
    if (axis < 0 || axis >= n) {
      throw rsnet::Failure("invalid axis " + std::to_string(axis) + " of a shape of " +
                           std::to_string(n) + " axes");
    }
    if (of_array_ && dims_[axis] < 0) throw rsnet::Unknown();
    return dims_[axis];
  }
  void Set(int64_t axis, int64_t extent) {
    At(axis);
    dims_[axis] = extent;
  }
  int64_t Count(int64_t begin, int64_t end) const {
    int64_t n = 1;
    for (int64_t i = begin; i < end; ++i) n *= At(i);
    return n;
  }
  int64_t Count(int64_t begin) const { return Count(begin, NumAxes()); }
  int64_t elem_cnt() const { return Count(0); }
  const DimVector& dim_vec() const {
    if (!known_) throw rsnet::Unknown();
    return dims_;
  }
  bool operator==(const Shape& other) const { return dim_vec() == other.dim_vec(); }
  bool operator!=(const Shape& other) const { return !(*this == other); }
  void ToShape(Shape* shape) const { *shape = *this; }
  // A text for messages: what is unknown is a question mark.
  std::string ToString() const {
    if (!known_) return "?";
    std::vector<std::string> dims;
    for (int64_t d : dims_) dims.push_back(of_array_ && d < 0 ? "?" : std::to_string(d));
    return rsnet::tuple_text(dims);
  }
  std::string DebugStr() const { return ToString(); }

 private:
  DimVector dims_;
  bool known_ = true;
  bool of_array_ = false;
};
using ShapeView = Shape;

inline std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.ToString();
}

// ---- Element types and devices -----------------------------------------------------------------

enum DataType {
  kInvalidDataType = 0,
  kChar = 1,
  kFloat = 2,
  kDouble = 3,
  kInt8 = 4,
  kInt32 = 5,
  kInt64 = 6,
  kUInt8 = 7,
  kFloat16 = 9,
  kBool = 12
};

template <typename T>
struct GetDataType;
#define RSNET_OF_TYPE(T, name) \
  template <>                  \
  struct GetDataType<T> : std::integral_constant<DataType, name> {};
RSNET_OF_TYPE(char, kChar)
RSNET_OF_TYPE(float, kFloat)
RSNET_OF_TYPE(double, kDouble)
RSNET_OF_TYPE(int8_t, kInt8)
RSNET_OF_TYPE(int32_t, kInt32)
RSNET_OF_TYPE(int64_t, kInt64)
RSNET_OF_TYPE(uint8_t, kUInt8)
RSNET_OF_TYPE(bool, kBool)
#undef RSNET_OF_TYPE

inline rsnet_dtype ToRsnet(DataType type) {
  switch (type) {
    case kFloat: return {RSNET_FLOAT, 32, 1};
    case kDouble: return {RSNET_FLOAT, 64, 1};
    case kFloat16: return {RSNET_FLOAT, 16, 1};
    case kChar:
    case kInt8: return {RSNET_INT, 8, 1};
    case kInt32: return {RSNET_INT, 32, 1};
    case kInt64: return {RSNET_INT, 64, 1};
    case kUInt8: return {RSNET_UINT, 8, 1};
    case kBool: return {RSNET_BOOLEAN, 8, 1};
    default: return {0, 0, 0};
  }
}

inline DataType FromRsnet(rsnet_dtype code) {
  for (DataType t : {kFloat, kDouble, kFloat16, kInt8, kInt32, kInt64, kUInt8, kBool}) {
    if (rsnet_same_dtype(ToRsnet(t), code)) return t;
  }
  return kInvalidDataType;
}

inline const char* NameOf(DataType type) {
  switch (type) {
    case kFloat: return "float32";
    case kDouble: return "float64";
    case kFloat16: return "float16";
    case kChar:
    case kInt8: return "int8";
    case kInt32: return "int32";
    case kInt64: return "int64";
    case kUInt8: return "uint8";
    case kBool: return "bool";
    default: return "unknown";
  }
}

inline std::ostream& operator<<(std::ostream& out, DataType type) { return out << NameOf(type); }

enum DeviceType { kInvalidDevice = 0, kCPU = RSNET_CPU, kGPU = RSNET_GPU, kCUDA = kGPU };

// The device of a call.
class DeviceCtx {
 public:
  explicit DeviceCtx(void* stream) : stream_(stream) {}
  CUstream_st* cuda_stream() const { return static_cast<CUstream_st*>(stream_); }

 private:
  void* stream_;
};

#define FOR_RANGE(type, i, begin, end) for (type i = (begin), rsnet_end = (end); i < rsnet_end; ++i)
#define UNIMPLEMENTED() throw ::rsnet::Failure("this case is not implemented", RSNET_UNSUPPORTED)
#define CUDA_1D_KERNEL_LOOP(i, n)                                                              \
  for (int32_t i = blockIdx.x * blockDim.x + threadIdx.x, step = blockDim.x * gridDim.x; i < (n); \
       i += step)

}  // namespace oneflow

#endif  // RSNET_ONEFLOW_TYPES_HPP

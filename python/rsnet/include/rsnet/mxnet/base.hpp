// MXNet's basic types: TShape, contexts, assignments of inference, and the switches over element
// types. See rsnet/mxnet.h.
#ifndef RSNET_MXNET_BASE_HPP
#define RSNET_MXNET_BASE_HPP

#include <rsnet/mxnet/tensor.hpp>

#include <map>
#include <optional>
#include <unordered_map>

namespace nnvm {

using dim_t = int64_t;

// A list that needs no memory of its own as long as it is short. (Moved, it is copied.)
template <typename T>
class ShortList {
 public:
  ShortList() = default;
  ShortList(const ShortList&) = default;
  ShortList& operator=(const ShortList&) = default;
  template <typename Iterator>
  ShortList(Iterator begin, Iterator end) {
    for (; begin != end; ++begin) push_back(*begin);
  }
  void push_back(const T& item) {
    if (size_ == kShort && long_.empty()) long_.assign(short_, short_ + kShort);
    if (size_ < kShort) {
      short_[size_] = item;
    } else {
      long_.push_back(item);
    }
    ++size_;
  }
  size_t size() const { return size_; }
  T* data() { return size_ <= kShort ? short_ : long_.data(); }
  const T* data() const { return size_ <= kShort ? short_ : long_.data(); }

 private:
  RSNET_LOCAL static constexpr size_t kShort = 4;
  size_t size_ = 0;
  T short_[kShort] = {};
  std::vector<T> long_;  // all items, if they are more
};

// A list of numbers.
template <typename T>
class Tuple {
 public:
  Tuple() = default;
  Tuple(std::initializer_list<T> items) : items_(items.begin(), items.end()) {}
  template <typename Iterator>
  Tuple(Iterator begin, Iterator end) : items_(begin, end) {}
  template <typename Iterator>
  void assign(Iterator begin, Iterator end) {
    items_ = ShortList<T>(begin, end);
  }
  uint32_t ndim() const { return static_cast<uint32_t>(items_.size()); }
  T& operator[](size_t i) { return items_.data()[i]; }
  const T& operator[](size_t i) const { return items_.data()[i]; }
  const T* begin() const { return items_.data(); }
  const T* end() const { return items_.data() + items_.size(); }
  T* begin() { return items_.data(); }
  T* end() { return items_.data() + items_.size(); }
  bool operator==(const Tuple& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }
  bool operator!=(const Tuple& other) const { return !(*this == other); }

 protected:
  ShortList<T> items_;
};

// Extents. An extent of 0 is not known; where all inputs are known and one is empty, it is an empty
// axis. TShape() has an unknown number of axes, any other shape without axes is that of a scalar.
class TShape : public Tuple<dim_t> {
 public:
  TShape() = default;
  TShape(std::initializer_list<dim_t> extents) : Tuple(extents), ndim_is_known_(true) {}
  template <typename Iterator, typename = std::enable_if_t<!std::is_arithmetic_v<Iterator>>>
  TShape(Iterator begin, Iterator end) : Tuple(begin, end), ndim_is_known_(true) {}
  TShape(int ndim, dim_t value) : ndim_is_known_(ndim >= 0) {
    for (int i = 0; i < ndim; ++i) items_.push_back(value);
  }
  template <typename Iterator>
  void assign(Iterator begin, Iterator end) {
    *this = TShape(begin, end);
  }
  bool ndim_is_known() const { return ndim_is_known_; }
  std::string Text() const {
    return ndim_is_known_ ? rsnet::list_text(std::vector<dim_t>(begin(), end())) : "None";
  }
  template <int dim>
  TShape(const mshadow::Shape<dim>& shape) : TShape(shape.shape_, shape.shape_ + dim) {}
  size_t Size() const { return ProdShape(0, static_cast<int>(ndim())); }
  size_t ProdShape(int begin, int end) const {
    size_t n = 1;
    for (int i = begin; i < end; ++i) n *= (*this)[i];
    return n;
  }
  template <int dim>
  mshadow::Shape<dim> get() const {
    if (ndim() != dim) {
      throw rsnet::Failure("a shape of " + std::to_string(ndim()) + " axes is read as one of " +
                           std::to_string(dim));
    }
    mshadow::Shape<dim> shape;
    std::copy(begin(), end(), shape.shape_);
    return shape;
  }
  // All axes but the last as one.
  mshadow::Shape<2> FlatTo2D() const {
    int last = static_cast<int>(ndim()) - 1;
    if (last < 0) return mshadow::Shape2(1, 1);
    return mshadow::Shape2(Extent(0, last), Extent(last, last + 1));
  }
  // The axes before axis_begin, those up to axis_end, and those after it, as one each.
  mshadow::Shape<3> FlatTo3D(size_t axis_begin, size_t axis_end) const {
    if (axis_begin > axis_end || axis_end >= ndim()) {
      throw rsnet::Failure("FlatTo3D(" + std::to_string(axis_begin) + ", " +
                           std::to_string(axis_end) + ") of a shape of " + std::to_string(ndim()) +
                           " axes");
    }
    int begin = static_cast<int>(axis_begin), end = static_cast<int>(axis_end) + 1;
    return mshadow::Shape3(Extent(0, begin), Extent(begin, end),
                           Extent(end, static_cast<int>(ndim())));
  }
  mshadow::Shape<3> FlatTo3D(size_t axis) const { return FlatTo3D(axis, axis); }

 private:
  mshadow::index_t Extent(int begin, int end) const {
    return static_cast<mshadow::index_t>(ProdShape(begin, end));
  }
  bool ndim_is_known_ = false;
};

template <typename T>
std::ostream& operator<<(std::ostream& out, const Tuple<T>& items) {
  return out << rsnet::list_text(std::vector<T>(items.begin(), items.end()));
}
inline std::ostream& operator<<(std::ostream& out, const TShape& shape) {
  return out << shape.Text();
}

}  // namespace nnvm

namespace mxnet {

using mshadow::cpu;
using mshadow::gpu;
using mshadow::index_t;
using mshadow::real_t;
using nnvm::dim_t;
using nnvm::TShape;
using nnvm::Tuple;
using ShapeVector = std::vector<TShape>;

inline bool ndim_is_known(const TShape& s) { return s.ndim_is_known(); }
inline bool shape_is_none(const TShape& s) {
  return !ndim_is_known(s) || std::find(s.begin(), s.end(), 0) != s.end();
}
inline bool shape_is_known(const TShape& s) { return !shape_is_none(s); }
inline bool dim_size_is_known(const TShape& s, int i) { return s[i] != 0; }
inline bool type_is_none(int type) { return type == -1; }

enum OpReqType { kNullOp = 0, kWriteTo = 1, kWriteInplace = 2, kAddTo = 3 };

class Context {
 public:
  enum DeviceType { kCPU = RSNET_CPU, kGPU = RSNET_GPU, kCPUPinned = 3 };
  DeviceType dev_type = kCPU;
  int32_t dev_id = 0;
  int dev_mask() const { return dev_type == kGPU ? RSNET_GPU : RSNET_CPU; }
  static Context CPU(int32_t id = 0) { return {kCPU, id}; }
  static Context GPU(int32_t id = 0) { return {kGPU, id}; }
};

inline Context DeviceOf(rsnet_device device) {
  return device.device_type == RSNET_GPU ? Context::GPU(device.device_id)
                                         : Context::CPU(device.device_id);
}

inline int FlagOf(rsnet_dtype t) {
  switch (t.code << 8 | t.bits) {
    case RSNET_FLOAT << 8 | 32: return mshadow::kFloat32;
    case RSNET_FLOAT << 8 | 64: return mshadow::kFloat64;
    case RSNET_FLOAT << 8 | 16: return mshadow::kFloat16;
    case RSNET_UINT << 8 | 8: return mshadow::kUint8;
    case RSNET_INT << 8 | 32: return mshadow::kInt32;
    case RSNET_INT << 8 | 8: return mshadow::kInt8;
    case RSNET_INT << 8 | 64: return mshadow::kInt64;
    case RSNET_BOOLEAN << 8 | 8: return mshadow::kBool;
    default: return -1;
  }
}

RSNET_LOCAL inline rsnet_dtype TypeOf(int flag) {
  static const rsnet_dtype types[] = {{RSNET_FLOAT, 32, 1}, {RSNET_FLOAT, 64, 1},
                                      {RSNET_FLOAT, 16, 1}, {RSNET_UINT, 8, 1},
                                      {RSNET_INT, 32, 1},   {RSNET_INT, 8, 1},
                                      {RSNET_INT, 64, 1},   {RSNET_BOOLEAN, 8, 1}};
  if (flag < 0 || flag > 7) return {0, 0, 0};
  return types[flag];
}

// ---- Assignments of inference ------------------------------------------------------------------

inline bool shape_assign(TShape* known, const TShape& shape) {
  if (!ndim_is_known(*known)) {
    *known = shape;
    return true;
  }
  if (!ndim_is_known(shape)) return true;
  if (known->ndim() != shape.ndim()) return false;
  for (size_t i = 0; i < known->ndim(); ++i) {
    if ((*known)[i] == 0) {
      (*known)[i] = shape[i];
    } else if ((*known)[i] != shape[i] && shape[i] != 0) {
      return false;
    }
  }
  return true;
}

inline bool type_assign(int* known, int type) {
  if (*known == -1) *known = type;
  return type == -1 || *known == type;
}

RSNET_LOCAL inline std::string TextOfType(int flag) {
  static const char* const names[] = {"float32", "float64", "float16", "uint8",
                                      "int32",   "int8",    "int64",   "bool"};
  return flag < 0 || flag > 7 ? "unknown" : names[flag];
}

// A shape or dtype that contradicts what else is known: entry `index` of a list.
class Contradiction : public rsnet::Failure {
 public:
  Contradiction(const std::string& what, const void* list, size_t index, const std::string& got,
                const std::string& expected)
      : Failure("invalid " + what + " " + got + ": expected " + expected),
        list_(list),
        index_(index),
        got_("invalid " + what + " " + got),
        expected_(expected) {}
  bool IsIn(const void* list) const { return list_ == list; }
  // The same with the name of the entry, from those of its list.
  Failure Named(const std::string& side, const std::vector<std::string>& names) const {
    if (index_ >= names.size()) return *this;
    return Failure(got_ + " of " + side + " '" + names[index_] + "': expected " + expected_);
  }

 private:
  const void* list_;
  size_t index_;
  std::string got_, expected_;
};

// A list of what is inferred, what one of its entries is called, and the names of them all.
struct InferredList {
  const void* list;
  const char* what;
  std::function<std::vector<std::string>()> names;
};
// Calls an inference; an error names the array.
template <typename F>
void InferLists(const F& rule, std::initializer_list<InferredList> lists) {
  try {
    rule();
  } catch (const Contradiction& e) {
    for (const InferredList& list : lists) {
      if (e.IsIn(list.list)) throw e.Named(list.what, list.names());
    }
    throw;
  }
}

// Assigns to entry `index` of a list, which may know it already, or something else.
template <typename Shapes>
void AssignShape(Shapes&& list, size_t index, const TShape& shape) {
  if (shape_assign(&list[index], shape)) return;
  throw Contradiction("shape", &list, index, list[index].Text(), shape.Text());
}
template <typename Types>
void AssignType(Types&& list, size_t index, int type) {
  if (type_assign(&list[index], type)) return;
  throw Contradiction("dtype", &list, index, TextOfType(list[index]), TextOfType(type));
}

#define SHAPE_ASSIGN_CHECK(array, index, shape) \
  do {                                          \
    ::mxnet::AssignShape((array), index, shape); \
  } while (0)
#define TYPE_ASSIGN_CHECK(array, index, type)  \
  do {                                         \
    ::mxnet::AssignType((array), index, type); \
  } while (0)
// Of rules for types of storage, which are never called.
#define STORAGE_TYPE_ASSIGN_CHECK(array, index, type) \
  do {                                                \
    (array)[index] = (type);                          \
  } while (0)

namespace op {

inline std::string type_string(int type) { return TextOfType(type); }
// An axis that may be counted from the end.
inline int CheckAxis(int axis, int ndim) {
  if (axis >= -ndim && axis < ndim) return axis < 0 ? axis + ndim : axis;
  throw rsnet::Failure("invalid axis " + std::to_string(axis) + ": expected " +
                       std::to_string(-ndim) + " to " + std::to_string(ndim - 1));
}

}  // namespace op
}  // namespace mxnet

// ---- Switches ----------------------------------------------------------------------------------

#define RSNET_MX_CASE(flag, T, DType, ...) \
  case flag: {                             \
    typedef T DType;                       \
    { __VA_ARGS__ }                        \
  } break;
#define RSNET_MX_NO_CASE(type) \
  default:                     \
    throw ::rsnet::Failure(    \
        "Unknown type enum " + std::to_string(type) + " (" + ::mxnet::TextOfType(type) + ")", \
        RSNET_UNSUPPORTED);
#define RSNET_MX_REAL(DType, ...)                                     \
  RSNET_MX_CASE(::mshadow::kFloat32, float, DType, __VA_ARGS__)       \
  RSNET_MX_CASE(::mshadow::kFloat64, double, DType, __VA_ARGS__)      \
  RSNET_MX_CASE(::mshadow::kFloat16, ::mshadow::half::half_t, DType, __VA_ARGS__)
#define RSNET_MX_INTEGERS(DType, ...)                                 \
  RSNET_MX_CASE(::mshadow::kUint8, uint8_t, DType, __VA_ARGS__)       \
  RSNET_MX_CASE(::mshadow::kInt8, int8_t, DType, __VA_ARGS__)         \
  RSNET_MX_CASE(::mshadow::kInt32, int32_t, DType, __VA_ARGS__)       \
  RSNET_MX_CASE(::mshadow::kInt64, int64_t, DType, __VA_ARGS__)
#define MSHADOW_TYPE_SWITCH(type, DType, ...)                                              \
  switch (type) {                                                                          \
    RSNET_MX_REAL(DType, __VA_ARGS__) RSNET_MX_INTEGERS(DType, __VA_ARGS__) RSNET_MX_NO_CASE(type) \
  }
#define MSHADOW_TYPE_SWITCH_WITH_BOOL(type, DType, ...)                      \
  switch (type) {                                                            \
    RSNET_MX_REAL(DType, __VA_ARGS__)                                        \
    RSNET_MX_INTEGERS(DType, __VA_ARGS__)                                    \
    RSNET_MX_CASE(::mshadow::kBool, bool, DType, __VA_ARGS__) RSNET_MX_NO_CASE(type) \
  }
#define MSHADOW_REAL_TYPE_SWITCH(type, DType, ...) \
  switch (type) { RSNET_MX_REAL(DType, __VA_ARGS__) RSNET_MX_NO_CASE(type) }
#define MSHADOW_SGL_DBL_TYPE_SWITCH(type, DType, ...)              \
  switch (type) {                                                  \
    RSNET_MX_CASE(::mshadow::kFloat32, float, DType, __VA_ARGS__)  \
    RSNET_MX_CASE(::mshadow::kFloat64, double, DType, __VA_ARGS__) \
    RSNET_MX_NO_CASE(type)                                         \
  }
// DLargeType is what sums of DType are taken in.
#define RSNET_MX_REAL_EX(flag, T, Large, DType, DLargeType, ...) \
  case flag: {                                                   \
    typedef T DType;                                             \
    typedef Large DLargeType;                                    \
    { __VA_ARGS__ }                                              \
  } break;
#define MSHADOW_REAL_TYPE_SWITCH_EX(type, DType, DLargeType, ...)                               \
  switch (type) {                                                                               \
    RSNET_MX_REAL_EX(::mshadow::kFloat32, float, float, DType, DLargeType, __VA_ARGS__)         \
    RSNET_MX_REAL_EX(::mshadow::kFloat64, double, double, DType, DLargeType, __VA_ARGS__)       \
    RSNET_MX_REAL_EX(::mshadow::kFloat16, ::mshadow::half::half_t, float, DType, DLargeType,    \
                     __VA_ARGS__)                                                               \
    RSNET_MX_NO_CASE(type)                                                                      \
  }
#define MXNET_NO_FLOAT16_TYPE_SWITCH(type, DType, ...)             \
  switch (type) {                                                  \
    RSNET_MX_CASE(::mshadow::kFloat32, float, DType, __VA_ARGS__)  \
    RSNET_MX_CASE(::mshadow::kFloat64, double, DType, __VA_ARGS__) \
    RSNET_MX_INTEGERS(DType, __VA_ARGS__) RSNET_MX_NO_CASE(type)   \
  }
#define MSHADOW_IDX_TYPE_SWITCH(type, DType, ...)                           \
  switch (type) {                                                           \
    RSNET_MX_CASE(::mshadow::kInt32, int32_t, DType, __VA_ARGS__)           \
    RSNET_MX_CASE(::mshadow::kInt64, int64_t, DType, __VA_ARGS__) RSNET_MX_NO_CASE(type) \
  }
#define RSNET_MX_NDIM(n, NDim, ...) \
  case n: {                         \
    constexpr int NDim = n;         \
    { __VA_ARGS__ }                 \
  } break;
#define MXNET_NDIM_SWITCH(NDim, ndim, ...)                                            \
  switch (NDim) {                                                                     \
    case 0: break;                                                                    \
    RSNET_MX_NDIM(1, ndim, __VA_ARGS__) RSNET_MX_NDIM(2, ndim, __VA_ARGS__)           \
    RSNET_MX_NDIM(3, ndim, __VA_ARGS__) RSNET_MX_NDIM(4, ndim, __VA_ARGS__)           \
    RSNET_MX_NDIM(5, ndim, __VA_ARGS__)                                               \
    default: throw ::rsnet::Failure("invalid number of axes: expected at most 5");    \
  }
#define MXNET_ASSIGN_REQ_SWITCH(req, ReqType, ...)          \
  switch (req) {                                            \
    case ::mxnet::kNullOp: break;                           \
    case ::mxnet::kWriteInplace:                            \
    case ::mxnet::kWriteTo: {                               \
      const ::mxnet::OpReqType ReqType = ::mxnet::kWriteTo; \
      { __VA_ARGS__ }                                       \
    } break;                                                \
    case ::mxnet::kAddTo: {                                 \
      const ::mxnet::OpReqType ReqType = ::mxnet::kAddTo;   \
      { __VA_ARGS__ }                                       \
    } break;                                                \
    default: break;                                         \
  }
#define KERNEL_ASSIGN(out, req, val)     \
  {                                      \
    switch (req) {                       \
      case ::mxnet::kNullOp: break;      \
      case ::mxnet::kWriteTo:            \
      case ::mxnet::kWriteInplace:       \
        (out) = (val);                   \
        break;                           \
      case ::mxnet::kAddTo:              \
        (out) += (val);                  \
        break;                           \
      default: break;                    \
    }                                    \
  }

#endif  // RSNET_MXNET_BASE_HPP

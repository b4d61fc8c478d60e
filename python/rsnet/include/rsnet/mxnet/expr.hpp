// Expressions over tensors: Assign(out, req, F<op>(a) + 2 * b), t = 0, t += broadcast<1>(v, shape),
// dot(x, w.T()). See rsnet/mxnet.h.
//
// An expression has a value for every element of row-major tensors of one shape. Products and sums
// are computed where they are written, the rest while it is assigned.
#ifndef RSNET_MXNET_EXPR_HPP
#define RSNET_MXNET_EXPR_HPP

#include <rsnet/mxnet/types.hpp>

#include <cstddef>
#include <string>
#include <type_traits>

namespace mshadow {

template <int dim>
struct Shape;

namespace expr {

// Numbers that may stand beside tensors.
template <typename T>
constexpr bool is_number = std::is_arithmetic_v<T> || std::is_same_v<T, half::half_t>;

// The shape of an expression. One of numbers alone has no axes, and goes with every shape.
struct Extents {
  RSNET_LOCAL static constexpr int kMost = 8;
  int ndim = 0;
  index_t dims[kMost] = {};
  Extents() = default;
  Extents(std::initializer_list<index_t> all) : ndim(static_cast<int>(all.size())) {
    std::copy(all.begin(), all.end(), dims);
  }
  template <int dim>
  explicit Extents(const mshadow::Shape<dim>& shape) : ndim(dim) {
    static_assert(dim <= kMost, "a tensor of fewer axes");
    std::copy(shape.shape_, shape.shape_ + dim, dims);
  }
  size_t Size() const { return Product(0, ndim); }
  size_t Product(int begin, int end) const {
    size_t n = 1;
    for (int i = begin; i < end; ++i) n *= dims[i];
    return n;
  }
  bool operator==(const Extents& other) const {
    return ndim == other.ndim && std::equal(dims, dims + ndim, other.dims);
  }
  std::string Text() const { return rsnet::list_text(std::vector<index_t>(dims, dims + ndim)); }
};

inline Extents Common(const Extents& a, const Extents& b) {
  if (a.ndim == 0) return b;
  bool fits = b.ndim == 0 || a == b;
  // The same elements seen as a vector, say, go together as well.
  fits = fits || (a.ndim != b.ndim && a.Size() == b.Size());
  if (fits) return a;
  throw rsnet::Failure("an expression has tensors of the shapes " + a.Text() + " and " + b.Text());
}

// What every expression is derived from.
struct Any {};

template <typename T>
struct Number : Any {
  T value;
  explicit Number(T value) : value(value) {}
  Extents Shape() const { return {}; }
  T At(size_t) const { return value; }
};
// A number, as sources write it.
template <typename T>
struct ScalarExp : Number<T> {
  using Number<T>::Number;
};

template <typename T>
struct Leaf : Any {
  const T* data;
  Extents extents;
  Leaf(const T* data, const Extents& extents) : data(data), extents(extents) {}
  Extents Shape() const { return extents; }
  T At(size_t i) const { return data[i]; }
};

// A matrix with its axes exchanged.
template <typename T>
struct Transposed : Any {
  const T* data;
  index_t rows, columns;  // of the matrix
  Transposed(const T* data, index_t rows, index_t columns)
      : data(data), rows(rows), columns(columns) {}
  Extents Shape() const { return {columns, rows}; }
  T At(size_t i) const { return data[(i % rows) * columns + i / rows]; }
};

// Values that are computed already.
template <typename T>
struct Values : Any {
  std::shared_ptr<std::vector<T>> values;
  Extents extents;
  explicit Values(const Extents& of)
      : values(std::make_shared<std::vector<T>>(of.Size())), extents(of) {}
  Extents Shape() const { return extents; }
  T At(size_t i) const { return (*values)[i]; }
};

template <typename OP, typename A>
struct Unary : Any {
  A a;
  explicit Unary(A a) : a(std::move(a)) {}
  Extents Shape() const { return a.Shape(); }
  auto At(size_t i) const { return OP::Map(a.At(i)); }
};

template <typename OP, typename A, typename B>
struct Binary : Any {
  A a;
  B b;
  Binary(A a, B b) : a(std::move(a)), b(std::move(b)) {}
  Extents Shape() const { return Common(a.Shape(), b.Shape()); }
  auto At(size_t i) const { return OP::Map(a.At(i), b.At(i)); }
};

// A vector along one axis of a shape, the same at every place of the others.
template <typename A>
struct Broadcast : Any {
  A a;
  Extents extents;
  size_t n, inner;  // entries of the vector, and how many elements each stands for in a row
  Broadcast(A a, const Extents& of, int axis)
      : a(std::move(a)),
        extents(of),
        n(extents.dims[axis]),
        inner(extents.Product(axis + 1, extents.ndim)) {
    if (this->a.Shape().Size() == n) return;
    throw rsnet::Failure("broadcast of " + this->a.Shape().Text() + " along axis " +
                         std::to_string(axis) + " of " + extents.Text());
  }
  Extents Shape() const { return extents; }
  auto At(size_t i) const { return a.At(i / inner % n); }
};

// The same elements under another shape.
template <typename A>
struct Reshaped : Any {
  A a;
  Extents extents;
  Reshaped(A a, const Extents& of) : a(std::move(a)), extents(of) {
    if (this->a.Shape().Size() == extents.Size()) return;
    throw rsnet::Failure("reshape of " + this->a.Shape().Text() + " to " + extents.Text());
  }
  Extents Shape() const { return extents; }
  auto At(size_t i) const { return a.At(i); }
};

// Numbers, tensors and expressions as expressions.
template <typename T>
std::enable_if_t<is_number<T>, Number<T>> Wrap(T value) {
  return Number<T>(value);
}
template <typename E>
std::enable_if_t<std::is_base_of_v<Any, E>, E> Wrap(const E& e) {
  return e;
}
template <typename Tensor, typename T = typename Tensor::value_type>
Leaf<T> Wrap(const Tensor& t) {
  return Leaf<T>(t.dptr_, Extents(t.shape_));
}

template <typename T, typename = void>
struct IsTensor : std::false_type {};
template <typename T>
struct IsTensor<T, std::void_t<typename T::value_type, decltype(T::dptr_)>> : std::true_type {};
template <typename T>
constexpr bool is_operand = IsTensor<T>::value || std::is_base_of_v<Any, T>;
template <typename A, typename B>
using Both = std::enable_if_t<(is_operand<A> && (is_operand<B> || is_number<B>)) ||
                              (is_number<A> && is_operand<B>)>;

#define RSNET_MX_OPERATOR(Name, op)                                              \
  struct Name {                                                                  \
    template <typename A, typename B>                                            \
    static auto Map(A a, B b) {                                                  \
      return a op b;                                                             \
    }                                                                            \
  };                                                                             \
  template <typename A, typename B, typename = Both<A, B>>                       \
  auto operator op(const A& a, const B& b) {                                     \
    return Binary<Name, decltype(Wrap(a)), decltype(Wrap(b))>(Wrap(a), Wrap(b)); \
  }
RSNET_MX_OPERATOR(Plus, +)
RSNET_MX_OPERATOR(Minus, -)
RSNET_MX_OPERATOR(Times, *)
RSNET_MX_OPERATOR(Over, /)
#undef RSNET_MX_OPERATOR

// OP::Map of every element, of one expression or of two.
template <typename OP, typename A>
auto F(const A& a) {
  return Unary<OP, decltype(Wrap(a))>(Wrap(a));
}
template <typename OP, typename A, typename B>
auto F(const A& a, const B& b) {
  return Binary<OP, decltype(Wrap(a)), decltype(Wrap(b))>(Wrap(a), Wrap(b));
}
struct Negation {
  template <typename A>
  static A Map(A a) {
    return -a;
  }
};
template <typename A, typename = std::enable_if_t<is_operand<A>>>
auto operator-(const A& a) {
  return F<Negation>(a);
}
template <typename T>
struct Cast {
  template <typename A>
  static T Map(A a) {
    return static_cast<T>(a);
  }
};
template <typename T, typename A>
auto tcast(const A& a) {
  return F<Cast<T>>(a);
}
// A number in an expression.
template <typename T>
Number<T> scalar(T value) {
  return Number<T>(value);
}
// A vector along an axis of a shape.
template <int axis, typename A, int dim>
auto broadcast(const A& vector, const Shape<dim>& shape) {
  static_assert(axis >= 0 && axis < dim, "the shape has this axis");
  return Broadcast<decltype(Wrap(vector))>(Wrap(vector), Extents(shape), axis);
}
// A vector as each of `rows` rows.
template <typename A>
auto repmat(const A& vector, index_t rows) {
  const auto a = Wrap(vector);
  const auto n = static_cast<index_t>(a.Shape().Size());
  return Broadcast<decltype(Wrap(vector))>(a, Extents{rows, n}, 1);
}
template <typename A, int dim>
auto reshape(const A& a, const Shape<dim>& shape) {
  return Reshaped<decltype(Wrap(a))>(Wrap(a), Extents(shape));
}

// ---- Sums and products -------------------------------------------------------------------------

// What half precision is added up in.
template <typename T>
using Sum = std::conditional_t<std::is_same_v<T, half::half_t>, float, T>;

// The sums over all axes but one.
template <int axis, typename A>
auto sumall_except_dim(const A& given) {
  const auto a = Wrap(given);
  const Extents of = a.Shape();
  if (of.ndim <= axis) {
    throw rsnet::Failure("sumall_except_dim<" + std::to_string(axis) + "> of the shape " +
                         of.Text());
  }
  Values<Sum<decltype(a.At(0))>> sums(Extents{of.dims[axis]});
  const size_t n = of.dims[axis], inner = of.Product(axis + 1, of.ndim);
  const size_t outer = of.Product(0, axis);
  size_t at = 0;
  for (size_t i = 0; i < outer; ++i) {
    for (size_t j = 0; j < n; ++j) {
      for (size_t k = 0; k < inner; ++k) (*sums.values)[j] += a.At(at++);
    }
  }
  return sums;
}
// The sum of all rows of a matrix.
template <typename A>
auto sum_rows(const A& matrix) {
  return sumall_except_dim<1>(matrix);
}

// The matrix product.
template <typename A, typename B>
auto dot(const A& left, const B& right) {
  const auto a = Wrap(left);
  const auto b = Wrap(right);
  const Extents m = a.Shape(), n = b.Shape();
  if (m.ndim != 2 || n.ndim != 2 || m.dims[1] != n.dims[0]) {
    throw rsnet::Failure("dot of the shapes " + m.Text() + " and " + n.Text());
  }
  using T = Sum<decltype(a.At(0) * b.At(0))>;
  Values<T> product(Extents{m.dims[0], n.dims[1]});
  const size_t rows = m.dims[0], common = m.dims[1], columns = n.dims[1];
  std::vector<T> other(common * columns);  // row-major, whatever b is
  for (size_t i = 0; i < other.size(); ++i) other[i] = static_cast<T>(b.At(i));
  for (size_t i = 0; i < rows; ++i) {
    T* to = product.values->data() + i * columns;
    for (size_t k = 0; k < common; ++k) {
      const T factor = static_cast<T>(a.At(i * common + k));
      const T* from = other.data() + k * columns;
      for (size_t j = 0; j < columns; ++j) to[j] += factor * from[j];
    }
  }
  return product;
}

// Calls put(i, value) for every element of a tensor.
template <typename E, typename Put>
void ForEach(const Extents& extents, const E& given, Put put) {
  const auto e = Wrap(given);
  Common(extents, e.Shape());
  const size_t size = extents.Size();
  for (size_t i = 0; i < size; ++i) put(i, e.At(i));
}

}  // namespace expr

// Operators are found by the namespace of their operands: tensors are here.
using expr::operator+;
using expr::operator-;
using expr::operator*;
using expr::operator/;

}  // namespace mshadow

// out = exp, or out += exp, as the request says.
#define ASSIGN_DISPATCH(out, req, exp)     \
  {                                        \
    switch (req) {                         \
      case ::mxnet::kNullOp: break;        \
      case ::mxnet::kWriteTo:              \
      case ::mxnet::kWriteInplace:         \
        (out) = (exp);                     \
        break;                             \
      case ::mxnet::kAddTo:                \
        (out) += (exp);                    \
        break;                             \
      default: break;                      \
    }                                      \
  }
#define Assign(out, req, exp) ASSIGN_DISPATCH(out, req, exp)

#endif  // RSNET_MXNET_EXPR_HPP

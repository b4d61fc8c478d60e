// Element-wise expressions over tensors: Assign(out, req, F<op>(a) + 2 * b), t = 0, t += b. See
// rsnet/mxnet.h.
//
// An expression has a value for every element of row-major tensors of one size. Nothing here changes
// shapes or reduces: mshadow::dot, broadcast<> and sums are loops of their own.
#ifndef RSNET_MXNET_EXPR_HPP
#define RSNET_MXNET_EXPR_HPP

#include <rsnet/checks.hpp>

#include <cstddef>
#include <string>
#include <type_traits>

namespace mshadow {

namespace half {
class half_t;
}  // namespace half

namespace expr {

// Numbers that may stand beside tensors.
template <typename T>
constexpr bool is_number = std::is_arithmetic_v<T> || std::is_same_v<T, half::half_t>;

// The size of an expression of numbers alone, which goes with every size.
constexpr size_t kAnySize = static_cast<size_t>(-1);

inline size_t Common(size_t a, size_t b) {
  if (a == kAnySize) return b;
  if (b != kAnySize && a != b) {
    throw rsnet::Failure("an expression has tensors of " + std::to_string(a) + " and of " +
                         std::to_string(b) + " elements");
  }
  return a;
}

// What every expression is derived from.
struct Any {};

template <typename T>
struct Number : Any {
  T value;
  explicit Number(T value) : value(value) {}
  size_t Size() const { return kAnySize; }
  T At(size_t) const { return value; }
};

template <typename T>
struct Leaf : Any {
  const T* data;
  size_t size;
  Leaf(const T* data, size_t size) : data(data), size(size) {}
  size_t Size() const { return size; }
  T At(size_t i) const { return data[i]; }
};

template <typename OP, typename A>
struct Unary : Any {
  A a;
  explicit Unary(A a) : a(a) {}
  size_t Size() const { return a.Size(); }
  auto At(size_t i) const { return OP::Map(a.At(i)); }
};

template <typename OP, typename A, typename B>
struct Binary : Any {
  A a;
  B b;
  Binary(A a, B b) : a(a), b(b) {}
  size_t Size() const { return Common(a.Size(), b.Size()); }
  auto At(size_t i) const { return OP::Map(a.At(i), b.At(i)); }
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
  return Leaf<T>(t.dptr_, t.shape_.Size());
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
// A number in an expression.
template <typename T>
Number<T> scalar(T value) {
  return Number<T>(value);
}

// Calls put(i, value) for every element of a tensor of `size`.
template <typename E, typename Put>
void ForEach(size_t size, const E& given, Put put) {
  const auto e = Wrap(given);
  Common(size, e.Size());
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

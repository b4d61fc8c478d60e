// Functions of elements by MXNet's names, for F<mshadow_op::sigmoid>(x) and for kernels. See
// rsnet/mxnet.h.
#ifndef RSNET_MXNET_FUNCTORS_HPP
#define RSNET_MXNET_FUNCTORS_HPP

#include <rsnet/mxnet/base.hpp>

namespace mxnet {
namespace op {
namespace mshadow_op {

// What a function of such a number computes in: half precision in single.
template <typename T>
using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;

#define RSNET_MX_UNARY(name, formula)              \
  struct name {                                    \
    template <typename DType>                      \
    MSHADOW_XINLINE static DType Map(DType a) {    \
      return DType(formula);                       \
    }                                              \
  };
// A formula of x, which is a as a floating-point number.
#define RSNET_MX_UNARY_REAL(name, formula)         \
  struct name {                                    \
    template <typename DType>                      \
    MSHADOW_XINLINE static DType Map(DType a) {    \
      const auto x = static_cast<Real<DType>>(a);  \
      return DType(formula);                       \
    }                                              \
  };
// A function of std that leaves integers as they are.
#define RSNET_MX_UNARY_WHOLE(name)                                    \
  struct name {                                                       \
    template <typename DType>                                         \
    MSHADOW_XINLINE static DType Map(DType a) {                       \
      if constexpr (std::is_integral_v<DType>) return a;              \
      else return DType(std::name(static_cast<Real<DType>>(a)));      \
    }                                                                 \
  };
#define RSNET_MX_BINARY(name, formula)                                                     \
  struct name {                                                                            \
    template <typename DType>                                                              \
    MSHADOW_XINLINE static DType Map([[maybe_unused]] DType a, [[maybe_unused]] DType b) { \
      return DType(formula);                                                               \
    }                                                                                      \
  };

RSNET_MX_UNARY(identity, a)
RSNET_MX_UNARY(negation, -a)
RSNET_MX_UNARY(abs, a < DType(0) ? DType(-a) : a)
RSNET_MX_UNARY(sign, a < DType(0) ? DType(-1) : a > DType(0) ? DType(1) : DType(0))
RSNET_MX_UNARY(square, a * a)
RSNET_MX_UNARY(square_grad, DType(2) * a)
RSNET_MX_UNARY(relu, a > DType(0) || a != a ? a : DType(0))
RSNET_MX_UNARY(relu_grad, a > DType(0) ? DType(1) : DType(0))
RSNET_MX_UNARY_REAL(reciprocal, 1 / x)
RSNET_MX_UNARY_REAL(square_root, std::sqrt(x))
RSNET_MX_UNARY_REAL(square_root_grad, Real<DType>(0.5) / x)
RSNET_MX_UNARY_REAL(exp, std::exp(x))
RSNET_MX_UNARY_REAL(expm1, std::expm1(x))
RSNET_MX_UNARY_REAL(log, std::log(x))
RSNET_MX_UNARY_REAL(log1p, std::log1p(x))
RSNET_MX_UNARY_REAL(log_grad, 1 / x)
RSNET_MX_UNARY_REAL(sin, std::sin(x))
RSNET_MX_UNARY_REAL(cos, std::cos(x))
RSNET_MX_UNARY_REAL(tanh, std::tanh(x))
RSNET_MX_UNARY_REAL(tanh_grad, 1 - x * x)
RSNET_MX_UNARY_REAL(sigmoid, 1 / (1 + std::exp(-x)))
RSNET_MX_UNARY_REAL(sigmoid_grad, x * (1 - x))
RSNET_MX_UNARY_REAL(softrelu, x > 20 ? x : std::log1p(std::exp(x)))
RSNET_MX_UNARY_REAL(softrelu_grad, -std::expm1(-x))
RSNET_MX_UNARY_WHOLE(floor)
RSNET_MX_UNARY_WHOLE(ceil)
RSNET_MX_UNARY_WHOLE(round)

RSNET_MX_BINARY(plus, a + b)
RSNET_MX_BINARY(minus, a - b)
RSNET_MX_BINARY(mul, a * b)
RSNET_MX_BINARY(div, a / b)
RSNET_MX_BINARY(rminus, b - a)
RSNET_MX_BINARY(rdiv, b / a)
RSNET_MX_BINARY(left, a)
RSNET_MX_BINARY(right, b)
RSNET_MX_BINARY(power, std::pow(static_cast<Real<DType>>(a), static_cast<Real<DType>>(b)))
RSNET_MX_BINARY(maximum, a > b || a != a ? a : b)
RSNET_MX_BINARY(minimum, a < b || a != a ? a : b)
RSNET_MX_BINARY(threshold, a < b ? DType(1) : DType(0))
RSNET_MX_BINARY(xelu, a > DType(0) ? a : DType(a * b))
RSNET_MX_BINARY(xelu_grad, a > DType(0) ? DType(1) : b)
RSNET_MX_BINARY(eq, a == b ? DType(1) : DType(0))
RSNET_MX_BINARY(ne, a == b ? DType(0) : DType(1))
RSNET_MX_BINARY(gt, a > b ? DType(1) : DType(0))
RSNET_MX_BINARY(lt, a < b ? DType(1) : DType(0))
RSNET_MX_BINARY(ge, a < b ? DType(0) : DType(1))
RSNET_MX_BINARY(le, a > b ? DType(0) : DType(1))
#undef RSNET_MX_UNARY
#undef RSNET_MX_UNARY_REAL
#undef RSNET_MX_UNARY_WHOLE
#undef RSNET_MX_BINARY

}  // namespace mshadow_op

namespace mxnet_op {

// A function of elements as a kernel: out[i] as the request says.
template <typename OP, int req>
struct op_with_req {
  template <typename DType>
  MSHADOW_XINLINE static void Map(index_t i, DType* out, const DType* in) {
    KERNEL_ASSIGN(out[i], req, OP::Map(in[i]));
  }
  template <typename DType>
  MSHADOW_XINLINE static void Map(index_t i, DType* out, const DType* in, const DType value) {
    KERNEL_ASSIGN(out[i], req, OP::Map(in[i], value));
  }
  template <typename DType>
  MSHADOW_XINLINE static void Map(index_t i, DType* out, const DType* lhs, const DType* rhs) {
    KERNEL_ASSIGN(out[i], req, OP::Map(lhs[i], rhs[i]));
  }
};

// The chain rule: the gradient that arrives times the function's own.
template <typename GRAD>
struct backward_grad {
  template <typename DType, typename... Args>
  MSHADOW_XINLINE static DType Map(DType out_grad, Args... args) {
    return DType(out_grad * GRAD::Map(args...));
  }
};

}  // namespace mxnet_op
}  // namespace op

}  // namespace mxnet

namespace mshadow {
namespace op {
using mxnet::op::mshadow_op::div;
using mxnet::op::mshadow_op::identity;
using mxnet::op::mshadow_op::minus;
using mxnet::op::mshadow_op::mul;
using mxnet::op::mshadow_op::plus;
using mxnet::op::mshadow_op::right;
}  // namespace op
}  // namespace mshadow

#endif  // RSNET_MXNET_FUNCTORS_HPP

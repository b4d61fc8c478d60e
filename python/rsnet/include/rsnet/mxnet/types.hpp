// Element types, devices and streams by MXNet's names. See rsnet/mxnet.h.
#ifndef RSNET_MXNET_TYPES_HPP
#define RSNET_MXNET_TYPES_HPP

#include <rsnet/checks.hpp>
#include <rsnet/library.hpp>

#include <algorithm>
#include <any>
#include <cmath>
#include <optional>

#if defined(__CUDACC__)
#define MSHADOW_XINLINE inline __attribute__((always_inline)) __device__ __host__
#else
#define MSHADOW_XINLINE inline __attribute__((always_inline))
#endif
#define MSHADOW_CINLINE MSHADOW_XINLINE
#define MSHADOW_FORCE_INLINE inline __attribute__((always_inline))
#define MXNET_FORCEINLINE MSHADOW_FORCE_INLINE
#ifndef DMLC_USE_CXX11
#define DMLC_USE_CXX11 1
#endif
#define ADD_FILELINE ""

struct CUstream_st;  // what CUDA's cudaStream_t points to

namespace dmlc {
using Error = ::rsnet::Failure;
using any = std::any;
template <typename T>
using optional = std::optional<T>;
using nullopt_t = std::nullopt_t;
inline constexpr nullopt_t nullopt = std::nullopt;
}  // namespace dmlc

namespace mshadow {

using index_t = int64_t;
using openmp_index_t = index_t;
using real_t = float;
struct cpu {
  RSNET_LOCAL static constexpr int kDevMask = RSNET_CPU;
};
struct gpu {
  RSNET_LOCAL static constexpr int kDevMask = RSNET_GPU;
};

// The stream of a call: on the CPU the way to the engine's threads.
template <typename xpu>
struct Stream {
  const rsnet_host* host;
  rsnet_ctx* ctx;
  void* stream;  // of the device
  static CUstream_st* GetStream(Stream* s) {
    return s == nullptr ? nullptr : static_cast<CUstream_st*>(s->stream);
  }
};

namespace half {
// Half precision: arithmetic is done in single precision.
class half_t {
 public:
  half_t() = default;
  MSHADOW_XINLINE half_t(float value) : bits_(FromFloat(value)) {}
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  MSHADOW_XINLINE half_t(T value) : half_t(static_cast<float>(value)) {}
  MSHADOW_XINLINE operator float() const { return ToFloat(bits_); }
  MSHADOW_XINLINE half_t& operator+=(float value) { return *this = half_t(float(*this) + value); }
  MSHADOW_XINLINE half_t& operator-=(float value) { return *this = half_t(float(*this) - value); }
  MSHADOW_XINLINE half_t& operator*=(float value) { return *this = half_t(float(*this) * value); }
  MSHADOW_XINLINE half_t& operator/=(float value) { return *this = half_t(float(*this) / value); }

 private:
  MSHADOW_XINLINE static float ToFloat(uint16_t h) {
    int exponent = (h >> 10) & 31;
    float fraction = static_cast<float>(h & 1023);
    float value = exponent == 0    ? std::ldexp(fraction, -24)
                  : exponent == 31 ? (h & 1023 ? NAN : INFINITY)
                                   : std::ldexp(fraction + 1024, exponent - 25);
    return h & 0x8000 ? -value : value;
  }
  MSHADOW_XINLINE static uint16_t FromFloat(float value) {  // to nearest, ties to even
    uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    float size = std::fabs(value);
    if (std::isnan(value)) return sign | 0x7e00;
    if (size >= 65520.0f) return sign | 0x7c00;
    if (size < std::ldexp(1.0f, -14)) {
      return static_cast<uint16_t>(sign | static_cast<int>(std::nearbyint(std::ldexp(size, 24))));
    }
    int exponent = std::ilogb(size);
    int fraction = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));
    return static_cast<uint16_t>(sign | (((exponent + 14) << 10) + fraction));
  }
  uint16_t bits_ = 0;
};

// Two halves, or a half and an integer, make a half; with a float or a double, that.
template <typename T>
using Wider = std::enable_if_t<std::is_arithmetic_v<T>,
                               std::conditional_t<std::is_floating_point_v<T>, T, half_t>>;
MSHADOW_XINLINE half_t operator-(half_t a) { return half_t(-static_cast<float>(a)); }
#define RSNET_MX_HALF(op) \
  MSHADOW_XINLINE half_t operator op(half_t a, half_t b) { \
    return half_t(static_cast<float>(a) op static_cast<float>(b));                          \
  }                                                                                         \
  template <typename T> \
  MSHADOW_XINLINE Wider<T> operator op(half_t a, T b) { \
    return Wider<T>(static_cast<float>(a) op b);                                            \
  }                                                                                         \
  template <typename T> \
  MSHADOW_XINLINE Wider<T> operator op(T a, half_t b) { \
    return Wider<T>(a op static_cast<float>(b));                                            \
  }
RSNET_MX_HALF(+)
RSNET_MX_HALF(-)
RSNET_MX_HALF(*)
RSNET_MX_HALF(/)
#undef RSNET_MX_HALF
}  // namespace half

enum TypeFlag {
  kFloat32 = 0,
  kFloat64 = 1,
  kFloat16 = 2,
  kUint8 = 3,
  kInt32 = 4,
  kInt8 = 5,
  kInt64 = 6,
  kBool = 7
};

template <typename T>
struct DataType;
#define RSNET_MX_TYPE(T, name)           \
  template <>                            \
  struct DataType<T> {                   \
    using DType = T;                     \
    RSNET_LOCAL static constexpr int kFlag = name; \
  };
RSNET_MX_TYPE(float, kFloat32)
RSNET_MX_TYPE(double, kFloat64)
RSNET_MX_TYPE(half::half_t, kFloat16)
RSNET_MX_TYPE(uint8_t, kUint8)
RSNET_MX_TYPE(int32_t, kInt32)
RSNET_MX_TYPE(int8_t, kInt8)
RSNET_MX_TYPE(int64_t, kInt64)
RSNET_MX_TYPE(bool, kBool)
#undef RSNET_MX_TYPE

}  // namespace mshadow

#endif  // RSNET_MXNET_TYPES_HPP

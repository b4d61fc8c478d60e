// What every source of this folder begins with: half precision, how elements are read and written,
// index arithmetic, and reductions within a block.
//
// Sources are compiled by NVRTC without any header of CUDA, and by a C++ compiler for the emulated
// driver of the tests: they use only what both know.

typedef long long Index;
typedef unsigned char u8;
typedef signed char i8;

#ifdef RSNET_EMULATED
struct half {
  _Float16 value;
  half() = default;
  explicit half(float x) : value((_Float16)x) {}
  operator float() const { return (float)value; }
};
#else
struct alignas(2) half {
  unsigned short bits;
  half() = default;
  __device__ explicit half(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
  __device__ operator float() const {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
  }
};
#endif

// The type in which elements of T are calculated: half precision in float, others in themselves.
template <class T> struct ComputeOf { typedef T Type; };
template <> struct ComputeOf<half> { typedef float Type; };
template <class T> using Compute = typename ComputeOf<T>::Type;

// The type in which elements of T are summed.
template <class T> struct SumOf { typedef T Type; };
template <> struct SumOf<half> { typedef float Type; };
template <> struct SumOf<u8> { typedef long long Type; };
template <> struct SumOf<i8> { typedef long long Type; };
template <> struct SumOf<int> { typedef long long Type; };
template <> struct SumOf<bool> { typedef long long Type; };
template <class T> using Sum = typename SumOf<T>::Type;

template <class A, class B> struct Same { static const bool value = false; };
template <class A> struct Same<A, A> { static const bool value = true; };
template <class T> constexpr bool is_float =
    Same<T, float>::value || Same<T, double>::value || Same<T, half>::value;

// A floating-point number as a whole one: toward zero, saturated; 0 for NaN.
__device__ inline long long whole_of(double x) {
  if (!(x == x)) return 0;
  if (x >= 9223372036854775808.0) return 9223372036854775807LL;
  if (x <= -9223372036854775808.0) return -9223372036854775807LL - 1;
  return (long long)x;
}

// A value as an element of T, as the host converts: floats toward zero, integers wrap.
template <class T, class V> __device__ inline T convert(V x) {
  if constexpr (Same<T, V>::value) return x;
  else if constexpr (Same<T, bool>::value) return x != (V)0;
  else if constexpr (Same<T, half>::value) return half((float)x);
  else if constexpr (is_float<T>) return (T)x;
  else if constexpr (is_float<V>) return (T)whole_of((double)x);
  else return (T)x;
}

// Functions of the standard library by one name in single and double precision.
__device__ inline float exp_of(float x) { return expf(x); }
__device__ inline double exp_of(double x) { return exp(x); }
__device__ inline float log_of(float x) { return logf(x); }
__device__ inline double log_of(double x) { return log(x); }

// Writes an element, or adds to it.
template <class T, class V> __device__ inline void store(T *at, V value, int add) {
  if (!add) *at = convert<T>(value);
  else if constexpr (Same<T, bool>::value) *at = *at || convert<bool>(value);
  else *at = convert<T>((Compute<T>)*at + convert<Compute<T>>(value));
}

// This thread's first element and the step to its next one, in a loop over a grid.
__device__ inline Index first() { return blockIdx.x * (Index)blockDim.x + threadIdx.x; }
__device__ inline Index step() { return (Index)blockDim.x * gridDim.x; }

// Extents of up to eight axes, outermost first, with the steps of up to three operands.
struct Axes {
  int count;
  int unused;
  Index extent[8];
  Index steps[3][8];

  // The offset of operand `k` at the row-major position `i`.
  __device__ Index offset(int k, Index i) const {
    Index at = 0;
    for (int axis = count - 1; axis > 0; axis--) {
      Index rest = i / extent[axis];
      at += (i - rest * extent[axis]) * steps[k][axis];
      i = rest;
    }
    return count ? at + i * steps[k][0] : at;
  }
};

__device__ inline float infinity_f() { return __int_as_float(0x7f800000); }

// The lesser and the greater of two numbers; NaN wins.
template <class T> __device__ inline T greater_of(T a, T b) { return a >= b || a != a ? a : b; }
template <class T> __device__ inline T lesser_of(T a, T b) { return a <= b || a != a ? a : b; }

// Combines the values of all threads of a block, whose number is a multiple of 32; every thread
// gets the result. `identity` is the value that changes nothing.
template <class T, class F> __device__ inline T block_reduce(T value, T identity, F combine) {
  __shared__ T parts[32];
  for (int distance = 16; distance; distance /= 2)
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
  __syncthreads();  // the last reduction has been read
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : identity;
  for (int distance = 16; distance; distance /= 2)
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

template <class T> __device__ inline T block_sum(T value) {
  return block_reduce(value, (T)0, [](T a, T b) { return (T)(a + b); });
}

// Reductions over axes and their gradients; positions of extremes.

#include "reduce.cuh"

template <class T> struct MeanFold : SumFold<T> {
  static __device__ Sum<T> end(Sum<T> v, Index count) { return v / (Sum<T>)count; }
};

template <class T> struct NanSumFold : SumFold<T> {
  static __device__ Sum<T> value(T x) { return x == x ? (Sum<T>)x : (Sum<T>)0; }
};

template <class T> struct ProdFold {
  typedef Sum<T> Value;
  static __device__ Value start() { return (Value)1; }
  static __device__ Value value(T x) { return (Value)x; }
  static __device__ Value join(Value a, Value b) { return a * b; }
  static __device__ Value end(Value v, Index) { return v; }
};

template <class T> struct NanProdFold : ProdFold<T> {
  static __device__ Sum<T> value(T x) { return x == x ? (Sum<T>)x : (Sum<T>)1; }
};

// The least number of a type.
template <class V> __device__ V least() {
  if constexpr (is_float<V>) return -(V)infinity_f();
  else return (V)(-9223372036854775807LL - 1);
}

template <class T> struct MaxFold {
  typedef Sum<T> Value;
  static __device__ Value start() { return least<Value>(); }
  static __device__ Value value(T x) { return (Value)x; }
  static __device__ Value join(Value a, Value b) { return greater_of(a, b); }
  static __device__ Value end(Value v, Index) { return v; }
};

// The greatest number of a type.
template <class V> __device__ V greatest() {
  if constexpr (is_float<V>) return (V)infinity_f();
  else return (V)9223372036854775807LL;
}

template <class T> struct MinFold {
  typedef Sum<T> Value;
  static __device__ Value start() { return greatest<Value>(); }
  static __device__ Value value(T x) { return (Value)x; }
  static __device__ Value join(Value a, Value b) { return lesser_of(a, b); }
  static __device__ Value end(Value v, Index) { return v; }
};

template <class T> struct Norm1Fold : SumFold<T> {
  static __device__ Sum<T> value(T x) { return (Sum<T>)(x < (T)0.f ? -(Sum<T>)x : (Sum<T>)x); }
};

// In double precision, whose range holds the squares of all numbers of single precision.
template <class T> struct Norm2Fold {
  typedef double Value;
  static __device__ double start() { return 0; }
  static __device__ double value(T x) { return (double)(Sum<T>)x * (double)(Sum<T>)x; }
  static __device__ double join(double a, double b) { return a + b; }
  static __device__ double end(double v, Index) { return sqrt(v); }
};

// Of double precision, whose squares may be out of range.
template <class T> struct HypotFold {
  typedef double Value;
  static __device__ double start() { return 0; }
  static __device__ double value(T x) { return x < 0 ? -(double)x : (double)x; }
  static __device__ double join(double a, double b) { return hypot(a, b); }
  static __device__ double end(double v, Index) { return v; }
};

// Slopes of the output gradient g, the input x and the output y.
struct SameSlope {
  template <class C> static __device__ C of(C g, C, C, C) { return g; }
};
struct MeanSlope {
  template <class C> static __device__ C of(C g, C, C, C count) { return g / count; }
};
struct ShareSlope {
  template <class C> static __device__ C of(C g, C x, C y, C) { return g * (y / x); }
};
struct ExtremeSlope {
  template <class C> static __device__ C of(C g, C x, C y, C) { return x == y ? g : (C)0; }
};
struct NotNanSlope {
  template <class C> static __device__ C of(C g, C x, C, C) { return x != x ? (C)0 : g; }
};
struct NotNanShareSlope {
  template <class C> static __device__ C of(C g, C x, C y, C) {
    return x != x ? (C)0 : g * (y / x);
  }
};
struct DirectionSlope {
  template <class C> static __device__ C of(C g, C x, C y, C) { return g * (x / y); }
};
struct SignSlope {
  template <class C> static __device__ C of(C g, C x, C, C) {
    return x > (C)0 ? g : x < (C)0 ? -g : (C)0;
  }
};

// The gradient of a reduction: operand 0 of the axes is the reduced array, repeated. A slope of
// the output gradient alone gets no input and no output.
template <class S, class T>
__global__ void spread(Index n, Index count, const T *g, const T *x, const T *y, T *out, Axes axes,
                       int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    Index at = axes.offset(0, i);
    C value = S::of((C)g[at], x ? (C)x[i] : (C)0, y ? (C)y[at] : (C)0, (C)count);
    store(out + i, value, add);
  }
}

// The position of the greatest (sign 1) or least (sign -1) element of rows whose elements are
// `distance` apart; of equal ones the first, and NaN before all.
template <class T, class P>
__global__ void position(Index rows, Index length, Index distance, const T *x, P *y, int sign,
                         int add) {
  typedef Compute<T> C;
  for (Index r = blockIdx.x; r < rows; r += gridDim.x) {
    const T *row = x + r / distance * distance * length + r % distance;
    Index best = -1;
    auto before = [&](Index a, Index b) {
      if (a < 0 || b < 0) return b < 0;
      C p = (C)row[a * distance], q = (C)row[b * distance];
      if (p != p || q != q) return p != p && (q == q || a < b);
      return p == q ? a < b : sign > 0 ? p > q : p < q;
    };
    for (Index i = threadIdx.x; i < length; i += blockDim.x)
      if (before(i, best)) best = i;
    best = block_reduce(best, (Index)-1, [&](Index a, Index b) { return before(a, b) ? a : b; });
    if (threadIdx.x == 0) store(y + r, best, add);
  }
}

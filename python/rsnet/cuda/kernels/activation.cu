// Rectifiers that let something of negative values through (`LeakyReLU`).

#include "formulas.cuh"
#include "random.cu"

enum { LEAKY, ELU, SELU, GELU, RANDOM };

template <class C> __device__ C leaky_value(C x, int kind, C slope) {
  const C scale = (C)1.0507009873554805, alpha = (C)1.6732632423543772;
  typedef Real<C> R;
  if (kind == GELU) return (C)0.5 * x * ((C)1 + R(x * (C)0.70710678118654752440).erf().v);
  if (kind == SELU) return scale * (x > 0 ? x : alpha * R(x).exp_m1().v);
  if (x > 0) return x;
  return kind == ELU ? slope * R(x).exp_m1().v : slope * x;
}

// The derivative at v: the output if `from_output`, else the input; of random slopes the slope.
template <class C> __device__ C leaky_slope(C v, int kind, C slope, int from_output) {
  const C scale = (C)1.0507009873554805, alpha = (C)1.6732632423543772;
  typedef Real<C> R;
  if (kind == RANDOM) return v;
  if (kind == GELU) {
    C phi = (C)0.5 * ((C)1 + R(v * (C)0.70710678118654752440).erf().v);
    return phi + v * (C)0.39894228040143267794 * R(-v * v / (C)2).exp().v;
  }
  if (kind == SELU) return v > 0 ? scale : v + scale * alpha;
  if (v > 0) return (C)1;
  if (kind == LEAKY) return slope;
  return from_output ? v + slope : slope * R(v).exp().v;
}

template <class T>
__global__ void leaky(Index n, const T *x, T *y, int kind, double slope, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step())
    store(y + i, leaky_value((C)x[i], kind, (C)slope), add);
}

template <class T>
__global__ void leaky_back(Index n, const T *g, const T *v, T *y, int kind, double slope,
                           int from_output, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step())
    store(y + i, (C)g[i] * leaky_slope((C)v[i], kind, (C)slope, from_output), add);
}

// With a slope between `low` and `high` for each element: a random one if `train`, else their mean.
// The slopes that were used go to `mask`, those of positive elements as 1.
template <class T>
__global__ void random_leaky(Index n, const T *x, T *y, T *mask, Key key, double low, double high,
                             int train, int write) {
  typedef Compute<T> C;
  for (Index block = first(); block * 4 < n; block += step()) {
    Words words = philox(key, block);
    for (int i = 0; i < 4 && block * 4 + i < n; i++) {
      double part = train ? (double)unit(words.w[i]) : 0.5;
      C v = (C)x[block * 4 + i], slope = v > 0 ? (C)1 : (C)(low + (high - low) * part);
      mask[block * 4 + i] = convert<T>(slope);
      if (write) y[block * 4 + i] = convert<T>(v * slope);
    }
  }
}

// With slopes that are learnt: number `i / inner % slopes` is that of element `i`.
template <class T>
__global__ void prelu(Index n, Index slopes, Index inner, const T *x, const T *slope, T *y,
                      int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    C v = (C)x[i];
    store(y + i, v > 0 ? v : v * (C)slope[i / inner % slopes], add);
  }
}

template <class T>
__global__ void prelu_back(Index n, Index slopes, Index inner, const T *g, const T *x,
                           const T *slope, T *dx, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step())
    store(dx + i, (C)g[i] * ((C)x[i] > 0 ? (C)1 : (C)slope[i / inner % slopes]), add);
}

// The gradient of a slope is the sum over its elements; a block for each. Data is (outer, slopes,
// inner).
template <class T>
__global__ void slope_back(Index outer, Index slopes, Index inner, const T *g, const T *x, T *to,
                           int add) {
  typedef Compute<T> C;
  for (Index s = blockIdx.x; s < slopes; s += gridDim.x) {
    C sum = 0;
    for (Index i = threadIdx.x; i < outer * inner; i += blockDim.x) {
      Index at = (i / inner * slopes + s) * inner + i % inner;
      if (!((C)x[at] > 0)) sum += (C)g[at] * (C)x[at];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) store(to + s, sum, add);
  }
}

// In double precision, as on the host.
template <class T>
__global__ void hard_sigmoid(Index n, const T *x, T *y, double a, double b, int add) {
  for (Index i = first(); i < n; i += step()) {
    double v = a * (double)(Compute<T>)x[i] + b;
    store(y + i, v < 0 ? 0.0 : v > 1 ? 1.0 : v, add);
  }
}

template <class T>
__global__ void hard_sigmoid_back(Index n, const T *g, const T *x, T *dx, double a, double b,
                                  int add) {
  for (Index i = first(); i < n; i += step()) {
    double v = a * (double)(Compute<T>)x[i] + b;
    store(dx + i, (double)(Compute<T>)g[i] * (v > 0 && v < 1 ? a : 0.0), add);
  }
}

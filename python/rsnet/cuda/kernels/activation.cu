// Rectifiers that let something of negative values through (`LeakyReLU`).

#include "formulas.cuh"

enum { LEAKY, ELU, SELU, GELU };

template <class C> __device__ C leaky_value(C x, int kind, C slope) {
  const C scale = (C)1.0507009873554805, alpha = (C)1.6732632423543772;
  typedef Real<C> R;
  if (kind == GELU) return (C)0.5 * x * ((C)1 + R(x * (C)0.70710678118654752440).erf().v);
  if (kind == SELU) return scale * (x > 0 ? x : alpha * R(x).exp_m1().v);
  if (x > 0) return x;
  return kind == ELU ? slope * R(x).exp_m1().v : slope * x;
}

// The derivative at v: the output if `from_output`, else the input.
template <class C> __device__ C leaky_slope(C v, int kind, C slope, int from_output) {
  const C scale = (C)1.0507009873554805, alpha = (C)1.6732632423543772;
  typedef Real<C> R;
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

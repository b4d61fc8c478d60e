// Operators element by element. A formula F comes from a row of the core's tables: `F::value` and
// its derivative `F::slope` of one operand; `F::value`, `F::left` and `F::right` of two.

#include "formulas.cuh"
#include "reduce.cuh"

template <class F, class T> __global__ void unary(Index n, const T *x, T *y, int add) {
  typedef typename RealOf<T>::Type R;
  for (Index i = first(); i < n; i += step())
    store(y + i, F::value(R((typename R::Plain)x[i])).v, add);
}

// Of integers, by the formula for whole numbers.
template <class F, class T> __global__ void unary_whole(Index n, const T *x, T *y, int add) {
  for (Index i = first(); i < n; i += step())
    store(y + i, convert<T>(F::whole(Whole<Index>((Index)x[i])).v), add);
}

template <class F, class T>
__global__ void unary_slope(Index n, const T *g, const T *v, T *y, int add) {
  typedef typename RealOf<T>::Type R;
  typedef typename R::Plain P;
  for (Index i = first(); i < n; i += step())
    store(y + i, (R((P)g[i]) * F::slope(R((P)v[i]))).v, add);
}

template <class T> __device__ inline Arith<T> arith(T x) {
  return Arith<T>((typename Arith<T>::Plain)x);
}

template <class F, class T>
__global__ void binary(Index n, const T *a, const T *b, T *y, int add) {
  for (Index i = first(); i < n; i += step())
    store(y + i, F::value(arith(a[i]), arith(b[i])).v, add);
}

// Operands 0 and 1 are repeated along axes of step 0.
template <class F, class T>
__global__ void binary_broadcast(Index n, const T *a, const T *b, T *y, Axes axes, int add) {
  for (Index i = first(); i < n; i += step())
    store(y + i, F::value(arith(a[axes.offset(0, i)]), arith(b[axes.offset(1, i)])).v, add);
}

template <class F, class T>
__global__ void number_right(Index n, const T *a, T number, T *y, int add) {
  for (Index i = first(); i < n; i += step())
    store(y + i, F::value(arith(a[i]), arith(number)).v, add);
}

template <class F, class T>
__global__ void number_left(Index n, const T *a, T number, T *y, int add) {
  for (Index i = first(); i < n; i += step())
    store(y + i, F::value(arith(number), arith(a[i])).v, add);
}

template <class F, class T>
__global__ void number_right_slope(Index n, const T *g, const T *a, T number, T *y, int add) {
  for (Index i = first(); i < n; i += step())
    store(y + i, F::left(arith(g[i]), arith(a[i]), arith(number)).v, add);
}

template <class F, class T>
__global__ void number_left_slope(Index n, const T *g, const T *a, T number, T *y, int add) {
  for (Index i = first(); i < n; i += step())
    store(y + i, F::right(arith(g[i]), arith(number), arith(a[i])).v, add);
}

// The gradients of two operands, in the shape of the output gradient.
template <class F, class T>
__global__ void left_slope(Index n, const T *g, const T *a, const T *b, T *y, Axes axes, int add) {
  for (Index i = first(); i < n; i += step()) {
    Arith<T> x = arith(a[axes.offset(0, i)]), z = arith(b[axes.offset(1, i)]);
    store(y + i, F::left(arith(g[i]), x, z).v, add);
  }
}

template <class F, class T>
__global__ void right_slope(Index n, const T *g, const T *a, const T *b, T *y, Axes axes, int add) {
  for (Index i = first(); i < n; i += step()) {
    Arith<T> x = arith(a[axes.offset(0, i)]), z = arith(b[axes.offset(1, i)]);
    store(y + i, F::right(arith(g[i]), x, z).v, add);
  }
}

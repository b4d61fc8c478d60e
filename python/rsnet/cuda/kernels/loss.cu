// What losses are made of: one element of each line, a smooth absolute value, regression.

#include "indexing.cu"

// Line `i` of data (lines / inner, extent, inner) has the element that `index[i]` counts.
template <class I>
__device__ Index place_of(Index i, Index extent, Index inner, const I *index, int mode) {
  return (i / inner * extent + position(index[i], extent, mode)) * inner + i % inner;
}

template <class T, class I>
__global__ void pick(Index lines, Index extent, Index inner, const T *x, const I *index, T *y,
                     int mode, int add) {
  for (Index i = first(); i < lines; i += step())
    store(y + i, (Compute<T>)x[place_of(i, extent, inner, index, mode)], add);
}

// The gradient, added to what is there: every line has an element of its own.
template <class T, class I>
__global__ void pick_back(Index lines, Index extent, Index inner, const T *g, const I *index, T *x,
                          int mode) {
  for (Index i = first(); i < lines; i += step())
    store(x + place_of(i, extent, inner, index, mode), (Compute<T>)g[i], 1);
}

// The gradient of the operand chosen where the condition is `side`; `inner` elements share one
// condition.
template <class T, class P>
__global__ void choose_back(Index n, Index inner, const P *condition, const T *g, T *y, int side,
                            int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    bool holds = (Compute<P>)condition[i / inner] != 0;
    store(y + i, holds == (side != 0) ? (C)g[i] : (C)0, add);
  }
}

// Quadratic within `near` of 0.
template <class T>
__global__ void smooth_l1(Index n, const T *x, T *y, double square, double near, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    C v = (C)x[i], size = v < 0 ? -v : v;
    store(y + i, size < (C)near ? (C)0.5f * (C)square * v * v : size - (C)0.5f * (C)near, add);
  }
}

template <class T>
__global__ void smooth_l1_back(Index n, const T *g, const T *x, T *y, double square, double near,
                               int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    C v = (C)x[i], size = v < 0 ? -v : v;
    C slope = size < (C)near ? (C)square * v : v != v ? v : v < 0 ? (C)-1 : (C)1;
    store(y + i, (C)g[i] * slope, add);
  }
}

// The gradient of a regression: of the error or, with `sign`, of its absolute value.
template <class T>
__global__ void regression_back(Index n, const T *y, const T *label, T *x, double scale, int sign,
                                int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    C value = (C)y[i], goal = (C)label[i];
    C loss = sign ? (value > goal ? (C)1 : (C)-1) : value - goal;
    store(x + i, (C)scale * loss, add);
  }
}

// Moving elements, filling arrays, and changing dtypes.

// Operand 0 of the axes is the source, operand 1 the target.
template <class T>
__global__ void copy(Index n, const T *x, T *y, Axes axes, int add) {
  for (Index i = first(); i < n; i += step())
    store(y + axes.offset(1, i), (Compute<T>)x[axes.offset(0, i)], add);
}

template <class T> __global__ void fill(Index n, T *y, T value, int add) {
  for (Index i = first(); i < n; i += step()) store(y + i, (Compute<T>)value, add);
}

template <class S, class T> __global__ void cast(Index n, const S *x, T *y, int add) {
  for (Index i = first(); i < n; i += step()) store(y + i, convert<T>((Compute<S>)x[i]), add);
}

// `start + i / repeat * distance`.
template <class T>
__global__ void range(Index n, T *y, double start, double distance, Index repeat, int add) {
  for (Index i = first(); i < n; i += step())
    store(y + i, start + (double)(i / repeat) * distance, add);
}

// Sums of two and of one array in turn, which make the sum of any number.
template <class T> __global__ void add_two(Index n, const T *a, const T *b, T *y, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) store(y + i, (C)a[i] + (C)b[i], add);
}

// Where the condition is not 0 an element of `a`, else of `b`.
template <class T, class U>
__global__ void choose(Index n, Index inner, const U *condition, const T *a, const T *b, T *y,
                       int add) {
  for (Index i = first(); i < n; i += step())
    store(y + i, (Compute<T>)((Compute<U>)condition[i / inner] != 0 ? a[i] : b[i]), add);
}

template <class T>
__global__ void clip(Index n, const T *x, T *y, T low, T high, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    C v = (C)x[i];
    store(y + i, v > (C)high ? (C)high : v < (C)low ? (C)low : v, add);
  }
}

template <class T>
__global__ void clip_back(Index n, const T *g, const T *x, T *y, T low, T high, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    C v = (C)x[i];
    store(y + i, v < (C)low || v > (C)high ? (C)0 : (C)g[i], add);
  }
}

// Softmax and its logarithm along an axis, and the old output layer over it. Data is seen as
// (outer, length, inner); one block takes a row at a time.

// The row of number `r` begins here; its elements are `inner` apart.
__device__ inline Index row_start(Index r, Index length, Index inner) {
  return r / inner * inner * length + r % inner;
}

// How many of a row's elements count: all, or as many as its number in `lengths`, whole numbers of
// 64 bits if `wide`, else of 32.
__device__ inline Index counted(const void *lengths, int wide, Index row, Index length) {
  if (!lengths) return length;
  Index n = wide ? ((const Index *)lengths)[row] : ((const int *)lengths)[row];
  return n < 0 ? 0 : n < length ? n : length;
}

// Data is multiplied by `scale`, after the greatest element was subtracted. Elements that do not
// count become 0. All is calculated as elements of the output are.
template <class S, class T>
__global__ void softmax(Index rows, Index length, Index inner, const S *x, T *y,
                        const void *lengths, int wide, double scale, int log, int add) {
  typedef Compute<T> C;
  typedef Compute<S> X;
  C sign = scale < 0 ? (C)-1 : (C)1, factor = (C)(scale < 0 ? -scale : scale);
  C lowest = -(C)infinity_f();
  for (Index r = blockIdx.x; r < rows; r += gridDim.x) {
    Index start = row_start(r, length, inner), used = counted(lengths, wide, r, length);
    C top = lowest, total = 0;
    for (Index i = threadIdx.x; i < used; i += blockDim.x)
      top = greater_of(top, (C)(X)x[start + i * inner] * sign);
    top = block_reduce(top, lowest, [](C a, C b) { return greater_of(a, b); });
    for (Index i = threadIdx.x; i < used; i += blockDim.x)
      total += exp_of(((C)(X)x[start + i * inner] * sign - top) * factor);
    total = block_sum(total);
    C part = log ? log_of(total) : (C)1 / total;
    for (Index i = threadIdx.x; i < length; i += blockDim.x) {
      C z = i < used ? ((C)(X)x[start + i * inner] * sign - top) * factor : (C)0;
      C value = log ? z - part : exp_of(z) * part;
      store(y + start + i * inner, i < used ? value : (C)0, add);
    }
  }
}

template <class S, class T>
__global__ void softmax_back(Index rows, Index length, Index inner, const T *g, const T *y, S *dx,
                             const void *lengths, int wide, double scale, int log, int add) {
  typedef Compute<T> C;
  for (Index r = blockIdx.x; r < rows; r += gridDim.x) {
    Index start = row_start(r, length, inner), used = counted(lengths, wide, r, length);
    C total = 0;
    for (Index i = threadIdx.x; i < used; i += blockDim.x) {
      Index at = start + i * inner;
      total += log ? (C)g[at] : (C)g[at] * (C)y[at];
    }
    total = block_sum(total);
    for (Index i = threadIdx.x; i < length; i += blockDim.x) {
      Index at = start + i * inner;
      C value = log ? (C)g[at] - exp_of((C)y[at]) * total : (C)y[at] * ((C)g[at] - total);
      store(dx + at, i < used ? value * (C)scale : (C)0, add);
    }
  }
}

// Labels that are not `ignored`, at least one.
template <class T> __global__ void count_labels(Index n, const T *labels, double ignored, double *count) {
  double found = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) found += (double)(Compute<T>)labels[i] != ignored;
  found = block_sum(found);
  if (threadIdx.x == 0) *count = found > 1 ? found : 1;
}

// The gradient of the cross-entropy between the softmax p and labels. With `inner` positions for
// each instance; `head` and `count` may be missing.
template <class T>
__global__ void softmax_output_back(Index n, Index length, Index inner, const T *p, const T *label,
                                    const T *head, const double *count, T *dx, double scale,
                                    double ignored, double on, double off, int use_ignore,
                                    int same_shape, int add) {
  typedef Compute<T> C;
  C factor = (C)(count ? scale / *count : scale);
  for (Index i = first(); i < n; i += step()) {
    C value;
    if (same_shape) {
      value = (C)p[i] - (C)label[i];
    } else {
      Index instance = i / (length * inner), c = i / inner % length;
      C own = (C)label[instance * inner + i % inner];
      if (use_ignore && own == (C)ignored) {
        store(dx + i, (C)0, add);
        continue;
      }
      value = (C)p[i] - (own == (C)c ? (C)on : (C)off);
    }
    store(dx + i, factor * value * (head ? (C)head[i] : (C)1), add);
  }
}

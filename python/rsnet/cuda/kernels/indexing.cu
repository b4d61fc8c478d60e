// Slices of an axis by number. Data is seen as (outer, extent, inner).

enum { CLIP, WRAP };

// A number as a position of an axis: its fraction is dropped.
template <class I> __device__ Index position(I index, Index extent, int mode) {
  Index at = is_float<I> ? whole_of((double)(Compute<I>)index) : (Index)(Compute<I>)index;
  if (mode == CLIP) return at < 0 ? 0 : at >= extent ? extent - 1 : at;
  at %= extent;
  return at < 0 ? at + extent : at;
}

template <class T, class I>
__global__ void take(Index n, Index taken, Index extent, Index inner, const T *x, const I *indices,
                     T *y, int mode, int add) {
  for (Index i = first(); i < n; i += step()) {
    Index run = i / inner, outer = run / taken;
    Index at = position(indices[run % taken], extent, mode);
    store(y + i, (Compute<T>)x[(outer * extent + at) * inner + i % inner], add);
  }
}

// The gradient of what was taken, into zeros or what is to be added to: the first of equal indices
// sums for all, in their order, so results do not depend on the order of threads.
template <class T, class I>
__global__ void take_back(Index n, Index taken, Index extent, Index inner, const T *g,
                          const I *indices, T *x, int mode) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    Index k = i / inner % taken, outer = i / inner / taken, own = position(indices[k], extent, mode);
    bool is_first = true;
    for (Index j = 0; j < k && is_first; j++) is_first = position(indices[j], extent, mode) != own;
    if (!is_first) continue;
    C sum = 0;
    for (Index j = k; j < taken; j++)
      if (position(indices[j], extent, mode) == own)
        sum += (C)g[(outer * taken + j) * inner + i % inner];
    store(x + (outer * extent + own) * inner + i % inner, sum, 1);
  }
}

template <class T, class I>
__global__ void one_hot(Index n, Index depth, const I *indices, T *y, double on, double off, int add) {
  for (Index i = first(); i < n; i += step()) {
    I index = indices[i / depth];
    Index at = is_float<I> ? whole_of((double)(Compute<I>)index) : (Index)(Compute<I>)index;
    store(y + i, at == i % depth ? on : off, add);
  }
}

// Slices of an axis by number. Data is seen as (outer, extent, inner).

enum { CLIP, WRAP, RAISE };

// A number as a position of an axis: its fraction is dropped. With RAISE one that is outside stops
// the device: the result could not be told from a right one.
template <class I> __device__ Index position(I index, Index extent, int mode) {
  Index at = is_float<I> ? whole_of((double)(Compute<I>)index) : (Index)(Compute<I>)index;
  if (mode == CLIP) return at < 0 ? 0 : at >= extent ? extent - 1 : at;
  if (mode == RAISE && (at < -extent || at >= extent)) __trap();
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

template <class T, class I>
__global__ void one_hot(Index n, Index depth, const I *indices, T *y, double on, double off, int add) {
  for (Index i = first(); i < n; i += step()) {
    Compute<I> index = (Compute<I>)indices[i / depth];
    Index at = is_float<I> ? whole_of((double)index) : (Index)index;
    store(y + i, index == index && at == i % depth ? on : off, add); // NaN is no index
  }
}

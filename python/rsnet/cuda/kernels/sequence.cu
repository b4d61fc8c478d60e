// Batches of sequences of different length. Data is (time, batch, rest) or, with `axis` 1,
// (batch, time, rest).

struct Batch {
  Index time, batch, rest;
  int axis, least;

  // Where an element is in its sequence, and which sequence that is.
  __device__ void place(Index i, Index *t, Index *n) const {
    Index outer = i / rest / (axis ? time : batch), within = i / rest % (axis ? time : batch);
    *t = axis ? within : outer;
    *n = axis ? outer : within;
  }
  // The other way.
  __device__ Index at(Index t, Index n, Index i) const {
    return (axis ? n * time + t : t * batch + n) * rest + i;
  }
  // The length of a sequence, `least` to `time`.
  template <class I> __device__ Index length(const I *lengths, Index n) const {
    if (!lengths) return time;
    Index own = is_float<I> ? whole_of((double)(Compute<I>)lengths[n])
                            : (Index)(Compute<I>)lengths[n];
    return own < least ? least : own > time ? time : own;
  }
};

template <class T, class I>
__global__ void sequence_mask(Index count, Batch b, const T *x, const I *lengths, T *y,
                              double value, int add) {
  for (Index i = first(); i < count; i += step()) {
    Index t, n;
    b.place(i, &t, &n);
    store(y + i, t < b.length(lengths, n) ? (Compute<T>)x[i] : (Compute<T>)value, add);
  }
}

template <class T, class I>
__global__ void sequence_reverse(Index count, Batch b, const T *x, const I *lengths, T *y, int add) {
  for (Index i = first(); i < count; i += step()) {
    Index t, n;
    b.place(i, &t, &n);
    Index length = b.length(lengths, n), from = t < length ? length - 1 - t : t;
    store(y + i, (Compute<T>)x[b.at(from, n, i % b.rest)], add);
  }
}

template <class T, class I>
__global__ void sequence_last(Index count, Batch b, const T *x, const I *lengths, T *y, int add) {
  for (Index i = first(); i < count; i += step()) {
    Index n = i / b.rest;
    store(y + i, (Compute<T>)x[b.at(b.length(lengths, n) - 1, n, i % b.rest)], add);
  }
}

template <class T, class I>
__global__ void sequence_last_back(Index count, Batch b, const T *g, const I *lengths, T *x,
                                   int add) {
  for (Index i = first(); i < count; i += step()) {
    Index t, n;
    b.place(i, &t, &n);
    bool is_last = t == b.length(lengths, n) - 1;
    store(x + i, is_last ? (Compute<T>)g[n * b.rest + i % b.rest] : (Compute<T>)0, add);
  }
}

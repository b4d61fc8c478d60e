// The order of elements along lines, by networks of comparisons (Batcher, "Sorting networks and
// their applications", 1968), and running sums.
//
// Positions are sorted, not elements. All differ, and of equal elements the first comes first, so
// there is one result, whatever the order in which they are compared.

// Positions that a block sorts in its own memory.
enum { SPAN = 2048 };

// `count` lines of `length` elements, of which `inner` lie side by side. Positions of a line have
// room up to a power of two, `padded`.
struct Lines {
  Index count, length, padded, inner;

  // The place of element `i` of a line in an array whose lines have `extent` elements.
  __device__ Index at(Index line, Index i, Index extent) const {
    return (line / inner * extent + i) * inner + line % inner;
  }
};

// Does element `i` of a line come before element `j`? NaN counts as the largest; positions behind
// the end come last.
template <class T>
__device__ bool precedes(const T *x, const Lines &lines, Index line, Index i, Index j, int ascend) {
  if (i >= lines.length || j >= lines.length) return i < j;
  Compute<T> a = (Compute<T>)x[lines.at(line, i, lines.length)];
  Compute<T> b = (Compute<T>)x[lines.at(line, j, lines.length)];
  bool less = b != b ? a == a : a < b, greater = a != a ? b == b : b < a;
  if (less == greater) return i < j;
  return ascend ? less : greater;
}

// Of a pair at places `i` and `i + distance`, whose run of `run` places decides the direction: is
// it the wrong way round?
template <class T>
__device__ bool is_wrong(const T *x, const Lines &lines, Index line, Index place, Index run,
                         Index left, Index right, int ascend) {
  return place & run ? precedes(x, lines, line, left, right, ascend)
                     : precedes(x, lines, line, right, left, ascend);
}

// Sorts runs of `from` to `to` places as far as pairs lie within a block's span. Runs of two begin
// with the positions as they are.
template <class T>
__global__ void order_spans(Lines lines, const T *x, Index *order, Index from, Index to,
                            int ascend) {
  __shared__ Index own[SPAN];
  Index span = lines.padded < SPAN ? lines.padded : SPAN, spans = lines.padded / span;
  for (Index s = blockIdx.x; s < lines.count * spans; s += gridDim.x) {
    Index line = s / spans, start = s % spans * span;
    __syncthreads();  // the last span has been written
    for (Index i = threadIdx.x; i < span; i += blockDim.x)
      own[i] = from == 2 ? start + i : order[s * span + i];
    __syncthreads();
    for (Index run = from; run <= to; run *= 2) {
      for (Index distance = run / 2 < span ? run / 2 : span / 2; distance; distance /= 2) {
        for (Index t = threadIdx.x; t < span / 2; t += blockDim.x) {
          Index i = t / distance * 2 * distance + t % distance;
          Index left = own[i], right = own[i + distance];
          if (is_wrong(x, lines, line, start + i, run, left, right, ascend)) {
            own[i] = right;
            own[i + distance] = left;
          }
        }
        __syncthreads();
      }
    }
    for (Index i = threadIdx.x; i < span; i += blockDim.x) order[s * span + i] = own[i];
  }
}

// Compares pairs that are further apart than a span.
template <class T>
__global__ void order_step(Lines lines, const T *x, Index *order, Index run, Index distance,
                           int ascend) {
  Index pairs = lines.padded / 2;
  for (Index t = first(); t < lines.count * pairs; t += step()) {
    Index line = t / pairs, p = t % pairs, place = p / distance * 2 * distance + p % distance;
    Index *low = order + line * lines.padded + place, *high = low + distance;
    Index left = *low, right = *high;
    if (is_wrong(x, lines, line, place, run, left, right, ascend)) {
      *low = right;
      *high = left;
    }
  }
}

// The first `taken` elements of each line in order.
template <class T>
__global__ void place_values(Index taken, Lines lines, const Index *order, const T *x, T *y,
                             int add) {
  for (Index t = first(); t < lines.count * taken; t += step()) {
    Index line = t / taken, i = t % taken, from = order[line * lines.padded + i];
    store(y + lines.at(line, i, taken), x[lines.at(line, from, lines.length)], add);
  }
}

// The other way: to where the elements came from.
template <class T>
__global__ void return_values(Index taken, Lines lines, const Index *order, const T *g, T *dx,
                              int add) {
  for (Index t = first(); t < lines.count * taken; t += step()) {
    Index line = t / taken, i = t % taken, from = order[line * lines.padded + i];
    store(dx + lines.at(line, from, lines.length), g[lines.at(line, i, taken)], add);
  }
}

// Ones where the elements came from.
template <class T>
__global__ void mark_values(Index taken, Lines lines, const Index *order, T *mask, int add) {
  for (Index t = first(); t < lines.count * taken; t += step()) {
    Index line = t / taken, from = order[line * lines.padded + t % taken];
    store(mask + lines.at(line, from, lines.length), 1, add);
  }
}

// The positions themselves.
template <class T>
__global__ void place_positions(Index taken, Lines lines, const Index *order, T *y, int add) {
  for (Index t = first(); t < lines.count * taken; t += step()) {
    Index line = t / taken, i = t % taken;
    store(y + lines.at(line, i, taken), order[line * lines.padded + i], add);
  }
}

// In which elements of T are added one after the other, as on the host.
template <class T> struct RunningOf { typedef Index Type; };
template <> struct RunningOf<float> { typedef double Type; };
template <> struct RunningOf<double> { typedef double Type; };
template <> struct RunningOf<half> { typedef double Type; };

// Running sums of `count` rows of `length` elements, `apart` from one another; one block a row.
template <class T>
__global__ void running_sums(Index count, Index length, Index apart, const T *x, T *y,
                             int reversed, int add) {
  typedef typename RunningOf<T>::Type S;
  __shared__ S sums[256];
  int t = threadIdx.x;
  for (Index row = blockIdx.x; row < count; row += gridDim.x) {
    Index start = row / apart * apart * length + row % apart;
    S before = 0;
    for (Index from = 0; from < length; from += blockDim.x) {
      Index k = from + t, at = start + (reversed ? length - 1 - k : k) * apart;
      __syncthreads();  // the last sum has been read
      sums[t] = k < length ? (S)(Compute<T>)x[at] : (S)0;
      __syncthreads();
      for (int distance = 1; distance < (int)blockDim.x; distance *= 2) {
        S other = t >= distance ? sums[t - distance] : (S)0;
        __syncthreads();
        sums[t] += other;
        __syncthreads();
      }
      if (k < length) store(y + at, before + sums[t], add);
      before += sums[blockDim.x - 1];
    }
  }
}

// Reductions over axes. A fold F says how: the value that changes nothing, the value of an element,
// how two are joined, and the result of `count` elements.

template <class T> struct SumFold {
  typedef Sum<T> Value;
  static __device__ Value start() { return (Value)0; }
  static __device__ Value value(T x) { return (Value)x; }
  static __device__ Value join(Value a, Value b) { return a + b; }
  static __device__ Value end(Value v, Index) { return v; }
};

// Elements of the output lie along the axes `kept` of the input, those that are folded for one of
// them along `reduced`. One block for each output and each of `gridDim.y` parts of its elements; of
// several parts the values go to `parts`, to be joined by `reduce_parts`.
template <class F, class T>
__global__ void reduce_rows(Index outputs, Index count, const T *x, T *y, void *parts, Axes kept,
                            Axes reduced, int add) {
  typedef typename F::Value V;
  Index length = (count + gridDim.y - 1) / gridDim.y;
  Index from = blockIdx.y * length, to = from + length < count ? from + length : count;
  for (Index o = blockIdx.x; o < outputs; o += gridDim.x) {
    const T *row = x + kept.offset(0, o);
    V value = F::start();
    for (Index i = from + threadIdx.x; i < to; i += blockDim.x)
      value = F::join(value, F::value(row[reduced.offset(0, i)]));
    value = block_reduce(value, F::start(), [](V a, V b) { return F::join(a, b); });
    if (threadIdx.x != 0) continue;
    if (gridDim.y == 1) store(y + o, F::end(value, count), add);
    else ((V *)parts)[blockIdx.y * outputs + o] = value;
  }
}

// One thread for each output.
template <class F, class T>
__global__ void reduce_columns(Index outputs, Index count, const T *x, T *y, Axes kept,
                               Axes reduced, int add) {
  for (Index o = first(); o < outputs; o += step()) {
    const T *column = x + kept.offset(0, o);
    typename F::Value value = F::start();
    for (Index i = 0; i < count; i++)
      value = F::join(value, F::value(column[reduced.offset(0, i)]));
    store(y + o, F::end(value, count), add);
  }
}

// Joins the parts of each output.
template <class F, class T>
__global__ void reduce_parts(Index outputs, Index count, Index parts, const void *values, T *y,
                             int add) {
  typedef typename F::Value V;
  for (Index o = first(); o < outputs; o += step()) {
    V value = F::start();
    for (Index p = 0; p < parts; p++) value = F::join(value, ((const V *)values)[p * outputs + o]);
    store(y + o, F::end(value, count), add);
  }
}

// Elements around images: a constant, the nearest element, or the mirror image. Images are (planes,
// depth, height, width), with extents of 1 for axes that there are not.

enum { CONSTANT, EDGE, REFLECT };

// The extents of an image and of what it becomes, and how much is put before it.
struct Padding {
  int input[3], output[3], before[3];
  int mode;

  __device__ Index inputs() const { return (Index)input[0] * input[1] * input[2]; }
  __device__ Index outputs() const { return (Index)output[0] * output[1] * output[2]; }

  // The element of the image that stands at place `o` of an axis; -1 for the constant.
  __device__ int source(int axis, int o) const {
    int at = o - before[axis], last = input[axis] - 1;
    if (at >= 0 && at <= last) return at;
    if (mode == CONSTANT) return -1;
    if (mode == EDGE) return at < 0 ? 0 : last;
    return at < 0 ? -at : 2 * last - at;
  }

  // The first and the last place at which element `i` stands.
  __device__ void places(int axis, int i, int *from, int *to) const {
    int last = input[axis] - 1;
    *from = *to = i + before[axis];
    if (mode == EDGE) {
      if (i == 0) *from = 0;
      if (i == last) *to = output[axis] - 1;
    } else if (mode == REFLECT) {
      if (i <= before[axis]) *from = before[axis] - i;
      if (before[axis] + 2 * last - i < output[axis]) *to = before[axis] + 2 * last - i;
    }
  }
};

template <class T>
__global__ void pad(Index n, const T *x, T *y, Padding p, double value, int add) {
  Index outputs = p.outputs();
  for (Index i = first(); i < n; i += step()) {
    Index o = i % outputs;
    int w = p.source(2, (int)(o % p.output[2]));
    int h = p.source(1, (int)(o / p.output[2] % p.output[1]));
    int d = p.source(0, (int)(o / p.output[2] / p.output[1]));
    Index at = i / outputs * p.inputs() + ((Index)d * p.input[1] + h) * p.input[2] + w;
    store(y + i, d < 0 || h < 0 || w < 0 ? (Compute<T>)value : (Compute<T>)x[at], add);
  }
}

// Every element of the image collects from the places at which it stands.
template <class T> __global__ void pad_back(Index n, const T *g, T *x, Padding p, int add) {
  Index inputs = p.inputs();
  for (Index i = first(); i < n; i += step()) {
    Index own = i % inputs;
    int at[3] = {(int)(own / p.input[2] / p.input[1]), (int)(own / p.input[2] % p.input[1]),
                 (int)(own % p.input[2])};
    int from[3], to[3];
    for (int a = 0; a < 3; a++) p.places(a, at[a], from + a, to + a);
    const T *plane = g + i / inputs * p.outputs();
    Compute<T> sum = 0;
    for (int d = from[0]; d <= to[0]; d++)
      for (int h = from[1]; h <= to[1]; h++)
        for (int w = from[2]; w <= to[2]; w++)
          if (p.source(0, d) == at[0] && p.source(1, h) == at[1] && p.source(2, w) == at[2])
            sum += (Compute<T>)plane[((Index)d * p.output[1] + h) * p.output[2] + w];
    store(x + i, sum, add);
  }
}

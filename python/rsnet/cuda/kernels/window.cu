// Windows over images: columns of convolutions, and pooling. Images are (planes, depth, height,
// width), with extents of 1 for axes that there are not.

#include "dense.cu"
#include "shape.cu"

struct Window {
  int input[3], kernel[3], output[3], stride[3], pad[3], dilate[3];

  __device__ Index inputs() const { return (Index)input[0] * input[1] * input[2]; }
  __device__ Index outputs() const { return (Index)output[0] * output[1] * output[2]; }
  __device__ int kernels() const { return kernel[0] * kernel[1] * kernel[2]; }
};

__device__ inline void split(Index i, const int *extent, int *at) {
  at[2] = (int)(i % extent[2]);
  i /= extent[2];
  at[1] = (int)(i % extent[1]);
  at[0] = (int)(i / extent[1]);
}

// Element (plane, k, p) of the columns is the element of the image under kernel element `k` of the
// window of output `p`; 0 in the padding.
template <class T> __global__ void im2col(Index n, const T *x, T *columns, Window w) {
  Index outputs = w.outputs(), kernels = w.kernels();
  for (Index i = first(); i < n; i += step()) {
    Index p = i % outputs, k = i / outputs % kernels, plane = i / outputs / kernels, at = 0;
    int o[3], e[3];
    split(p, w.output, o);
    split(k, w.kernel, e);
    bool inside = true;
    for (int a = 0; a < 3; a++) {
      int from = o[a] * w.stride[a] + e[a] * w.dilate[a] - w.pad[a];
      inside = inside && from >= 0 && from < w.input[a];
      at = at * w.input[a] + from;
    }
    columns[i] = inside ? x[plane * w.inputs() + at] : (T)0.f;
  }
}

// The sum of all elements of the columns that stand for an element of the image.
template <class T> __global__ void col2im(Index n, const T *columns, T *x, Window w, int add) {
  typedef Compute<T> C;
  Index inputs = w.inputs(), outputs = w.outputs();
  int kernels = w.kernels();
  for (Index i = first(); i < n; i += step()) {
    int at[3], e[3];
    split(i % inputs, w.input, at);
    const T *plane = columns + i / inputs * kernels * outputs;
    C sum = 0;
    for (int k = 0; k < kernels; k++) {
      split(k, w.kernel, e);
      Index p = 0;
      bool used = true;
      for (int a = 0; a < 3; a++) {
        int from = at[a] + w.pad[a] - e[a] * w.dilate[a];
        used = used && from >= 0 && from % w.stride[a] == 0 && from / w.stride[a] < w.output[a];
        p = p * w.output[a] + from / w.stride[a];
      }
      if (used) sum += (C)plane[k * outputs + p];
    }
    store(x + i, sum, add);
  }
}

enum { MAX, SUM, AVERAGE, AVERAGE_INSIDE, NORM };

// The part of the window of output `o` that lies inside the image, and how many elements count.
__device__ inline Index bounds(const Window &w, const int *o, int kind, int *from, int *to) {
  Index counted = 1;
  for (int a = 0; a < 3; a++) {
    int start = o[a] * w.stride[a], end = start + w.kernel[a];
    int border = w.input[a] + 2 * w.pad[a];
    if (end > border) end = border;
    from[a] = start > w.pad[a] ? start - w.pad[a] : 0;
    to[a] = end > w.pad[a] ? end - w.pad[a] : 0;
    if (to[a] > w.input[a]) to[a] = w.input[a];
    if (to[a] < from[a]) to[a] = from[a];
    counted *= kind == AVERAGE_INSIDE ? to[a] - from[a] : end > start ? end - start : 0;
  }
  return counted > 1 ? counted : 1;
}

template <class C> __device__ C power_of(C x, int p) {
  C size = x < 0 ? -x : x;
  return p == 1 ? size : p == 2 ? size * size : size * size * size;
}
template <class C> __device__ C root_of(C x, int p) {
  return p == 1 ? x : p == 2 ? (C)sqrt((double)x) : (C)cbrt((double)x);
}

// The first greatest number of a window, and its value: as on the host, NaN is ignored. The first
// element and -inf if none is a number; -1 if the window is empty.
template <class T>
__device__ Index first_greatest(const T *x, const Window &w, const int *from, const int *to,
                                Compute<T> &top) {
  typedef Compute<T> C;
  Index best = -1;
  bool found = false;
  top = -(C)infinity_f();
  for (int d = from[0]; d < to[0]; d++)
    for (int h = from[1]; h < to[1]; h++)
      for (int c = from[2]; c < to[2]; c++) {
        Index at = ((Index)d * w.input[1] + h) * w.input[2] + c;
        C value = (C)x[at];
        if (value > top || (!found && value == value)) {
          best = at;
          top = value;
          found = true;
        } else if (best < 0) {
          best = at;
        }
      }
  return best;
}

template <class T>
__global__ void pool(Index n, const T *x, T *y, Window w, int kind, int p, int add) {
  typedef Compute<T> C;
  Index outputs = w.outputs();
  for (Index i = first(); i < n; i += step()) {
    int o[3], from[3], to[3];
    split(i % outputs, w.output, o);
    Index counted = bounds(w, o, kind, from, to);
    const T *image = x + i / outputs * w.inputs();
    if (kind == MAX) {
      C top;
      first_greatest(image, w, from, to, top);
      store(y + i, top, add);
      continue;
    }
    C sum = 0;
    for (int d = from[0]; d < to[0]; d++)
      for (int h = from[1]; h < to[1]; h++)
        for (int c = from[2]; c < to[2]; c++) {
          C value = (C)image[((Index)d * w.input[1] + h) * w.input[2] + c];
          sum += kind == NORM ? power_of(value, p) : value;
        }
    if (kind == NORM) sum = root_of(sum, p);
    if (kind == AVERAGE || kind == AVERAGE_INSIDE) sum /= (C)counted;
    store(y + i, sum, add);
  }
}

// Every element of the image collects from the windows that hold it.
template <class T>
__global__ void pool_back(Index n, const T *x, const T *y, const T *g, T *dx, Window w, int kind,
                          int p, int add) {
  typedef Compute<T> C;
  Index inputs = w.inputs(), outputs = w.outputs();
  for (Index i = first(); i < n; i += step()) {
    int at[3], low[3], high[3], o[3], from[3], to[3];
    Index own = i % inputs, plane = i / inputs;
    split(own, w.input, at);
    for (int a = 0; a < 3; a++) {
      int last = at[a] + w.pad[a];
      low[a] = last < w.kernel[a] ? 0 : (last - w.kernel[a]) / w.stride[a] + 1;
      high[a] = last / w.stride[a] + 1;
      if (high[a] > w.output[a]) high[a] = w.output[a];
    }
    C sum = 0;
    for (o[0] = low[0]; o[0] < high[0]; o[0]++)
      for (o[1] = low[1]; o[1] < high[1]; o[1]++)
        for (o[2] = low[2]; o[2] < high[2]; o[2]++) {
          Index q = plane * outputs + ((Index)o[0] * w.output[1] + o[1]) * w.output[2] + o[2];
          Index counted = bounds(w, o, kind, from, to);
          C grad = (C)g[q];
          if (kind == MAX) {
            C top;
            if (first_greatest(x + plane * inputs, w, from, to, top) == own) sum += grad;
          } else if (kind == NORM) {
            C v = (C)x[i], top = (C)y[q], size = v < 0 ? -v : v;
            C share = p == 1 ? (C)1 : p == 2 ? size / top : size * size / (top * top);
            if (top != 0) sum += v < 0 ? -grad * share : v > 0 ? grad * share : (C)0;
          } else {
            sum += kind == SUM ? grad : grad / (C)counted;
          }
        }
    store(dx + i, sum, add);
  }
}

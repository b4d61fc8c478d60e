// Images that are sampled bilinearly: along grids, which may be made of affine matrices, and in
// the bins of rectangles.

#include "order.cu"

// Images (images, channels, height, width) and places (images, rows, columns) of their samples.
struct Sampling {
  Index images, channels, height, width, rows, columns;

  __device__ Index plane() const { return height * width; }
  __device__ Index places() const { return rows * columns; }
};

template <class C> __device__ C floor_of(C x) {
  if constexpr (sizeof(C) == 4) return floorf(x);
  else return floor(x);
}

// Place `i` of `n` on an axis from -1 to 1.
template <class C> __device__ C unit_place(Index i, Index n) {
  return n < 2 ? (C)0 : (C)(2.0 * (double)i / (double)(n - 1) - 1.0);
}

// Coordinate `k` (x, then y) to which a matrix (2, 3) maps place `i`.
template <class C, class T>
__device__ C mapped(const Sampling &s, const T *matrix, int k, Index i) {
  const T *row = matrix + k * 3;
  return (C)row[0] * unit_place<C>(i % s.columns, s.columns) +
         (C)row[1] * unit_place<C>(i / s.columns, s.rows) + (C)row[2];
}

// Where sample `i` of an image lies, in elements.
template <class T> struct Place {
  typedef Compute<T> C;
  C x, y;

  __device__ Place(const Sampling &s, const T *grid, const T *matrices, Index image, Index i) {
    C g[2];
    for (int k = 0; k < 2; k++)
      g[k] = matrices ? mapped<C>(s, matrices + image * 6, k, i)
                      : (C)grid[(image * 2 + k) * s.places() + i];
    x = (g[0] + (C)1) * (C)(s.width - 1) * (C)0.5;
    y = (g[1] + (C)1) * (C)(s.height - 1) * (C)0.5;
  }
  // The sum of no elements: 0, or NaN at a place that is NaN.
  __device__ C none() const { return x != x ? x : y != y ? y : (C)0; }
};

// One of the four elements around a place, left and right of it above, then below: its number in
// the plane, -1 outside, its weight, and the derivatives of the weight by x and y.
template <class C> struct Corner {
  Index at;
  C weight, by_x, by_y;

  __device__ Corner(const Sampling &s, C x, C y, int k) {
    int right = k % 2, down = k / 2;
    C column = floor_of(x), row = floor_of(y), px = x - column, py = y - row;
    column += (C)right;
    row += (C)down;
    C wx = right ? px : (C)1 - px, wy = down ? py : (C)1 - py;
    bool inside = column >= 0 && row >= 0 && column < (C)s.width && row < (C)s.height;
    at = inside ? (Index)row * s.width + (Index)column : -1;
    weight = wx * wy;
    by_x = right ? wy : -wy;
    by_y = down ? wx : -wx;
  }
};

// `matrices` (images, 6) may take the place of a grid (images, 2, rows, columns).
template <class T>
__global__ void sample(Index n, Sampling s, const T *x, const T *grid, const T *matrices, T *y,
                       int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    Index own = i % s.places(), plane = i / s.places();
    Place<T> place(s, grid, matrices, plane / s.channels, own);
    const T *from = x + plane * s.plane();
    C sum = place.none();
    for (int k = 0; k < 4; k++) {
      Corner<C> corner(s, place.x, place.y, k);
      if (corner.at >= 0) sum += (C)from[corner.at] * corner.weight;
    }
    store(y + i, sum, add);
  }
}

// The gradient of the grid, in the type of calculations where that of matrices is made of it.
template <class T, class G>
__device__ void grid_slopes(Index i, const Sampling &s, const T *g, const T *x, const T *grid,
                            const T *matrices, G *to, int add) {
  typedef Compute<T> C;
  Index own = i % s.places(), image = i / s.places();
  Place<T> place(s, grid, matrices, image, own);
  C slope_x = place.none(), slope_y = slope_x;
  for (int k = 0; k < 4; k++) {
    Corner<C> corner(s, place.x, place.y, k);
    if (corner.at < 0) continue;
    for (Index c = image * s.channels; c < (image + 1) * s.channels; c++) {
      C value = (C)g[c * s.places() + own] * (C)x[c * s.plane() + corner.at];
      slope_x += value * corner.by_x;
      slope_y += value * corner.by_y;
    }
  }
  G *at = to + image * 2 * s.places() + own;
  store(at, slope_x * (C)(s.width - 1) * (C)0.5, add);
  store(at + s.places(), slope_y * (C)(s.height - 1) * (C)0.5, add);
}

// `n` samples of all images. The gradient goes to `to`, or to `inner` for `matrix_back`.
template <class T>
__global__ void grid_back(Index n, Sampling s, const T *g, const T *x, const T *grid,
                          const T *matrices, T *to, Compute<T> *inner, int add) {
  for (Index i = first(); i < n; i += step()) {
    if (inner) grid_slopes(i, s, g, x, grid, matrices, inner, 0);
    else grid_slopes(i, s, g, x, grid, matrices, to, add);
  }
}

// The elements that all corners of all samples name, one after the other; those outside of the
// image come last.
template <class T>
__global__ void corner_places(Index n, Sampling s, const T *grid, const T *matrices,
                              Index *places) {
  for (Index i = first(); i < n; i += step()) {
    Index own = i / 4 % s.places(), image = i / 4 / s.places();
    Place<T> place(s, grid, matrices, image, own);
    Corner<Compute<T>> corner(s, place.x, place.y, (int)(i % 4));
    places[i] = corner.at < 0 ? s.plane() : corner.at;
  }
}

// Adds to the elements of images what samples took of them; `order` sorts the places of the
// corners of each image, which lie `padded` apart. A thread for each corner and channel.
template <class T>
__global__ void image_back(Index n, Index padded, Sampling s, const T *g, const T *grid,
                           const T *matrices, const Index *places, const Index *order, T *dx) {
  typedef Compute<T> C;
  Index corners = 4 * s.places();
  for (Index i = first(); i < n; i += step()) {
    Index p = i % corners, channel = i / corners, image = channel / s.channels;
    const Index *own = places + image * corners, *sorted = order + image * padded;
    Index at = own[sorted[p]];
    if (at == s.plane() || (p > 0 && own[sorted[p - 1]] == at)) continue;
    C sum = 0;
    for (Index q = p; q < corners && own[sorted[q]] == at; q++) {
      Index k = sorted[q];
      Place<T> place(s, grid, matrices, image, k / 4);
      Corner<C> corner(s, place.x, place.y, (int)(k % 4));
      sum += (C)g[channel * s.places() + k / 4] * corner.weight;
    }
    store(dx + channel * s.plane() + at, sum, 1);
  }
}

// The grid (images, 2, rows, columns) that matrices make.
template <class T>
__global__ void affine_grid(Index n, Sampling s, const T *matrices, T *y, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    Index own = i % s.places(), row = i / s.places();
    store(y + i, mapped<C>(s, matrices + row / 2 * 6, (int)(row % 2), own), add);
  }
}

// The gradient of the matrices from that of their grid, which is in the type of calculations if it
// is `inner`. A block for each row of a matrix.
template <class T>
__global__ void matrix_back(Index rows, Sampling s, const T *g, const Compute<T> *inner, T *to,
                            int add) {
  typedef Compute<T> C;
  for (Index row = blockIdx.x; row < rows; row += gridDim.x) {
    C sums[3] = {0, 0, 0};
    for (Index i = threadIdx.x; i < s.places(); i += blockDim.x) {
      C value = inner ? inner[row * s.places() + i] : (C)g[row * s.places() + i];
      sums[0] += value * unit_place<C>(i % s.columns, s.columns);
      sums[1] += value * unit_place<C>(i / s.columns, s.rows);
      sums[2] += value;
    }
    for (int k = 0; k < 3; k++) {
      C sum = block_sum(sums[k]);
      if (threadIdx.x == 0) store(to + row * 3 + k, sum, add);
    }
  }
}

// The distance of neighbouring places on an axis.
template <class C> __device__ C distance_on(Index n) {
  return (C)(2.0 / (n > 2 ? (double)(n - 1) : 1.0));
}

// The grid of a flow in elements, and its gradient.
template <class T> __global__ void flow_grid(Index n, Sampling s, const T *flow, T *y, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    Index own = i % s.places(), vertical = i / s.places() % 2;
    Index place = vertical ? own / s.columns : own % s.columns;
    C distance = distance_on<C>(vertical ? s.rows : s.columns);
    store(y + i, ((C)place + (C)flow[i]) * distance - (C)1, add);
  }
}

template <class T> __global__ void flow_back(Index n, Sampling s, const T *g, T *dx, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step())
    store(dx + i, (C)g[i] * distance_on<C>(i / s.places() % 2 ? s.rows : s.columns), add);
}

// Rectangles whose bins are averages of samples: rows of `width` numbers, which begin with the
// number of an image. The output is (regions, outputs, rows, columns).
struct Bins {
  Sampling of;
  Index regions, width, outputs, ratio;
  double scale;
  // Corners are half an element before; bins have channels of their own; rectangles are turned.
  int aligned, apart, rotated, unused;
};

template <class C> __device__ C least(C a, C b) { return b < a ? b : a; }
template <class C> __device__ C most(C a, C b) { return b > a ? b : a; }

// A rectangle: where its samples begin, the extents of a bin, how many samples it has along each
// axis, and its turn around an origin.
template <class C> struct Frame {
  C first[2], bin[2], origin[2], cosine, sine;
  Index samples[2];

  template <class T> __device__ Frame(const Bins &b, const T *region) {
    C size[2];
    cosine = 1;
    sine = 0;
    for (int k = 0; k < 2; k++) {
      C one = (C)region[1 + k] * (C)b.scale, two = (C)region[3 + k] * (C)b.scale;
      if (b.rotated) {
        size[k] = most(two, (C)1);
        first[k] = size[k] * (C)-0.5;
        origin[k] = one;
      } else {
        size[k] = b.aligned ? two - one : most(two - one, (C)1);
        first[k] = one - (b.aligned ? (C)0.5 : (C)0);
        origin[k] = 0;
      }
      bin[k] = size[k] / (C)(k ? b.of.rows : b.of.columns);
      C needed = bin[k] > 0 ? least((C)ceil((double)bin[k]), (C)1024) : (C)0;
      samples[k] = b.ratio > 0 ? b.ratio : (Index)needed;
    }
    if (b.rotated) {
      C angle = (C)region[5] * (C)(3.14159265358979323846 / 180.0);
      cosine = (C)cos((double)angle);
      sine = (C)sin((double)angle);
    }
  }

  // Along axis `k` (x, then y), sample `j` of bin `i`, before the turn.
  __device__ C at(int k, Index i, Index j) const {
    C inside = ((C)j + (C)0.5) / (C)samples[k];
    return first[k] + ((C)i + inside) * bin[k];
  }
  __device__ C weight() const {
    Index n = samples[0] * samples[1];
    return (C)1 / (C)(n > 0 ? n : 1);
  }
};

// The two neighbours of a sample along an axis of `n` elements and the part of the second; false
// for one that is further outside than an element.
template <class C> struct Neighbours {
  Index low, high;
  C part;

  __device__ bool find(C p, Index n) {
    if (!(p >= (C)-1 && p <= (C)n)) return false;
    p = least(most(p, (C)0), (C)(n - 1));
    low = (Index)p < n - 1 ? (Index)p : n - 1;
    high = low + 1 < n ? low + 1 : n - 1;
    part = least(p - (C)low, (C)1);
    return true;
  }
  // What element `i` weighs.
  __device__ C of(Index i) const {
    return (i == low ? (C)1 - part : (C)0) + (i == high ? part : (C)0);
  }
};

// The image of a region; -1 for none. One that there is not stops the device.
template <class T> __device__ Index image_of(const Bins &b, const T *region) {
  Compute<T> number = (Compute<T>)region[0];
  if (number < 0) return -1;
  if (!(number < (Compute<T>)b.of.images)) __trap();
  return (Index)number;
}

template <class T>
__global__ void region_means(Index n, Bins b, const T *x, const T *regions, T *y, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    Index j = i % b.of.columns, k = i / b.of.columns % b.of.rows, c = i / b.of.places();
    const T *region = regions + c / b.outputs * b.width;
    Index image = image_of(b, region), channel = c % b.outputs;
    C sum = 0;
    if (image >= 0) {
      if (b.apart) channel = channel * b.of.places() + k * b.of.columns + j;
      const T *from = x + (image * b.of.channels + channel) * b.of.plane();
      Frame<C> frame(b, region);
      C weight = frame.weight();
      for (Index t = 0; t < frame.samples[0] * frame.samples[1]; t++) {
        C u = frame.at(0, j, t % frame.samples[0]), v = frame.at(1, k, t / frame.samples[0]);
        Neighbours<C> h, w;
        if (!w.find(u * frame.cosine + v * frame.sine + frame.origin[0], b.of.width) ||
            !h.find(v * frame.cosine - u * frame.sine + frame.origin[1], b.of.height))
          continue;
        const T *upper = from + h.low * b.of.width, *lower = from + h.high * b.of.width;
        C above = (C)upper[w.low] * ((C)1 - w.part) + (C)upper[w.high] * w.part;
        C below = (C)lower[w.low] * ((C)1 - w.part) + (C)lower[w.high] * w.part;
        sum += (above * ((C)1 - h.part) + below * h.part) * weight;
      }
    }
    store(y + i, sum, add);
  }
}

// Every element collects from the samples that read it, in their order.
template <class T>
__global__ void region_means_back(Index n, Bins b, const T *g, const T *regions, T *dx, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    Index own = i % b.of.plane(), row = own / b.of.width, column = own % b.of.width;
    Index channel = i / b.of.plane() % b.of.channels, image = i / b.of.plane() / b.of.channels;
    Index output = b.apart ? channel / b.of.places() : channel;
    Index only = b.apart ? channel % b.of.places() : -1;
    C sum = 0;
    for (Index r = 0; r < b.regions; r++) {
      const T *region = regions + r * b.width;
      if (image_of(b, region) != image) continue;
      Frame<C> frame(b, region);
      C weight = frame.weight();
      const T *from = g + (r * b.outputs + output) * b.of.places();
      for (Index t = 0; t < b.of.rows * frame.samples[1]; t++) {
        Index k = t / frame.samples[1];
        C v = frame.at(1, k, t % frame.samples[1]);
        Neighbours<C> h, w;
        // Upright rectangles: rows of samples that do not touch the element's are left out.
        if (!b.rotated && !(h.find(v, b.of.height) && h.of(row) > 0)) continue;
        for (Index e = 0; e < b.of.columns * frame.samples[0]; e++) {
          Index j = e / frame.samples[0];
          if (only >= 0 && only != k * b.of.columns + j) continue;
          C u = frame.at(0, j, e % frame.samples[0]);
          if (!w.find(u * frame.cosine + v * frame.sine + frame.origin[0], b.of.width) ||
              !h.find(v * frame.cosine - u * frame.sine + frame.origin[1], b.of.height))
            continue;
          sum += (C)from[k * b.of.columns + j] * w.of(column) * h.of(row) * weight;
        }
      }
    }
    store(dx + i, sum, add);
  }
}

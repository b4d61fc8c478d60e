// Rectangles as detection uses them: overlaps, anchors, coding, and the suppression of those that
// overlap a better one.

#include "order.cu"

template <class C> __device__ C lower_of(C a, C b) { return b < a || a != a ? b : a; }
template <class C> __device__ C upper_of(C a, C b) { return b > a || a != a ? b : a; }

template <class C> struct Rect {
  C x1, y1, x2, y2;

  // From four numbers: corners, or center and extents.
  template <class T> static __device__ Rect read(const T *v, int center) {
    C a = (C)v[0], b = (C)v[1], c = (C)v[2], d = (C)v[3];
    return center ? around(a, b, c, d) : Rect{a, b, c, d};
  }
  static __device__ Rect around(C x, C y, C width, C height) {
    C w = width * (C)0.5, h = height * (C)0.5;
    return Rect{x - w, y - h, x + w, y + h};
  }
  // Center and extents.
  __device__ Rect centered() const {
    return Rect{(x1 + x2) * (C)0.5, (y1 + y2) * (C)0.5, x2 - x1, y2 - y1};
  }
  __device__ Rect clipped() const {
    return Rect{cut(x1), cut(y1), cut(x2), cut(y2)};
  }
  static __device__ C cut(C v) { return lower_of(upper_of(v, (C)0), (C)1); }
  __device__ C area() const { return upper_of(x2 - x1, (C)0) * upper_of(y2 - y1, (C)0); }

  __device__ bool is_nan() const { return x1 != x1 || y1 != y1 || x2 != x2 || y2 != y2; }

  // Intersection over union; 0 if both are empty, or if a side of either is NaN.
  __device__ C overlap(const Rect &o) const {
    if (is_nan() || o.is_nan()) return (C)0;
    Rect common = {upper_of(x1, o.x1), upper_of(y1, o.y1), lower_of(x2, o.x2), lower_of(y2, o.y2)};
    C shared = common.area(), all = area() + o.area() - shared;
    return all > 0 ? shared / all : (C)0;
  }
  template <class T> __device__ void write(T *to, int add) const {
    store(to, x1, add);
    store(to + 1, y1, add);
    store(to + 2, x2, add);
    store(to + 3, y2, add);
  }
};

// Offsets from an anchor to a box, both as center and extents, before they are scaled.
template <class C> __device__ Rect<C> offsets(const Rect<C> &anchor, const Rect<C> &box) {
  return Rect<C>{(box.x1 - anchor.x1) / anchor.x2, (box.y1 - anchor.y1) / anchor.y2,
                 log_of(box.x2 / anchor.x2), log_of(box.y2 / anchor.y2)};
}

template <class T>
__global__ void box_overlaps(Index n, Index count, const T *a, const T *b, T *y, int center,
                             int add) {
  typedef Rect<Compute<T>> R;
  for (Index i = first(); i < n; i += step()) {
    R left = R::read(a + i / count * 4, center), right = R::read(b + i % count * 4, center);
    store(y + i, left.overlap(right), add);
  }
}

// Boxes from offsets to anchors, whose factors are `scale`; `most` is the greatest logarithm of an
// extent. Anchors are those of one image.
struct Decoding {
  double scale[4], most;
  int center, clip;

  template <class C> __device__ Rect<C> box(Rect<C> anchor, const C *offset) const {
    C w = offset[2] * (C)scale[2], h = offset[3] * (C)scale[3];
    w = lower_of(w, (C)most);
    h = lower_of(h, (C)most);
    Rect<C> found = Rect<C>::around(offset[0] * (C)scale[0] * anchor.x2 + anchor.x1,
                                    offset[1] * (C)scale[1] * anchor.y2 + anchor.y1,
                                    exp_of(w) * anchor.x2, exp_of(h) * anchor.y2);
    return clip ? found.clipped() : found;
  }
};

template <class T>
__global__ void box_decode(Index n, Index anchors, const T *offset, const T *anchor, T *y,
                           Decoding d, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    Rect<C> own = Rect<C>::read(anchor + i % anchors * 4, 0);
    if (!d.center) own = own.centered();
    C raw[4];
    for (int k = 0; k < 4; k++) raw[k] = (C)offset[i * 4 + k];
    d.box(own, raw).write(y + i * 4, add);
  }
}

// Offsets of `n` anchors, of which each image has `anchors`, to what they match of `boxes` boxes. A
// match that there is not stops the device. Either output may be missing.
template <class T>
__global__ void box_encode(Index n, Index anchors, Index boxes, const T *samples,
                           const T *matches, const T *anchor, const T *box, const T *means,
                           const T *deviations, T *y, T *mask, int add, int add_mask) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    bool known = !((C)samples[i] <= (C)0.5);
    C values[4] = {0, 0, 0, 0};
    if (known) {
      C match = (C)matches[i];
      if (!(match >= 0 && match < (C)boxes)) __trap();
      Index row = i / anchors * boxes + (Index)match;
      Rect<C> found = offsets(Rect<C>::read(anchor + i * 4, 0).centered(),
                              Rect<C>::read(box + row * 4, 0).centered());
      C raw[4] = {found.x1, found.y1, found.x2, found.y2};
      for (int k = 0; k < 4; k++) values[k] = (raw[k] - (C)means[k]) / (C)deviations[k];
    }
    for (int k = 0; k < 4; k++) {
      if (y) store(y + i * 4 + k, values[k], add);
      if (mask) store(mask + i * 4 + k, known ? (C)1 : (C)0, add_mask);
    }
  }
}

// Anchors around the centers of the elements of a map, in `count` shapes, of which a launch makes
// `own` from number `from` on; their extents in x and in y.
struct Anchors {
  Index rows, columns, count, from, own;
  double offset[2], distance[2];
  double extents[16][2];
};

template <class T> __global__ void anchors(Index n, Anchors a, T *y, int clip, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    Index k = i % a.own, cell = i / a.own;
    C cy = ((C)(cell / a.columns) + (C)a.offset[0]) * (C)a.distance[0];
    C cx = ((C)(cell % a.columns) + (C)a.offset[1]) * (C)a.distance[1];
    Rect<C> found = Rect<C>::around(cx, cy, (C)a.extents[k][0], (C)a.extents[k][1]);
    (clip ? found.clipped() : found).write(y + (cell * a.count + a.from + k) * 4, add);
  }
}

// How boxes suppress each other: rows of `width` numbers with the class, the score and four
// coordinates at these places.
struct Suppression {
  Index boxes, width, classes, score, coordinates, background, topk;
  double valid, limit;
  int force, from_center, to_center, unused;

  template <class T> __device__ Index class_of(const T *row) const {
    return classes < 0 ? 0 : whole_of((double)(Compute<T>)row[classes]);
  }
};

// The scores of boxes, of those that do not count less than of all others.
template <class T>
__global__ void valid_scores(Index n, Suppression s, const T *x, T *scores) {
  for (Index i = first(); i < n; i += step()) {
    const T *row = x + i * s.width;
    bool valid = (Compute<T>)row[s.score] > (Compute<T>)s.valid;
    if (s.classes >= 0 && s.class_of(row) == s.background) valid = false;
    scores[i] = valid ? row[s.score] : convert<T>(-infinity_f());
  }
}

// The sum of a flag over the threads of a block with lower numbers, and over all: its count
// `before` and the `total`.
__device__ inline void count_flags(int flag, int *before, int *total) {
  __shared__ int sums[256];
  int t = threadIdx.x;
  __syncthreads();  // the last counts have been read
  sums[t] = flag;
  __syncthreads();
  for (int distance = 1; distance < (int)blockDim.x; distance *= 2) {
    int other = t >= distance ? sums[t - distance] : 0;
    __syncthreads();
    sums[t] += other;
    __syncthreads();
  }
  *before = sums[t] - flag;
  *total = sums[blockDim.x - 1];
}

// Boxes from the best score down, each of which removes those behind it that overlap it; the rest
// comes first. A block for each of `blocks` sets, in which `order` sorts the boxes, `padded` apart;
// `alive` has room for a flag each.
template <class T>
__global__ void suppress_boxes(Index blocks, Index padded, Suppression s, const T *x,
                               const T *scores, const Index *order, int *alive, T *y,
                               Compute<T> *from) {
  typedef Compute<T> C;
  Index n = s.boxes;
  for (Index block = blockIdx.x; block < blocks; block += gridDim.x) {
    const T *rows = x + block * n * s.width, *score = scores + block * n;
    const Index *sorted = order + block * padded;
    int *lives = alive + block * n;
    Index count = s.topk > 0 && s.topk < n ? s.topk : n;
    __syncthreads();  // the last set has been written
    for (Index i = threadIdx.x; i < n; i += blockDim.x)
      lives[i] = i < count && (C)score[sorted[i]] > -(C)infinity_f();
    __syncthreads();
    for (Index i = 0; i < count; i++) {
      if (!lives[i]) continue;  // all threads see the same
      const T *best = rows + sorted[i] * s.width;
      Rect<C> own = Rect<C>::read(best + s.coordinates, s.from_center);
      Index kind = s.class_of(best);
      for (Index j = i + 1 + threadIdx.x; j < count; j += blockDim.x) {
        const T *row = rows + sorted[j] * s.width;
        if (!lives[j] || (!s.force && s.class_of(row) != kind)) continue;
        Rect<C> rival = Rect<C>::read(row + s.coordinates, s.from_center);
        if (own.overlap(rival) > (C)s.limit) lives[j] = 0;
      }
      __syncthreads();
    }
    Index kept = 0;
    for (Index start = 0; start < n; start += blockDim.x) {
      Index i = start + threadIdx.x;
      int before, total, lives_on = i < n && lives[i];
      count_flags(lives_on, &before, &total);
      if (lives_on) {
        Index to = block * n + kept + before;
        const T *row = rows + sorted[i] * s.width;
        from[to] = (C)sorted[i];
        if (y) {
          for (Index k = 0; k < s.width; k++) y[to * s.width + k] = row[k];
          if (s.from_center != s.to_center) {
            Rect<C> rect = Rect<C>::read(row + s.coordinates, s.from_center);
            (s.to_center ? rect.centered() : rect).write(y + to * s.width + s.coordinates, 0);
          }
        }
      }
      kept += total;
    }
    for (Index i = kept + threadIdx.x; i < n; i += blockDim.x) {
      from[block * n + i] = (C)-1;
      for (Index k = 0; y && k < s.width; k++)
        y[(block * n + i) * s.width + k] = convert<T>((C)-1);
    }
  }
}

// The gradient of a row goes to the row that it came from; everything else is 0 already.
template <class T>
__global__ void suppress_back(Index n, Index boxes, Index width, const T *g,
                              const Compute<T> *from, T *dx) {
  for (Index i = first(); i < n; i += step()) {
    Index row = i / width;
    Compute<T> place = from[row];
    if (!(place >= 0)) continue;
    Index to = row / boxes * boxes + (Index)place;
    store(dx + to * width + i % width, (Compute<T>)g[i], 1);
  }
}

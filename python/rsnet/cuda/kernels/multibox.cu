// Anchors and boxes of a detector: what anchors are to learn, and what they have found. A block for
// each image.

#include "boxes.cu"

// Anchors that are neither an object nor background, and those that are background.
enum { IGNORED = -1, NEGATIVE = -2 };

// `rows` labels of `width` numbers: class and corners. Anchors match what they overlap by more than
// `threshold`. With a `ratio`, anchors are background only if they overlap all by less than
// `limit`: the hardest, `ratio` for each object but at least `least`.
struct Matching {
  Index anchors, rows, width, classes, least;
  double threshold, ratio, limit;
};

// How certain the scores are of an object where there is none; NaN comes last.
template <class T> __device__ Compute<T> hardness(const T *scores, const Matching &m, Index a) {
  typedef Compute<T> C;
  C top = -(C)infinity_f(), total = 0;
  for (Index c = 0; c < m.classes; c++) top = upper_of(top, (C)scores[c * m.anchors + a]);
  for (Index c = 0; c < m.classes; c++) total += exp_of((C)scores[c * m.anchors + a] - top);
  C value = -exp_of((C)scores[a] - top) / total;
  return value == value ? value : (C)-1e30;
}

// The role of every anchor: a box, or one of the two above. `taken` has a number for each label.
// With a ratio, `keys` says which open anchors are hardest and `wanted` how many are background.
template <class T>
__global__ void match_boxes(Index images, Matching m, const T *anchor, const T *label,
                            const T *scores, Compute<T> *overlaps, int *taken, int *roles,
                            Compute<T> *keys, Index *wanted) {
  typedef Compute<T> C;
  for (Index image = blockIdx.x; image < images; image += gridDim.x) {
    const T *labels = label + image * m.rows * m.width;
    C *own = overlaps + image * m.anchors * m.rows, *key = keys + image * m.anchors;
    int *role = roles + image * m.anchors, *used = taken + image * m.rows;
    Index boxes = 0;
    while (boxes < m.rows && (C)labels[boxes * m.width] != (C)-1) boxes++;
    Index pairs = m.anchors * boxes;
    for (Index b = threadIdx.x; b < boxes; b += blockDim.x) used[b] = 0;
    for (Index a = threadIdx.x; a < m.anchors; a += blockDim.x) role[a] = IGNORED;
    for (Index e = threadIdx.x; e < pairs; e += blockDim.x) {
      Rect<C> box = Rect<C>::read(labels + e % boxes * m.width + 1, 0);
      own[e] = Rect<C>::read(anchor + e / boxes * 4, 0).overlap(box);
    }
    __syncthreads();
    // The greatest overlap of all that are left makes a pair; of equal ones the first.
    for (Index round = 0; round < boxes; round++) {
      C top = -1;
      Index at = pairs;
      for (Index e = threadIdx.x; e < pairs; e += blockDim.x) {
        if (!(own[e] > top) || role[e / boxes] != IGNORED || used[e % boxes]) continue;
        top = own[e];
        at = e;
      }
      C best = block_reduce(top, (C)-1, [](C x, C y) { return y > x ? y : x; });
      Index pair = block_reduce(top == best ? at : pairs, pairs,
                                [](Index x, Index y) { return y < x ? y : x; });
      if (!(best > (C)1e-6)) break;
      if (threadIdx.x == 0) {
        role[pair / boxes] = (int)(pair % boxes);
        used[pair % boxes] = 1;
      }
      __syncthreads();
    }
    int objects = 0;
    for (Index a = threadIdx.x; a < m.anchors; a += blockDim.x) {
      C top = -1;
      int which = 0;
      for (Index b = 0; b < boxes; b++) {
        if (!(own[a * boxes + b] > top)) continue;
        top = own[a * boxes + b];
        which = (int)b;
      }
      if (role[a] == IGNORED && m.threshold > 0 && top > (C)m.threshold) role[a] = which;
      objects += role[a] >= 0;
      bool open = role[a] == IGNORED && boxes > 0;
      if (open && !(m.ratio > 0)) role[a] = NEGATIVE;
      open = open && m.ratio > 0 && top < (C)m.limit;
      key[a] = open ? hardness(scores + image * m.classes * m.anchors, m, a) : -(C)infinity_f();
    }
    objects = block_sum(objects);
    Index many = whole_of((double)objects * m.ratio);
    if (threadIdx.x == 0) wanted[image] = many > m.least ? many : m.least;
  }
}

// The first `wanted` anchors of each image in the order of their keys are background.
template <class T>
__global__ void choose_negatives(Index n, Index anchors, Index padded, const Compute<T> *keys,
                                 const Index *order, const Index *wanted, int *roles) {
  for (Index i = first(); i < n; i += step()) {
    Index image = i / anchors, p = i % anchors, at = image * anchors + order[image * padded + p];
    if (p < wanted[image] && keys[at] > -(Compute<T>)infinity_f()) roles[at] = NEGATIVE;
  }
}

struct Variances { double of[4]; };

// Targets by the roles of anchors. Outputs may be missing.
template <class T>
__global__ void write_targets(Index n, Matching m, const T *anchor, const T *label,
                              const int *roles, Variances variances, double ignored, T *location,
                              T *mask, T *target) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    int role = roles[i];
    C kind = role == IGNORED ? (C)ignored : (C)0, values[4] = {0, 0, 0, 0};
    if (role >= 0) {
      const T *row = label + (i / m.anchors * m.rows + role) * m.width;
      kind = (C)row[0] + (C)1;
      Rect<C> found = offsets(Rect<C>::read(anchor + i % m.anchors * 4, 0).centered(),
                              Rect<C>::read(row + 1, 0).centered());
      C raw[4] = {found.x1, found.y1, found.x2, found.y2};
      for (int k = 0; k < 4; k++) values[k] = raw[k] / (C)variances.of[k];
    }
    for (int k = 0; k < 4; k++) {
      if (location) location[i * 4 + k] = convert<T>(values[k]);
      if (mask) mask[i * 4 + k] = convert<T>(role >= 0 ? (C)1 : (C)0);
    }
    if (target) target[i] = convert<T>(kind);
  }
}

// What each anchor has found: class, score and corners; `keys` are the scores of those that are at
// least `threshold`, and less than all numbers for others.
template <class T>
__global__ void find_boxes(Index n, Index anchors, Index classes, const T *scores,
                           const T *location, const T *anchor, Decoding d, double threshold,
                           Compute<T> *rows, Compute<T> *keys) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    Index a = i % anchors, best = 0;
    const T *own = scores + i / anchors * classes * anchors + a;
    for (Index c = 1; c < classes; c++)
      if (best == 0 || (C)own[c * anchors] > (C)own[best * anchors]) best = c;
    C score = best ? (C)own[best * anchors] : (C)0, offset[4];
    for (int k = 0; k < 4; k++) offset[k] = (C)location[i * 4 + k];
    keys[i] = best && score >= (C)threshold ? score : -(C)infinity_f();
    rows[i * 6] = (C)(best - 1);
    rows[i * 6 + 1] = score;
    d.box(Rect<C>::read(anchor + a * 4, 0).centered(), offset).write(rows + i * 6 + 2, 0);
  }
}

// The rows of what was found, in the order of anchors. With a `limit`, the best `topk` come first,
// in the order of their scores, and those that overlap a better one by as much lose their class, as
// do all behind. `list` and `alive` have a number for each anchor.
template <class T>
__global__ void keep_found(Index images, Index anchors, Index padded, const Compute<T> *rows,
                           const Compute<T> *keys, const Index *order, Index *list, int *alive,
                           Index topk, double limit, int force, T *y, int add) {
  typedef Compute<T> C;
  for (Index image = blockIdx.x; image < images; image += gridDim.x) {
    const C *own = rows + image * anchors * 6, *key = keys + image * anchors;
    Index *at = list + image * anchors, count = 0;
    int *lives = alive + image * anchors;
    for (Index start = 0; start < anchors; start += blockDim.x) {
      Index i = start + threadIdx.x;
      int before, total, found = i < anchors && key[i] > -(C)infinity_f();
      count_flags(found, &before, &total);
      if (found) at[count + before] = i;
      count += total;
    }
    bool suppresses = limit > 0 && limit <= 1;
    Index kept = suppresses && topk > 0 && topk < count ? topk : count;
    __syncthreads();
    for (Index r = threadIdx.x; r < count; r += blockDim.x) {
      if (suppresses && r < kept) at[r] = order[image * padded + r];
      lives[r] = r < kept;
    }
    __syncthreads();
    for (Index i = 0; suppresses && i < kept; i++) {
      if (!lives[i]) continue;  // all threads see the same
      const C *best = own + at[i] * 6;
      Rect<C> winner = Rect<C>::read(best + 2, 0);
      for (Index j = i + 1 + threadIdx.x; j < kept; j += blockDim.x) {
        const C *row = own + at[j] * 6;
        if (!lives[j] || (!force && row[0] != best[0])) continue;
        if (winner.overlap(Rect<C>::read(row + 2, 0)) >= (C)limit) lives[j] = 0;
      }
      __syncthreads();
    }
    for (Index e = threadIdx.x; e < anchors * 6; e += blockDim.x) {
      Index r = e / 6, k = e % 6;
      C value = -1;
      if (r < count && (k > 0 || lives[r])) value = own[at[r] * 6 + k];
      store(y + image * anchors * 6 + e, value, add);
    }
  }
}

// Normalisation of channels over a batch, and of rows.

#include "reduce.cuh"

// Mean and inverse standard deviation of each channel of data (outer, channels, inner), by the
// mean first and the squares of the differences then. One block a channel.
template <class T, class P>
__global__ void channel_statistics(Index outer, Index channels, Index inner, const T *x, P *mean,
                                   P *inverse, double eps) {
  typedef Compute<T> C;
  Index count = outer * inner;
  for (Index c = blockIdx.x; c < channels; c += gridDim.x) {
    C sum = 0;
    for (Index i = threadIdx.x; i < count; i += blockDim.x)
      sum += (C)x[(i / inner * channels + c) * inner + i % inner];
    C average = block_sum(sum) / (C)count;
    sum = 0;
    for (Index i = threadIdx.x; i < count; i += blockDim.x) {
      C distance = (C)x[(i / inner * channels + c) * inner + i % inner] - average;
      sum += distance * distance;
    }
    C variance = block_sum(sum) / (C)count;
    if (threadIdx.x != 0) continue;
    mean[c] = (P)average;
    inverse[c] = (P)(1 / sqrt((double)variance + eps));
  }
}

// The same from moving averages.
template <class P>
__global__ void moving_statistics(Index channels, const P *moving_mean, const P *moving_var, P *mean,
                                  P *inverse, double eps) {
  for (Index c = first(); c < channels; c += step()) {
    mean[c] = moving_mean[c];
    inverse[c] = (P)(1 / sqrt((double)moving_var[c] + eps));
  }
}

template <class T, class P>
__global__ void channel_normalise(Index n, Index channels, Index inner, const T *x, const P *mean,
                                  const P *inverse, const P *gamma, const P *beta, T *y, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    Index c = i / inner % channels;
    C factor = (C)inverse[c] * (gamma ? (C)gamma[c] : (C)1);
    store(y + i, ((C)x[i] - (C)mean[c]) * factor + (C)beta[c], add);
  }
}

// The sums of each channel that its gradients are made of: of g, and of g times the normalised x.
template <class T, class P>
__global__ void channel_gradients(Index outer, Index channels, Index inner, const T *g, const T *x,
                                  const P *mean, const P *inverse, P *sums) {
  typedef Compute<T> C;
  Index count = outer * inner;
  for (Index c = blockIdx.x; c < channels; c += gridDim.x) {
    C total = 0, along = 0;
    for (Index i = threadIdx.x; i < count; i += blockDim.x) {
      Index at = (i / inner * channels + c) * inner + i % inner;
      total += (C)g[at];
      along += (C)g[at] * ((C)x[at] - (C)mean[c]);
    }
    total = block_sum(total);
    along = block_sum(along) * (C)inverse[c];
    if (threadIdx.x != 0) continue;
    sums[c] = (P)total;
    sums[channels + c] = (P)along;
  }
}

// The gradient of the data; with `fixed` statistics do not depend on it.
template <class T, class P>
__global__ void channel_back(Index n, Index count, Index channels, Index inner, const T *g,
                             const T *x, const P *mean, const P *inverse, const P *gamma,
                             const P *sums, T *dx, int fixed, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    Index c = i / inner % channels;
    C factor = (C)inverse[c] * (gamma ? (C)gamma[c] : (C)1), value = (C)g[i];
    if (!fixed) {
      C normal = ((C)x[i] - (C)mean[c]) * (C)inverse[c];
      value -= ((C)sums[c] + normal * (C)sums[channels + c]) / (C)count;
    }
    store(dx + i, value * factor, add);
  }
}

// The gradients of gamma and beta from the sums, either of which may be missing.
template <class P>
__global__ void channel_parameters(Index channels, const P *sums, P *gamma, P *beta, int fix_gamma,
                                   int add_gamma, int add_beta) {
  for (Index c = first(); c < channels; c += step()) {
    if (gamma) store(gamma + c, fix_gamma ? (P)0 : sums[channels + c], add_gamma);
    if (beta) store(beta + c, sums[c], add_beta);
  }
}

template <class P>
__global__ void moving_update(Index channels, const P *mean, const P *inverse, P *moving_mean,
                              P *moving_var, double keep, double eps) {
  for (Index c = first(); c < channels; c += step()) {
    P variance = (P)1 / (inverse[c] * inverse[c]) - (P)eps;
    moving_mean[c] = moving_mean[c] * (P)keep + mean[c] * ((P)1 - (P)keep);
    moving_var[c] = moving_var[c] * (P)keep + (variance < 0 ? (P)0 : variance) * ((P)1 - (P)keep);
  }
}

// Rows of data (outer, length, inner), each by its own mean and deviation. One block a row; row `r`
// begins at `r / inner * inner * length + r % inner`.
template <class T>
__global__ void row_normalise(Index rows, Index length, Index inner, const T *x, const T *gamma,
                              const T *beta, T *y, T *mean, T *deviation, double eps, int write,
                              int add) {
  typedef Compute<T> C;
  for (Index r = blockIdx.x; r < rows; r += gridDim.x) {
    Index start = r / inner * inner * length + r % inner;
    C sum = 0;
    for (Index i = threadIdx.x; i < length; i += blockDim.x) sum += (C)x[start + i * inner];
    C average = block_sum(sum) / (C)length;
    sum = 0;
    for (Index i = threadIdx.x; i < length; i += blockDim.x) {
      C distance = (C)x[start + i * inner] - average;
      sum += distance * distance;
    }
    C own = (C)sqrt((double)(block_sum(sum) / (C)length) + eps);
    for (Index i = threadIdx.x; write && i < length; i += blockDim.x) {
      Index at = start + i * inner;
      store(y + at, ((C)x[at] - average) / own * (C)gamma[i] + (C)beta[i], add);
    }
    if (threadIdx.x != 0) continue;
    mean[r] = convert<T>(average);
    deviation[r] = convert<T>(own);
  }
}

template <class T>
__global__ void row_back(Index rows, Index length, Index inner, const T *g, const T *x,
                         const T *gamma, const T *mean, const T *deviation, T *dx, int add) {
  typedef Compute<T> C;
  for (Index r = blockIdx.x; r < rows; r += gridDim.x) {
    Index start = r / inner * inner * length + r % inner;
    C average = (C)mean[r], own = (C)deviation[r], total = 0, along = 0;
    for (Index i = threadIdx.x; i < length; i += blockDim.x) {
      Index at = start + i * inner;
      C scaled = (C)g[at] * (C)gamma[i];
      total += scaled;
      along += scaled * ((C)x[at] - average) / own;
    }
    total = block_sum(total) / (C)length;
    along = block_sum(along) / (C)length;
    for (Index i = threadIdx.x; i < length; i += blockDim.x) {
      Index at = start + i * inner;
      C normal = ((C)x[at] - average) / own;
      store(dx + at, ((C)g[at] * (C)gamma[i] - total - normal * along) / own, add);
    }
  }
}

// The gradients of scale and shift, one block for each element of a row.
template <class T>
__global__ void row_parameters(Index rows, Index length, Index inner, const T *g, const T *x,
                               const T *mean, const T *deviation, T *gamma, T *beta, int add_gamma,
                               int add_beta) {
  typedef Compute<T> C;
  for (Index i = blockIdx.x; i < length; i += gridDim.x) {
    C total = 0, along = 0;
    for (Index r = threadIdx.x; r < rows; r += blockDim.x) {
      Index at = r / inner * inner * length + r % inner + i * inner;
      total += (C)g[at];
      along += (C)g[at] * ((C)x[at] - (C)mean[r]) / (C)deviation[r];
    }
    total = block_sum(total);
    along = block_sum(along);
    if (threadIdx.x != 0) continue;
    if (gamma) store(gamma + i, along, add_gamma);
    if (beta) store(beta + i, total, add_beta);
  }
}

// Rows of `length` elements one after another, each with statistics of its own: groups of channels
// of images, of which number `r` is scaled and shifted by element `r % groups`. What is kept beside
// the mean is the deviation, or the variance.
template <class T>
__global__ void group_normalise(Index rows, Index length, Index groups, const T *x, const T *gamma,
                                const T *beta, T *y, T *mean, T *spread, double eps, int deviation,
                                int write, int add) {
  typedef Compute<T> C;
  for (Index r = blockIdx.x; r < rows; r += gridDim.x) {
    const T *row = x + r * length;
    C sum = 0;
    for (Index i = threadIdx.x; i < length; i += blockDim.x) sum += (C)row[i];
    C average = block_sum(sum) / (C)length;
    sum = 0;
    for (Index i = threadIdx.x; i < length; i += blockDim.x) {
      C distance = (C)row[i] - average;
      sum += distance * distance;
    }
    C variance = block_sum(sum) / (C)length, own = (C)sqrt((double)variance + eps);
    C scale = (C)gamma[r % groups] / own, shift = (C)beta[r % groups];
    for (Index i = threadIdx.x; write && i < length; i += blockDim.x)
      store(y + r * length + i, ((C)row[i] - average) * scale + shift, add);
    if (threadIdx.x != 0) continue;
    mean[r] = convert<T>(average);
    spread[r] = convert<T>(deviation ? own : variance);
  }
}

// The gradient of the data; of each row the sums that the gradients of scale and shift are made of.
template <class T>
__global__ void group_back(Index rows, Index length, Index groups, const T *g, const T *x,
                           const T *gamma, const T *mean, const T *spread, Compute<T> *sums, T *dx,
                           double eps, int deviation, int write, int add) {
  typedef Compute<T> C;
  for (Index r = blockIdx.x; r < rows; r += gridDim.x) {
    Index start = r * length;
    C average = (C)mean[r], kept = (C)spread[r], total = 0, along = 0;
    C own = deviation ? kept : (C)sqrt((double)kept + eps);
    for (Index i = threadIdx.x; i < length; i += blockDim.x) {
      total += (C)g[start + i];
      along += (C)g[start + i] * (((C)x[start + i] - average) / own);
    }
    total = block_sum(total);
    along = block_sum(along);
    C scale = (C)gamma[r % groups] / own;
    for (Index i = threadIdx.x; write && i < length; i += blockDim.x) {
      C normal = ((C)x[start + i] - average) / own;
      store(dx + start + i, scale * ((C)g[start + i] - (total + normal * along) / (C)length), add);
    }
    if (threadIdx.x != 0) continue;
    sums[r] = along;
    sums[rows + r] = total;
  }
}

// The sums of the rows of each group, in their order.
template <class T>
__global__ void group_parameters(Index rows, Index groups, const Compute<T> *sums, T *to, int add) {
  for (Index group = first(); group < groups; group += step()) {
    Compute<T> sum = 0;
    for (Index r = group; r < rows; r += groups) sum += sums[r];
    store(to + group, sum, add);
  }
}

// Rows by their Euclidean norm; they lie as in `row_normalise`.
template <class T>
__global__ void l2_normalise(Index rows, Index length, Index inner, const T *x, T *y, T *norm,
                             double eps, int write, int add) {
  typedef Compute<T> C;
  for (Index r = blockIdx.x; r < rows; r += gridDim.x) {
    Index start = r / inner * inner * length + r % inner;
    C sum = 0;
    for (Index i = threadIdx.x; i < length; i += blockDim.x) {
      C value = (C)x[start + i * inner];
      sum += value * value;
    }
    C own = (C)sqrt((double)block_sum(sum) + eps);
    for (Index i = threadIdx.x; write && i < length; i += blockDim.x)
      store(y + start + i * inner, (C)x[start + i * inner] / own, add);
    if (threadIdx.x == 0) norm[r] = convert<T>(own);
  }
}

template <class T>
__global__ void l2_back(Index rows, Index length, Index inner, const T *g, const T *y,
                        const T *norm, T *dx, int add) {
  typedef Compute<T> C;
  for (Index r = blockIdx.x; r < rows; r += gridDim.x) {
    Index start = r / inner * inner * length + r % inner;
    C along = 0, own = (C)norm[r];
    for (Index i = threadIdx.x; i < length; i += blockDim.x)
      along += (C)g[start + i * inner] * (C)y[start + i * inner];
    along = block_sum(along);
    for (Index i = threadIdx.x; i < length; i += blockDim.x) {
      Index at = start + i * inner;
      store(dx + at, ((C)g[at] - (C)y[at] * along) / own, add);
    }
  }
}

template <class C> __device__ C power_below(C base, C beta) {
  if constexpr (sizeof(C) == 4) return powf(base, -beta);
  else return pow(base, -beta);
}

// Division by a norm over the channels within `reach`; images are (channels, inner).
template <class T>
__global__ void lrn(Index n, Index channels, Index inner, Index reach, const T *x, T *y, T *norm,
                    double scale, double beta, double knorm, int write, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    Index c = i / inner % channels;
    Index from = c < reach ? 0 : c - reach, to = c + reach < channels ? c + reach + 1 : channels;
    C base = (C)knorm;
    for (Index j = from; j < to; j++) {
      C value = (C)x[i + (j - c) * inner];
      base += (C)scale * value * value;
    }
    norm[i] = convert<T>(base);
    if (write) store(y + i, (C)x[i] * power_below(base, (C)beta), add);
  }
}

template <class T>
__global__ void lrn_back(Index n, Index channels, Index inner, Index reach, const T *g, const T *x,
                         const T *norm, T *dx, double slope, double beta, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    Index c = i / inner % channels;
    Index from = c < reach ? 0 : c - reach, to = c + reach < channels ? c + reach + 1 : channels;
    C total = 0;
    for (Index j = from; j < to; j++) {
      Index at = i + (j - c) * inner;
      C base = (C)norm[at];
      total += (C)g[at] * (C)x[at] * power_below(base, (C)beta) / base;
    }
    C own = (C)g[i] * power_below((C)norm[i], (C)beta);
    store(dx + i, own - (C)slope * (C)x[i] * total, add);
  }
}

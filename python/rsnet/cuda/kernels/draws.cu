// Numbers of common distributions: those of the host, from the same counters. Every element has
// words of its own, and rejection takes as many as it needs.

#include "random.cu"
#include "indexing.cu"

struct Draws {
  Key key;
  Index index;
  Words words;
  int used;

  __device__ Draws(Key key, Index i)
      : key(key), index(i), words(philox(key, i)), used(0) {}

  __device__ unsigned word() {
    if (used == 4) {
      index += (Index)1 << 44;  // no call has as many elements
      words = philox(key, index);
      used = 0;
    }
    unsigned found = used == 0 ? words.w[0] : used == 1 ? words.w[1] : used == 2 ? words.w[2]
                                                                                 : words.w[3];
    used++;
    return found;
  }
  __device__ unsigned long long bits() {
    unsigned long long high = word();
    return high << 32 | word();
  }
  // In 0 (inclusive) to 1 (exclusive), and the other way round.
  __device__ double uniform() { return (double)(bits() >> 11) * (1.0 / 9007199254740992.0); }
  __device__ double positive() { return 1.0 - uniform(); }

  // G. Box and M. Muller, 1958.
  __device__ double normal() {
    double radius = sqrt(-2.0 * log(positive()));
    return radius * cos(6.283185307179586 * uniform());
  }
  __device__ double exponential() { return -log(positive()); }

  // G. Marsaglia and W. Tsang, 2000. NaN where there is no such distribution.
  __device__ double gamma(double shape) {
    double lowest = 1;
    if (!(shape >= 0) || shape == 2 * shape && shape > 0)
      return shape > 0 ? shape : (double)(0 * infinity_f());
    if (shape < 1) {
      lowest = pow(positive(), 1 / shape);
      shape += 1;
    }
    double d = shape - 1.0 / 3.0, c = 1 / sqrt(9 * d);
    for (;;) {
      double x = normal(), v = 1 + c * x;
      v = v * v * v;
      if (v > 0 && log(positive()) < 0.5 * x * x + d - d * v + d * log(v)) return d * v * lowest;
    }
  }

  // Products of uniform numbers; of large means transformed rejection (W. Hormann, 1993).
  __device__ double poisson(double mean) {
    if (!(mean >= 0) || mean == 2 * mean && mean > 0)
      return mean > 0 ? mean : (double)(0 * infinity_f());
    if (mean < 30) {
      double limit = exp(-mean), product = positive(), k = 0;
      while (product > limit) {
        product *= positive();
        k += 1;
      }
      return k;
    }
    double b = 0.931 + 2.53 * sqrt(mean), a = -0.059 + 0.02483 * b;
    double inverse = 1.1239 + 1.1328 / (b - 3.4), inside = 0.9277 - 3.6224 / (b - 2);
    for (;;) {
      double u = uniform() - 0.5, v = positive(), us = 0.5 - fabs(u);
      double k = floor((2 * a / us + b) * u + mean + 0.43);
      if (us >= 0.07 && v <= inside) return k;
      if (k < 0 || (us < 0.013 && v > us)) continue;
      if (log(v * inverse / (a / (us * us) + b)) <= k * log(mean) - mean - lgamma(k + 1)) return k;
    }
  }

  // The Poisson distribution whose mean has the gamma distribution.
  __device__ double gamma_poisson(double shape, double scale) {
    double mean = gamma(shape) * scale;
    return poisson(mean);
  }
};

enum { UNIFORM, NORMAL, EXPONENTIAL, GAMMA, POISSON, FAILURES, DISPERSED };

// Whether there is a distribution `kind` with the parameters a and b.
__device__ inline bool exists(int kind, double a, double b) {
  double most = 1.7976931348623157e308;
  switch (kind) {
    case UNIFORM: return a <= b;
    case NORMAL: return b >= 0 && b <= most;
    case EXPONENTIAL: return a > 0;
    case GAMMA: return a > 0 && b > 0;
    case POISSON: return a >= 0 && a <= most;
    case FAILURES: return a > 0 && b > 0 && b <= 1;
    default: return a >= 0 && a <= most && b >= 0 && b <= most;
  }
}

// One number of the distribution `kind` with the parameters a and b.
__device__ inline double draw_one(Draws &d, int kind, double a, double b) {
  switch (kind) {
    case UNIFORM: return a + (b - a) * d.uniform();
    case NORMAL: return a + b * d.normal();
    case EXPONENTIAL: return d.exponential() / a;
    case GAMMA: return b * d.gamma(a);
    case POISSON: return d.poisson(a);
    case FAILURES: return d.gamma_poisson(a, (1 - b) / b);
    default: return b == 0 ? d.poisson(a) : d.gamma_poisson(1 / b, a * b);
  }
}

// Numbers are at most `most`.
template <class T>
__global__ void draw(Index n, T *y, Key key, int kind, double a, double b, double most, int add) {
  for (Index i = first(); i < n; i += step()) {
    Draws draws(key, i);
    double value = draw_one(draws, kind, a, b);
    store(y + i, value > most ? most : value, add);
  }
}

// `each` numbers for each of the parameters; NaN where there is no such distribution.
template <class T, class P>
__global__ void draw_each(Index n, Index each, T *y, Key key, int kind, const P *a, const P *b,
                          int add) {
  for (Index i = first(); i < n; i += step()) {
    Draws draws(key, i);
    double second = b ? (double)(Compute<P>)b[i / each] : 0;
    double first = (double)(Compute<P>)a[i / each];
    double value = exists(kind, first, second) ? draw_one(draws, kind, first, second)
                                               : (double)(0 * infinity_f());
    store(y + i, value, add);
  }
}

// Whole numbers from `low` on, `span` many.
template <class T>
__global__ void draw_whole(Index n, T *y, Key key, Index low, Index span, int add) {
  for (Index i = first(); i < n; i += step()) {
    Words words = philox(key, i);
    unsigned long long word = words.w[0] | (unsigned long long)words.w[1] << 32;
    store(y + i, low + (Index)__umul64hi(word, (unsigned long long)span), add);
  }
}

// By inversion: the first number whose cumulated probability exceeds a uniform one. `each` numbers
// for each row of `length` probabilities; with `logs` the logarithms of theirs.
template <class P, class T>
__global__ void draw_numbers(Index n, Index each, Index length, const P *p, T *y, P *logs,
                             Key key) {
  for (Index i = first(); i < n; i += step()) {
    const P *row = p + i / each * length;
    double u = Draws(key, i).uniform(), sum = 0;
    Index chosen = 0;
    for (; chosen < length - 1; chosen++) {
      sum += (double)(Compute<P>)row[chosen];
      if (u < sum) break;
    }
    y[i] = convert<T>(chosen);
    if (logs) logs[i] = convert<P>(log((double)(Compute<P>)row[chosen]));
  }
}

// Places of a shuffle: each in its place, and with no exchange that asks for it.
template <class I> __global__ void begin_shuffle(Index n, I *order, I *asking) {
  for (Index i = first(); i < n; i += step()) {
    order[i] = i;
    asking[i] = -1;
  }
}

// Shuffles places as the host does: place `i` changes with a random one of the places up to it, for
// i from n - 1 down to 1 (R. Fisher and F. Yates). As many exchanges as the block has threads are
// tried at once. Each asks for its two places; the one that comes first gets them, and those that
// have both are made, which leaves the result as it is one after the other (J. Shun et al.,
// Sequential Random Permutation, List Contraction and Tree Contraction are Highly Parallel, SODA
// 2015). One block.
template <class I> __global__ void shuffle(Index n, Key key, I *order, I *asking) {
  for (Index top = n - 1; top > 0; top -= blockDim.x) {
    Index i = top - threadIdx.x, j = 0;
    bool open = i > 0;
    if (open) j = (Index)__umul64hi(Draws(key, i).bits(), (unsigned long long)i + 1);
    while (block_sum(open ? 1 : 0) > 0) {
      if (open) {
        atomicMax(asking + i, i);
        atomicMax(asking + j, i);
      }
      __syncthreads();
      bool own = open && asking[i] == i && asking[j] == i;
      __syncthreads();
      if (own) {
        I other = order[i];
        order[i] = order[j];
        order[j] = other;
        asking[i] = asking[j] = -1;
        open = false;
      }
      __syncthreads();
    }
  }
}

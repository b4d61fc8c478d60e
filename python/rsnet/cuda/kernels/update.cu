// Steps of optimizers: the new weight from weight, gradient and states, which change in place. A
// rule has the number of its states, `begin`, which may change the numbers and says whether there
// is a step at all, and `step`, which is calculated for every element.

struct Numbers { double at[10]; };

// Limited to -c ... c, if that is not negative; NaN stays.
template <class C> __device__ C limited(C x, C c) {
  return c < 0 ? x : x > c ? c : x < -c ? -c : x;
}

__device__ inline float root_of(float x) { return sqrtf(x); }
__device__ inline double root_of(double x) { return sqrt(x); }
template <class C> __device__ C sign_of(C x) { return x > 0 ? (C)1 : x < 0 ? (C)-1 : (C)0; }

template <int N> struct Rule {
  static const int STATES = N;
  static __device__ bool begin(double *) { return true; }
};

// The running averages of gradient and square.
template <class C> __device__ void take_in(C g, C beta1, C beta2, C *s) {
  s[0] = beta1 * s[0] + ((C)1 - beta1) * g;
  s[1] = beta2 * s[1] + ((C)1 - beta2) * g * g;
}

// Numbers of most rules: rate, decay, factor and limit of the gradient, then their own.
enum { RATE, DECAY, RESCALE, CLIP, OWN };

// The gradient with the decay of the weight, which is added after limiting or before.
template <class C> __device__ C decayed(const C *p, C w, C g) {
  return limited(g * p[RESCALE], p[CLIP]) + p[DECAY] * w;
}
template <class C> __device__ C decayed_first(const C *p, C w, C g) {
  return limited(g * p[RESCALE] + p[DECAY] * w, p[CLIP]);
}

struct Sgd : Rule<0> {
  template <class C> static __device__ C step(const C *p, C w, C g, C *) {
    return w - p[RATE] * decayed(p, w, g);
  }
};

struct Momentum : Rule<1> {
  template <class C> static __device__ C step(const C *p, C w, C g, C *s) {
    s[0] = p[OWN] * s[0] - p[RATE] * decayed(p, w, g);
    return w + s[0];
  }
};

struct Nesterov : Rule<1> {
  template <class C> static __device__ C step(const C *p, C w, C g, C *s) {
    g = decayed(p, w, g);
    s[0] = p[OWN] * s[0] - p[RATE] * g;
    return w + p[OWN] * s[0] - p[RATE] * g;
  }
};

struct Adam : Rule<2> {
  template <class C> static __device__ C step(const C *p, C w, C g, C *s) {
    take_in(decayed_first(p, w, g), p[OWN], p[OWN + 1], s);
    return w - p[RATE] * s[0] / (root_of(s[1]) + p[OWN + 2]);
  }
};

struct RmsProp : Rule<1> {
  template <class C> static __device__ C step(const C *p, C w, C g, C *s) {
    g = decayed_first(p, w, g);
    s[0] = ((C)1 - p[OWN]) * g * g + p[OWN] * s[0];
    return limited(w - p[RATE] * g / root_of(s[0] + p[OWN + 1]), p[OWN + 2]);
  }
};

// Of the old mean, the new gradient, the old step; then what is added under the root, and a limit.
struct RmsPropAlex : Rule<3> {
  template <class C> static __device__ C step(const C *p, C w, C g, C *s) {
    g = decayed_first(p, w, g);
    s[0] = p[OWN + 1] * g * g + p[OWN] * s[0];
    s[1] = p[OWN + 1] * g + p[OWN] * s[1];
    s[2] = p[OWN + 2] * s[2] - p[RATE] * g / root_of(s[0] - s[1] * s[1] + p[OWN + 3]);
    return limited(w + s[2], p[OWN + 4]);
  }
};

// The decay is already multiplied by the rate.
struct SignSgd : Rule<0> {
  template <class C> static __device__ C step(const C *p, C w, C g, C *) {
    g = limited(g * p[RESCALE], p[CLIP]);
    return ((C)1 - p[DECAY]) * w - p[RATE] * sign_of(g);
  }
};

struct Signum : Rule<1> {
  template <class C> static __device__ C step(const C *p, C w, C g, C *s) {
    s[0] = p[OWN] * s[0] - p[OWN + 1] * decayed(p, w, g);
    return p[OWN + 2] * w + p[RATE] * sign_of(s[0]);
  }
};

struct Ftrl : Rule<2> {
  template <class C> static __device__ C step(const C *p, C w, C g, C *s) {
    g = limited(g * p[RESCALE], p[CLIP]);
    C grown = s[1] + g * g, limit = p[OWN];
    s[0] += g - (root_of(grown) - root_of(s[1])) * w / p[RATE];
    s[1] = grown;
    if (s[0] <= limit && s[0] >= -limit) return (C)0;
    return (sign_of(s[0]) * limit - s[0]) /
           ((p[OWN + 1] + root_of(grown)) / p[RATE] + p[DECAY]);
  }
};

// Two betas, what is added to the root, and 1 - beta^t for both.
struct Ftml : Rule<3> {
  template <class C> static __device__ C step(const C *p, C w, C g, C *s) {
    g = decayed_first(p, w, g);
    s[1] = p[OWN + 1] * s[1] + ((C)1 - p[OWN + 1]) * g * g;
    C root = root_of(s[1] / p[OWN + 4]) + p[OWN + 2];
    C next = p[OWN + 3] / p[RATE] * root;
    s[2] = p[OWN] * s[2] + ((C)1 - p[OWN]) * g - (next - p[OWN] * s[0]) * w;
    s[0] = next;
    return -s[2] / next;
  }
};

// Numbers: the scale, which is loaded, 0, rate, eta, decay, epsilon, limit and two betas. There is
// no step unless the scale is a finite number other than 0.
struct AdamW : Rule<2> {
  static __device__ bool begin(double *p) {
    double scale = p[0];
    p[0] = (double)(float)scale;
    return scale - scale == 0 && scale != 0;
  }
  template <class C> static __device__ C step(const C *p, C w, C g, C *s) {
    take_in(limited(g * p[0], p[6]), p[7], p[8], s);
    return w - p[3] * (p[2] * s[0] / (root_of(s[1]) + p[5]) + p[4] * w);
  }
};

// LAMB's direction. Numbers: factors of mean and variance, epsilon, decay, factor and limit of the
// gradient, two betas.
template <class C> __device__ C direction(const C *p, C w, const C *s) {
  return p[0] * s[0] / (root_of(p[1] * s[1]) + p[2]) + p[3] * w;
}

struct LambDirection : Rule<2> {
  template <class C> static __device__ C step(const C *p, C w, C g, C *s) {
    take_in(limited(g * p[4], p[5]), p[6], p[7], s);
    return direction(p, w, s);
  }
};

struct LambAverages : Rule<2> {
  template <class C> static __device__ C step(const C *p, C w, C g, C *s) {
    take_in(limited(g * p[4], p[5]), p[6], p[7], s);
    return w;
  }
};

// The rate for the norms of weight and direction.
__device__ inline double lamb_rate(double weight, double along, double rate, double lower,
                                   double upper) {
  if (lower >= 0 && !(weight >= lower)) weight = lower;
  if (upper >= 0 && !(weight <= upper)) weight = upper;
  return rate * (weight == 0 || along == 0 ? 1 : weight / along);
}

// Numbers: the norms, which are loaded, rate, bounds.
struct LambStep : Rule<0> {
  static __device__ bool begin(double *p) {
    p[0] = lamb_rate(p[0], p[1], p[2], p[3], p[4]);
    return true;
  }
  template <class C> static __device__ C step(const C *p, C w, C g, C *) { return w - p[0] * g; }
};

// Numbers: the squares of the norms, which are loaded, rate, bounds, and those of the direction.
struct LambWhole : Rule<2> {
  static __device__ bool begin(double *p) {
    p[0] = lamb_rate(sqrt(p[0]), sqrt(p[1]), p[2], p[3], p[4]);
    return true;
  }
  template <class C> static __device__ C step(const C *p, C w, C, C *s) {
    return w - p[0] * direction(p + 5, w, s);
  }
};

// Weight and states are of type W, the gradient of type G, the output of type O. `copy` is the
// weight if that changes as well, `narrow` the weight of type O. `a` and `b`, if they are there,
// are the first two numbers.
template <class U, class W, class G, class O, class L>
__global__ void update(Index n, const W *w, W *copy, const O *narrow, const G *g, W *s0, W *s1,
                       W *s2, O *y, const L *a, const L *b, Numbers numbers, int add) {
  typedef Compute<W> C;
  if (a) numbers.at[0] = (double)(Compute<L>)*a;
  if (b) numbers.at[1] = (double)(Compute<L>)*b;
  bool steps = U::begin(numbers.at);
  C p[10];
  for (int k = 0; k < 10; k++) p[k] = (C)numbers.at[k];
  for (Index i = first(); i < n; i += step()) {
    if (!steps) {
      if (y) store(y + i, (Compute<O>)narrow[i], add);
      continue;
    }
    C s[3] = {};
    if (U::STATES > 0) s[0] = (C)s0[i];
    if (U::STATES > 1) s[1] = (C)s1[i];
    if (U::STATES > 2) s[2] = (C)s2[i];
    C fresh = U::step(p, (C)w[i], (C)g[i], s);
    if (U::STATES > 0) s0[i] = convert<W>(s[0]);
    if (U::STATES > 1) s1[i] = convert<W>(s[1]);
    if (U::STATES > 2) s2[i] = convert<W>(s[2]);
    if (copy) copy[i] = convert<W>(fresh);
    if (y) store(y + i, fresh, add);
  }
}

// A block's part of the squares of weight and direction, as numbers 2 k and 2 k + 1.
template <class W, class O>
__global__ void lamb_norms(Index n, const O *narrow, const W *w, const W *mean, const W *var,
                           Numbers numbers, double *parts) {
  typedef Compute<W> C;
  C p[4];
  for (int k = 0; k < 4; k++) p[k] = (C)numbers.at[k];
  double weight = 0, along = 0;
  for (Index i = first(); i < n; i += step()) {
    C s[2] = {(C)mean[i], (C)var[i]}, own = (C)(Compute<O>)narrow[i];
    double u = (double)direction(p, (C)w[i], s);
    weight += (double)own * (double)own;
    along += u * u;
  }
  weight = block_sum(weight);
  along = block_sum(along);
  if (threadIdx.x != 0) return;
  parts[2 * blockIdx.x] = weight;
  parts[2 * blockIdx.x + 1] = along;
}

// Adds up parts that lie `stride` apart, one block for each of the sums.
template <class T> __global__ void sum_parts(Index count, Index stride, const double *parts, T *to) {
  double sum = 0;
  for (Index i = threadIdx.x; i < count; i += blockDim.x) sum += parts[i * stride + blockIdx.x];
  sum = block_sum(sum);
  if (threadIdx.x == 0) to[blockIdx.x] = convert<T>(sum);
}

// A block's part of the squares of an array or, with `others`, of the numbers that are not finite.
template <class T> __global__ void square_parts(Index n, const T *x, double *parts, int others) {
  double sum = 0;
  for (Index i = first(); i < n; i += step()) {
    double v = (double)(Compute<T>)x[i];
    sum += others ? (v - v == 0 ? 0. : 1.) : v * v;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// 1 if no part is other than 0, else 0; without `init` a 1 is left out.
__global__ void none_of(Index count, const double *parts, float *to, int init) {
  double sum = 0;
  for (Index i = threadIdx.x; i < count; i += blockDim.x) sum += parts[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0 && (init || sum != 0)) to[0] = sum == 0 ? 1.f : 0.f;
}

template <class T>
__global__ void lars(Index n, const T *rates, const T *weights, const T *grads, const T *decays,
                     T *y, float eta, float eps, float rescale, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    C w = root_of((C)weights[i]), g = root_of((C)grads[i]) * (C)rescale;
    C ratio = w > 0 && g > 0 ? (C)eta * w / (g + (C)decays[i] * w + (C)eps) : (C)1;
    store(y + i, (C)rates[i] * ratio, add);
  }
}

// One rate a row: a block for each.
template <class T>
__global__ void group_adagrad(Index rows, Index width, const T *w, const T *g, T *history, T *y,
                              float rate, float rescale, float clip, float eps, int add) {
  typedef Compute<T> C;
  for (Index r = blockIdx.x; r < rows; r += gridDim.x) {
    C old = (C)history[r], sum = 0;
    for (Index i = threadIdx.x; i < width; i += blockDim.x) {
      C own = limited((C)g[r * width + i] * (C)rescale, (C)clip);
      sum += own * own;
    }
    C fresh = old + block_sum(sum) / (C)width;
    if (threadIdx.x == 0) history[r] = convert<T>(fresh);
    for (Index i = threadIdx.x; y && i < width; i += blockDim.x) {
      C own = limited((C)g[r * width + i] * (C)rescale, (C)clip);
      C moved = (C)w[r * width + i] - (C)rate * own / root_of(fresh + (C)eps);
      store(y + r * width + i, moved, add);
    }
  }
}

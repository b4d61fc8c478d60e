// Steps of optimizers: the new weight from weight, gradient and states, which change in place.
// Gradients are scaled by `rescale` and limited to `clip` first, if that is not negative.

template <class C> __device__ C limited(C x, C c) {
  return c < 0 ? x : x > c ? c : x < -c ? -c : x;
}

template <class T>
__global__ void sgd(Index n, const T *w, const T *g, T *y, float lr, float wd, float rescale,
                    float clip, int write, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    C grad = limited((C)g[i] * (C)rescale, (C)clip) + (C)wd * (C)w[i];
    if (write) store(y + i, (C)w[i] - (C)lr * grad, add);
  }
}

template <class T>
__global__ void sgd_momentum(Index n, const T *w, const T *g, T *m, T *y, float lr, float wd,
                             float rescale, float clip, float keep, int nesterov, int write,
                             int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    C grad = limited((C)g[i] * (C)rescale, (C)clip) + (C)wd * (C)w[i];
    C moment = (C)keep * (C)m[i] - (C)lr * grad, old = (C)w[i];
    m[i] = convert<T>(moment);
    C change = nesterov ? (C)keep * moment - (C)lr * grad : moment;
    if (write) store(y + i, old + change, add);
  }
}

// In single precision on a copy of the weight, whose dtype is that of gradient and output.
template <class T>
__global__ void sgd_copy(Index n, const T *g, float *m, float *w, T *y, float lr, float wd,
                         float rescale, float clip, float keep, int nesterov, int write, int add) {
  for (Index i = first(); i < n; i += step()) {
    float grad = limited((float)(Compute<T>)g[i] * rescale, clip) + wd * w[i];
    float change = -lr * grad;
    if (m) {
      m[i] = keep * m[i] - lr * grad;
      change = nesterov ? keep * m[i] - lr * grad : m[i];
    }
    w[i] += change;
    if (write) store(y + i, (Compute<T>)w[i], add);
  }
}

template <class T>
__global__ void adam(Index n, const T *w, const T *g, T *mean, T *var, T *y, float lr, float beta1,
                     float beta2, float eps, float wd, float rescale, float clip, int write,
                     int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    C grad = limited((C)g[i] * (C)rescale + (C)wd * (C)w[i], (C)clip);
    C m = (C)beta1 * (C)mean[i] + ((C)1 - (C)beta1) * grad;
    C v = (C)beta2 * (C)var[i] + ((C)1 - (C)beta2) * grad * grad, old = (C)w[i];
    mean[i] = convert<T>(m);
    var[i] = convert<T>(v);
    C root = sizeof(C) == 4 ? (C)sqrtf((float)v) : (C)sqrt((double)v);
    if (write) store(y + i, old - (C)lr * m / (root + (C)eps), add);
  }
}

// Connectionist temporal classification (A. Graves et al., ICML 2006), in logarithms. A block for
// each sequence, whose threads share the states of a moment.

__device__ inline double nothing() { return -(double)infinity_f(); }

__device__ inline double log_add(double a, double b) {
  double high = a > b ? a : b, low = a > b ? b : a;
  return low == nothing() ? high : high + log1p(exp(low - high));
}

template <class L> __device__ Index length_of(const L *lengths, Index n, Index most) {
  Index length = is_float<L> ? whole_of((double)(Compute<L>)lengths[n]) : (Index)lengths[n];
  return length < 0 ? 0 : length > most ? most : length;
}

// Labels of a sequence, until padding or as many as there are said to be. One that is no class
// stops the device: there is no loss of it.
template <class L>
__device__ Index labels_of(const L *row, const L *lengths, Index n, Index width, Index classes,
                           int blank_is_first) {
  Index count = lengths ? length_of(lengths, n, width) : width;
  for (Index i = 0; i < count; i++) {
    double label = (double)(Compute<L>)row[i];
    if (!lengths && label == (blank_is_first ? 0 : -1)) return i;
    if (!(label >= 0 && label < (double)classes)) __trap();
  }
  return count;
}

// Data is (time, batch, classes), labels (batch, width); times and lengths may be missing.
// `room` has `time * (states + 1) + 3 * states` numbers for each sequence, `states` for the most
// labels. `gradient` is that of the data.
template <class T, class L>
__global__ void ctc(Index time, Index batch, Index classes, Index width, const T *x,
                    const L *labels, const L *times, const L *lengths, double *room, T *loss,
                    T *gradient, int blank_is_first, int write, int add) {
  __shared__ Index count;
  for (Index n = blockIdx.x; n < batch; n += gridDim.x) {
    const L *row = labels + n * width;
    __syncthreads();  // the last count has been read
    if (threadIdx.x == 0) count = labels_of(row, lengths, n, width, classes, blank_is_first);
    __syncthreads();
    Index most = 2 * width + 1, states = 2 * count + 1, blank = blank_is_first ? 0 : classes - 1;
    Index end = times ? length_of(times, n, time) : time;
    double *own = room + n * (time * (most + 1) + 3 * most), *totals = own, *alpha = own + time;
    double *beta = alpha + time * most, *after = beta + most, *shares = after + most;
    auto at = [&](Index t, Index k) { return (t * batch + n) * classes + k; };
    auto label = [&](Index i) { return (Index)(Compute<L>)row[i]; };
    auto state = [&](Index s) { return s % 2 ? label(s / 2) : blank; };
    auto skips = [&](Index s) { return s >= 2 && state(s) != blank && state(s) != state(s - 2); };
    auto p = [&](Index t, Index s) { return (double)(Compute<T>)x[at(t, state(s))] - totals[t]; };
    // The logarithm of the softmax's denominator at every moment.
    for (Index t = threadIdx.x; t < end; t += blockDim.x) {
      double top = nothing(), sum = 0;
      for (Index k = 0; k < classes; k++) top = fmax(top, (double)(Compute<T>)x[at(t, k)]);
      for (Index k = 0; k < classes; k++) sum += exp((double)(Compute<T>)x[at(t, k)] - top);
      totals[t] = top + log(sum);
    }
    __syncthreads();
    for (Index t = 0; t < end; t++) {
      const double *before = alpha + (t - 1) * states;
      for (Index s = threadIdx.x; s < states; s += blockDim.x) {
        double sum = t == 0 && s < 2 ? 0 : nothing();
        if (t > 0) {
          sum = before[s];
          if (s >= 1) sum = log_add(sum, before[s - 1]);
          if (skips(s)) sum = log_add(sum, before[s - 2]);
        }
        alpha[t * states + s] = sum + p(t, s);
      }
      __syncthreads();
    }
    const double *last = alpha + (end - 1) * states;
    double total = nothing();
    if (end > 0) total = states > 1 ? log_add(last[states - 1], last[states - 2]) : last[0];
    bool fits = total > nothing();
    if (threadIdx.x == 0 && write) store(loss + n, fits ? -total : 0.0, add);
    for (Index i = threadIdx.x; i < time * classes; i += blockDim.x) {
      Index t = i / classes, where = at(t, i % classes);
      double share = fits && t < end ? exp((double)(Compute<T>)x[where] - totals[t]) : 0;
      gradient[where] = convert<T>(share);
    }
    for (Index s = threadIdx.x; s < states; s += blockDim.x)
      beta[s] = s + 2 >= states ? 0 : nothing();
    __syncthreads();
    for (Index t = end - 1; fits && t >= 0; t--) {
      for (Index s = threadIdx.x; s < states; s += blockDim.x) {
        shares[s] = exp(alpha[t * states + s] + beta[s] - total);
        after[s] = beta[s] + p(t, s);
      }
      __syncthreads();
      // The first state of a class takes the shares of all of its states: among labels, or of the
      // blank, which a label may name, too.
      for (Index s = threadIdx.x; s < states; s += blockDim.x) {
        Index own_class = state(s);
        bool is_first = s % 2 ? own_class != blank : s == 0;
        for (Index i = 1; i < s && is_first; i += 2) is_first = state(i) != own_class;
        double sum = 0;
        for (Index i = s; is_first && i < states; i += s ? 2 : 1)
          if (state(i) == own_class) sum += shares[i];
        double value = exp((double)(Compute<T>)x[at(t, own_class)] - totals[t]) - sum;
        if (is_first) gradient[at(t, own_class)] = convert<T>(value);
        double rest = after[s];
        if (s + 1 < states) rest = log_add(rest, after[s + 1]);
        if (s + 2 < states && skips(s + 2)) rest = log_add(rest, after[s + 2]);
        beta[s] = rest;
      }
      __syncthreads();
    }
  }
}

// What was found forward, times the gradient of each loss.
template <class T>
__global__ void ctc_back(Index n, Index batch, Index classes, const T *g, const T *found, T *x,
                         int add) {
  for (Index i = first(); i < n; i += step())
    store(x + i, (Compute<T>)found[i] * (Compute<T>)g[i / classes % batch], add);
}

// Integers for real numbers and back. The range for which integers stand is known to the device
// alone: a launch of one block finds what one number of the source is in units of the result.

// The greatest integer of a dtype that stands for a number.
template <class T> __device__ double levels() {
  return Same<T, u8>::value ? 255.0 : Same<T, int>::value ? 2147483647.0 : 127.0;
}

__device__ inline double magnitude(float low, float high) {
  return fmax(fabs((double)low), fabs((double)high));
}

// The integer nearest to a number of units, of halves the even one; NaN becomes 0.
template <class T> __device__ T nearest(double units) {
  double most = levels<T>(), least = Same<T, u8>::value ? 0.0 : -most;
  units = units == units ? rint(units) : 0.0;
  return (T)(int)(units > most ? most : units < least ? least : units);
}

// The least and the greatest element, for each block; NaN is left out.
template <class S> __global__ void part_ends(Index n, const S *x, double *parts) {
  double least = (double)infinity_f(), most = -(double)infinity_f();
  for (Index i = first(); i < n; i += step()) {
    double value = (double)x[i];
    if (value < least) least = value;
    if (value > most) most = value;
  }
  least = block_reduce(least, (double)infinity_f(), [](double a, double b) { return b < a ? b : a; });
  most = block_reduce(most, -(double)infinity_f(), [](double a, double b) { return b > a ? b : a; });
  if (threadIdx.x != 0) return;
  parts[2 * blockIdx.x] = least;
  parts[2 * blockIdx.x + 1] = most;
}

// Where the range of the result comes from.
enum { GIVEN, FROM_INPUTS, FROM_DATA };

// How many units of T a number of S is, and the range for which elements of T stand, which is as
// wide below 0 as above unless T has no sign. `low` and `high` are the range of integers S, or the
// one that is asked for. One thread.
template <class S, class T>
__global__ void find_units(int source, Index parts, const double *ends, const float *low,
                           const float *high, float given_low, float given_high, double *units,
                           float *to_low, float *to_high) {
  double unit = 1;
  float from = given_low, to = given_high;
  if (!is_float<S>) unit = magnitude(*low, *high) / levels<S>();
  if (source == FROM_INPUTS) {
    from = *low;
    to = *high;
  } else if (source == FROM_DATA) {
    double least = (double)infinity_f(), most = -(double)infinity_f();
    for (Index i = 0; i < parts; i++) {
      least = ends[2 * i] < least ? ends[2 * i] : least;
      most = ends[2 * i + 1] > most ? ends[2 * i + 1] : most;
    }
    // Without any number both are 0, which has no sign.
    from = least <= most ? (float)(least * unit) + 0.0f : 0.0f;
    to = least <= most ? (float)(most * unit) + 0.0f : 0.0f;
  }
  double m = magnitude(from, to);
  *units = m > 0 ? unit * (levels<T>() / m) : 0.0;
  bool symmetric = !Same<T, u8>::value;
  if (to_low) *to_low = symmetric ? (float)-m : from;
  if (to_high) *to_high = symmetric ? (float)m : to;
}

template <class S, class T>
__global__ void to_integers(Index n, const S *x, const double *units, T *y) {
  for (Index i = first(); i < n; i += step()) y[i] = nearest<T>((double)x[i] * *units);
}

template <class S>
__global__ void to_reals(Index n, const S *x, const float *low, const float *high, float *y,
                         int add) {
  double unit = magnitude(*low, *high) / levels<S>();
  for (Index i = first(); i < n; i += step()) store(y + i, (float)((double)x[i] * unit), add);
}

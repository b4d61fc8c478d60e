// The vocabulary in which the core's tables write element-wise formulas. Their text is that of the
// Rust tables: expressions in the part of the grammar that Rust and C++ share, over numbers with
// methods. `Real` is f32 or f64, `Whole` an integer that wraps, `Truth` a boolean.

namespace std { namespace f64 { namespace consts {
constexpr double PI = 3.14159265358979323846;
constexpr double LOG2_E = 1.44269504088896340736;
constexpr double LOG10_E = 0.434294481903251827651;
constexpr double FRAC_2_SQRT_PI = 1.12837916709551257390;
} } }

template <class C> struct Real {
  typedef C Plain;
  C v;
  Real() = default;
  __device__ Real(C x) : v(x) {}
  template <class X> __device__ explicit Real(X x) : v((C)x) {}

  __device__ friend Real operator+(Real a, Real b) { return Real(a.v + b.v); }
  __device__ friend Real operator-(Real a, Real b) { return Real(a.v - b.v); }
  __device__ friend Real operator*(Real a, Real b) { return Real(a.v * b.v); }
  __device__ friend Real operator/(Real a, Real b) { return Real(a.v / b.v); }
  __device__ friend bool operator==(Real a, Real b) { return a.v == b.v; }
  __device__ friend bool operator!=(Real a, Real b) { return a.v != b.v; }
  __device__ friend bool operator<(Real a, Real b) { return a.v < b.v; }
  __device__ friend bool operator>(Real a, Real b) { return a.v > b.v; }
  __device__ friend bool operator<=(Real a, Real b) { return a.v <= b.v; }
  __device__ friend bool operator>=(Real a, Real b) { return a.v >= b.v; }
  __device__ Real operator-() const { return Real(-v); }

#define RSNET_METHOD(name, function)                                     \
  __device__ Real name() const {                                         \
    if constexpr (sizeof(C) == 4) return Real((C)::function##f((float)v)); \
    else return Real((C)::function(v));                                  \
  }
  RSNET_METHOD(abs, fabs) RSNET_METHOD(sqrt, sqrt) RSNET_METHOD(cbrt, cbrt)
  RSNET_METHOD(exp, exp) RSNET_METHOD(exp_m1, expm1) RSNET_METHOD(ln, log)
  RSNET_METHOD(ln_1p, log1p) RSNET_METHOD(log2, log2) RSNET_METHOD(log10, log10)
  RSNET_METHOD(round, round) RSNET_METHOD(floor, floor) RSNET_METHOD(ceil, ceil)
  RSNET_METHOD(trunc, trunc) RSNET_METHOD(sin, sin) RSNET_METHOD(cos, cos)
  RSNET_METHOD(tan, tan) RSNET_METHOD(asin, asin) RSNET_METHOD(acos, acos)
  RSNET_METHOD(atan, atan) RSNET_METHOD(sinh, sinh) RSNET_METHOD(cosh, cosh)
  RSNET_METHOD(tanh, tanh) RSNET_METHOD(asinh, asinh) RSNET_METHOD(acosh, acosh)
  RSNET_METHOD(atanh, atanh) RSNET_METHOD(erf, erf)
#undef RSNET_METHOD

  // The methods of `Arith`, by which the tables of two operands are written.
  static __device__ Real one() { return Real((C)1); }
  static __device__ Real truth(bool b) { return Real((C)b); }
  static __device__ Real from_f64(Real<double> x) { return Real((C)x.v); }
  __device__ Real<double> to_f64() const { return Real<double>((double)v); }
  __device__ Real add(Real b) const { return *this + b; }
  __device__ Real sub(Real b) const { return *this - b; }
  __device__ Real mul(Real b) const { return *this * b; }
  __device__ Real div(Real b) const { return *this / b; }
  __device__ Real rem(Real b) const {
    if (b.v == 0) return Real((C)0);
    C r = sizeof(C) == 4 ? (C)fmodf((float)v, (float)b.v) : (C)fmod(v, b.v);
    return r != 0 && (r < 0) != (b.v < 0) ? Real(r + b.v) : Real(r);
  }
  __device__ Real pow(Real b) const {
    return sizeof(C) == 4 ? Real((C)powf((float)v, (float)b.v)) : Real((C)::pow(v, b.v));
  }
  __device__ Real hypot(Real b) const {
    return sizeof(C) == 4 ? Real((C)hypotf((float)v, (float)b.v)) : Real((C)::hypot(v, b.v));
  }
  __device__ Real max(Real b) const { return Real(greater_of(v, b.v)); }
  __device__ Real min(Real b) const { return Real(lesser_of(v, b.v)); }
  __device__ bool is_true() const { return v != 0; }
};

// An integer of type T, calculated without overflow as the host does: it wraps.
template <class T> struct Whole {
  typedef T Plain;
  T v;
  Whole() = default;
  template <class X> __device__ Whole(X x) : v((T)x) {}

  __device__ friend bool operator==(Whole a, Whole b) { return a.v == b.v; }
  __device__ friend bool operator!=(Whole a, Whole b) { return a.v != b.v; }
  __device__ friend bool operator<(Whole a, Whole b) { return a.v < b.v; }
  __device__ friend bool operator>(Whole a, Whole b) { return a.v > b.v; }
  __device__ friend bool operator<=(Whole a, Whole b) { return a.v <= b.v; }
  __device__ friend bool operator>=(Whole a, Whole b) { return a.v >= b.v; }

  typedef unsigned long long Bits;
  static __device__ Whole one() { return Whole(1); }
  static __device__ Whole truth(bool b) { return Whole(b); }
  static __device__ Whole from_f64(Real<double> x) { return Whole(convert<T>(x.v)); }
  __device__ Real<double> to_f64() const { return Real<double>((double)v); }
  __device__ Whole add(Whole b) const { return Whole((Bits)v + (Bits)b.v); }
  __device__ Whole sub(Whole b) const { return Whole((Bits)v - (Bits)b.v); }
  __device__ Whole mul(Whole b) const { return Whole((Bits)v * (Bits)b.v); }
  __device__ Whole div(Whole b) const {
    if (b.v == 0) return Whole(0);
    return b.v == (T)-1 && (T)-1 < (T)0 ? Whole(0 - (Bits)v) : Whole(v / b.v);
  }
  __device__ Whole rem(Whole b) const {
    if (b.v == 0 || (b.v == (T)-1 && (T)-1 < (T)0)) return Whole(0);
    T r = (T)(v % b.v);
    return r != 0 && (r < (T)0) != (b.v < (T)0) ? Whole((Bits)r + (Bits)b.v) : Whole(r);
  }
  __device__ Whole pow(Whole b) const {
    if ((long long)b.v < 0 || (long long)b.v > 0xffffffffLL)
      return from_f64(Real<double>(::pow((double)v, (double)b.v)));
    Bits power = 1, base = (Bits)v;
    for (unsigned long long e = (unsigned long long)b.v; e; e /= 2) {
      if (e % 2) power *= base;
      base *= base;
    }
    return Whole(power);
  }
  __device__ Whole hypot(Whole b) const {
    return from_f64(Real<double>(::hypot((double)v, (double)b.v)));
  }
  __device__ Whole max(Whole b) const { return v >= b.v ? *this : b; }
  __device__ Whole min(Whole b) const { return v <= b.v ? *this : b; }
  __device__ bool is_true() const { return v != 0; }

  // The methods of i64, by which the whole-number forms of one operand are written.
  __device__ Whole wrapping_mul(Whole b) const { return mul(b); }
  __device__ Whole wrapping_neg() const { return Whole(0 - (Bits)v); }
  __device__ Whole wrapping_abs() const { return v < (T)0 ? wrapping_neg() : *this; }
  __device__ Whole signum() const { return Whole((v > (T)0) - (v < (T)0)); }
};

struct i64 {
  static __device__ Whole<long long> from(bool b) { return Whole<long long>(b); }
};

// A boolean, calculated as the integers 0 and 1.
struct Truth {
  typedef bool Plain;
  bool v;
  Truth() = default;
  __device__ Truth(bool x) : v(x) {}

  __device__ friend bool operator==(Truth a, Truth b) { return a.v == b.v; }
  __device__ friend bool operator!=(Truth a, Truth b) { return a.v != b.v; }
  __device__ friend bool operator<(Truth a, Truth b) { return !a.v && b.v; }
  __device__ friend bool operator>(Truth a, Truth b) { return a.v && !b.v; }
  __device__ friend bool operator<=(Truth a, Truth b) { return !a.v || b.v; }
  __device__ friend bool operator>=(Truth a, Truth b) { return a.v || !b.v; }

  static __device__ Truth one() { return Truth(true); }
  static __device__ Truth truth(bool b) { return Truth(b); }
  static __device__ Truth from_f64(Real<double> x) { return Truth(x.v != 0); }
  __device__ Real<double> to_f64() const { return Real<double>((double)v); }
  __device__ Truth add(Truth b) const { return Truth(v || b.v); }
  __device__ Truth sub(Truth b) const { return Truth(v != b.v); }
  __device__ Truth mul(Truth b) const { return Truth(v && b.v); }
  __device__ Truth div(Truth b) const { return Truth(v && b.v); }
  __device__ Truth rem(Truth) const { return Truth(false); }
  __device__ Truth pow(Truth b) const { return Truth(v || !b.v); }
  __device__ Truth hypot(Truth b) const { return Truth(v || b.v); }
  __device__ Truth max(Truth b) const { return Truth(v || b.v); }
  __device__ Truth min(Truth b) const { return Truth(v && b.v); }
  __device__ bool is_true() const { return v; }
};

// The number type in which formulas of two operands on elements of T are calculated.
template <class T> struct ArithOf { typedef Whole<T> Type; };
template <> struct ArithOf<float> { typedef Real<float> Type; };
template <> struct ArithOf<half> { typedef Real<float> Type; };
template <> struct ArithOf<double> { typedef Real<double> Type; };
template <> struct ArithOf<bool> { typedef Truth Type; };
template <class T> using Arith = typename ArithOf<T>::Type;

// The number type in which formulas of one operand are calculated: integers in double precision.
template <class T> struct RealOf { typedef Real<double> Type; };
template <> struct RealOf<float> { typedef Real<float> Type; };
template <> struct RealOf<half> { typedef Real<float> Type; };

template <class N> __device__ N neg(N x) { return N(0).sub(x); }
template <class N> __device__ N ln(N x) { return N::from_f64(x.to_f64().ln()); }

template <class C> __device__ Real<C> select(bool c, Real<C> a, Real<C> b) { return c ? a : b; }
template <class C> __device__ Real<C> exp(Real<C> x) { return x.exp(); }
template <class C> __device__ Real<C> log(Real<C> x) { return x.ln(); }
template <class C> __device__ Real<C> tanh(Real<C> x) { return x.tanh(); }
template <class C> __device__ Real<C> erf(Real<C> x) { return x.erf(); }
template <class C> __device__ Real<C> expm1(Real<C> x) { return x.exp_m1(); }
template <class C> __device__ Real<C> log1p(Real<C> x) { return x.ln_1p(); }
template <class C> __device__ Real<C> log2(Real<C> x) { return x.log2(); }
template <class C> __device__ Real<C> log10(Real<C> x) { return x.log10(); }
template <class C> __device__ Real<C> sin(Real<C> x) { return x.sin(); }
template <class C> __device__ Real<C> cos(Real<C> x) { return x.cos(); }
template <class C> __device__ Real<C> tan(Real<C> x) { return x.tan(); }
template <class C> __device__ Real<C> sinh(Real<C> x) { return x.sinh(); }
template <class C> __device__ Real<C> cosh(Real<C> x) { return x.cosh(); }
template <class C> __device__ Real<C> asin(Real<C> x) { return x.asin(); }
template <class C> __device__ Real<C> acos(Real<C> x) { return x.acos(); }
template <class C> __device__ Real<C> atan(Real<C> x) { return x.atan(); }
template <class C> __device__ Real<C> atanh(Real<C> x) { return x.atanh(); }
template <class C> __device__ Real<C> asinh(Real<C> x) { return x.asinh(); }
template <class C> __device__ Real<C> acosh(Real<C> x) { return x.acosh(); }
template <class C> __device__ Real<C> sigmoid(Real<C> x) {
  return Real<C>((C)1) / (Real<C>((C)1) + (-x).exp());
}
template <class C> __device__ Real<C> sign(Real<C> x) { return Real<C>((C)((x.v > 0) - (x.v < 0))); }

// The functions below are calculated in double precision.

__device__ inline double gamma_of(double x) {
  if (x >= 1 && x <= 23 && x == ::floor(x)) {
    double product = 1;
    for (int i = 1; i < (int)x; i++) product *= i;
    return product;
  }
  return ::tgamma(x);
}

// The derivative of log(gamma(x)): recurrence up to 8, then the asymptotic series (Abramowitz and
// Stegun 6.3.5, 6.3.18), by reflection below 1/2.
__device__ inline double digamma_of(double x) {
  if (x <= 0 && x == ::floor(x)) return infinity_f();
  double reflected = 0;
  if (x < 0.5) {
    reflected = std::f64::consts::PI / ::tan(std::f64::consts::PI * x);
    x = 1 - x;
  }
  double shift = 0;
  for (; x < 8; x += 1) shift -= 1 / x;
  double z = 1 / (x * x);
  double series =
      z * (1. / 12. - z * (1. / 120. - z * (1. / 252. - z * (1. / 240. - z / 132.))));
  return shift + ::log(x) - 0.5 / x - series - reflected;
}

// The inverse of erf: a rational first guess (M. Giles, Approximating the erfinv function, 2010),
// then Newton steps.
__device__ inline double erfinv_of(double x) {
  if (!(::fabs(x) < 1)) return ::fabs(x) == 1 ? x * infinity_f() : x - x + ::sqrt(-1.0);
  const double near[9] = {2.81022636e-8, 3.43273939e-7, -3.5233877e-6, -4.39150654e-6,
                          2.1858087e-4, -1.25372503e-3, -4.17768164e-3, 2.46640727e-1, 1.50140941};
  const double far[9] = {-2.00214257e-4, 1.00950558e-4, 1.34934322e-3, -3.67342844e-3,
                         5.73950773e-3, -7.6224613e-3, 9.43887047e-3, 1.00167406, 2.83297682};
  double w = -::log((1 - x) * (1 + x)), p = 0;
  double start = w < 5 ? w - 2.5 : ::sqrt(w) - 3;
  for (int i = 0; i < 9; i++) p = p * start + (w < 5 ? near[i] : far[i]);
  double size = ::fabs(x), y = p * size;
  for (int i = 0; i < 4; i++) {
    double slope = std::f64::consts::FRAC_2_SQRT_PI * ::exp(-y * y);
    if (y > 1) {
      // Near 1 the distance from 1 is exact, and its logarithm is nearly a square.
      double rest = ::erfc(y);
      y += rest / slope * ::log(rest / (1 - size));
    } else {
      y -= (::erf(y) - size) / slope;
    }
  }
  return ::copysign(y, x);
}

template <class C> __device__ Real<C> gamma(Real<C> x) { return Real<C>((C)gamma_of((double)x.v)); }
template <class C> __device__ Real<C> gammaln(Real<C> x) {
  return Real<C>((C)::lgamma((double)x.v));
}
template <class C> __device__ Real<C> digamma(Real<C> x) {
  return Real<C>((C)digamma_of((double)x.v));
}
template <class C> __device__ Real<C> erfinv(Real<C> x) {
  return Real<C>((C)erfinv_of((double)x.v));
}

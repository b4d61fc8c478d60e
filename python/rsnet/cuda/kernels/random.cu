// Random numbers: those of the host, from the same counters. Philox4x32-10 (J. Salmon et al.,
// Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011).

struct Words { unsigned w[4]; };

// What the numbers of a call depend on: `RandomKey` of the host.
struct Key { unsigned long long seed, stream; };

__device__ inline Words philox(Key key, Index index) {
  unsigned c[4] = {(unsigned)index, (unsigned)((unsigned long long)index >> 32),
                   (unsigned)key.stream, (unsigned)(key.stream >> 32)};
  unsigned k[2] = {(unsigned)key.seed, (unsigned)(key.seed >> 32)};
  for (int round = 0; round < 10; round++) {
    unsigned a = __umulhi(c[0], 0xD2511F53u), b = __umulhi(c[2], 0xCD9E8D57u);
    unsigned low = c[0] * 0xD2511F53u, other = c[2] * 0xCD9E8D57u;
    c[0] = b ^ c[1] ^ k[0];
    c[1] = other;
    c[2] = a ^ c[3] ^ k[1];
    c[3] = low;
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return Words{{c[0], c[1], c[2], c[3]}};
}

// In 0 (inclusive) to 1 (exclusive), in steps of 2^-24.
__device__ inline float unit(unsigned word) { return (float)(word >> 8) * (1.0f / 16777216.0f); }

// Uniform numbers `low + width * u`, at most `last`.
template <class T>
__global__ void uniform(Index n, T *y, Key key, double low, double width, double last, int add) {
  for (Index block = first(); block * 4 < n; block += step()) {
    Words words = philox(key, block);
    for (int i = 0; i < 4 && block * 4 + i < n; i++) {
      double value = low + width * (double)unit(words.w[i]);
      store(y + block * 4 + i, value < last ? value : last, add);
    }
  }
}

// Normal numbers in pairs (G. Box and M. Muller, 1958).
template <class T>
__global__ void normal(Index n, T *y, Key key, double mean, double scale, int add) {
  for (Index block = first(); block * 4 < n; block += step()) {
    Words words = philox(key, block);
    for (int i = 0; i < 4 && block * 4 + i < n; i++) {
      double radius = sqrt(-2.0 * log(1.0 - (double)unit(words.w[i / 2 * 2])));
      double angle = 6.283185307179586 * (double)unit(words.w[i / 2 * 2 + 1]);
      store(y + block * 4 + i, mean + scale * (radius * (i % 2 ? sin(angle) : cos(angle))), add);
    }
  }
}

// 1 / keep with probability `keep`, else 0.
template <class T>
__global__ void drop_mask(Index n, T *mask, Key key, float keep, int all) {
  typedef Compute<T> C;
  for (Index block = first(); block * 4 < n; block += step()) {
    Words words = philox(key, block);
    for (int i = 0; i < 4 && block * 4 + i < n; i++) {
      C kept = unit(words.w[i]) < keep ? (C)1 : (C)0;
      mask[block * 4 + i] = convert<T>(all ? (C)1 : kept * ((C)1 / (C)keep));
    }
  }
}

// Operand 0 of the axes is the mask, which may be repeated.
template <class T>
__global__ void drop(Index n, const T *x, const T *mask, T *y, Axes axes, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step())
    store(y + i, (C)x[i] * (C)mask[axes.offset(0, i)], add);
}

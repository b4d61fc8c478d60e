// CUDA C++ on the host: what a source of kernels sees when a C++ compiler compiles it for the
// emulated driver. A thread of CUDA is a fiber of the driver's stream; the driver runs the threads
// of a block one after another and switches between them at barriers and shuffles.
#pragma once
#include <math.h>
#include <string.h>

#define RSNET_EMULATED
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __shared__ static thread_local

struct EmulatedIndex { unsigned x, y, z; };

// What a fiber knows of itself, and how it waits for others; the driver has the same structure.
struct EmulatedThread {
  EmulatedIndex thread, block, block_size, grid_size;
  void (*wait_for_block)(EmulatedThread *);
  // All lanes of the mask give a value of up to 8 bytes; the answer is that of lane `from`.
  void (*exchange)(EmulatedThread *, unsigned mask, void *value, unsigned bytes, int from);
  // The thread stops for good, and the launch is a fault.
  void (*trap)(EmulatedThread *);
};

static thread_local EmulatedThread *emulated_thread;

#define threadIdx (emulated_thread->thread)
#define blockIdx (emulated_thread->block)
#define blockDim (emulated_thread->block_size)
#define gridDim (emulated_thread->grid_size)

static inline void __syncthreads() {
  EmulatedThread *own = emulated_thread;
  own->wait_for_block(own);
  emulated_thread = own;
}

template <class T> inline T emulated_exchange(unsigned mask, T value, int from) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most eight bytes");
  EmulatedThread *own = emulated_thread;
  own->exchange(own, mask, &value, sizeof(T), from);
  emulated_thread = own;
  return value;
}

inline int emulated_lane() { return threadIdx.x % 32; }
template <class T> T __shfl_xor_sync(unsigned mask, T value, int distance) {
  return emulated_exchange(mask, value, emulated_lane() ^ distance);
}
template <class T> T __shfl_sync(unsigned mask, T value, int lane) {
  return emulated_exchange(mask, value, lane);
}
inline void __trap() { emulated_thread->trap(emulated_thread); }
inline void __syncwarp() { emulated_exchange(0xffffffffu, 0, 0); }

// Blocks and fibers share one thread of the host.
template <class T> T atomicMax(T *at, T value) { T old = *at; if (old < value) *at = value; return old; }
template <class T> T atomicAdd(T *at, T value) { T old = *at; *at = (T)(old + value); return old; }

inline float __int_as_float(int bits) { float x; memcpy(&x, &bits, 4); return x; }
inline int __float_as_int(float x) { int bits; memcpy(&bits, &x, 4); return bits; }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)((unsigned long long)a * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}

// A function as the driver launches it: arguments by address, some of which are addresses of the
// device.
struct EmulatedFunction {
  const char *name;
  void (*run)(EmulatedThread *, void **);
  int count;
  const unsigned *sizes;
  const bool *addresses;
};

template <class T> struct EmulatedPointer { static const bool value = false; };
template <class T> struct EmulatedPointer<T *> { static const bool value = true; };
template <int... I> struct EmulatedPack {};
template <int N, int... I> struct EmulatedCount : EmulatedCount<N - 1, N - 1, I...> {};
template <int... I> struct EmulatedCount<0, I...> { typedef EmulatedPack<I...> Type; };
template <class T> struct EmulatedPlain { typedef T Type; };
template <class T> struct EmulatedPlain<const T> { typedef T Type; };

template <auto F> struct Emulated;
template <class... A, void (*F)(A...)> struct Emulated<F> {
  static constexpr unsigned sizes[] = {sizeof(A)..., 0};
  static constexpr bool addresses[] = {EmulatedPointer<A>::value..., false};
  template <int... I> static void call(void **p, EmulatedPack<I...>) {
    F(*static_cast<typename EmulatedPlain<A>::Type *>(p[I])...);
  }
  static void run(EmulatedThread *own, void **p) {
    emulated_thread = own;
    call(p, typename EmulatedCount<sizeof...(A)>::Type());
  }
};

#define EMULATED(name, ...) \
  {name, &Emulated<&__VA_ARGS__>::run, sizeof(Emulated<&__VA_ARGS__>::sizes) / sizeof(unsigned) - 1, \
   Emulated<&__VA_ARGS__>::sizes, Emulated<&__VA_ARGS__>::addresses}

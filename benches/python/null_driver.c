/* A CUDA driver that does nothing: what is left of a launch is what rsnet adds to it. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define API int

API cuInit(unsigned flags) { (void)flags; return 0; }
API cuDriverGetVersion(int *version) { *version = 13000; return 0; }
API cuGetErrorName(int status, const char **text) { (void)status; *text = "none"; return 0; }
API cuGetErrorString(int status, const char **text) { (void)status; *text = "none"; return 0; }
API cuDeviceGetCount(int *count) { *count = 1; return 0; }
API cuDeviceGet(int *device, int number) { *device = number; return 0; }
API cuDeviceGetName(char *text, int length, int device) {
  (void)device;
  strncpy(text, "nothing", (size_t)length);
  return 0;
}
API cuDevicePrimaryCtxRetain(void **context, int number) {
  (void)number;
  *context = (void *)1;
  return 0;
}
API cuDevicePrimaryCtxRelease_v2(int number) { (void)number; return 0; }
API cuCtxSetCurrent(void *context) { (void)context; return 0; }
API cuCtxSynchronize(void) { return 0; }
API cuMemGetInfo_v2(size_t *free, size_t *total) { *free = *total = 1ull << 40; return 0; }
API cuPointerGetAttribute(void *answer, unsigned attribute, uint64_t address) {
  (void)attribute, (void)address;
  *(int *)answer = 0;
  return 0;
}
API cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  static uint64_t next = 1ull << 46; /* nothing is ever there */
  *address = __atomic_fetch_add(&next, (bytes + 511) / 512 * 512, __ATOMIC_RELAXED);
  return 0;
}
API cuMemFree_v2(uint64_t address) { (void)address; return 0; }
API cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
  static char room[1 << 22];
  static size_t used;
  (void)flags;
  *address = room + __atomic_fetch_add(&used, (bytes + 63) / 64 * 64, __ATOMIC_RELAXED);
  return (char *)*address + bytes > room + sizeof room ? 2 : 0;
}
API cuFuncSetAttribute(void *function, int attribute, int value) {
  (void)function, (void)attribute, (void)value;
  return 0;
}
API cuMemFreeHost(void *address) { (void)address; return 0; }
API cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
  (void)to, (void)from, (void)bytes, (void)stream;
  return 0;
}
API cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
  (void)from, (void)stream;
  memset(to, 0, bytes);
  return 0;
}
API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
  (void)to, (void)from, (void)bytes, (void)stream;
  return 0;
}
API cuMemcpyPeerAsync(uint64_t to, void *own, uint64_t from, void *other, size_t bytes,
                      void *stream) {
  (void)to, (void)own, (void)from, (void)other, (void)bytes, (void)stream;
  return 0;
}
API cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *stream) {
  (void)to, (void)value, (void)bytes, (void)stream;
  return 0;
}
API cuStreamCreate(void **stream, unsigned flags) { (void)flags; *stream = (void *)1; return 0; }
API cuStreamDestroy_v2(void *stream) { (void)stream; return 0; }
API cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
  (void)stream, (void)event, (void)flags;
  return 0;
}
API cuEventCreate(void **event, unsigned flags) { (void)flags; *event = (void *)1; return 0; }
API cuEventDestroy_v2(void *event) { (void)event; return 0; }
API cuEventRecord(void *event, void *stream) { (void)event, (void)stream; return 0; }
API cuEventQuery(void *event) { (void)event; return 0; }
API cuEventSynchronize(void *event) { (void)event; return 0; }

API cuStreamBeginCapture_v2(void *stream, int mode) { (void)stream, (void)mode; return 0; }
API cuStreamEndCapture(void *stream, void **graph) {
  (void)stream;
  *graph = (void *)1;
  return 0;
}
API cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long flags) {
  (void)graph, (void)flags;
  *made = (void *)1;
  return 0;
}
API cuGraphDestroy(void *graph) { (void)graph; return 0; }
API cuGraphExecDestroy(void *graph) { (void)graph; return 0; }

static unsigned long replays;

API cuGraphLaunch(void *graph, void *stream) {
  (void)graph, (void)stream;
  replays++;
  return 0;
}

/* How often a recording was launched. */
unsigned long null_replays(void) { return replays; }

static unsigned long launches;

API cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **params, void **extra) {
  (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared;
  (void)stream, (void)params, (void)extra;
  launches++;
  return 0;
}

/* How often a kernel was launched. */
unsigned long null_launches(void) { return launches; }

/* Nanoseconds of `count` launches by themselves. */
double null_launch_ns(unsigned long count) {
  API (*volatile launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, void *, void **, void **) = cuLaunchKernel;
  struct timespec begin, end;
  unsigned long before = launches;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (unsigned long i = 0; i < count; i++) launch(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
  clock_gettime(CLOCK_MONOTONIC, &end);
  launches = before;
  return (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
}

// A CUDA driver without a device: what libcuda.so.1 offers to rsnet, on the host.
//
// Streams are threads with queues, so work is as asynchronous as on a device. Device memory cannot
// be read or written by the host: its addresses are reserved without access, and only the functions
// of this file know the second mapping behind them. A program that takes a device's address for its
// own therefore crashes in a test as it would with a device.
//
// Environment: RSNET_EMULATED_DEVICES (2), RSNET_EMULATED_BYTES of memory for each (256 MiB),
// RSNET_EMULATED_VERSION (13000), RSNET_EMULATED_DELAY_US before every piece of work,
// RSNET_EMULATED_JITTER_US of random delay at most (RSNET_EMULATED_SEED chooses the numbers).
// cuBLAS is in it, too, as far as rsnet calls it.
// For tests: emulated_live() bytes of device memory not freed, emulated_pinned() of page-locked
// memory, emulated_fail_after(n) lets the n-th piece of work from now on fail as a fault does,
// emulated_hold(stream, on) stops a stream, emulated_queued(stream) counts what waits there,
// emulated_products() the products of matrices by cuBLAS, emulated_replays() the graphs that were
// launched, emulated_graphs() those that were not destroyed, emulated_was_launched(name) whether a
// kernel of this name was. RSNET_EMULATED_NO_GRAPHS=1 is a driver
// that cannot record.

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "emulated_launch.h"

// With a sanitizer, memory of a device that is not allocated must not be touched either.
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

typedef int Status;
enum {
  SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100,
  INVALID_DEVICE = 101, INVALID_CONTEXT = 201, NOT_READY = 600, LAUNCH_FAILED = 719,
  CAPTURE_UNSUPPORTED = 900, ILLEGAL_STATE = 401
};

namespace {

long setting(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text && *text ? atol(text) : otherwise;
}

const int MOST_DEVICES = 8;
const size_t ALIGN = 512;

std::atomic<bool> started{false};
std::atomic<long> until_fault{0};
std::atomic<size_t> pinned_bytes{0};

// The memory of one device: addresses from `base` on, visible to this file at `seen`.
struct Memory {
  std::mutex mutex;
  char *base = nullptr, *seen = nullptr;
  size_t size = 0, live = 0;
  std::map<uint64_t, size_t> used;

  bool map(size_t bytes) {
    size = bytes;
    int file = memfd_create("emulated device", 0);
    if (file < 0 || ftruncate(file, (off_t)bytes)) return false;
    void *at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *view = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED || view == MAP_FAILED) return false;
    base = (char *)at, seen = (char *)view;
    ASAN_POISON_MEMORY_REGION(seen, bytes);
    return true;
  }

  uint64_t allocate(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    size_t needed = (bytes / ALIGN + 1) * ALIGN;  // with a gap behind it
    uint64_t at = (uint64_t)base;
    for (auto &block : used) {  // the first gap that is large enough
      if (block.first - at >= needed) break;
      at = block.first + block.second;
    }
    if (!bytes || at + needed > (uint64_t)base + size) return 0;
    used[at] = needed;
    live += needed;
    ASAN_UNPOISON_MEMORY_REGION(seen + (at - (uint64_t)base), bytes);
    memset(seen + (at - (uint64_t)base), 0xA5, bytes);
    return at;
  }

  Status release(uint64_t at) {
    std::lock_guard<std::mutex> lock(mutex);
    auto block = used.find(at);
    if (block == used.end()) return INVALID_VALUE;
    ASAN_POISON_MEMORY_REGION(seen + (at - (uint64_t)base), block->second);
    live -= block->second;
    used.erase(block);
    return SUCCESS;
  }

  bool holds(uint64_t at) const { return at >= (uint64_t)base && at < (uint64_t)base + size; }

  // The host's address of `bytes` bytes within one block, or null.
  char *translate(uint64_t at, size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    auto block = used.upper_bound(at);
    if (block == used.begin()) return nullptr;
    --block;
    if (at + bytes > block->first + block->second) return nullptr;
    return seen + (at - (uint64_t)base);
  }
};

struct Device {
  int number = 0;
  Memory memory;
  std::atomic<int> retained{0};
  std::atomic<Status> fault{SUCCESS};  // as on a device, it stays until the process ends
  std::mutex mutex;
  std::set<struct Stream *> streams;
};

Device *devices() {
  static Device *all = new Device[MOST_DEVICES];
  return all;
}

int device_count() {
  long n = setting("RSNET_EMULATED_DEVICES", 2);
  return n < 0 ? 0 : n > MOST_DEVICES ? MOST_DEVICES : (int)n;
}

thread_local Device *current = nullptr;

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0, reached = 0;

  void reach(uint64_t number) {
    { std::lock_guard<std::mutex> lock(mutex); reached = number; }
    changed.notify_all();
  }
  void wait(uint64_t number) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return reached >= number; });
  }
  bool has_reached() {
    std::lock_guard<std::mutex> lock(mutex);
    return reached >= recorded;
  }
};

// Work that was recorded: the driver's graph, and what is made of it to be launched.
struct Graph {
  std::vector<std::function<void()>> work;
};

struct Stream {
  Device *device;
  Graph *records = nullptr;  // what is issued goes there instead of the queue
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool ends = false, held = false;
  std::minstd_rand random{(unsigned)setting("RSNET_EMULATED_SEED", 1)};
  std::thread thread;

  explicit Stream(Device *device) : device(device), thread([this] { run(); }) {
    std::lock_guard<std::mutex> lock(device->mutex);
    device->streams.insert(this);
  }
  ~Stream() {
    { std::lock_guard<std::mutex> lock(device->mutex); device->streams.erase(this); }
    { std::lock_guard<std::mutex> lock(mutex); ends = true; }
    changed.notify_all();
    thread.join();
  }
  void push(std::function<void()> work) {
    { std::lock_guard<std::mutex> lock(mutex); queue.push_back(std::move(work)); }
    changed.notify_all();
  }
  void run() {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return ends || (!held && !queue.empty()); });
      if (queue.empty()) return;
      auto work = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }
  // Queues work that touches memory; nothing runs any more after a fault.
  Status issue(std::function<void()> work) {
    if (device->fault) return device->fault;
    if (records) {
      records->work.push_back(std::move(work));
      return SUCCESS;
    }
    push([this, work = std::move(work)] {
      if (long delay = setting("RSNET_EMULATED_DELAY_US", 0))
        std::this_thread::sleep_for(std::chrono::microseconds(delay));
      if (long most = setting("RSNET_EMULATED_JITTER_US", 0))
        std::this_thread::sleep_for(std::chrono::microseconds(random() % most));
      if (until_fault > 0 && --until_fault == 0) device->fault = LAUNCH_FAILED;
      if (!device->fault) work();
    });
    return SUCCESS;
  }
};

const struct { Status status; const char *name, *text; } ERRORS[] = {
  {SUCCESS, "CUDA_SUCCESS", "no error"},
  {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
  {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
  {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
  {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
  {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
  {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
  {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
  {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};

}  // namespace

#define API extern "C" Status
#define IN_CONTEXT if (!current) return INVALID_CONTEXT; if (current->fault) return current->fault

API cuInit(unsigned flags) {
  if (flags) return INVALID_VALUE;
  if (!device_count()) return NO_DEVICE;
  started = true;
  return SUCCESS;
}

API cuDriverGetVersion(int *version) {
  *version = (int)setting("RSNET_EMULATED_VERSION", 13000);
  return SUCCESS;
}

API cuGetErrorName(Status status, const char **text) {
  for (auto &e : ERRORS) if (e.status == status) { *text = e.name; return SUCCESS; }
  return INVALID_VALUE;
}

API cuGetErrorString(Status status, const char **text) {
  for (auto &e : ERRORS) if (e.status == status) { *text = e.text; return SUCCESS; }
  return INVALID_VALUE;
}

API cuDeviceGetCount(int *count) {
  if (!started) return NOT_INITIALIZED;
  *count = device_count();
  return SUCCESS;
}

API cuDeviceGet(int *device, int number) {
  if (!started) return NOT_INITIALIZED;
  if (number < 0 || number >= device_count()) return INVALID_DEVICE;
  *device = number;
  return SUCCESS;
}

API cuDeviceGetName(char *text, int length, int device) {
  if (device < 0 || device >= device_count()) return INVALID_DEVICE;
  strncpy(text, "emulated device", (size_t)length);
  return SUCCESS;
}

API cuDevicePrimaryCtxRetain(void **context, int number) {
  if (number < 0 || number >= device_count()) return INVALID_DEVICE;
  static std::mutex opening;
  std::lock_guard<std::mutex> lock(opening);
  Device &device = devices()[number];
  device.number = number;
  size_t bytes = (size_t)setting("RSNET_EMULATED_BYTES", 1L << 28);
  if (!device.memory.base && !device.memory.map(bytes)) return OUT_OF_MEMORY;
  device.retained++;
  *context = &device;
  return SUCCESS;
}

API cuDevicePrimaryCtxRelease_v2(int number) {
  if (number < 0 || number >= device_count() || devices()[number].retained <= 0)
    return INVALID_CONTEXT;
  devices()[number].retained--;
  return SUCCESS;
}

API cuCtxSetCurrent(void *context) {
  if (!started) return NOT_INITIALIZED;
  current = (Device *)context;
  return SUCCESS;
}

API cuMemGetInfo_v2(size_t *free, size_t *total) {
  IN_CONTEXT;
  std::lock_guard<std::mutex> lock(current->memory.mutex);
  *total = current->memory.size;
  *free = current->memory.size - current->memory.live;
  return SUCCESS;
}

API cuPointerGetAttribute(void *answer, int attribute, uint64_t address) {
  if (attribute != 9) return INVALID_VALUE;  // the number of the device
  for (int i = 0; i < device_count(); i++) {
    if (!devices()[i].memory.base || !devices()[i].memory.holds(address)) continue;
    *(int *)answer = i;
    return SUCCESS;
  }
  return INVALID_VALUE;
}

API cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  IN_CONTEXT;
  if (!bytes) return INVALID_VALUE;
  *address = current->memory.allocate(bytes);
  return *address ? SUCCESS : OUT_OF_MEMORY;
}

API cuMemFree_v2(uint64_t address) {
  IN_CONTEXT;
  return current->memory.release(address);
}

API cuMemHostAlloc(void **address, size_t bytes, unsigned) {
  IN_CONTEXT;
  if (posix_memalign(address, 4096, bytes + 4096)) return OUT_OF_MEMORY;
  *(size_t *)*address = bytes;
  pinned_bytes += bytes;
  *address = (char *)*address + 4096;
  return SUCCESS;
}

API cuMemFreeHost(void *address) {
  void *block = (char *)address - 4096;
  pinned_bytes -= *(size_t *)block;
  free(block);
  return SUCCESS;
}

API cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, Stream *stream) {
  IN_CONTEXT;
  char *target = stream->device->memory.translate(to, bytes);
  if (!target || stream->device != current) return INVALID_VALUE;
  return stream->issue([=] { memcpy(target, from, bytes); });
}

API cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, Stream *stream) {
  IN_CONTEXT;
  char *source = stream->device->memory.translate(from, bytes);
  if (!source || stream->device != current) return INVALID_VALUE;
  return stream->issue([=] { memcpy(to, source, bytes); });
}

API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, Stream *stream) {
  IN_CONTEXT;
  char *target = stream->device->memory.translate(to, bytes);
  char *source = stream->device->memory.translate(from, bytes);
  if (!target || !source || stream->device != current) return INVALID_VALUE;
  return stream->issue([=] { memcpy(target, source, bytes); });
}

API cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, Stream *stream) {
  IN_CONTEXT;
  char *target = stream->device->memory.translate(to, bytes);
  if (!target || stream->device != current) return INVALID_VALUE;
  return stream->issue([=] { memset(target, value, bytes); });
}

API cuMemcpyPeerAsync(uint64_t to, Device *target_device, uint64_t from, Device *source_device,
                      size_t bytes, Stream *stream) {
  IN_CONTEXT;
  if (source_device->fault) return source_device->fault;
  char *target = target_device->memory.translate(to, bytes);
  char *source = source_device->memory.translate(from, bytes);
  if (!target || !source || stream->device != current) return INVALID_VALUE;
  return stream->issue([=] { memcpy(target, source, bytes); });
}

API cuCtxSynchronize() {
  IN_CONTEXT;
  std::lock_guard<std::mutex> lock(current->mutex);
  for (Stream *stream : current->streams) {
    auto event = std::make_shared<Event>();
    stream->push([=] { event->reach(1); });
    event->wait(1);
  }
  return current->fault;
}

API cuStreamCreate(Stream **stream, unsigned) {
  IN_CONTEXT;
  *stream = new Stream(current);
  return SUCCESS;
}

API cuStreamDestroy_v2(Stream *stream) {
  delete stream;
  return SUCCESS;
}

API cuEventCreate(Event **event, unsigned) {
  IN_CONTEXT;
  *event = new Event;
  return SUCCESS;
}

API cuEventDestroy_v2(Event *event) {
  delete event;
  return SUCCESS;
}

API cuEventRecord(Event *event, Stream *stream) {
  IN_CONTEXT;
  if (stream->device != current) return INVALID_VALUE;
  uint64_t number;
  if (stream->records) return CAPTURE_UNSUPPORTED;
  { std::lock_guard<std::mutex> lock(event->mutex); number = ++event->recorded; }
  stream->push([=] { event->reach(number); });
  return SUCCESS;
}

// Work that follows on `stream` waits for what the event has been recorded behind by now.
API cuStreamWaitEvent(Stream *stream, Event *event, unsigned) {
  IN_CONTEXT;
  uint64_t number;
  { std::lock_guard<std::mutex> lock(event->mutex); number = event->recorded; }
  stream->push([=] { event->wait(number); });
  return SUCCESS;
}

API cuEventQuery(Event *event) {
  IN_CONTEXT;
  return event->has_reached() ? SUCCESS : NOT_READY;
}

API cuEventSynchronize(Event *event) {
  uint64_t number;
  { std::lock_guard<std::mutex> lock(event->mutex); number = event->recorded; }
  event->wait(number);
  return current ? (Status)current->fault : (Status)INVALID_CONTEXT;
}

namespace {
std::mutex of_launched;
std::set<std::string> launched;  // names without template arguments
}

extern "C" int emulated_was_launched(const char *name) {
  std::lock_guard<std::mutex> lock(of_launched);
  return (int)launched.count(name);
}

// Arguments are copied, as by the driver, and addresses of the device become those of the host.
API cuLaunchKernel(const EmulatedFunction *function, unsigned gx, unsigned gy, unsigned gz,
                   unsigned bx, unsigned by, unsigned bz, unsigned, Stream *stream, void **params,
                   void **) {
  IN_CONTEXT;
  if (stream->device != current || !gx || !gy || !gz || gy > 65535 || gz > 65535)
    return INVALID_VALUE;
  if (!bx || !by || !bz || bx * by * bz > 1024) return INVALID_VALUE;
  std::vector<std::vector<uint64_t>> args(function->count);
  for (int i = 0; i < function->count; i++) {
    args[i].resize(function->sizes[i] / 8 + 1);
    memcpy(args[i].data(), params[i], function->sizes[i]);
    if (function->addresses[i] && args[i][0]) {
      char *seen = stream->device->memory.translate(args[i][0], 0);
      if (!seen) return INVALID_VALUE;
      args[i][0] = (uint64_t)seen;
    }
  }
  {
    std::lock_guard<std::mutex> lock(of_launched);
    launched.emplace(function->name, strcspn(function->name, "<"));
  }
  Device *device = stream->device;
  return stream->issue([=]() mutable {
    std::vector<void *> at;
    for (auto &arg : args) at.push_back(arg.data());
    try {
      unsigned order = (unsigned)setting("RSNET_EMULATED_ORDER", 0);
      Launch::run(function, {gx, gy, gz}, {bx, by, bz}, at.data(), order);
    } catch (const std::exception &error) {
      fprintf(stderr, "emulated driver: %s: %s\n", function->name, error.what());
      device->fault = LAUNCH_FAILED;
    }
  });
}

// Recording: what is issued on the stream is kept, not done. A recording that is launched does it
// all again, with the addresses that it had.
namespace { std::atomic<size_t> replays{0}; std::atomic<long> live_graphs{0}; }

API cuStreamBeginCapture_v2(Stream *stream, int mode) {
  IN_CONTEXT;
  if (mode < 0 || mode > 2 || stream->records) return INVALID_VALUE;
  if (setting("RSNET_EMULATED_NO_GRAPHS", 0)) return CAPTURE_UNSUPPORTED;
  stream->records = new Graph;
  live_graphs++;
  return SUCCESS;
}

API cuStreamEndCapture(Stream *stream, Graph **graph) {
  IN_CONTEXT;
  if (!stream->records) return ILLEGAL_STATE;
  *graph = stream->records;
  stream->records = nullptr;
  return SUCCESS;
}

API cuGraphInstantiateWithFlags(Graph **made, const Graph *graph, unsigned long long flags) {
  IN_CONTEXT;
  if (flags) return INVALID_VALUE;
  *made = new Graph(*graph);
  live_graphs++;
  return SUCCESS;
}

API cuGraphLaunch(Graph *graph, Stream *stream) {
  IN_CONTEXT;
  if (stream->device != current || stream->records) return INVALID_VALUE;
  for (auto &work : graph->work)
    if (Status status = stream->issue(work)) return status;
  replays++;
  return SUCCESS;
}

API cuGraphDestroy(Graph *graph) {
  delete graph;
  live_graphs--;
  return SUCCESS;
}

API cuGraphExecDestroy(Graph *graph) { return cuGraphDestroy(graph); }

extern "C" size_t emulated_replays() { return replays; }
extern "C" size_t emulated_graphs() { return (size_t)live_graphs; }

API cuFuncSetAttribute(const EmulatedFunction *, int attribute, int bytes) {
  return attribute == 8 && bytes <= 96 << 10 ? SUCCESS : INVALID_VALUE;
}

API cuFuncGetParamInfo(const EmulatedFunction *function, size_t i, size_t *offset, size_t *size) {
  if (i >= (size_t)function->count) return INVALID_VALUE;
  *offset = 0;
  for (size_t k = 0; k < i; k++) *offset += function->sizes[k];
  *size = function->sizes[i];
  return SUCCESS;
}

// The function of this name in a library of kernels that were compiled for the host, or null.
extern "C" void *emulated_function(const char *path, const char *name) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "emulated driver: %s\n", dlerror());
    return nullptr;
  }
  auto *function = (const EmulatedFunction *)dlsym(library, "emulated_functions");
  for (; function && function->name; function++)
    if (!strcmp(function->name, name)) return (void *)function;
  return nullptr;
}

extern "C" size_t emulated_live() {
  size_t live = 0;
  for (int i = 0; i < MOST_DEVICES; i++) {
    std::lock_guard<std::mutex> lock(devices()[i].memory.mutex);
    live += devices()[i].memory.live;
  }
  return live;
}

extern "C" size_t emulated_pinned() { return pinned_bytes; }

// Keeps a stream from doing what is issued on it, until it is let go.
extern "C" void emulated_hold(Stream *stream, int on) {
  { std::lock_guard<std::mutex> lock(stream->mutex); stream->held = on; }
  stream->changed.notify_all();
}

// Pieces of work that wait in a stream, marks of events among them.
extern "C" size_t emulated_queued(Stream *stream) {
  std::lock_guard<std::mutex> lock(stream->mutex);
  return stream->queue.size();
}

extern "C" void emulated_fail_after(long count) { until_fault = count; }

// cuBLAS: matrices lie by columns, and every argument that the library checks is checked.

struct Blas {
  Device *device;
  Stream *stream;
};

enum { BLAS_INVALID_VALUE = 7, BLAS_EXECUTION_FAILED = 13, BLAS_NOT_SUPPORTED = 15 };

namespace {

std::atomic<size_t> products{0};

struct Operand {
  const char *at;
  bool transposed;
  int64_t leading, stack;

  // Element (row, column) of matrix `i` as the product takes it.
  template <class T> double get(int64_t i, int64_t row, int64_t column) const {
    int64_t r = transposed ? column : row, c = transposed ? row : column;
    return (double)((const T *)at)[i * stack + c * leading + r];
  }
};

template <class T, class S>
void multiply(int64_t m, int64_t n, int64_t k, double alpha, Operand a, Operand b, double beta,
              char *c, int64_t leading, int64_t stack, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    for (int64_t column = 0; column < n; column++)
      for (int64_t row = 0; row < m; row++) {
        S sum = 0;
        for (int64_t d = 0; d < k; d++)
          sum += (S)(a.get<T>(i, row, d)) * (S)(b.get<T>(i, d, column));
        T *to = (T *)c + i * stack + column * leading + row;
        // What is there is not read where it does not count: it may be NaN.
        *to = (T)((S)alpha * sum + (beta == 0 ? (S)0 : (S)beta * (S)*to));
      }
}

}  // namespace

API cublasCreate_v2(Blas **handle) {
  IN_CONTEXT;
  *handle = new Blas{current, nullptr};
  return SUCCESS;
}

API cublasDestroy_v2(Blas *handle) {
  delete handle;
  return SUCCESS;
}

API cublasSetStream_v2(Blas *handle, Stream *stream) {
  handle->stream = stream;
  return SUCCESS;
}

API cublasSetWorkspace_v2(Blas *handle, uint64_t at, size_t bytes) {
  if (!handle->device->memory.translate(at, bytes)) return BLAS_INVALID_VALUE;
  return SUCCESS;
}

API cublasGemmStridedBatchedEx_64(Blas *handle, int op_a, int op_b, int64_t m, int64_t n, int64_t k,
                                  const void *alpha, uint64_t a, int type_a, int64_t leading_a,
                                  long long stack_a, uint64_t b, int type_b, int64_t leading_b,
                                  long long stack_b, const void *beta, uint64_t c, int type_c,
                                  int64_t leading_c, long long stack_c, int64_t count, int sums,
                                  int algorithm) {
  if (handle->device != current || !handle->stream) return BLAS_EXECUTION_FAILED;
  if (m < 0 || n < 0 || k < 0 || count < 0 || op_a < 0 || op_a > 1 || op_b < 0 || op_b > 1)
    return BLAS_INVALID_VALUE;
  auto least = [](int64_t rows) { return rows > 1 ? rows : 1; };
  if (leading_a < least(op_a ? k : m) || leading_b < least(op_b ? n : k) || leading_c < least(m))
    return BLAS_INVALID_VALUE;
  bool is_double = type_a == 1;
  if (type_b != type_a || type_c != type_a || type_a < 0 || type_a > 2 || algorithm != -1 ||
      sums != (is_double ? 70 : 68))
    return BLAS_NOT_SUPPORTED;
  double factor = is_double ? *(const double *)alpha : *(const float *)alpha;
  double kept = is_double ? *(const double *)beta : *(const float *)beta;
  size_t size = type_a == 2 ? 2 : is_double ? 8 : 4;
  Memory &memory = current->memory;
  auto last = [&](int64_t rows, int64_t columns, int64_t leading, long long stack) {
    return size * (size_t)((count - 1) * stack + (columns - 1) * leading + rows);
  };
  if (!m || !n || !count) return SUCCESS;
  char *of_a = memory.translate(a, k ? last(op_a ? k : m, op_a ? m : k, leading_a, stack_a) : 0);
  char *of_b = memory.translate(b, k ? last(op_b ? n : k, op_b ? k : n, leading_b, stack_b) : 0);
  char *of_c = memory.translate(c, last(m, n, leading_c, stack_c));
  if (!of_a || !of_b || !of_c) return BLAS_EXECUTION_FAILED;
  products++;
  Operand x{of_a, op_a == 1, leading_a, stack_a}, y{of_b, op_b == 1, leading_b, stack_b};
  return handle->stream->issue([=] {
    auto run = type_a == 0 ? multiply<float, float>
             : is_double ? multiply<double, double> : multiply<_Float16, float>;
    run(m, n, k, factor, x, y, kept, of_c, leading_c, stack_c, count);
  });
}

extern "C" size_t emulated_products() { return products; }

// Runs a function of CUDA source, compiled for the host: the threads of a block as fibers, block
// after block, in an order that RSNET_EMULATED_ORDER chooses (0 up, 1 down, else scrambled).
//
// A thread that meets no barrier runs to its end on the fiber of the one before it, so functions
// without barriers cost no switches.
#pragma once
#include <ucontext.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <vector>

struct EmulatedIndex { unsigned x, y, z; };

struct EmulatedThread {
  EmulatedIndex thread, block, block_size, grid_size;
  void (*wait_for_block)(EmulatedThread *);
  void (*exchange)(EmulatedThread *, unsigned mask, void *value, unsigned bytes, int from);
  void (*trap)(EmulatedThread *);
};

struct EmulatedFunction {
  const char *name;
  void (*run)(EmulatedThread *, void **);
  int count;
  const unsigned *sizes;
  const bool *addresses;
};

class Launch {
  enum State { UNSTARTED, RUNNING, AT_BARRIER, AT_SHUFFLE, TRAPPED, DONE };
  enum { STACK = 256 << 10, LANES = 32 };

  struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
  };
  struct Thread {
    EmulatedThread seen;
    State state;
    Fiber *fiber;
    unsigned mask, round;
    unsigned char slot[2][8];
  };

  const EmulatedFunction *function;
  void **args;
  unsigned order;
  std::vector<Thread> threads;
  bool trapped = false;
  size_t next = 0;  // threads before this one have been started
  ucontext_t scheduler;
  Thread *current = nullptr;

  static Launch *&running() { static thread_local Launch *launch; return launch; }
  // Fibers of an ended launch, for the next one on this stream.
  static std::vector<Fiber *> &spare() { static thread_local std::vector<Fiber *> all; return all; }

  static Thread *of(EmulatedThread *seen) { return reinterpret_cast<Thread *>(seen); }

  static void park(Thread *own, State state) {
    Launch *launch = running();
    own->state = state;
    swapcontext(&own->fiber->context, &launch->scheduler);
    launch->current = own;
  }
  static void wait_for_block(EmulatedThread *seen) { park(of(seen), AT_BARRIER); }
  static void trap(EmulatedThread *seen) {
    running()->trapped = true;
    park(of(seen), TRAPPED);
  }
  static void exchange(EmulatedThread *seen, unsigned mask, void *value, unsigned bytes, int from) {
    Thread *own = of(seen);
    int side = own->round++ & 1;
    memcpy(own->slot[side], value, bytes);
    own->mask = mask;
    park(own, AT_SHUFFLE);
    Launch *launch = running();
    size_t lane = (size_t)(own - launch->threads.data());
    Thread &source = launch->threads[lane / LANES * LANES + (from & (LANES - 1))];
    memcpy(value, source.slot[side], bytes);
  }

  size_t position(size_t i, size_t n) const {
    if (order < 2) return order ? n - 1 - i : i;
    size_t stride = 2 * order + 1;
    while (std::gcd(stride, n) != 1) stride += 2;  // so that no number comes twice
    return (i * stride + order) % n;
  }

  // The body of a fiber: starts threads until one of them parks, and goes on when that has ended.
  static void body() {
    Launch *launch = running();
    for (;;) {
      size_t n = launch->threads.size();
      if (launch->next == n) {
        swapcontext(&launch->current->fiber->context, &launch->scheduler);
        launch = running();
        continue;
      }
      Fiber *fiber = launch->fiber;
      Thread &own = launch->threads[launch->position(launch->next++, n)];
      own.fiber = fiber;
      own.state = RUNNING;
      launch->current = &own;
      launch->function->run(&own.seen, launch->args);
      launch = running();
      launch->current = &own;
      launch->fiber = own.fiber;
      own.state = DONE;
    }
  }

  Fiber *fiber = nullptr;  // the one that starts threads now

  static Fiber *fresh() {
    if (!spare().empty()) {
      Fiber *fiber = spare().back();
      spare().pop_back();
      return fiber;
    }
    Fiber *fiber = new Fiber;
    fiber->stack.resize(STACK);
    return fiber;
  }

  void start(std::vector<Fiber *> &used) {
    while (next < threads.size()) {
      fiber = fresh();
      used.push_back(fiber);
      getcontext(&fiber->context);
      fiber->context.uc_stack.ss_sp = fiber->stack.data();
      fiber->context.uc_stack.ss_size = fiber->stack.size();
      fiber->context.uc_link = nullptr;
      makecontext(&fiber->context, body, 0);
      swapcontext(&scheduler, &fiber->context);
    }
  }

  // Resumes the threads that no longer wait for others; false if there are none.
  bool release() {
    size_t n = threads.size(), live = 0, waiting = 0;
    bool moved = false;
    for (size_t i = 0; i < n; i++) {
      live += threads[i].state != DONE;
      waiting += threads[i].state == AT_BARRIER;
    }
    if (waiting == n) {
      for (Thread &t : threads) t.state = RUNNING;
      return true;
    }
    if (waiting && waiting == live)
      throw std::runtime_error("__syncthreads() was not reached by every thread");
    for (size_t warp = 0; warp < n; warp += LANES) {
      for (size_t i = warp; i < n && i < warp + LANES; i++) {
        if (threads[i].state != AT_SHUFFLE) continue;
        unsigned mask = threads[i].mask;
        bool all = true;
        for (size_t j = 0; j < LANES && all; j++) {
          if (!(mask >> j & 1) || warp + j >= n) continue;
          Thread &t = threads[warp + j];
          all = t.state == AT_SHUFFLE && t.mask == mask && t.round == threads[i].round;
        }
        if (!all) continue;
        for (size_t j = 0; j < LANES && warp + j < n; j++)
          if (mask >> j & 1) threads[warp + j].state = RUNNING;
        moved = true;
      }
    }
    return moved;
  }

  void run_block(EmulatedIndex at) {
    size_t n = threads.size();
    EmulatedIndex size = threads[0].seen.block_size;
    for (size_t i = 0; i < n; i++) {
      Thread &t = threads[i];
      t.seen.thread = {unsigned(i) % size.x, unsigned(i) / size.x % size.y,
                       unsigned(i) / (size.x * size.y)};
      t.seen.block = at;
      t.state = UNSTARTED;
      t.round = 0;
    }
    next = 0;
    std::vector<Fiber *> used;
    start(used);
    for (;;) {
      if (trapped) throw std::runtime_error("a thread has trapped");
      bool ended = true;
      for (Thread &t : threads) ended &= t.state == DONE;
      if (ended) break;
      if (!release()) throw std::runtime_error("threads wait for one another");
      for (size_t k = 0; k < n; k++) {
        Thread &t = threads[position(k, n)];
        if (t.state != RUNNING) continue;
        current = &t;
        fiber = t.fiber;
        swapcontext(&scheduler, &t.fiber->context);
      }
    }
    for (Fiber *f : used) spare().push_back(f);
  }

 public:
  static void run(const EmulatedFunction *function, EmulatedIndex grid, EmulatedIndex block,
                  void **args, unsigned order) {
    Launch launch;
    launch.function = function;
    launch.args = args;
    launch.order = order;
    launch.threads.resize((size_t)block.x * block.y * block.z);
    for (Thread &t : launch.threads) {
      t.seen.block_size = block;
      t.seen.grid_size = grid;
      t.seen.wait_for_block = wait_for_block;
      t.seen.exchange = exchange;
      t.seen.trap = trap;
    }
    running() = &launch;
    size_t blocks = (size_t)grid.x * grid.y * grid.z;
    for (size_t i = 0; i < blocks; i++) {
      size_t b = launch.position(i, blocks);
      launch.run_block({unsigned(b % grid.x), unsigned(b / grid.x % grid.y),
                        unsigned(b / ((size_t)grid.x * grid.y))});
    }
    running() = nullptr;
  }
};

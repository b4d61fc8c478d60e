// Operators whose functions misbehave, one way each; registered from one table. C++ with plugin.h
// alone: what they throw is caught by the guard that the header brings.
#include <rsnet/plugin.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

extern "C" const uint32_t rsnet_plugin_abi = RSNET_ABI;

static rsnet_status like(const rsnet_host* host, rsnet_ctx* ctx, void*) {
  const rsnet_tensor* x = host->tensor(ctx, RSNET_INPUT, 0);
  if (host->set_dtype(ctx, RSNET_OUTPUT, 0, x->dtype)) return RSNET_INVALID;
  return host->set_shape(ctx, RSNET_OUTPUT, 0, x->ndim, x->shape);
}

static rsnet_status copy(const rsnet_args* a) {
  std::memcpy(rsnet_data(&a->out[0]), rsnet_data(&a->in[0]), 4 * rsnet_size(&a->in[0]));
  return RSNET_OK;
}

// Inference
static rsnet_status shape_of(const rsnet_host* host, rsnet_ctx* ctx, int32_t ndim,
                             const int64_t* dims) {
  host->set_dtype(ctx, RSNET_OUTPUT, 0, host->tensor(ctx, RSNET_INPUT, 0)->dtype);
  return host->set_shape(ctx, RSNET_OUTPUT, 0, ndim, dims);
}
static rsnet_status negative(const rsnet_host* host, rsnet_ctx* ctx, void*) {
  int64_t dims[] = {2, -7};
  return shape_of(host, ctx, 2, dims);
}
static rsnet_status many_axes(const rsnet_host* host, rsnet_ctx* ctx, void*) {
  int64_t dims[] = {2};
  return shape_of(host, ctx, 1000000, dims);
}
static rsnet_status no_dims(const rsnet_host* host, rsnet_ctx* ctx, void*) {
  return shape_of(host, ctx, 2, nullptr);
}
static rsnet_status huge(const rsnet_host* host, rsnet_ctx* ctx, void*) {
  int64_t dims[] = {INT64_MAX, INT64_MAX};
  return shape_of(host, ctx, 2, dims);
}
static rsnet_status unset(const rsnet_host*, rsnet_ctx*, void*) { return RSNET_OK; }
static rsnet_status no_output(const rsnet_host* host, rsnet_ctx* ctx, void*) {
  int64_t dims[] = {2};
  return host->set_shape(ctx, RSNET_OUTPUT, 5, 1, dims);
}
static rsnet_status throws_there(const rsnet_host*, rsnet_ctx*, void*) {
  throw std::runtime_error("thrown in infer");
}
static rsnet_status never_knows(const rsnet_host*, rsnet_ctx*, void*) { return RSNET_UNKNOWN; }
static rsnet_status bad_dtype(const rsnet_host* host, rsnet_ctx* ctx, void*) {
  return host->set_dtype(ctx, RSNET_OUTPUT, 0, {RSNET_FLOAT, 13, 1});
}

// Kernels
static rsnet_status throws(const rsnet_args*) { throw std::out_of_range("thrown in a kernel"); }
static rsnet_status throws_int(const rsnet_args*) { throw 42; }
static rsnet_status fails(const rsnet_args* a) {
  a->host->fail(a->ctx, "failed on purpose");
  return RSNET_INVALID;
}
static rsnet_status fails_like_memory(const rsnet_args* a) {
  a->host->fail(a->ctx, "cannot get the lock of the camera");
  return RSNET_INVALID;
}
static rsnet_status fails_mutely(const rsnet_args*) { return 77; }
static rsnet_status answers_unknown(const rsnet_args*) { return RSNET_UNKNOWN; }
static rsnet_status writes_input(const rsnet_args* a) {
  copy(a);
  static_cast<float*>(rsnet_data(&a->in[0]))[0] = 99;
  return RSNET_OK;
}
static rsnet_status writes_beyond(const rsnet_args* a) {
  copy(a);
#ifdef WRITES_BEYOND
  static_cast<float*>(rsnet_data(&a->out[0]))[rsnet_size(&a->out[0])] = 99;
#endif
  return RSNET_OK;
}
static rsnet_status absurd_temp(const rsnet_args* a) {
  return a->host->temp(a->ctx, uint64_t(1) << 62) == nullptr ? RSNET_INTERNAL : copy(a);
}
static rsnet_status tmp_too_large(const rsnet_host*, rsnet_ctx*, void*, void** made) {
  *made = reinterpret_cast<void*>(uintptr_t(1) << 62);
  return RSNET_OK;
}
static rsnet_status own_thread(const rsnet_args* a) {
  rsnet_status status = RSNET_INTERNAL;
  std::thread([&] {
    auto part = [](void* data, int64_t begin, int64_t end) -> rsnet_status {
      auto* args = static_cast<const rsnet_args*>(data);
      auto* x = static_cast<float*>(rsnet_data(&args->in[0]));
      auto* y = static_cast<float*>(rsnet_data(&args->out[0]));
      for (int64_t i = begin; i < end; ++i) y[i] = 2 * x[i];
      return RSNET_OK;
    };
    void* data = const_cast<rsnet_args*>(a);
    status = a->host->parallel_for(a->ctx, rsnet_size(&a->in[0]), 2, part, data);
    if (a->host->temp(a->ctx, 100) == nullptr) status = RSNET_INTERNAL;
    a->host->attr_by_name(a->ctx, "absent");
  }).join();
  return status;
}
static rsnet_status throws_in_part(const rsnet_args* a) {
  auto part = [](void*, int64_t begin, int64_t) -> rsnet_status {
    if (begin > 0) throw std::runtime_error("thrown in part " + std::to_string(begin));
    return RSNET_OK;
  };
  return a->host->parallel_for(a->ctx, 8, 4, part, nullptr);
}
static rsnet_status random_unasked(const rsnet_args* a) {
  uint64_t word;
  return a->host->random(a->ctx, 0, 1, &word);
}

static const struct {
  const char* name;
  rsnet_fn infer;
  rsnet_status (*compute)(const rsnet_args*);
  rsnet_make_fn tmp;
} kCases[] = {
    {"bad_negative", negative, copy, nullptr},
    {"bad_many_axes", many_axes, copy, nullptr},
    {"bad_no_dims", no_dims, copy, nullptr},
    {"bad_huge", huge, copy, nullptr},
    {"bad_unset", unset, copy, nullptr},
    {"bad_no_output", no_output, copy, nullptr},
    {"bad_throws_there", throws_there, copy, nullptr},
    {"bad_never_knows", never_knows, copy, nullptr},
    {"bad_dtype", bad_dtype, copy, nullptr},
    {"bad_throws", like, throws, nullptr},
    {"bad_throws_int", like, throws_int, nullptr},
    {"bad_fails", like, fails, nullptr},
    {"bad_fails_like_memory", like, fails_like_memory, nullptr},
    {"bad_fails_mutely", like, fails_mutely, nullptr},
    {"bad_answers_unknown", like, answers_unknown, nullptr},
    {"bad_writes_input", like, writes_input, nullptr},
    {"bad_writes_beyond", like, writes_beyond, nullptr},
    {"bad_absurd_temp", like, absurd_temp, nullptr},
    {"bad_tmp_too_large", like, copy, tmp_too_large},
    {"bad_throws_in_part", like, throws_in_part, nullptr},
    {"bad_random_unasked", like, random_unasked, nullptr},
    {"good_own_thread", like, own_thread, nullptr},
};

extern "C" rsnet_status rsnet_plugin_register(const rsnet_host* host, rsnet_registry* registry) {
#ifdef THROWS_AT_ONCE
  throw std::runtime_error("thrown while registering");
#endif
  for (const auto& c : kCases) {
    rsnet_arg x = {sizeof x, 0, "x", nullptr, 1}, y = {sizeof y, 0, "y", nullptr, 1};
    rsnet_op op = {};
    op.struct_size = sizeof op;
    op.name = c.name;
    op.inputs = &x;
    op.outputs = &y;
    op.n_inputs = op.n_outputs = 1;
    op.infer = c.infer;
    rsnet_kernel kernel = {};
    kernel.struct_size = sizeof kernel;
    kernel.op = c.name;
    kernel.compute = c.compute;
    kernel.tmp_bytes = c.tmp;
    if (host->register_op(registry, &op) || host->register_kernel(registry, &kernel)) {
      return RSNET_INVALID;
    }
  }
  return RSNET_OK;
}

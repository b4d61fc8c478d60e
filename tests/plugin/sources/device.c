/* Kernels of a device that use nothing of CUDA but two functions of the driver, which rsnet has
 * loaded: y = x and y = 0, by way of temporary space of the device. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <rsnet/plugin.h>
#include <stdlib.h>

const uint32_t rsnet_plugin_abi = RSNET_ABI;

typedef int (*copy_fn)(uint64_t to, uint64_t from, size_t bytes, void *stream);

static void *of_driver(const char *name) {
  const char *path = getenv("RSNET_LIBCUDA");
  void *driver = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);
  return driver ? dlsym(driver, name) : NULL;
}

static rsnet_status infer(const rsnet_host *host, rsnet_ctx *ctx, void *user) {
  const rsnet_tensor *x = host->tensor(ctx, RSNET_INPUT, 0);
  (void)user;
  host->set_dtype(ctx, RSNET_OUTPUT, 0, x->dtype);
  return host->set_shape(ctx, RSNET_OUTPUT, 0, x->ndim, x->shape);
}

static rsnet_status tmp_bytes(const rsnet_host *host, rsnet_ctx *ctx, void *user, void **made) {
  (void)user;
  *made = (void *)(uintptr_t)(4 * rsnet_size(host->tensor(ctx, RSNET_INPUT, 0)));
  return RSNET_OK;
}

/* x -> the kernel's space -> as much again -> y. */
static rsnet_status compute(const rsnet_args *args) {
  copy_fn copy = (copy_fn)of_driver("cuMemcpyDtoDAsync_v2");
  uint64_t x = (uint64_t)rsnet_data(&args->in[0]), y = (uint64_t)rsnet_data(&args->out[0]);
  size_t bytes = 4 * (size_t)rsnet_size(&args->in[0]);
  void *more = args->host->temp(args->ctx, args->attrs[0].v.u ? args->attrs[0].v.u : bytes);
  if (!more) return RSNET_INTERNAL;
  if (!copy || args->device.device_type != RSNET_GPU || args->tmp_bytes != bytes ||
      copy((uint64_t)args->tmp, x, bytes, args->stream) ||
      copy((uint64_t)more, (uint64_t)args->tmp, bytes, args->stream) ||
      copy(y, (uint64_t)more, bytes, args->stream)) {
    args->host->fail(args->ctx, "the driver refused a copy");
    return RSNET_INTERNAL;
  }
  return RSNET_OK;
}

rsnet_status rsnet_plugin_register(const rsnet_host *host, rsnet_registry *registry) {
  rsnet_arg x = {sizeof x, 0, "x", "", 1}, y = {sizeof y, 0, "y", "", 1};
  rsnet_attr more = {sizeof more, RSNET_U64, "more", "Bytes of space; 0: as many as x has.", "0"};
  rsnet_op op = {sizeof op};
  rsnet_kernel kernel = {sizeof kernel};
  rsnet_match gpu = {RSNET_M_DEVICE, 0, 0, 0, {0, 0, 0}, RSNET_GPU};
  op.name = kernel.op = "on_device_copy";
  op.inputs = &x;
  op.outputs = &y;
  op.attrs = &more;
  op.n_inputs = op.n_outputs = op.n_attrs = 1;
  op.infer = infer;
  kernel.compute = compute;
  kernel.tmp_bytes = tmp_bytes;
  kernel.match = &gpu;
  kernel.n_match = 1;
  if (host->register_op(registry, &op)) return RSNET_INVALID;
  return host->register_kernel(registry, &kernel);
}

/* y = 2x, whose backward operator has a kernel with a state, and the forward operator none. */
#include <rsnet/plugin.h>
#ifdef SLOW
#include <unistd.h>
#endif

const uint32_t rsnet_plugin_abi = RSNET_ABI;

static rsnet_status compute(const rsnet_args *args) {
  const float *x = rsnet_data(&args->in[0]);
  float *y = rsnet_data(&args->out[0]);
  int64_t i, n = rsnet_size(&args->in[0]);
  for (i = 0; i < n; ++i) y[i] = 2 * x[i];
  return RSNET_OK;
}

static float factor = 2;
static rsnet_status make(const rsnet_host *host, rsnet_ctx *ctx, void *user, void **made) {
  (void)user;
  *made = host->tensor(ctx, RSNET_INPUT, 0)->ndim == 1 ? &factor : 0;
  return RSNET_OK;
}
static void destroy(void *made) { (void)made; }

static rsnet_status backward(const rsnet_args *args) {
  const float *dy = rsnet_data(&args->in[0]);
  float *dx = rsnet_data(&args->out[0]);
  int64_t i, n = rsnet_size(&args->in[0]);
  if (args->kernel_state == 0) {
    args->host->fail(args->ctx, "there is no state");
    return RSNET_INTERNAL;
  }
  for (i = 0; i < n; ++i) dx[i] = *(float *)args->kernel_state * dy[i];
  return RSNET_OK;
}

rsnet_status rsnet_plugin_register(const rsnet_host *host, rsnet_registry *registry) {
  rsnet_arg x = {sizeof x, 0, "x", 0, 1}, y = {sizeof y, 0, "y", 0, 1};
  rsnet_op op = {sizeof op, RSNET_ELEMENTWISE, "twice_kept"};
  rsnet_op back = {sizeof back, RSNET_BACKWARD, "_backward_twice_kept"};
  rsnet_kernel kernel = {sizeof kernel}, other = {sizeof other};
  rsnet_grad grad = {sizeof grad, RSNET_GRAD_BACKWARD, "twice_kept", "_backward_twice_kept"};
#ifdef SLOW
  sleep(1);
#endif
  op.inputs = back.inputs = &x;
  op.outputs = back.outputs = &y;
  op.n_inputs = op.n_outputs = back.n_inputs = back.n_outputs = 1;
  kernel.op = op.name;
  kernel.compute = compute;
  other.op = back.name;
  other.compute = backward;
  other.create_state = make;
  other.destroy_state = destroy;
  if (host->register_op(registry, &op) || host->register_op(registry, &back)) return RSNET_INVALID;
  if (host->register_kernel(registry, &kernel)) return RSNET_INVALID;
  if (host->register_kernel(registry, &other)) return RSNET_INVALID;
  return host->register_grad(registry, &grad);
}

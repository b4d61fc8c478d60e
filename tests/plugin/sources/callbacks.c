/* Operators in C, which need no guard: callbacks that answer oddly, and operators whose kernel or
 * gradient another library has (guest.cpp). */
#include <rsnet/plugin.h>
#include <string.h>

const uint32_t rsnet_plugin_abi = RSNET_ABI;

static rsnet_status infer(const rsnet_host *host, rsnet_ctx *ctx, void *user) {
  const rsnet_tensor *x = host->tensor(ctx, RSNET_INPUT, 0);
  (void)user;
  if (host->set_dtype(ctx, RSNET_OUTPUT, 0, x->dtype)) return RSNET_INVALID;
  return host->set_shape(ctx, RSNET_OUTPUT, 0, x->ndim, x->shape);
}

static rsnet_status copy(const rsnet_args *args) {
  memcpy(rsnet_data(&args->out[0]), rsnet_data(&args->in[0]),
         (size_t)rsnet_size(&args->in[0]) * args->in[0].dtype.bits / 8);
  return RSNET_OK;
}

static rsnet_status draw(const rsnet_args *args) {
  float *y = rsnet_data(&args->out[0]);
  int64_t i, n = rsnet_size(&args->out[0]);
  for (i = 0; i < n; ++i) {
    uint64_t word;
    rsnet_status status = args->host->random(args->ctx, (uint64_t)i, 1, &word);
    if (status) return status;
    y[i] = (float)(word >> 40);
  }
  return RSNET_OK;
}

static rsnet_status unknown(const rsnet_host *host, rsnet_ctx *ctx, void *user) {
  if (!user) host->fail(ctx, "no answer, and why");
  return RSNET_UNKNOWN;
}

static rsnet_status asks_nothing(const rsnet_host *host, rsnet_ctx *ctx, void *user) {
  (void)host;
  (void)ctx;
  (void)user;
  return RSNET_OK;
}

static rsnet_status asks_random(const rsnet_host *host, rsnet_ctx *ctx, void *user) {
  (void)user;
  return host->add_random(ctx);
}

static rsnet_status wants_no_dtype(const rsnet_host *host, rsnet_ctx *ctx, void *user) {
  (void)user;
  return host->tensor(ctx, RSNET_INPUT, 0)->dtype.bits == 0 ? RSNET_OK : RSNET_INVALID;
}

static rsnet_status add(const rsnet_host *host, rsnet_registry *registry, rsnet_op op,
                        rsnet_status (*compute)(const rsnet_args *)) {
  rsnet_arg x = {sizeof x, 0, "x", 0, 1}, y = {sizeof y, 0, "y", 0, 1};
  /* Without a default nothing is parsed while the library is loaded. */
  rsnet_attr n = {sizeof n, RSNET_I32, "n"};
  rsnet_kernel kernel = {sizeof kernel};
  op.struct_size = sizeof op;
  op.inputs = &x;
  op.outputs = &y;
  op.attrs = &n;
  op.n_inputs = op.n_outputs = op.n_attrs = 1;
  op.infer = infer;
  kernel.op = op.name;
  kernel.compute = compute;
  if (host->register_op(registry, &op)) return RSNET_INVALID;
  return compute ? host->register_kernel(registry, &kernel) : RSNET_OK;
}

rsnet_status rsnet_plugin_register(const rsnet_host *host, rsnet_registry *registry) {
  const struct {
    rsnet_op op;
    rsnet_status (*compute)(const rsnet_args *);
  } all[] = {
      {{.name = "cb_part"}, 0},
      {{.name = "cb_tmp"}, 0},
      {{.name = "cb_later"}, 0},
      {{.name = "cb_rule"}, copy},
      {{.name = "cb_unknown_check", .check = unknown}, copy},
      {{.name = "cb_unknown_names", .names = unknown}, copy},
      {{.name = "cb_unknown_resources", .resources = unknown}, copy},
      {{.name = "cb_unknown_sbp", .sbp = unknown}, copy},
      {{.name = "cb_unknown_rule"}, copy},
      {{.name = "cb_unknown_deps"}, copy},
      {{.name = "cb_unknown_inplace", .inplace = unknown}, copy},
      {{.name = "cb_unknown_silent", .check = unknown, .user = (void *)infer}, copy},
      {{.name = "cb_asks_nothing", .resources = asks_nothing}, draw},
      {{.name = "cb_asks_random", .resources = asks_random}, draw},
      {{.name = "cb_wants_no_dtype", .resources = wants_no_dtype}, copy},
      {{.name = "cb_for_gradients", .flags = RSNET_BACKWARD}, copy},
  };
  const rsnet_grad grad = {sizeof grad, RSNET_GRAD_RULE, "cb_unknown_rule", 0, 0, unknown, 0};
  const rsnet_grad reads = {sizeof reads, RSNET_GRAD_BACKWARD, "cb_unknown_deps",
                            "cb_for_gradients", unknown, 0, 0};
  size_t i;
  for (i = 0; i < sizeof all / sizeof all[0]; ++i) {
    if (add(host, registry, all[i].op, all[i].compute)) return RSNET_INVALID;
  }
  if (host->register_grad(registry, &grad)) return RSNET_INVALID;
  return host->register_grad(registry, &reads);
}

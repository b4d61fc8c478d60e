/* y = by x, and operators that misbehave in one way each; in C with plugin.h alone. */
#include <rsnet/plugin.h>
#include <stdio.h>
#include <string.h>

#ifndef ABI
#define ABI RSNET_ABI
#endif
const uint32_t rsnet_plugin_abi = ABI;

static rsnet_status infer(const rsnet_host *host, rsnet_ctx *ctx, void *user) {
  const rsnet_tensor *x = host->tensor(ctx, RSNET_INPUT, 0);
  (void)user;
  if (host->set_dtype(ctx, RSNET_OUTPUT, 0, x->dtype)) return RSNET_INVALID;
  return host->set_shape(ctx, RSNET_OUTPUT, 0, x->ndim, x->shape);
}

static rsnet_status check(const rsnet_host *host, rsnet_ctx *ctx, void *user) {
  (void)user;
  if (host->attr(ctx, 0)->v.f > 100) {
    host->fail(ctx, "by is at most 100");
    return RSNET_INVALID;
  }
  return RSNET_OK;
}

typedef struct {
  const float *x;
  float *y;
  float by;
} work;

static rsnet_status part(void *data, int64_t begin, int64_t end) {
  work *w = data;
  int64_t i;
  for (i = begin; i < end; ++i) w->y[i] = w->by * w->x[i];
  return RSNET_OK;
}

static rsnet_status compute(const rsnet_args *args) {
  work w;
  w.x = rsnet_data(&args->in[0]);
  w.y = rsnet_data(&args->out[0]);
  w.by = (float)args->attrs[0].v.f;
  return args->host->parallel_for(args->ctx, rsnet_size(&args->in[0]), 4096, part, &w);
}

static rsnet_status rule(const rsnet_host *host, rsnet_ctx *ctx, void *user) {
  char text[40];
  rsnet_node node = host->node(ctx, "c_scale", "");
  (void)user;
  host->node(ctx, "no_such_operator", ""); /* not needed by a gradient, and so never made */
  snprintf(text, sizeof text, "%.17g", host->attr_by_name(ctx, "by")->v.f);
  host->node_input(ctx, node, "x", host->entry(ctx, RSNET_OUT_GRAD, 0));
  host->node_attr(ctx, node, "by", text);
  return host->bind_grad(ctx, 0, host->node_output(ctx, node, "y", 0));
}

static rsnet_status inplace(const rsnet_host *host, rsnet_ctx *ctx, void *user) {
  (void)user;
  return host->add_inplace(ctx, 0, 0, 0);
}

static rsnet_status sbp(const rsnet_host *host, rsnet_ctx *ctx, void *user) {
  char text[64];
  int32_t i;
  (void)user;
  for (i = 0; i < host->tensor(ctx, RSNET_INPUT, 0)->ndim; ++i) {
    snprintf(text, sizeof text, "x:S(%d) y:S(%d)", i, i);
    if (host->add_sbp(ctx, text)) return RSNET_INVALID;
  }
  return host->add_sbp(ctx, "x:P y:P");
}

rsnet_status rsnet_plugin_register(const rsnet_host *host, rsnet_registry *registry) {
  rsnet_arg x = {sizeof x, 0, "x", "Any array of float32.", 1}, y = {sizeof y, 0, "y", 0, 1};
  rsnet_attr by = {sizeof by, RSNET_F64, "by", "Factor.", "2.0"};
  rsnet_op op = {sizeof op};
  rsnet_kernel kernel = {sizeof kernel};
  rsnet_match match = {RSNET_M_DTYPE, 0, "x", 0, {RSNET_FLOAT, 32, 1}};
  rsnet_grad grad = {sizeof grad};
  const char *const aliases[] = {"c_scaled"};
  op.name = "c_scale";
  op.doc = "y = by x";
  op.aliases = aliases;
  op.n_aliases = op.n_inputs = op.n_outputs = op.n_attrs = 1;
  op.inputs = &x;
  op.outputs = &y;
  op.attrs = &by;
  op.infer = infer;
  op.check = check;
  op.inplace = inplace;
  op.sbp = sbp;
  kernel.op = grad.op = op.name;
  kernel.name = "float";
  kernel.compute = compute;
  kernel.match = &match;
  kernel.n_match = 1;
  grad.rule = rule;
  if (host->register_op(registry, &op)) return RSNET_INVALID;
  if (host->register_kernel(registry, &kernel)) return RSNET_INVALID;
  return host->register_grad(registry, &grad);
}

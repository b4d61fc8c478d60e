/* y = x + the byte that a call reads from the pipe `from`, after it has written one to `to`. */
#include <rsnet/plugin.h>
#include <unistd.h>

#ifndef FLAGS
#define FLAGS RSNET_LONG
#endif

const uint32_t rsnet_plugin_abi = RSNET_ABI;

static rsnet_status compute(const rsnet_args *args) {
  const float *x = rsnet_data(&args->in[0]);
  float *y = rsnet_data(&args->out[0]);
  int64_t i, n = rsnet_size(&args->in[0]);
  unsigned char byte = 1;
  if (write((int)args->attrs[1].v.i, &byte, 1) != 1) return RSNET_INTERNAL;
  if (read((int)args->attrs[0].v.i, &byte, 1) != 1) return RSNET_INTERNAL;
  for (i = 0; i < n; ++i) y[i] = x[i] + byte;
  return RSNET_OK;
}

rsnet_status rsnet_plugin_register(const rsnet_host *host, rsnet_registry *registry) {
  rsnet_arg x = {sizeof x, 0, "x", 0, 1}, y = {sizeof y, 0, "y", 0, 1};
  rsnet_attr attrs[2] = {{sizeof attrs[0]}, {sizeof attrs[0]}};
  rsnet_op op = {sizeof op, RSNET_ELEMENTWISE | RSNET_NOT_DETERMINISTIC | FLAGS, "c_wait"};
  rsnet_kernel kernel = {sizeof kernel};
  attrs[0].kind = attrs[1].kind = RSNET_I32;
  attrs[0].name = "from";
  attrs[1].name = "to";
  op.inputs = &x;
  op.outputs = &y;
  op.attrs = attrs;
  op.n_inputs = op.n_outputs = 1;
  op.n_attrs = 2;
  kernel.op = op.name;
  kernel.compute = compute;
  if (host->register_op(registry, &op)) return RSNET_INVALID;
  return host->register_kernel(registry, &kernel);
}

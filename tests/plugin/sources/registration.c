/* Libraries that register wrongly, each in the way that MODE says. */
#include <rsnet/plugin.h>
#include <stddef.h>
#include <string.h>

#ifndef ABI
#define ABI RSNET_ABI
#endif
#ifndef NO_ABI
const uint32_t rsnet_plugin_abi = ABI;
#endif

static rsnet_status infer(const rsnet_host *host, rsnet_ctx *ctx, void *user) {
  const rsnet_tensor *x = host->tensor(ctx, RSNET_INPUT, 0);
  (void)user;
  host->set_dtype(ctx, RSNET_OUTPUT, 0, x->dtype);
  return host->set_shape(ctx, RSNET_OUTPUT, 0, x->ndim, x->shape);
}

static rsnet_status compute(const rsnet_args *args) {
  memcpy(rsnet_data(&args->out[0]), rsnet_data(&args->in[0]),
         (size_t)rsnet_size(&args->in[0]) * args->in[0].dtype.bits / 8);
  return RSNET_OK;
}

static rsnet_status refuse_defaults(const rsnet_host *host, rsnet_ctx *ctx, void *user) {
  (void)user;
  host->fail(ctx, "this default will not do");
  return RSNET_INVALID;
}

enum {
  FAILS = 1, NOTHING, TWICE, BUILT_IN, NO_COMPUTE, NO_INFER, BAD_DEFAULT, BAD_CHECK, TIE, NO_NAME,
  NAME_TWICE, BAD_SIZE, BAD_COUNT, BAD_PROGRAM, BAD_CONDITION, ORPHAN_KERNEL, ORPHAN_GRAD,
  BAD_KIND, KEYWORD, GOOD, IGNORES_STATUS, NULL_STRUCT, AMBIGUOUS, ALIAS_TAKEN, ALIAS_OWN, NO_LIST,
  GRAD_TWICE, NULL_KERNEL, NULL_GRAD, OLDER_STRUCTS, NEWER_STRUCTS, NO_CHOICES, UNEQUAL_SIZES,
  HIDDEN_FIRST, TWIN_ARRAYS, TEXT_COUNT, DEEP, DUNDER
};

#ifndef NO_REGISTER
rsnet_status rsnet_plugin_register(const rsnet_host *host, rsnet_registry *registry) {
  const char *const taken = "relu", *const own = "half_registered";
  struct {
    rsnet_op op;
    void *more[4];
  } newer;
  rsnet_arg ins[2] = {{sizeof ins[0], 0, "x", 0, 1}, {sizeof ins[0] + 8, 0, "z", 0, 1}};
  rsnet_arg in = {sizeof in, 0, "x", 0, 1}, out = {sizeof out, 0, "y", 0, 1};
  rsnet_arg outs[2] = {{sizeof outs[0], RSNET_HIDDEN, "h", 0, 1}, {sizeof outs[0], 0, "y", 0, 1}};
  rsnet_arg twins[2] = {{sizeof twins[0], 0, "x", 0, 2}, {sizeof twins[0], 0, "x_1", 0, 1}};
  rsnet_match deep[1002] = {{RSNET_M_TRUE}};
  int i;
  rsnet_attr attr = {sizeof attr, RSNET_I32, "n", 0, "1"};
  rsnet_op op = {sizeof op};
  rsnet_kernel kernel = {sizeof kernel};
  rsnet_match match[2] = {{RSNET_M_DEVICE, 0, 0, 0, {0, 0, 0}, RSNET_CPU, 0}};
  rsnet_grad grad = {sizeof grad};
  rsnet_status status;
  op.name = "half_registered";
  op.inputs = &in;
  op.outputs = &out;
  op.attrs = &attr;
  op.n_inputs = op.n_outputs = op.n_attrs = 1;
  op.infer = infer;
#ifdef OTHER
  op.doc = OTHER;
#endif
  kernel.op = op.name;
  kernel.compute = compute;
  kernel.match = match;
  kernel.n_match = 1;
  grad.op = op.name;
  grad.kind = RSNET_GRAD_ZERO;
  switch (MODE) {
    case NOTHING: return RSNET_OK;
    case BUILT_IN: op.name = kernel.op = grad.op = "relu"; break;
    case NO_COMPUTE: kernel.compute = 0; break;
    case NO_INFER: op.infer = 0; break;
    case BAD_DEFAULT: attr.dflt = "three"; break;
    case BAD_CHECK: op.check = refuse_defaults; break;
    case NO_NAME: op.name = 0; break;
    case NAME_TWICE: out.name = "x"; break;
    case BAD_SIZE: op.struct_size = 3; break;
    case BAD_COUNT: op.n_inputs = -1; break;
    case BAD_PROGRAM: match[0].op = RSNET_M_AND; break;
    case BAD_CONDITION: match[0].op = RSNET_M_NDIM; match[0].name = "z"; break;
    case NO_CHOICES: attr.kind = RSNET_ENUM; break;
    case UNEQUAL_SIZES: op.inputs = ins; op.n_inputs = 2; break;
    case HIDDEN_FIRST: op.outputs = outs; op.n_outputs = 2; break;
    case TWIN_ARRAYS: op.inputs = twins; op.n_inputs = 2; break;
    case TEXT_COUNT: attr.kind = RSNET_STR; op.count_attr = "n"; break;
    case DEEP:
      for (i = 1; i < 1002; ++i) deep[i].op = RSNET_M_NOT;
      kernel.match = deep;
      kernel.n_match = 1002;
      break;
    case DUNDER: op.name = kernel.op = grad.op = "__name__"; break;
    case BAD_KIND: attr.kind = 99; break;
    case KEYWORD: op.name = kernel.op = grad.op = "lambda"; break;
    case ALIAS_TAKEN: op.aliases = &taken; op.n_aliases = 1; break;
    case ALIAS_OWN: op.aliases = &own; op.n_aliases = 1; break;
    case NO_LIST: op.inputs = 0; break;
    case OLDER_STRUCTS:
      /* What an older library does not know: nobody reads the nonsense there. */
      op.struct_size = offsetof(rsnet_op, infer_shape);
      memset(&op.infer_shape, 0xa5, sizeof op - op.struct_size);
      kernel.struct_size = offsetof(rsnet_kernel, tmp_bytes);
      memset(&kernel.tmp_bytes, 0xa5, sizeof kernel - kernel.struct_size);
      break;
    default: break;
  }
  if (MODE == NULL_STRUCT) return host->register_op(registry, 0);
  if (MODE == NEWER_STRUCTS) {
    memset(&newer, 0xa5, sizeof newer);
    newer.op = op;
    newer.op.struct_size = sizeof newer;
    status = host->register_op(registry, &newer.op);
  } else {
    status = host->register_op(registry, &op);
  }
  if (status && MODE != IGNORES_STATUS) return status;
  if (MODE == FAILS) {
    host->refuse(registry, "no such device");
    return RSNET_UNSUPPORTED;
  }
  if (MODE == TWICE || MODE == IGNORES_STATUS) status = host->register_op(registry, &op);
  if (MODE == IGNORES_STATUS) return RSNET_OK;
  if (status) return status;
  if (MODE == ORPHAN_KERNEL) kernel.op = "nobody";
  if (MODE == ORPHAN_GRAD) grad.op = "nobody";
  if (MODE == NULL_KERNEL) return host->register_kernel(registry, 0);
  if (host->register_kernel(registry, &kernel)) return RSNET_INVALID;
  if (MODE == NULL_GRAD) return host->register_grad(registry, 0);
  if (MODE == GRAD_TWICE && host->register_grad(registry, &grad)) return RSNET_INVALID;
  if (MODE == TIE && host->register_kernel(registry, &kernel)) return RSNET_INVALID;
  if (MODE == AMBIGUOUS) {
    kernel.n_match = 0;
    if (host->register_kernel(registry, &kernel)) return RSNET_INVALID;
  }
  return host->register_grad(registry, &grad);
}
#endif

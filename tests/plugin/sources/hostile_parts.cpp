// Operators of which one callback other than inference and kernel misbehaves; registered from one
// table, as in hostile.cpp.
#include <rsnet/plugin.h>

#include <cstring>
#include <stdexcept>

extern "C" const uint32_t rsnet_plugin_abi = RSNET_ABI;

static rsnet_status copy(const rsnet_args* a) {
  std::memcpy(rsnet_data(&a->out[0]), rsnet_data(&a->in[0]), 4 * rsnet_size(&a->in[0]));
  return RSNET_OK;
}

// Callbacks that answer with a status
static rsnet_status throws(const rsnet_host*, rsnet_ctx*, void*) {
  throw std::runtime_error("thrown in a callback");
}
static rsnet_status names_twice(const rsnet_host* host, rsnet_ctx* ctx, void*) {
  host->add_name(ctx, RSNET_INPUT, "x", 0);
  host->add_name(ctx, RSNET_INPUT, "x", 0);
  return host->add_name(ctx, RSNET_OUTPUT, "y", 0);
}
static rsnet_status names_null(const rsnet_host* host, rsnet_ctx* ctx, void*) {
  return host->add_name(ctx, RSNET_INPUT, nullptr, 0);
}
static rsnet_status wrong_pair(const rsnet_host* host, rsnet_ctx* ctx, void*) {
  return host->add_inplace(ctx, 3, -1, 0);
}
static rsnet_status absurd_temp(const rsnet_host* host, rsnet_ctx* ctx, void*) {
  host->add_temp(ctx, UINT64_MAX);
  return host->add_temp(ctx, UINT64_MAX);
}

// Callbacks that make something
static rsnet_status make_throws(const rsnet_host*, rsnet_ctx*, void*, void**) {
  throw std::runtime_error("thrown while making");
}
static rsnet_status makes(const rsnet_host*, rsnet_ctx*, void*, void** made) {
  *made = new int(7);
  return RSNET_OK;
}
static void free_throws(void* made) {
  delete static_cast<int*>(made);
  throw std::runtime_error("thrown while destroying");
}

// Kernels that call what other callbacks are for
static rsnet_status adds_name(const rsnet_args* a) {
  return a->host->add_name(a->ctx, RSNET_INPUT, "z", 0);
}
static rsnet_status adds_pair(const rsnet_args* a) {
  return a->host->add_inplace(a->ctx, 0, 0, 0);
}
static rsnet_status adds_temp(const rsnet_args* a) { return a->host->add_temp(a->ctx, 8); }
static rsnet_status adds_random(const rsnet_args* a) { return a->host->add_random(a->ctx); }
static rsnet_status adds_sbp(const rsnet_args* a) { return a->host->add_sbp(a->ctx, "x:B y:B"); }
static rsnet_status adds_dep(const rsnet_args* a) { return a->host->add_dep(a->ctx, 0, 0); }
static rsnet_status sets_shape(const rsnet_args* a) {
  return a->host->set_shape(a->ctx, RSNET_OUTPUT, 0, a->in[0].ndim, a->in[0].shape);
}
static rsnet_status sets_dtype(const rsnet_args* a) {
  return a->host->set_dtype(a->ctx, RSNET_OUTPUT, 0, a->in[0].dtype);
}
static rsnet_status makes_node(const rsnet_args* a) {
  return a->host->node(a->ctx, "relu", "") ? RSNET_OK : RSNET_INVALID;
}
static rsnet_status null_part(const rsnet_args* a) {
  return a->host->parallel_for(a->ctx, 8, 1, nullptr, nullptr);
}
static rsnet_status negative_part(const rsnet_args* a) {
  auto part = [](void*, int64_t, int64_t) -> rsnet_status { return RSNET_OK; };
  return a->host->parallel_for(a->ctx, -8, 1, part, nullptr);
}
// The first part of many more than could be counted fails.
static rsnet_status endless_parts(const rsnet_args* a) {
  auto part = [](void*, int64_t, int64_t) -> rsnet_status { return 77; };
  return a->host->parallel_for(a->ctx, 1000000000000, 1, part, nullptr);
}

// Gradients
static rsnet_status binds_nothing(const rsnet_host*, rsnet_ctx*, void*) { return RSNET_OK; }
static rsnet_status binds_no_entry(const rsnet_host* host, rsnet_ctx* ctx, void*) {
  return host->bind_grad(ctx, 0, 99);
}
static rsnet_status binds_no_input(const rsnet_host* host, rsnet_ctx* ctx, void*) {
  return host->bind_grad(ctx, 7, host->entry(ctx, RSNET_OUT_GRAD, 0));
}
static rsnet_status of_no_operator(const rsnet_host* host, rsnet_ctx* ctx, void*) {
  rsnet_node node = host->node(ctx, "no_such_operator", "");
  return host->bind_grad(ctx, 0, host->node_output(ctx, node, nullptr, 0));
}
static rsnet_status of_a_later_node(const rsnet_host* host, rsnet_ctx* ctx, void*) {
  rsnet_node first = host->node(ctx, "relu", ""), second = host->node(ctx, "relu", "");
  return host->node_input(ctx, first, nullptr, host->node_output(ctx, second, nullptr, 0));
}
static rsnet_status of_another_shape(const rsnet_host* host, rsnet_ctx* ctx, void*) {
  rsnet_node node = host->node(ctx, "sum", "");
  host->node_input(ctx, node, nullptr, host->entry(ctx, RSNET_OUT_GRAD, 0));
  return host->bind_grad(ctx, 0, host->node_output(ctx, node, nullptr, 0));
}
// Momentum that is the input of the operator: the update would overwrite it.
static rsnet_status modifies(const rsnet_host* host, rsnet_ctx* ctx, void*) {
  rsnet_node node = host->node(ctx, "sgd_mom_update", "q");
  host->node_input(ctx, node, nullptr, host->entry(ctx, RSNET_IN_DATA, 0));
  host->node_input(ctx, node, nullptr, host->entry(ctx, RSNET_OUT_GRAD, 0));
  host->node_input(ctx, node, nullptr, host->entry(ctx, RSNET_IN_DATA, 0));
  host->node_attr(ctx, node, "lr", "1");
  return host->bind_grad(ctx, 0, host->node_output(ctx, node, nullptr, 0));
}
static rsnet_status bad_attribute(const rsnet_host* host, rsnet_ctx* ctx, void*) {
  rsnet_node node = host->node(ctx, "sum", "q");
  host->node_input(ctx, node, nullptr, host->entry(ctx, RSNET_OUT_GRAD, 0));
  host->node_attr(ctx, node, "axis", "junk");
  return host->bind_grad(ctx, 0, host->node_output(ctx, node, nullptr, 0));
}

static const struct {
  const char* name;
  void (*change)(rsnet_op*, rsnet_kernel*, rsnet_grad*);
} kCases[] = {
    {"odd_check", [](rsnet_op* op, rsnet_kernel*, rsnet_grad*) { op->check = throws; }},
    {"odd_names", [](rsnet_op* op, rsnet_kernel*, rsnet_grad*) { op->names = throws; }},
    {"odd_names_twice", [](rsnet_op* op, rsnet_kernel*, rsnet_grad*) { op->names = names_twice; }},
    {"odd_names_null", [](rsnet_op* op, rsnet_kernel*, rsnet_grad*) { op->names = names_null; }},
    {"odd_inplace", [](rsnet_op* op, rsnet_kernel*, rsnet_grad*) { op->inplace = throws; }},
    {"odd_pair", [](rsnet_op* op, rsnet_kernel*, rsnet_grad*) { op->inplace = wrong_pair; }},
    {"odd_kernel_pair", [](rsnet_op*, rsnet_kernel* k, rsnet_grad*) { k->inplace = wrong_pair; }},
    {"odd_resources", [](rsnet_op* op, rsnet_kernel*, rsnet_grad*) { op->resources = throws; }},
    {"odd_temp", [](rsnet_op* op, rsnet_kernel*, rsnet_grad*) { op->resources = absurd_temp; }},
    {"odd_parse", [](rsnet_op* op, rsnet_kernel*, rsnet_grad*) { op->parse = make_throws; }},
    {"odd_state", [](rsnet_op* op, rsnet_kernel*, rsnet_grad*) { op->create_state = make_throws; }},
    {"odd_kernel_state",
     [](rsnet_op*, rsnet_kernel* k, rsnet_grad*) { k->create_state = make_throws; }},
    {"fine_destroyers",
     [](rsnet_op* op, rsnet_kernel* k, rsnet_grad*) {
       op->parse = op->create_state = k->create_state = makes;
       op->free_parsed = op->destroy_state = k->destroy_state = free_throws;
     }},
    {"odd_adds_name", [](rsnet_op*, rsnet_kernel* k, rsnet_grad*) { k->compute = adds_name; }},
    {"odd_adds_inplace", [](rsnet_op*, rsnet_kernel* k, rsnet_grad*) { k->compute = adds_pair; }},
    {"odd_adds_temp", [](rsnet_op*, rsnet_kernel* k, rsnet_grad*) { k->compute = adds_temp; }},
    {"odd_adds_random", [](rsnet_op*, rsnet_kernel* k, rsnet_grad*) { k->compute = adds_random; }},
    {"odd_adds_sbp", [](rsnet_op*, rsnet_kernel* k, rsnet_grad*) { k->compute = adds_sbp; }},
    {"odd_adds_dep", [](rsnet_op*, rsnet_kernel* k, rsnet_grad*) { k->compute = adds_dep; }},
    {"odd_sets_shape", [](rsnet_op*, rsnet_kernel* k, rsnet_grad*) { k->compute = sets_shape; }},
    {"odd_sets_dtype", [](rsnet_op*, rsnet_kernel* k, rsnet_grad*) { k->compute = sets_dtype; }},
    {"odd_makes_node", [](rsnet_op*, rsnet_kernel* k, rsnet_grad*) { k->compute = makes_node; }},
    {"odd_null_part", [](rsnet_op*, rsnet_kernel* k, rsnet_grad*) { k->compute = null_part; }},
    {"odd_negative_part",
     [](rsnet_op*, rsnet_kernel* k, rsnet_grad*) { k->compute = negative_part; }},
    {"odd_endless_parts",
     [](rsnet_op*, rsnet_kernel* k, rsnet_grad*) { k->compute = endless_parts; }},
    {"grad_modifies", [](rsnet_op*, rsnet_kernel*, rsnet_grad* g) { g->rule = modifies; }},
    {"grad_bad_attribute",
     [](rsnet_op*, rsnet_kernel*, rsnet_grad* g) { g->rule = bad_attribute; }},
    {"grad_throws", [](rsnet_op*, rsnet_kernel*, rsnet_grad* g) { g->rule = throws; }},
    {"grad_nothing", [](rsnet_op*, rsnet_kernel*, rsnet_grad* g) { g->rule = binds_nothing; }},
    {"grad_no_entry", [](rsnet_op*, rsnet_kernel*, rsnet_grad* g) { g->rule = binds_no_entry; }},
    {"grad_no_input", [](rsnet_op*, rsnet_kernel*, rsnet_grad* g) { g->rule = binds_no_input; }},
    {"grad_no_operator", [](rsnet_op*, rsnet_kernel*, rsnet_grad* g) { g->rule = of_no_operator; }},
    {"grad_later_node",
     [](rsnet_op*, rsnet_kernel*, rsnet_grad* g) { g->rule = of_a_later_node; }},
    {"grad_other_shape",
     [](rsnet_op*, rsnet_kernel*, rsnet_grad* g) { g->rule = of_another_shape; }},
    {"grad_deps",
     [](rsnet_op*, rsnet_kernel*, rsnet_grad* g) {
       g->kind = RSNET_GRAD_BACKWARD;
       g->backward = "_backward_no_such_operator";
       g->deps = throws;
     }},
};

static rsnet_status infer(const rsnet_host* host, rsnet_ctx* ctx, void*) {
  const rsnet_tensor* x = host->tensor(ctx, RSNET_INPUT, 0);
  if (x == nullptr) return RSNET_INTERNAL;
  host->set_dtype(ctx, RSNET_OUTPUT, 0, x->dtype);
  return host->set_shape(ctx, RSNET_OUTPUT, 0, x->ndim, x->shape);
}

extern "C" rsnet_status rsnet_plugin_register(const rsnet_host* host, rsnet_registry* registry) {
  for (const auto& c : kCases) {
    rsnet_arg x = {sizeof x, 0, "x", nullptr, 1}, y = {sizeof y, 0, "y", nullptr, 1};
    // Without a default nothing is parsed while the library is loaded.
    rsnet_attr n = {sizeof n, RSNET_I32, "n", nullptr, nullptr, nullptr, 0, 0, 0, 0};
    rsnet_op op = {};
    op.struct_size = sizeof op;
    op.name = c.name;
    op.inputs = &x;
    op.outputs = &y;
    op.attrs = &n;
    op.n_inputs = op.n_outputs = op.n_attrs = 1;
    op.infer = infer;
    rsnet_kernel kernel = {};
    kernel.struct_size = sizeof kernel;
    kernel.op = c.name;
    kernel.compute = copy;
    rsnet_grad grad = {};
    grad.struct_size = sizeof grad;
    grad.op = c.name;
    grad.kind = RSNET_GRAD_RULE;
    grad.rule = binds_nothing;
    c.change(&op, &kernel, &grad);
    if (host->register_op(registry, &op) || host->register_kernel(registry, &kernel) ||
        host->register_grad(registry, &grad)) {
      return RSNET_INVALID;
    }
  }
  return RSNET_OK;
}

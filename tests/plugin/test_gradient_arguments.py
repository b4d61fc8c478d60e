"""Arrays in gradient rules go to the arguments that they name, whatever counts them."""

import pytest
from plugins import compiled_text

import rsnet as mx
from rsnet import nd

pytestmark = pytest.mark.process  # the compiler is one

#: Operators whose output has their inputs as digits, and one for each way of calling them in a
#: gradient: `calls` lists, after the operator, pairs of an argument's name (- for none) and a
#: source (g: the gradient, x: the input).
SOURCE = """
#include <rsnet/plugin.h>
#include <string.h>
const uint32_t rsnet_plugin_abi = RSNET_ABI;

static rsnet_status infer(const rsnet_host *host, rsnet_ctx *ctx, void *user) {
  const rsnet_tensor *x = host->tensor(ctx, RSNET_INPUT, 0);
  (void)user;
  host->set_dtype(ctx, RSNET_OUTPUT, 0, x->dtype);
  return host->set_shape(ctx, RSNET_OUTPUT, 0, x->ndim, x->shape);
}

/* The first array, and ten times the second, and so on. */
static rsnet_status digits(const rsnet_args *args) {
  float *y = rsnet_data(&args->out[0]), unit = 1;
  int32_t i;
  *y = 0;
  for (i = 0; i < args->n_in; ++i, unit *= 10) *y += unit * *(float *)rsnet_data(&args->in[i]);
  return RSNET_OK;
}

static rsnet_status copy(const rsnet_args *args) {
  *(float *)rsnet_data(&args->out[0]) = *(float *)rsnet_data(&args->in[0]);
  return RSNET_OK;
}

static rsnet_status rule(const rsnet_host *host, rsnet_ctx *ctx, void *user) {
  char text[100], *word;
  rsnet_node node;
  strcpy(text, (const char *)user);
  node = host->node(ctx, strtok(text, " "), "g");
  while ((word = strtok(NULL, " ")) != NULL) {
    char *source = strchr(word, '=');
    rsnet_entry entry = host->entry(ctx, source[1] == 'g' ? RSNET_OUT_GRAD : RSNET_IN_DATA, 0);
    *source = 0;
    host->node_input(ctx, node, strcmp(word, "-") ? word : NULL, entry);
  }
  return host->bind_grad(ctx, 0, host->node_output(ctx, node, NULL, 0));
}

static const struct {
  const char *name, *rule;
} calls[] = {
    {"ga_required", "ga_cat_required x=x bias=g"},
    {"ga_default", "ga_cat_default x=x bias=g"},
    {"ga_many", "ga_cat_required x=x bias=g x=g"},
    {"ga_unnamed_first", "ga_cat_required -=x bias=g"},
    {"ga_unnamed_last", "ga_cat_default x=x -=g"},
    {"ga_in_order", "ga_cat_required -=x -=g"},
    {"ga_unknown", "ga_cat_required y=x bias=g"},
    {"ga_twice", "ga_cat_default bias=x bias=g"},
    {"ga_missing", "ga_cat_default bias=x"},
    {"ga_fixed", "ga_pair second=x first=g"},
    {"ga_fixed_unnamed", "ga_pair -=x first=g"},
    {"ga_fixed_unknown", "ga_pair third=x first=g"},
    {"ga_sum", "add_n data=x data=g"},
    {"ga_concat_unknown", "Concat x=x x=g"},
};

rsnet_status rsnet_plugin_register(const rsnet_host *host, rsnet_registry *registry) {
  rsnet_arg in[2] = {{sizeof(rsnet_arg), 0, "bias", "", 1},
                     {sizeof(rsnet_arg), RSNET_AT_LEAST, "x", "", 1}};
  rsnet_arg pair[2] = {{sizeof(rsnet_arg), 0, "first", "", 1},
                       {sizeof(rsnet_arg), 0, "second", "", 1}};
  rsnet_arg x = {sizeof x, 0, "x", "", 1}, y = {sizeof y, 0, "y", "", 1};
  rsnet_attr n = {sizeof n, RSNET_I32, "n", "", NULL};
  rsnet_op op = {sizeof op};
  rsnet_kernel kernel = {sizeof kernel};
  rsnet_grad grad = {sizeof grad};
  size_t i;
  op.outputs = &y;
  op.n_outputs = 1;
  op.infer = infer;
  op.inputs = in;
  op.n_inputs = 2;
  op.attrs = &n;
  op.n_attrs = 1;
  op.count_attr = "n";
  kernel.compute = digits;
  op.name = kernel.op = "ga_cat_required";
  if (host->register_op(registry, &op)) return RSNET_INVALID;
  if (host->register_kernel(registry, &kernel)) return RSNET_INVALID;
  n.dflt = "0";
  op.name = kernel.op = "ga_cat_default";
  if (host->register_op(registry, &op)) return RSNET_INVALID;
  if (host->register_kernel(registry, &kernel)) return RSNET_INVALID;
  op.n_attrs = 0;
  op.count_attr = NULL;
  op.inputs = pair;
  op.name = kernel.op = "ga_pair";
  if (host->register_op(registry, &op)) return RSNET_INVALID;
  if (host->register_kernel(registry, &kernel)) return RSNET_INVALID;
  op.inputs = &x;
  op.n_inputs = 1;
  kernel.compute = copy;
  grad.kind = RSNET_GRAD_RULE;
  grad.rule = rule;
  for (i = 0; i < sizeof calls / sizeof *calls; ++i) {
    op.name = kernel.op = grad.op = calls[i].name;
    grad.user = (void *)calls[i].rule;
    if (host->register_op(registry, &op)) return RSNET_INVALID;
    if (host->register_kernel(registry, &kernel)) return RSNET_INVALID;
    if (host->register_grad(registry, &grad)) return RSNET_INVALID;
  }
  return RSNET_OK;
}
"""


@pytest.fixture(scope="module", autouse=True)
def library():
    return mx.load_library(compiled_text(SOURCE, "case.c"))


def gradient(name):
    """Of the input 2, where 5 arrives."""
    x = nd.array([2.0])
    x.attach_grad()
    with mx.autograd.record():
        y = getattr(nd, name)(x)
    y.backward(nd.array([5.0]))
    return x.grad.asscalar()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ga_required", 25),
        ("ga_default", 25),
        ("ga_many", 525),
        ("ga_unnamed_first", 25),
        ("ga_unnamed_last", 25),
        ("ga_in_order", 52),
        ("ga_fixed", 25),
        ("ga_fixed_unnamed", 25),
        ("ga_sum", 7),
    ],
)
def test_arrays_go_to_their_arguments(name, expected):
    assert gradient(name) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ga_unknown", "ga_cat_required 'g': got 'y', expected its inputs, once each: bias, x"),
        ("ga_twice", "ga_cat_default 'g': got 'bias', expected its inputs, once each: bias, x"),
        ("ga_missing", "ga_cat_default 'g': got nothing as input 'x'"),
        ("ga_fixed_unknown", "ga_pair 'g': got 'third', expected its inputs, once each: first"),
        ("ga_concat_unknown", "Concat 'g': got 'x', expected its inputs, once each: arg0, arg1"),
    ],
)
def test_names_that_do_not_fit_are_refused(name, text):
    with pytest.raises(mx.MXNetError, match=f"{name}: the gradient rule's operator {text}"):
        gradient(name)

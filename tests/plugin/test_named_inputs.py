"""Arrays with and without names: how calls share them out among inputs, and what they say."""

import itertools

import numpy as np
import pytest
from plugins import compiled, compiled_text

import rsnet as mx
from rsnet import nd, op, sym

pytestmark = pytest.mark.process  # the compiler is one

#: y = the sum of all arrays of input k, times 10^k.
SOURCE = """
#include <rsnet/plugin.h>
const uint32_t rsnet_plugin_abi = RSNET_ABI;

static const char *const names[2][3] = {{"data", "indices", "bias"}, {"xs", "must", "ys"}};

static rsnet_status infer(const rsnet_host *host, rsnet_ctx *ctx, void *user) {
  const rsnet_tensor *x = host->tensor(ctx, RSNET_INPUT, 0);
  (void)user;
  host->set_dtype(ctx, RSNET_OUTPUT, 0, x->dtype);
  return host->set_shape(ctx, RSNET_OUTPUT, 0, x->ndim, x->shape);
}

static rsnet_status compute(const rsnet_args *args) {
  const char *const *list = (const char *const *)args->user;
  float *y = rsnet_data(&args->out[0]), factor = 1;
  int k, i;
  *y = 0;
  for (k = 0; k < 3; ++k, factor *= 10) {
    for (i = 0; i < args->host->count(args->ctx, RSNET_INPUT, list[k]); ++i) {
      int at = args->host->find(args->ctx, RSNET_INPUT, list[k], i);
      *y += factor * *(const float *)rsnet_data(&args->in[at]);
    }
  }
  return RSNET_OK;
}

rsnet_status rsnet_plugin_register(const rsnet_host *host, rsnet_registry *registry) {
  const char *const ops[2] = {"ni_take", "ni_open"};
  uint32_t flags[2][3] = {{0, 0, RSNET_OPTIONAL}, {RSNET_AT_LEAST, 0, RSNET_AT_LEAST}};
  int n, k;
  for (n = 0; n < 2; ++n) {
    rsnet_arg in[3], out = {sizeof out, 0, "y", "", 1};
    rsnet_op op = {sizeof op};
    rsnet_kernel kernel = {sizeof kernel};
    for (k = 0; k < 3; ++k) {
      rsnet_arg arg = {sizeof arg, flags[n][k], names[n][k], "", 1};
      in[k] = arg;
    }
    op.name = kernel.op = ops[n];
    op.inputs = in;
    op.outputs = &out;
    op.n_inputs = 3;
    op.n_outputs = 1;
    op.infer = infer;
    kernel.compute = compute;
    kernel.user = (void *)names[n];
    if (host->register_op(registry, &op)) return RSNET_INVALID;
    if (host->register_kernel(registry, &kernel)) return RSNET_INVALID;
  }
  return RSNET_OK;
}
"""

A, B, C, D = (nd.array([float(k)]) for k in (1, 2, 3, 4))


@pytest.fixture(scope="module", autouse=True)
def operators():
    if not hasattr(nd, "ni_python"):

        def infer(ctx):
            ctx.out("out").like(ctx.inp("data"))

        op.define("ni_python", inputs="data, indices, bias?", infer=infer)

        @op.kernel("ni_python")
        def _(ctx):
            names = [k for k in ("data", "indices", "bias") if ctx.count(k)]
            ctx.out("out")[:] = sum(ctx.inp(k).asnumpy() * 10**i for i, k in enumerate(names))

    return mx.load_library(compiled_text(SOURCE, "case.c"))


CASES = [
    ("ni_take", "ab", {}, 21),
    ("ni_take", "abc", {}, 321),
    ("ni_take", "ab", {"bias": "c"}, 321),
    ("ni_take", "ac", {"indices": "b"}, 321),
    ("ni_take", "bc", {"data": "a"}, 321),
    ("ni_take", "a", {"indices": "b"}, 21),
    ("ni_take", "b", {"data": "a", "bias": "c"}, 321),
    ("ni_take", "ab", {"bias": None}, 21),
    ("ni_open", "abc", {"ys": "d"}, 433),
    ("ni_open", "ab", {"must": "c", "ys": "d"}, 433),
    ("ni_open", "ab", {"must": "c"}, 231),
    ("ni_open", "bcd", {"xs": "a"}, 721),
    ("ni_open", "cd", {"xs": "ab"}, 433),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "unnamed", "named", "expected"),
    [*CASES, *(("ni_python", *case[1:]) for case in CASES if case[0] == "ni_take")],
)
def test_unnamed_arrays_are_shared_out_among_the_other_inputs(name, unnamed, named, expected):
    arrays = dict(zip("abcd", (A, B, C, D), strict=True))

    def given(kind):
        one = {k: v and [kind[x] for x in v] for k, v in named.items()}
        return [kind[x] for x in unnamed], {k: v[0] if v and len(v) == 1 else v
                                            for k, v in one.items()}  # fmt: skip

    args, more = given(arrays)
    assert getattr(nd, name)(*args, **more).asscalar() == expected
    variables = {k: sym.var(k) for k in arrays}
    args, more = given(variables)
    node = getattr(sym, name)(*args, **more)
    used = {k: arrays[k] for k in node.list_arguments()}
    assert node.eval(**used)[0].asscalar() == expected
    assert sym.load_json(node.tojson()).eval(**used)[0].asscalar() == expected


@pytest.mark.parametrize(
    ("name", "args", "named", "text"),
    [
        ("ni_take", (A,), {"bias": C}, "expected at least 2, 1 of 'data', 1 of 'indices'"),
        ("ni_take", (A, B, C), {"bias": C}, "expected at most 2: data, indices"),
        ("ni_open", (A, B, C), {"must": C}, "several ways, because the inputs xs and ys"),
        ("ni_open", (A,), {"xs": A, "must": A, "ys": A}, "all of its inputs by name"),
        ("ni_take", (A, B), {"bias": "c"}, "invalid argument 'bias' 'c': expected an NDArray"),
        (
            "ni_open",
            (),
            {"xs": "a", "must": B, "ys": C},
            "invalid argument 'xs' 'a': expected an NDArray",
        ),
        (
            "ni_open",
            (),
            {"xs": [A, None], "must": B, "ys": C},
            "invalid argument 'xs' None: expected",
        ),
        ("ni_open", (A, B, C), {"arg_counts": (3, 0, -1)}, "'must' has 0 arrays, expected 1"),
        ("ni_open", (A, B, C), {"arg_counts": (4, -1, 0)}, "'must' has -1 arrays, expected 1"),
    ],
)
def test_what_cannot_be_shared_out(name, args, named, text):
    with pytest.raises((mx.MXNetError, TypeError, AssertionError), match=text):
        getattr(nd, name)(*args, **named)


@pytest.mark.parametrize("name", ["num_args", "arg_counts"])
def test_inputs_are_not_called_like_what_counts_them(name):
    text = SOURCE.replace('"indices"', f'"{name}"').replace("ni_", f"ni_{name}_")
    with pytest.raises(mx.MXNetError, match=f"invalid input name '{name}': expected another one"):
        mx.load_library(compiled_text(text, "case.c"))
    with pytest.raises(mx.MXNetError, match=name):
        op.define("ni_refused", inputs=f"{name}, b?", infer=lambda ctx: None)
    one = op.define(f"ni_one_{name}", inputs=name, infer=lambda ctx: None)
    assert one.name == f"ni_one_{name}"  # nothing counts it there


def test_all_ways_of_naming_agree():
    """Any set of named inputs gives what all in order do."""
    arrays = {"data": A, "indices": B, "bias": C}
    for n in range(4):
        for named in itertools.combinations(arrays, n):
            rest = [v for k, v in arrays.items() if k not in named]
            y = nd.ni_take(*rest, **{k: arrays[k] for k in named})
            assert y.asscalar() == 321, named


def test_names_of_mxnet_are_checked_and_expressions_have_any_dtype():
    mx.load_library(compiled("mxnet_expressions.cc"))
    x = np.array([[1, 2, 3], [4, 5, 6]], "float32")
    for dtype in ("float16", "float32", "float64", "uint8", "int32", "int64"):
        y = nd.mx_expressions(nd.array(x, dtype=dtype))
        expected = np.stack([2 * x[0] + 1, x[0] + x[1]])
        assert y.dtype == np.dtype(dtype) and np.array_equal(y.asnumpy(), expected)
    for text, shown in [("None", "None"), ("t", "t"), ("<label>", "own"), (None, "own")]:
        given = {} if text is None else {"title": text}
        with pytest.raises(mx.MXNetError, match=f"label is {shown}"):
            nd.mx_labelled(nd.array(x), **given).asnumpy()
    build = mx.user_op_builder("b").Op("mx_labelled").Input("data", [nd.array(x)]).Output("output")
    for big in (2**64 - 2, 2**63):
        op_of_64_bits = build.Attr("big", big).Build()
        with pytest.raises(mx.MXNetError, match=f"big is {big}"):
            op_of_64_bits.InferAndTryRun().RemoteBlobList()[0].asnumpy()
    for big in (2**64, -1):
        with pytest.raises(mx.MXNetError, match="within uint64"):
            build.Attr("big", big).Build()
    with pytest.raises(mx.MXNetError, match=r"Slice\(1, 3\) of an axis of 2"):
        nd.mx_labelled(nd.array(x), label="slice").asnumpy()
    with pytest.raises(mx.MXNetError, match="Copy between tensors of different shapes"):
        nd.mx_labelled(nd.array(x), label="copy").asnumpy()
    with pytest.raises(mx.MXNetError, match=r'include\("NoSuchGroup"\): there is no'):
        mx.load_library(compiled("mxnet_expressions.cc", "GROUP=1"))

"""`None` in the place of an array: an optional input is absent, and nothing moves up."""

import itertools

import numpy as np
import pytest
from plugins import compiled_text

import rsnet as mx
from rsnet import nd, sym

pytestmark = pytest.mark.process  # the compiler is one

#: y = the first element of d, i, bias, scale (-1 where it is absent), the number of xs, and those
#: as the digits of a number.
SOURCE = """
#include "oneflow/core/framework/framework.h"
namespace oneflow {
namespace {
using namespace user_op;
class Show final : public OpKernel {
  void Compute(KernelComputeContext* ctx) const override {
    float* y = ctx->Tensor4ArgNameAndIndex("y", 0)->mut_dptr<float>();
    auto value = [&](const char* name, int i) {
      const Tensor* x = ctx->Tensor4ArgNameAndIndex(name, i);
      return x == nullptr ? -1.f : x->dptr<float>()[0];
    };
    y[0] = value("d", 0), y[1] = value("i", 0), y[2] = value("bias", 0), y[3] = value("scale", 0);
    y[4] = ctx->input_size("xs"), y[5] = 0;
    for (int k = 0; k < y[4]; ++k) y[5] = 10 * y[5] + value("xs", k);
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
REGISTER_USER_OP("no_show")
    .Input("d").Input("i").OptionalInput("bias").OptionalInput("scale").InputWithMinimum("xs", 1)
    .Output("y")
    .SetTensorDescInferFn([](InferContext* ctx) -> Maybe<void> {
      *ctx->OutputShape("y", 0) = Shape({6});
      *ctx->OutputDType("y", 0) = kFloat;
      return Maybe<void>::Ok();
    });
REGISTER_USER_KERNEL("no_show").SetCreateFn<Show>().SetIsMatchedHob(HobTrue());
}  // namespace
}  // namespace oneflow
"""

#: Places of a call, by digit of the array or "-" for None, named arrays, and what `no_show` shows.
CASES = [
    ("12-45", {}, [1, 2, -1, 4, 1, 5]),
    ("12--5", {}, [1, 2, -1, -1, 1, 5]),
    ("123-5", {}, [1, 2, 3, -1, 1, 5]),
    ("12-4", {}, [1, 2, -1, -1, 1, 4]),
    ("12-4567", {}, [1, 2, -1, 4, 3, 567]),
    ("12-", {"xs": "78"}, [1, 2, -1, -1, 2, 78]),
    ("12-4", {"xs": "7"}, [1, 2, -1, 4, 1, 7]),
    ("12-5", {"scale": "4"}, [1, 2, -1, 4, 1, 5]),
    ("1245", {"bias": "-"}, [1, 2, -1, 4, 1, 5]),
]


@pytest.fixture(scope="module", autouse=True)
def library():
    return mx.load_library(compiled_text(SOURCE))


def arguments(places, named, arrays):
    def one(text):
        return None if text == "-" else arrays[int(text)]

    lists = {k: None if v == "-" else [one(x) for x in v] for k, v in named.items()}
    return [one(x) for x in places], lists


@pytest.mark.filterwarnings("ignore:HybridBlock .* does not use its inputs")
@pytest.mark.parametrize(("places", "named", "expected"), CASES)
def test_none_holds_the_place_of_an_optional_input(places, named, expected):
    arrays = [nd.array([float(k)]) for k in range(10)]
    args, lists = arguments(places, named, arrays)
    assert nd.no_show(*args, **lists).asnumpy().tolist() == expected

    args, lists = arguments(places, named, [sym.var(f"v{k}") for k in range(10)])
    y = sym.no_show(*args, **lists)
    for symbol in (y, sym.load_json(y.tojson())):
        given = {name: arrays[int(name[1:])] for name in symbol.list_arguments()}
        assert symbol.eval(**given)[0].asnumpy().tolist() == expected

    class Block(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, *arrays):
            args, lists = arguments(places, named, arrays)
            return F.no_show(*args, **lists)

    block = Block()
    plain = block(*arrays).asnumpy().tolist()
    block.hybridize()
    assert plain == expected and block(*arrays).asnumpy().tolist() == expected


@pytest.mark.parametrize("face", [nd, sym])
@pytest.mark.parametrize(
    ("places", "more", "text"),
    [
        ("-2345", {}, "no_show.* got None for the input 'd'"),
        ("1-345", {}, "no_show.* got None for the input 'i'"),
        ("1234-", {}, "no_show.* got None among the arrays of the input 'xs'|for the input 'xs'"),
        ("12345-", {}, "no_show.* got None among the arrays of the input 'xs'"),
        (
            "12-45",
            {"arg_counts": (1, 1, 1, 1, 1)},
            "no_show.* both None for an array and arg_counts",
        ),
    ],
)
def test_none_for_what_an_operator_needs(face, places, more, text):
    arrays = [nd.ones(1) if face is nd else sym.var(f"v{k}") for k in range(10)]
    with pytest.raises(TypeError, match=text):
        face.no_show(*arguments(places, {}, arrays)[0], **more)


def test_none_among_the_inputs_of_built_in_operators():
    x, w, b = nd.array([[1.0, 2]]), nd.array([[3.0, 4]]), nd.array([5.0])
    for args, more in [((x, w, None), {}), ((x, w), {"bias": None}), ((x,), {"weight": w})]:
        y = nd.FullyConnected(*args, num_hidden=1, no_bias=True, **more)
        assert y.asscalar() == 11
    assert nd.FullyConnected(x, w, b, num_hidden=1).asscalar() == 16
    y = sym.FullyConnected(sym.var("x"), sym.var("w"), None, num_hidden=1, no_bias=True)
    assert y.list_arguments() == ["x", "w"]
    y = sym.FullyConnected(sym.var("x"), None, sym.var("b"), num_hidden=1, name="fc")
    assert y.list_arguments() == ["x", "fc_weight", "b"]  # a variable of its own, as if left out

    for args, name in [((x, w, None), "bias"), ((x, None, b), "weight"), ((None, w, b), "data")]:
        with pytest.raises(TypeError, match=f"FullyConnected.*'{name}'"):
            nd.FullyConnected(*args, num_hidden=1)
    with pytest.raises(TypeError, match=r"relu\(\) got None for the input 'data'"):
        nd.relu(None)
    for face, array in itertools.product([nd, sym], [None]):
        one = x if face is nd else sym.var("x")
        with pytest.raises(TypeError, match="(?i)concat.* None"):
            face.Concat(one, array, dim=0)
        with pytest.raises(TypeError, match="(?i)add_n.* None"):
            face.add_n([one, array])
    assert np.array_equal(nd.Concat(x, x, dim=0).asnumpy(), [[1, 2], [1, 2]])

"""Graphs with operators of a library, large enough that independent ones run at the same time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plugins import compiled

import rsnet as mx
from rsnet import sym

pytestmark = pytest.mark.process  # for the compiler

SIZE = 2100  # beyond 4,096 elements with the output

#: An operator of each node: `c_scale` of the library, or one of the core.
KINDS = ["library", "library", "sum", "exp", "square"]


@pytest.fixture(scope="module", autouse=True)
def _library():
    mx.load_library(compiled("scale.c"))


def build(nodes, scale):
    """The graph; of each node its kind, and how far before it its inputs are."""
    made = [sym.var("x"), sym.var("y")]
    for at, (kind, one, other) in enumerate(nodes):
        a, b = made[-1 - one % len(made)], made[-1 - other % len(made)]
        if kind == "library":
            made.append(scale(a, 0.5 + at % 3))
        elif kind == "sum":
            made.append(a + b)
        else:
            made.append(sym.tanh(getattr(sym, kind)(a)))
    return sym.Group(made[-3:])


def run(net, passes, grad_req):
    """Outputs and gradients of all passes."""
    exe = net.simple_bind(mx.cpu(), grad_req, **dict.fromkeys(net.list_arguments(), (SIZE,)))
    found = []
    for seed in range(passes):
        rng = np.random.default_rng(seed)
        for array in exe.arg_arrays:
            array[:] = rng.uniform(-1, 1, SIZE).astype("float32")
        outputs = exe.forward(is_train=grad_req != "null")
        if grad_req != "null":
            exe.backward([mx.nd.ones(SIZE) * (1 + i) for i in range(len(outputs))])
        found += [a.asnumpy() for a in [*exe.outputs, *exe.grad_arrays] if a is not None]
    return found


@settings(max_examples=60, deadline=None)
@given(
    nodes=st.lists(
        st.tuples(st.sampled_from(KINDS), st.integers(0, 5), st.integers(0, 5)),
        min_size=3,
        max_size=24,
    ),
    grad_req=st.sampled_from(["null", "write"]),
)
def test_they_compute_what_the_core_does(nodes, grad_req):
    library = build(nodes, lambda a, by: sym.c_scale(a, by=by))
    core = build(nodes, lambda a, by: a * by)
    for got, expected in zip(run(library, 3, grad_req), run(core, 3, grad_req), strict=True):
        np.testing.assert_array_equal(got, expected)


def segments(net, size):
    exe = net.simple_bind(mx.cpu(), "null", x=(size,))
    return [line for line in exe.debug_str().splitlines() if line.startswith("segment")]


def test_only_large_ones_that_can_run_beside_another_are_segments_of_their_own():
    x = sym.var("x")
    towers = sym.Group([sym.exp(sym.c_scale(sym.exp(x), by=by)) for by in (1.0, 2.0)])
    chain = sym.c_scale(sym.exp(sym.c_scale(x, by=1.0)), by=2.0)
    assert len(segments(towers, SIZE)) > 3
    assert len(segments(towers, 8)) == 1
    assert len(segments(chain, SIZE)) == 1

"""Random graphs: planned equals unplanned equals imperative, threaded equals naive."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rsnet as mx

SHAPE = (3, 4)
UNARY = [
    lambda f, x: f.Activation(x, act_type="tanh"),
    lambda f, x: f.Activation(x, act_type="relu"),
    lambda f, x: f.sigmoid(x),
    lambda f, x: x * 0.5,
    lambda f, x: 1.5 - x,
    lambda f, x: f.square(x),
    lambda f, x: f.softmax(x),
    lambda f, x: f.identity(x),
    lambda f, x: f.BlockGrad(x),
    lambda f, x: f.zeros_like(x),
    lambda f, x: f.ones_like(x),
    lambda f, x: f.broadcast_greater(x, f.zeros_like(x)),
]
#: So many of the first unary operations let gradients pass.
DIFFERENTIABLE = len(UNARY) - 4
BINARY = [
    lambda f, a, b: a + b,
    lambda f, a, b: a - b,
    lambda f, a, b: a * b,
    lambda f, a, b: f.where(a > 0, a, b),
    lambda f, a, b: f.reshape_like(a, b),
    lambda f, a, b: f.slice_like(a, b),
    lambda f, a, b: f._internal._identity_with_attr_like_rhs(a, b),
]
#: So many of the last binary operations read the shape of their second operand alone.
LIKES = 3
REQS = ["write", "add", "null"]


def step(draw, read, unary):
    """One operation, of the first `unary` ones on one value or of those on two, on values that
    `read` draws.
    """
    if draw(st.booleans()):
        return draw(st.integers(0, unary - 1)), draw(read), None
    return draw(st.integers(0, len(BINARY) - 1)), draw(read), draw(read)


def ends(draw, inputs, steps):
    """The outputs, and how the gradients of the inputs are stored."""
    last = inputs + len(steps) - 1
    heads = draw(st.lists(st.integers(inputs, last), min_size=1, max_size=3))
    return heads, draw(st.lists(st.sampled_from(REQS), min_size=inputs, max_size=inputs))


@st.composite
def recipes(draw):
    """Numbers of inputs, then steps that each read earlier values, then the outputs."""
    inputs = draw(st.integers(1, 3))
    steps = []
    for at in range(inputs, inputs + draw(st.integers(1, 24))):
        steps.append(step(draw, st.integers(0, at - 1), len(UNARY)))
    return inputs, steps, *ends(draw, inputs, steps)


def build(recipe, module, values):
    """The outputs of a recipe over symbols or arrays."""
    _, steps, heads, _ = recipe
    values = list(values)
    for op, a, b in steps:
        value = (
            UNARY[op](module, values[a]) if b is None else BINARY[op](module, values[a], values[b])
        )
        values.append(value)
    return [values[h] for h in heads]


def data(recipe):
    rng = np.random.default_rng(len(recipe[1]))
    inputs = [rng.uniform(-1, 1, SHAPE).astype("float32") for _ in range(recipe[0])]
    heads = [rng.uniform(-1, 1, SHAPE).astype("float32") for _ in recipe[2]]
    return inputs, heads


def symbolic(recipe, steps=2):
    """Outputs and gradients after some steps of a bound executor."""
    inputs, heads = data(recipe)
    names = [f"x{i}" for i in range(recipe[0])]
    net = mx.sym.Group(build(recipe, mx.sym, [mx.sym.Variable(n) for n in names]))
    used = net.list_arguments()
    args = {n: mx.nd.array(v) for n, v in zip(names, inputs, strict=True)}
    grads = {n: mx.nd.array(np.ones(SHAPE)) for n in names}
    reqs = dict(zip(names, recipe[3], strict=True))
    exe = net.bind(mx.cpu(), args, {n: grads[n] for n in used}, {n: reqs[n] for n in used})
    for _ in range(steps):
        exe.forward(is_train=True)
        exe.backward([mx.nd.array(h) for h in heads])
    outputs = [o.asnumpy() for o in exe.outputs]
    return outputs, [grads[n].asnumpy() if n in used else np.ones(SHAPE) for n in names]


def imperative(recipe, steps=2):
    """The same by single calls and the tape."""
    inputs, heads = data(recipe)
    arrays = [mx.nd.array(v) for v in inputs]
    grads = [mx.nd.array(np.ones(SHAPE)) for _ in arrays]
    mx.autograd.mark_variables(arrays, grads, recipe[3])
    if not any(arriving(recipe)):
        return [o.asnumpy() for o in build(recipe, mx.nd, arrays)], [g.asnumpy() for g in grads]
    for _ in range(steps):
        with mx.autograd.record():
            outputs = build(recipe, mx.nd, arrays)
        mx.autograd.backward(outputs, [mx.nd.array(h) for h in heads])
    return [o.asnumpy() for o in outputs], [g.asnumpy() for g in grads]


def reachable(recipe):
    """Which inputs do gradients arrive at, through steps that let them pass?"""
    inputs, steps, heads, _ = recipe
    alive = set(heads)
    for at in range(len(steps) - 1, -1, -1):
        op, a, b = steps[at]
        if inputs + at not in alive or (b is None and op >= DIFFERENTIABLE):
            continue
        alive.add(a)
        if b is not None and op < len(BINARY) - LIKES:
            alive.add(b)
    return [i in alive for i in range(inputs)]


def arriving(recipe):
    """Which inputs get a gradient?"""
    return [r != "null" and ok for r, ok in zip(recipe[3], reachable(recipe), strict=True)]


@st.composite
def joins(draw):
    """Recipes that begin with sums of all inputs: one gradient entry serves several arguments."""
    inputs = draw(st.integers(2, 4))
    steps = [(0, 0, 1)]
    for nxt in range(2, inputs):
        steps.append((0, inputs + len(steps) - 1, nxt))
    for at in range(inputs + len(steps), inputs + len(steps) + draw(st.integers(0, 5))):
        steps.append(step(draw, st.integers(inputs, at - 1), DIFFERENTIABLE))
    return inputs, steps, *ends(draw, inputs, steps)


@settings(max_examples=120, deadline=None)
@given(st.one_of(recipes(), joins()))
def test_symbolic_matches_imperative(recipe):
    outputs, grads = symbolic(recipe)
    wanted = arriving(recipe)
    expected_outputs, expected_grads = imperative(recipe)
    for got, expected in zip(outputs, expected_outputs, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    for got, expected, compare in zip(grads, expected_grads, wanted, strict=True):
        if compare:
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    for got, req in zip(grads, recipe[3], strict=True):
        assert req != "null" or (got == 1).all(), "written without a request"


@st.composite
def stacks(draw):
    """A network of layers that infer their parameters, and which of its shapes are told."""
    layers = draw(st.lists(st.integers(0, 6), min_size=1, max_size=8))
    return layers, draw(st.lists(st.booleans(), min_size=40, max_size=40))


def stacked(layers):
    x = mx.sym.Variable("x")
    for i, layer in enumerate(layers):
        x = [
            lambda x, i: mx.sym.FullyConnected(x, num_hidden=3 + i, name=f"fc{i}"),
            lambda x, i: mx.sym.BatchNorm(x, name=f"bn{i}"),
            lambda x, i: mx.sym.tanh(x) + mx.sym.Variable(f"v{i}"),
            lambda x, i: mx.sym.expand_dims(mx.sym.Flatten(x), axis=1),
            lambda x, i: mx.sym.Concat(x, x, dim=1),
            lambda x, i: mx.sym.LeakyReLU(x, act_type="prelu", name=f"p{i}"),
            lambda x, i: mx.sym.FullyConnected(x, num_hidden=4, no_bias=True, flatten=False),
        ][layer](x, i)
    return x


@settings(max_examples=60, deadline=None)
@given(stacks())
def test_partial_inference_agrees_with_full(stack):
    layers, told = stack
    net = stacked(layers)
    names = net.list_arguments()
    full = net.infer_shape(x=(2, 5))
    assert full == net.infer_shape_partial(x=(2, 5))
    given_shapes = {n: s for n, s, tell in zip(names, full[0], told, strict=False) if tell}
    partial = net.infer_shape_partial(**given_shapes)
    for known, part in zip(full, partial, strict=True):
        for whole, shape in zip(known, part, strict=True):
            if shape is None or shape == ():
                continue
            assert len(shape) == len(whole)
            assert all(p in (0, -1, w) for p, w in zip(shape, whole, strict=True)), (shape, whole)
    if "x" in given_shapes:
        assert partial == full
    # What is found out is a fixed point: telling it again finds no more.
    found = {n: s for n, s in zip(names, partial[0], strict=True) if s}
    assert net.infer_shape_partial(**found) == partial
    types = net.infer_type(x="float64")
    assert types == net.infer_type_partial(x="float64")


PLAIN = {
    "MXNET_EXEC_ENABLE_INPLACE": "0",
    "MXNET_ELIMINATE_COMMON_EXPR": "0",
    "MXNET_EXEC_PREFER_BULK_EXEC": "0",
}


def unplanned(recipe):
    """No sharing by operators, no merging, one node per segment."""
    os.environ.update(PLAIN)
    try:
        return symbolic(recipe)
    finally:
        for key in PLAIN:
            del os.environ[key]


@settings(max_examples=60, deadline=None)
@given(st.one_of(recipes(), joins()))
def test_planned_matches_unplanned(recipe):
    planned, plain = symbolic(recipe), unplanned(recipe)
    for got, expected in zip([*planned[0], *planned[1]], [*plain[0], *plain[1]], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


SEEDED = """
import random, sys
import numpy as np
sys.path.insert(0, {here!r})
from test_random_graphs import BINARY, REQS, UNARY, symbolic
random.seed(3)
found = []
for _ in range(30):
    inputs, steps = random.randint(1, 3), []
    for at in range(inputs, inputs + random.randint(1, 24)):
        unary = random.random() < 0.5
        op = random.randrange(len(UNARY if unary else BINARY))
        steps.append((op, random.randrange(at), None if unary else random.randrange(at)))
    heads = [random.randrange(inputs, inputs + len(steps)) for _ in range(2)]
    outputs, grads = symbolic((inputs, steps, heads, [random.choice(REQS) for _ in range(inputs)]))
    found += [*outputs, *grads]
np.save({out!r}, np.stack(found))
"""


@pytest.mark.process
def test_threaded_matches_naive(tmp_path):
    results = []
    for engine in ("NaiveEngine", "ThreadedEngine"):
        out = str(tmp_path / f"{engine}.npy")
        code = SEEDED.format(here=os.path.dirname(os.path.abspath(__file__)), out=out)
        env = {**os.environ, "MXNET_ENGINE_TYPE": engine}
        subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=300)
        results.append(np.load(out))
    np.testing.assert_array_equal(results[0], results[1])

"""Loops and conditions as symbols, beside the imperative ones and NumPy."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rsnet as mx
from rsnet import autograd, gluon, nd, sym
from rsnet.test_utils import assert_almost_equal

contrib = sym.contrib


def bound(symbol, values, req="write"):
    """An executor of `symbol` over arrays of these values."""
    arrays = {
        name: nd.array(value, dtype=np.asarray(value).dtype) for name, value in values.items()
    }
    aux = {name: arrays.pop(name) for name in symbol.list_auxiliary_states()}
    grads = {name: nd.zeros_like(array) for name, array in arrays.items()}
    return symbol.bind(mx.cpu(), arrays, args_grad=grads, grad_req=req, aux_states=aux)


def outputs_and_gradients(symbol, values, heads):
    """What `symbol` computes, and the gradients of its arguments for the gradients `heads`."""
    executor = bound(symbol, values)
    outputs = [out.asnumpy() for out in executor.forward(is_train=True)]
    executor.backward([nd.array(head) for head in heads])
    return outputs, {name: grad.asnumpy() for name, grad in executor.grad_dict.items()}


def imperative(function, values, heads):
    """The same of a function of arrays by name."""
    arrays = {name: nd.array(value) for name, value in values.items()}
    for array in arrays.values():
        array.attach_grad()
    with autograd.record():
        outputs = function(arrays)
    autograd.backward(outputs, [nd.array(head) for head in heads])
    grads = {name: array.grad.asnumpy() for name, array in arrays.items()}
    return [out.asnumpy() for out in outputs], grads


def check_both(function, values, tolerance=1e-5):
    """`function` of a module (`nd` or `sym`) and operands by name gives equal outputs and gradients
    with both.
    """
    symbol = sym.Group(function(sym, {name: sym.Variable(name) for name in values}))
    rng = np.random.default_rng(1)
    shapes = symbol.infer_shape(**{name: np.shape(value) for name, value in values.items()})[1]
    heads = [rng.normal(size=shape).astype("float32") for shape in shapes]
    made, grads = outputs_and_gradients(symbol, values, heads)
    expected, expected_grads = imperative(lambda arrays: function(nd, arrays), values, heads)
    for got, want in zip(made, expected, strict=True):
        assert_almost_equal(got, want, rtol=tolerance, atol=tolerance)
    for name, want in expected_grads.items():
        assert_almost_equal(grads[name], want, rtol=tolerance, atol=tolerance, names=(name, name))
    return symbol


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def recurrence(F, at):
    """A small recurrent network, whose weight is used in every step."""
    scale = F.exp(at["b"])  # composed outside of the body

    def step(x, states):
        new = F.tanh(F.dot(x, at["w"]) + F.broadcast_mul(states[0], scale))
        return [new * 2, x + 1], [new]

    outputs, states = F.contrib.foreach(step, at["x"], [at["h"]])
    return [*outputs, *states]


@given(steps=st.integers(1, 5), rows=st.integers(1, 3), width=st.integers(1, 4))
def test_foreach_is_the_imperative_loop(steps, rows, width):
    values = {
        "x": normal(steps, rows, 3),
        "h": normal(rows, width, seed=1),
        "w": normal(3, width, seed=2),
        "b": normal(1, width, seed=3),
    }
    check_both(recurrence, values)


def test_foreach_over_vectors_and_several_data():
    def loop(F, at):
        def step(data, state):
            return (data[0] * data[1] + state, state + data[0])

        return list(F.contrib.foreach(step, [at["a"], at["b"]], at["s"]))

    values = {"a": normal(4), "b": normal(4, seed=1), "s": normal(1, seed=2)}
    symbol = check_both(loop, values)
    assert symbol.infer_shape(a=(4,), b=(4,), s=(1,))[1] == [(4, 1), (1,)]


def test_foreach_without_states_and_with_outputs_from_outside():
    values = {"x": normal(3, 2), "c": normal(2, seed=1)}

    def pair(F, at):
        return F.contrib.foreach(lambda x, s: ([x * 3, at["c"] * 1, x * 1], s), at["x"], [])[0]

    check_both(pair, values)


def test_states_may_be_exchanged_or_unused():
    def loop(F, at):
        def step(x, s):
            return (x + s[0], [s[1], s[0]])

        out, states = F.contrib.foreach(step, at["x"], [at["a"], at["b"]])
        return [out, *states]

    values = {"x": normal(3, 2), "a": normal(2, seed=1), "b": normal(2, seed=2)}
    check_both(loop, values)

    def forgetful(F, at):
        return list(F.contrib.foreach(lambda x, s: (x, x * 2), at["x"], at["a"]))

    check_both(forgetful, {"x": normal(3, 2), "a": normal(2, seed=1)})


def growth(F, at):
    """A loop whose condition and body share a variable from outside."""

    def step(i, total):
        return [total * at["w"]], [i + 1, total * at["w"] + at["limit"]]

    outputs, states = F.contrib.while_loop(
        lambda i, total: F.sum(total) + i < F.sum(at["limit"]),
        step,
        [at["i"], at["total"]],
        max_iterations=6,
    )
    return [*outputs, *states]


@pytest.mark.parametrize("limit", [3.0, 9.0, 1000.0])
def test_while_loop_is_the_imperative_loop(limit):
    values = {
        "i": np.zeros(1, "float32"),
        "total": np.full((2,), 0.5, "float32"),
        "w": np.array([1.1, 0.9], "float32"),
        "limit": np.full((2,), limit / 2, "float32"),
    }
    check_both(growth, values)


def test_a_while_loop_that_never_runs_gives_zeros_and_its_variables():
    x = sym.Variable("x")
    out, last = contrib.while_loop(lambda i: i < 3, lambda i: (i * 2, i + 1), x, max_iterations=4)
    made, grads = outputs_and_gradients(
        sym.Group([out, last]), {"x": np.float32([7])}, [normal(4, 1), np.float32([5])]
    )
    assert made[0].tolist() == [[0]] * 4
    assert made[1].tolist() == [7]
    assert grads["x"].tolist() == [5]


def test_a_while_loop_may_have_no_outputs():
    out, last = contrib.while_loop(
        lambda i: i < 3, lambda i: (None, i + 1), sym.Variable("x"), max_iterations=4
    )
    assert out == []
    assert last.eval(x=nd.array([1]))[0].asnumpy().tolist() == [3]


@pytest.mark.parametrize("value", [-2.0, 2.0])
def test_cond_computes_one_branch(value):
    def choice(F, at):
        def then():
            return [at["x"] * at["w"], at["x"] + 1]

        def otherwise():
            return [F.exp(at["x"]) + at["s"], at["s"] * 2]

        return F.contrib.cond(F.sum(at["x"]) < 0, then, otherwise)

    values = {"x": np.full((2,), value, "float32"), "w": normal(2), "s": normal(2, seed=1)}
    check_both(choice, values)


def nested(F, at):
    """A loop whose steps are loops and conditions."""

    def outer(row, total):
        def inner(x, s):
            bigger = F.contrib.cond(F.sum(x) > 0, lambda: x * at["w"] + total, lambda: x - s)
            return bigger, s + bigger

        outs, s = F.contrib.foreach(inner, row, total)
        return outs, s * 0.5

    return list(F.contrib.foreach(outer, at["x"], at["s"]))


def test_loops_nest():
    values = {"x": normal(3, 4, 2), "s": normal(2, seed=1), "w": normal(2, seed=2)}
    check_both(nested, values, tolerance=1e-4)


def test_gradients_of_a_pass_can_be_taken_again_and_added():
    values = {"x": normal(3, 2, 3), "h": normal(2, 2), "w": normal(3, 2), "b": normal(1, 2)}
    symbol = sym.Group(recurrence(sym, {name: sym.Variable(name) for name in values}))
    executor = bound(symbol, values, req="add")
    heads = [nd.ones_like(out) for out in executor.forward(is_train=True)]
    executor.backward(heads)
    once = {name: grad.asnumpy() for name, grad in executor.grad_dict.items()}
    executor.backward(heads)
    for name, grad in executor.grad_dict.items():
        assert_almost_equal(grad.asnumpy(), 2 * once[name], rtol=1e-5)
    plain = bound(symbol, values, req="null")
    for first, second in zip(executor.forward(), plain.forward(), strict=True):
        assert_almost_equal(first.asnumpy(), second.asnumpy())


def test_shapes_are_inferred_from_either_side():
    values = ("x", "h", "w", "b")
    outputs = recurrence(sym, {name: sym.Variable(name) for name in values})
    symbol = sym.Group(outputs)
    arguments, results, _ = symbol.infer_shape(x=(5, 2, 3), w=(3, 4), b=(1, 4))
    assert dict(zip(symbol.list_arguments(), arguments, strict=True))["h"] == (2, 4)
    assert results == [(5, 2, 4), (5, 2, 3), (2, 4)]

    def dense(x, s):
        return (sym.FullyConnected(x, num_hidden=4, name="fc") + s, s * 2)

    out, _last = contrib.foreach(dense, sym.Variable("x"), sym.Variable("s"))
    found = dict(zip(out.list_arguments(), out.infer_shape(x=(5, 2, 3))[0], strict=True))
    assert found == {"x": (5, 2, 3), "s": (2, 4), "fc_weight": (4, 3), "fc_bias": (4,)}
    types = dict(zip(out.list_arguments(), out.infer_type(x="float64")[0], strict=True))
    assert set(types.values()) == {np.float64}
    loop = contrib.while_loop(
        lambda i: i < 3, lambda i: (i * 2, i + 1), sym.Variable("i"), max_iterations=4
    )
    assert loop[0].infer_shape(i=(1,))[1] == [(4, 1)]


def test_symbols_with_loops_are_saved_and_loaded(tmp_path):
    values = {"x": normal(3, 4, 2), "s": normal(2, seed=1), "w": normal(2, seed=2)}
    symbol = sym.Group(nested(sym, {name: sym.Variable(name) for name in values}))
    symbol.save(str(tmp_path / "loops.json"))
    again = sym.load(str(tmp_path / "loops.json"))
    assert again.tojson() == symbol.tojson()
    heads = [normal(3, 4, 2, seed=5), normal(2, seed=6)]
    made = outputs_and_gradients(symbol, values, heads)
    loaded = outputs_and_gradients(again, values, heads)
    assert [out.tolist() for out in made[0]] == [out.tolist() for out in loaded[0]]
    assert {n: g.tolist() for n, g in made[1].items()} == {
        n: g.tolist() for n, g in loaded[1].items()
    }
    node = json.loads(symbol.tojson())["nodes"][-1]
    assert node["op"] == "_foreach"
    assert [n["op"] for n in node["subgraphs"][0]["nodes"]].count("_foreach") == 1


PROGRAM = """
import sys, json
import numpy as np
import MODULE as mx
sym, nd, contrib = mx.sym, mx.nd, mx.sym.contrib
x, s, w, i, v = (sym.Variable(n) for n in "xswiv")
scale = sym.exp(s)
def step(d, states):
    y = sym.FullyConnected(d, weight=w, num_hidden=2, no_bias=True) + states[0] * scale
    return [y, y * 2], [y]
outs, states = contrib.foreach(step, x, [s])
rows, last = contrib.while_loop(
    lambda i, v: sym.sum(i) < 4, lambda i, v: ([sym.broadcast_mul(v, i)], [i + 1, v * w]), [i, v],
    max_iterations=5)
picked = contrib.cond(sym.sum(x) > 0, lambda: x * 2, lambda: x - 1)
head = sym.Group([*outs, *states, sym.slice_axis(rows[0], axis=0, begin=0, end=3), *last, picked])
path = sys.argv[1]
if sys.argv[2] == "save":
    head.save(path)
head = sym.load(path)
shapes = {"x": (3, 2, 3), "s": (2, 2), "w": (2, 3), "i": (1, 1), "v": (2, 3)}
rng = np.random.RandomState(0)
values = {n: rng.uniform(-1, 1, shapes[n]).astype("float32") for n in sorted(shapes)}
values["i"] = np.ones((1, 1), "float32")
arrays = {n: nd.array(v) for n, v in values.items()}
grads = {n: nd.zeros(shapes[n]) for n in shapes}
names = head.list_arguments()
exe = head.bind(mx.cpu(), {n: arrays[n] for n in names}, {n: grads[n] for n in names})
made = exe.forward(is_train=True)
result = [out.asnumpy().tolist() for out in made]
exe.backward([nd.ones(out.shape) for out in made])
result += [grads[n].asnumpy().tolist() for n in sorted(shapes)]
print(json.dumps(result))
"""


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif("MXNET_PYTHON" not in os.environ, reason="MXNET_PYTHON names no interpreter")
@pytest.mark.parametrize("writer", ["rsnet", "mxnet"])
def test_files_with_loops_are_those_of_mxnet(tmp_path, writer):
    """A file of either gives equal outputs and gradients in both."""
    reader = {"rsnet": "mxnet", "mxnet": "rsnet"}[writer]
    interpreters = {"rsnet": sys.executable, "mxnet": os.environ["MXNET_PYTHON"]}
    path, results = str(tmp_path / "loops.json"), []
    for module, action in ((writer, "save"), (reader, "load")):
        program = PROGRAM.replace("MODULE", module)
        environment = {**os.environ, "MXNET_SUBGRAPH_BACKEND": "NONE"}
        ended = subprocess.run(
            [interpreters[module], "-c", program, path, action],
            capture_output=True, text=True, env=environment, timeout=500, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        results.append(json.loads(ended.stdout.splitlines()[-1]))
    for first, second in zip(*results, strict=True):
        assert_almost_equal(np.array(first), np.array(second), rtol=1e-4, atol=1e-5)


def test_auxiliary_states_in_a_body_are_updated():
    def body(x, _):
        return (sym.BatchNorm(x, name="bn", momentum=0.5), [])

    out = contrib.foreach(body, sym.Variable("x"), [])[0]
    assert out.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    data = normal(2, 8, 3)
    values = {
        "x": data,
        "bn_gamma": np.ones(3, "float32"),
        "bn_beta": np.zeros(3, "float32"),
        "bn_moving_mean": np.zeros(3, "float32"),
        "bn_moving_var": np.ones(3, "float32"),
    }
    executor = bound(out, values)
    executor.forward(is_train=True)
    executor.backward(nd.ones((2, 8, 3)))
    mean = np.zeros(3, "float32")
    for step in data[::-1]:  # they are updated by the gradient, which begins with the last step
        mean = mean / 2 + step.mean(axis=0) / 2
    assert_almost_equal(executor.aux_dict["bn_moving_mean"].asnumpy(), mean, rtol=1e-5, atol=1e-6)


def test_random_numbers_in_a_body_follow_the_seed():
    def body(x, _):
        return (sym.Dropout(x, p=0.5), [])

    out = contrib.foreach(body, sym.Variable("x"), [])[0]
    drawn = []
    for _ in range(2):
        mx.random.seed(3)
        executor = bound(out, {"x": np.ones((4, 50), "float32")})
        rows = executor.forward(is_train=True)[0].asnumpy()
        executor.backward(nd.ones((4, 50)))
        # The gradient has the mask of the same step.
        assert executor.grad_dict["x"].asnumpy().tolist() == rows.tolist()
        drawn.append(rows.tolist())
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[0][1]


class Cell(gluon.HybridBlock):
    """A recurrent network whose loop is a part of the graph."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.dense = gluon.nn.Dense(3, flatten=False)

    def hybrid_forward(self, F, x, state):
        def step(row, s):
            return (self.dense(row) + s, self.dense(row) * s)

        outputs, last = F.contrib.foreach(step, x, state)
        steps = F.contrib.while_loop(
            lambda s: F.sum(F.abs(s)) > 0.1, lambda s: (s, s * 0.5), last, max_iterations=8
        )
        return outputs, steps[1]


def test_a_hybridized_block_gives_what_the_block_gave():
    net = Cell()
    net.initialize(mx.init.Normal(1))
    x, state = nd.array(normal(4, 2, 5)), nd.array(normal(2, 3))
    results = []
    for hybridize in (False, True):
        if hybridize:
            net.hybridize()
        for array in (x, state):
            array.attach_grad()
        with autograd.record():
            outputs, last = net(x, state)
            loss = nd.sum(outputs**2) + nd.sum(last)
        loss.backward()
        grads = [p.grad().asnumpy() for p in net.collect_params().values()]
        results.append([outputs, last, x.grad, state.grad, *map(nd.array, grads)])
    for plain, hybrid in zip(*results, strict=True):
        assert_almost_equal(plain.asnumpy(), hybrid.asnumpy(), rtol=1e-4, atol=1e-5)


class Twice(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * 2)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * 2)


@mx.operator.register("twice_in_a_loop")
class TwiceProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Twice()


def test_operators_written_in_python_run_in_a_body():
    def body(x, s):
        return (sym.Custom(x, op_type="twice_in_a_loop") + s, s + x)

    symbol = sym.Group(list(contrib.foreach(body, sym.Variable("x"), sym.Variable("s"))))
    values = {"x": normal(3, 2), "s": normal(2, seed=1)}
    made, grads = outputs_and_gradients(symbol, values, [np.ones((3, 2)), np.ones(2)])
    sums = np.cumsum(np.concatenate([values["s"][None], values["x"]]), axis=0)
    assert_almost_equal(made[0], 2 * values["x"] + sums[:-1], rtol=1e-5, atol=1e-6)
    assert_almost_equal(grads["s"], np.full(2, 4.0))
    assert_almost_equal(grads["x"], np.array([[5.0] * 2, [4.0] * 2, [3.0] * 2]))


def test_errors_in_a_body_reach_the_caller():
    def body(x, s):
        return (sym.dot(x, s), s)

    out = contrib.foreach(body, sym.Variable("x"), sym.Variable("s"))[0]
    with pytest.raises(mx.MXNetError, match="_foreach"):
        out.infer_shape(x=(3, 2, 4), s=(5, 4))
    x, s = sym.Variable("x"), sym.Variable("s")
    with pytest.raises(ValueError, match="expected 1"):
        contrib.foreach(lambda x, s: (x, []), x, [s])
    with pytest.raises(ValueError, match="invalid data 'x': expected a body that uses it"):
        contrib.foreach(lambda x, s: (s, s), x, s)
    with pytest.raises(TypeError, match="invalid output of type float: expected a Symbol"):
        contrib.foreach(lambda x, s: (1.0, s), x, s)
    with pytest.raises(ValueError, match=r"invalid result \(<.*expected \(outputs, states\)"):
        contrib.foreach(lambda x, s: (x + s,), x, s)
    with pytest.raises(ValueError, match="numbers of outputs 1 and 2"):
        contrib.cond(x, lambda: x, lambda: [x, x])
    wide = contrib.cond(x > 0, lambda: x, lambda: -x)
    with pytest.raises(mx.MXNetError, match=r"condition of shape \(2,\): expected one element"):
        wide.eval(x=nd.array([1, 2]))[0].asnumpy()
    with pytest.raises(mx.MXNetError, match="number of subgraphs"):
        sym._internal._cond(
            x,
            num_args=4,
            num_outputs=1,
            cond_input_locs=(0,),
            then_input_locs=(),
            else_input_locs=(),
        )


def test_loops_in_loops_are_read():
    levels = 60

    def body(level):
        if level == 0:
            return lambda x, s: (x + s, s)
        return lambda x, s: sym.contrib.foreach(body(level - 1), x, s)

    out, _ = sym.contrib.foreach(body(levels), sym.var("x"), sym.var("s"))
    again = sym.load_json(out.tojson())
    shapes = {"x": (1,) * (levels + 2), "s": (1,)}
    assert again.infer_shape(**shapes) == out.infer_shape(**shapes)

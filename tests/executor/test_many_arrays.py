"""Graphs with very many variables and outputs."""

import numpy as np
import pytest

import rsnet as mx


@pytest.mark.slow
def test_more_arrays_than_one_operation_can_name_are_divided_among_segments():
    number = 40_000
    x = [mx.sym.Variable(f"x{i}") for i in range(2)]
    args = [mx.nd.ones((1,)), mx.nd.ones((1,)) * 2]
    net = mx.sym.Group([mx.sym.broadcast_add(x[0], x[1]) for _ in range(number)])
    exe = net.bind(mx.cpu(), args)
    outputs = exe.forward()
    assert len(outputs) == number
    assert all(float(outputs[i].asscalar()) == 3 for i in range(0, number, 999))


@pytest.mark.slow
def test_an_operator_with_more_arrays_than_an_operation_can_name_is_refused_when_bound():
    names = [f"x{i}" for i in range(65_534)]
    net = mx.sym.add_n(*[mx.sym.Variable(name) for name in names], name="great_sum")
    one = mx.nd.ones((1,))
    with pytest.raises(mx.MXNetError, match=r"great_sum.*at most \d+ arrays"):
        net.bind(mx.cpu(), [one] * len(names))


def test_dtypes_of_independent_heads_are_inferred():
    number = 3000
    heads = [mx.sym.tanh(mx.sym.Variable(f"x{i}")) for i in range(number)]
    shapes = {f"x{i}": (2,) for i in range(number)}
    plan = mx.sym.Group(heads).memory_plan(grad_req="null", **shapes)
    assert plan.output_bytes == number * 8
    half = mx.sym.Group([*heads, mx.sym.Variable("y") + heads[0]])
    types = {"x0": "float64"}
    plan = half.memory_plan(grad_req="null", type_dict=types, y=(2,), **shapes)
    dtypes = {e.name: np.dtype(e.dtype) for e in plan.entries}
    assert dtypes["y"] == np.float64 and dtypes["x1"] == np.float32


def test_one_operator_of_very_many_inputs_is_bound():
    """Linear in their number; a quadratic walk takes minutes here."""
    x = mx.sym.Variable("x")
    net = mx.sym.add_n(*[x] * 60_000)
    assert net.infer_shape(x=(2,))[1] == [(2,)]
    exe = net.simple_bind(mx.cpu(), grad_req="null", x=(2,))
    exe.arg_dict["x"][:] = 1
    assert exe.forward()[0].asnumpy().tolist() == [60_000, 60_000]


def test_names_of_very_many_outputs():
    net = mx.sym.split(mx.sym.Variable("x"), num_outputs=60_000, axis=0, name="s")
    assert net.list_outputs()[-1] == "s_output59999"
    plan = net.memory_plan(grad_req="null", x=(60_000,))
    assert plan.entries[-1].name == "s_output59999"

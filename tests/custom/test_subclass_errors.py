"""Errors of subclassed operators: exceptions, wrong answers, forbidden uses of operands."""

import warnings

import numpy as np
import pytest
from subclassing import operator, registered

import rsnet as mx
from rsnet import MXNetError, autograd, nd

F32 = np.float32


class Custom(Exception):
    pass


def raising(*args, **kwargs):
    raise Custom("told you")


@pytest.mark.parametrize(
    "method", ["init", "list_arguments", "infer_shape", "infer_type", "create_operator",
               "declare_backward_dependency"],
)  # fmt: skip
def test_exceptions_at_the_call_keep_their_type(method):
    f = registered("t_raise_" + method, **{method: raising})
    with pytest.raises(Custom, match="told you"):
        f(nd.ones((1,)))
    if method not in ("create_operator", "infer_shape", "infer_type"):
        with pytest.raises(Custom):
            getattr(mx.sym, "t_raise_" + method)(mx.sym.Variable("x"))
    assert (nd.ones((1,)) + 1).asscalar() == 2


def test_exceptions_while_running_surface_at_the_wait_with_their_traceback():
    f = registered("t_run_fails", create_operator=lambda self, ctx: operator(raising))
    y = f(nd.ones((1,)))
    with pytest.raises(Custom, match="told you") as caught:
        y.asnumpy()
    assert any(entry.name == "raising" for entry in caught.traceback)
    assert any("t_run_fails" in note for note in caught.value.__notes__)
    s = mx.sym.t_run_fails(mx.sym.Variable("x"), name="bad")
    exe = s.simple_bind(mx.cpu(), x=(1,))
    with pytest.raises(Custom) as caught:
        exe.forward()[0].asnumpy()
    assert any("bad" in note for note in caught.value.__notes__)
    nd.waitall()


def test_exceptions_in_backward():
    copy = lambda self, c, i, r, o, a: self.assign(o[0], r[0], i[0])  # noqa: E731
    f = registered("t_back_fails", create_operator=lambda self, ctx: operator(copy, raising))
    x = nd.ones((1,))
    x.attach_grad()
    with autograd.record():
        y = f(x)
    y.backward()
    with pytest.raises(Custom):
        x.grad.asnumpy()


@pytest.mark.parametrize(
    ("method", "answer", "says"),
    [
        (
            "infer_shape",
            ([], [(1,)], []),
            "number of shapes in inputs of infer_shape 0: expected 1",
        ),
        (
            "infer_shape",
            ([(1,)], [], []),
            "number of shapes in outputs of infer_shape 0: expected 1",
        ),
        ("infer_shape", ([(1,)], [(1,)] * 2, []), "number of shapes in outputs of infer_shape 2"),
        (
            "infer_shape",
            ([(1,)], [(1,)], [(1,)]),
            "number of shapes in auxiliary states of infer_shape 1",
        ),
        ("infer_shape", 5, "result of infer_shape 5: expected"),
        ("infer_shape", ([(1,)], ["ab"], []), "expected a tuple of integers"),
        ("infer_shape", ([(1,)], [(-1,)], []), "expected extents of 0 to"),
        ("infer_shape", ([(7,)], [(1,)], []), "argument 'data' has shape"),
        ("infer_shape", None, "cannot be inferred"),
        ("infer_type", ([F32], ["float31"], []), "expected a NumPy type"),
        ("infer_type", ([F32], [], []), "number of types in outputs of infer_type 0"),
        ("infer_type", ([np.int8], [F32], []), "argument 'data' has dtype float32"),
        ("list_arguments", "data", "expected a list of names"),
        ("list_arguments", ["a", "a"], "expected every name once"),
        ("list_outputs", [], "expected at least one output"),
        ("num_visible_outputs", 3, "result of num_visible_outputs 3: expected 1 to 1"),
        ("create_operator", None, "result of create_operator None"),
        ("create_operator", mx.Operator, "result of create_operator <class"),
        ("declare_backward_dependency", [99], "expected a list of entries"),
        ("declare_backward_dependency", 7, "expected a list of entries"),
    ],
)
def test_wrong_answers(method, answer, says):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f = registered("t_wrong", **{method: lambda self, *args: answer})
    with pytest.raises((MXNetError, ValueError, TypeError), match=says):
        f(nd.ones((1,)))


@pytest.mark.parametrize(
    ("forward", "says"),
    [
        (lambda self, c, i, r, o, a: o[0], "expected None"),
        (lambda self, c, i, r, o, a: i[0].__setitem__(slice(None), 1), "read-?only"),
        (lambda self, c, i, r, o, a: self.assign(o[0], r[0], nd.ones((3, 4))), "shape|broadcast"),
        (lambda self, c, i, r, o, a: o[0].asnumpy() + object(), "unsupported operand"),
    ],
)
def test_wrong_deeds(forward, says):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f = registered("t_deeds", create_operator=lambda self, ctx: operator(forward))
    with pytest.raises(Exception, match=says):
        f(nd.ones((2,))).asnumpy()
    nd.waitall()


def test_operands_are_revoked_after_the_callback():
    kept = []

    def forward(self, ctx, in_data, req, out_data, aux):
        kept.extend([in_data[0], out_data[0], in_data[0].copy()])
        self.assign(out_data[0], req[0], in_data[0])

    f = registered("t_keeps", create_operator=lambda self, ctx: operator(forward))
    assert f(nd.array([4.0])).asscalar() == 4
    for operand in kept[:2]:
        with pytest.raises(ValueError, match="operand of an operator"):
            operand.asnumpy()
        with pytest.raises(ValueError, match="operand of an operator"):
            operand + 1
    assert kept[2].asscalar() == 4

"""Errors, and the report of a wait that does not end, name the user's line, whatever pushed the
operation.
"""

import re
import sys
import threading
from contextlib import contextmanager

import pytest

import rsnet as mx
from rsnet import autograd, engine, nd, sym

pytestmark = pytest.mark.usefixtures("no_limit")


@pytest.fixture
def no_limit():
    yield
    engine.set_wait_timeout(None)


class Limited(mx.operator.CustomOp):
    """Fails forward on what is too big, and backward always."""

    def forward(self, is_train, req, in_data, out_data, aux):
        if in_data[0].asnumpy().max() > 5:
            raise OSError("too big")
        self.assign(out_data[0], req[0], in_data[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        raise KeyError("no way back")


@mx.operator.register("test_call_sites_limited")
class LimitedProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Limited()


GATE = threading.Event()


class Held(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        GATE.wait(20)
        self.assign(out_data[0], req[0], in_data[0])


@mx.operator.register("test_call_sites_held")
class HeldProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Held()


def line():
    """The line of the caller."""
    return sys._getframe(1).f_lineno


def note_of(error, f):
    with pytest.raises(error) as caught:
        f()
    assert "test_call_sites.py" in str(caught.traceback[-1].path)
    *_, note = caught.value.__notes__  # a custom operator names itself before
    return note


def said(operator, line):
    return f"raised in operator {operator}, pushed at {__file__}:{line}"


def limited(value, shared=None):
    net = sym.Custom(sym.Variable("x") * 2, op_type="test_call_sites_limited", name="n")
    exe = net.simple_bind(mx.cpu(), x=(3,), shared_exec=shared)
    exe.arg_dict["x"][:] = value
    return exe


def test_a_failed_forward_names_the_line_of_the_run():
    exe = limited(9)
    exe.forward()
    at = line() - 1
    assert note_of(OSError, exe.outputs[0].asnumpy) == said("Custom 'n'", at)
    exe.partial_forward(False, 0)
    exe.partial_forward(False, 1)
    at = line() - 1
    assert note_of(OSError, exe.outputs[0].asnumpy) == said("Custom 'n'", at)


def test_a_failed_backward_names_the_line_of_the_run():
    exe = limited(1)
    exe.forward(is_train=True)
    exe.backward([nd.ones(3)])
    at = line() - 1
    note = note_of(KeyError, exe.grad_dict["x"].asnumpy)
    assert "Custom" in note and note.endswith(f"{__file__}:{at}")


def test_a_failed_backward_of_a_body_names_the_line_of_the_run():
    def body(data, state):
        parts = [
            sym.Custom(x, op_type="test_call_sites_limited", name=name)
            for x, name in ((state + data, "n"), (state - data, "m"))
        ]
        return parts[0] + parts[1], parts[0] + parts[1]

    _, state = sym.contrib.foreach(body, sym.Variable("d"), sym.Variable("x"))
    exe = state.simple_bind(mx.cpu(), d=(2, 3), x=(3,))
    exe.forward(is_train=True)
    exe.backward([nd.ones(3)])
    at = line() - 1
    note = note_of(KeyError, exe.grad_dict["x"].asnumpy)
    assert "Custom" in note and note.endswith(f"{__file__}:{at}")


def test_executors_that_share_memory_know_the_line_too():
    first = limited(1)
    second = limited(9, first)
    second.forward()
    at = line() - 1
    assert note_of(OSError, second.outputs[0].asnumpy) == said("Custom 'n'", at)


def recorded():
    x = nd.array([1.0])
    x.attach_grad()
    with autograd.record():
        return x, nd.Custom(x, op_type="test_call_sites_limited") * 2


def test_a_failed_gradient_names_the_line_that_asked_for_it():
    x, y = recorded()
    y.backward()
    at = line() - 1
    note = note_of(KeyError, x.grad.asnumpy)
    assert "Custom" in note and note.endswith(f"{__file__}:{at}")
    x, y = recorded()
    autograd.backward([y])
    at = line() - 1
    assert note_of(KeyError, x.grad.asnumpy).endswith(f"{__file__}:{at}")
    x, y = recorded()
    (grad,) = autograd.grad(y, [x])
    at = line() - 1
    assert note_of(KeyError, grad.asnumpy).endswith(f"{__file__}:{at}")


class OneWay(autograd.Function):
    def forward(self, x):
        return x * 2

    def backward(self, dy):
        raise self.error


def test_a_function_that_fails_backwards_is_named_with_the_line():
    x = nd.array([1.0])
    x.attach_grad()
    function = OneWay()
    function.error = RuntimeError("mine")
    function.error.__cause__ = ValueError("why")
    with autograd.record():
        y = function(x)
    at = line() + 2
    with pytest.raises(RuntimeError) as caught:
        y.backward()
    assert caught.value is function.error
    assert isinstance(caught.value.__cause__, ValueError)
    assert "backward" in [frame.name for frame in caught.traceback]
    assert caught.value.__notes__ == [said("OneWay", at)]


def test_wrong_gradients_of_a_function_name_it():
    class Short(OneWay):
        def backward(self, dy):
            return nd.ones(7)

    x = nd.array([1.0])
    x.attach_grad()
    with autograd.record():
        y = Short()(x)
    at = line() + 2
    with pytest.raises(ValueError, match="Short: .*shape") as caught:
        y.backward()
    assert f"pushed at {__file__}:{at}" in str(caught.value)


@contextmanager
def held(array):
    """While it holds, an operation that writes the array is running."""
    GATE.clear()
    source = nd.ones(array.shape)

    def hold():
        nd.Custom(source, op_type="test_call_sites_held", out=array)

    thread = threading.Thread(target=hold)
    thread.start()
    engine.set_wait_timeout(0.05)
    try:
        while True:
            try:
                array.wait_to_read()
            except mx.MXNetError:
                break
        yield
    finally:
        GATE.set()
        thread.join()
        engine.set_wait_timeout(None)
        nd.waitall()


def reported(wait):
    """What a wait that does not end says of each operation: its name, and where it was pushed."""
    with pytest.raises(mx.MXNetError, match="has not ended") as caught:
        wait()
    found = re.findall(r"operation '(.*?)' .*?(?:pushed at (.*))?$", str(caught.value), re.M)
    return {name: at.replace(__file__ + ":", "") for name, at in found}


def test_a_wait_for_an_executor_names_the_lines_of_its_runs():
    x = sym.Variable("x")
    exe = sym.exp(x * 2).simple_bind(mx.cpu(), x=(3,))
    exe.forward(is_train=True)
    with held(exe.arg_dict["x"]):
        exe.forward(is_train=True)
        at = line() - 1
        found = reported(exe.outputs[0].wait_to_read)
        assert found.pop("Custom")
        assert found and set(found.values()) == {str(at)}
        exe.backward([nd.ones(3)])
        at = line() - 1
        found = reported(exe.grad_dict["x"].wait_to_read)
        assert str(at) in found.values() and all(found.values())


@pytest.mark.parametrize("rows", [4, 4000])
def test_a_wait_names_the_lines_of_copies_and_fills(rows):
    a, b, c, d = (nd.zeros((rows, 3)) for _ in range(4))
    with held(a):
        a.copyto(b)
        b_at = line() - 1
        c[1:3] = a[1:3]
        c_at = line() - 1
        d[:, 1:] = a[:, 1:]
        d_at = line() - 1
        a[:] = 7
        a_at = line() - 1
        for array, at in [(b, b_at), (c, c_at), (d, d_at), (a, a_at)]:
            found = reported(array.wait_to_read)
            assert all(found.values())
            assert str(at) in found.values()


def test_a_wait_names_the_lines_of_gradients():
    x = nd.ones(3)
    x.attach_grad()
    with held(x):
        with autograd.record():
            y = nd.sin(x)
        y.backward()
        at = line() - 1
        found = reported(x.grad.wait_to_read)
        assert all(found.values())
        assert str(at) in found.values()


def reported_of(v, gate):
    """What a wait for `v` reports until `gate` opens what it waits for."""
    engine.set_wait_timeout(0.05)
    try:
        return reported(lambda: engine.wait_for_var(v))
    finally:
        gate.set()


def test_a_wait_for_a_bulk_names_its_functions_and_their_lines():
    v, gate = engine.new_variable(), threading.Event()
    with engine.bulk(20):
        engine.push_sync(lambda rc: gate.wait(20), mutate_vars=[v], name="one")
        engine.push_sync(lambda rc: None, mutate_vars=[v], name="two")
    at = line() - 1
    found = reported_of(v, gate)
    assert found == {"ImperativeBulk": f"one ({at - 1}), two ({at})"}
    engine.set_wait_timeout(None)
    engine.wait_for_all()


def test_a_wait_for_a_long_bulk_names_the_first_functions():
    v, gate = engine.new_variable(), threading.Event()
    with engine.bulk(20):
        for i in range(11):
            engine.push_sync(lambda rc: gate.wait(20), mutate_vars=[v], name=f"f{i}")
    at = line() - 1
    found = reported_of(v, gate)
    names = ", ".join(f"f{i} ({at})" for i in range(8))
    assert found == {"ImperativeBulk": f"{names} and 3 more"}

"""Operators in Python that get arrays of CuPy over their operands, and those that a condition on
the device chooses. CuPy itself needs a device; `emulated_cupy` stands in for it.
"""

import sys
import warnings

import emulated_cupy
import numpy as np
import pytest

import rsnet as mx
from rsnet import nd, op

SEEN = []


@pytest.fixture(autouse=True)
def cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", emulated_cupy)
    SEEN.clear()


def note(ctx, arrays):
    first = arrays[0]
    stream = device = None
    if isinstance(first, emulated_cupy.ndarray):
        stream, device = emulated_cupy.get_current_stream().ptr, first.device.id
    addresses = [getattr(a.data, "ptr", None) for a in arrays]
    SEEN.append(({type(a) for a in arrays}, addresses, stream, device))


class Square(mx.Operator):
    def forward(self, ctx, in_data, req, out_data, aux_states):
        note(ctx, [*in_data, *out_data])
        self.assign(out_data[0], req[0], in_data[0] * in_data[0])

    def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux_states):
        note(ctx, [*out_grad, *in_data, *in_grad])
        self.assign(in_grad[0], req[0], in_data[0] * out_grad[0] * 2)


@mx.operator.register("cupy_square")
class SquareProperty(mx.OperatorProperty):
    views = "cupy"

    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]], []

    def accumulates(self):
        return True

    def create_operator(self, ctx):
        return Square()


def address(x):
    return x.__cuda_array_interface__["data"][0]


@pytest.mark.parametrize("device", [0, 1])
def test_operands_are_those_of_the_device_and_so_is_the_stream(device):
    ctx = mx.gpu(device)
    x = nd.array([[1, 2, 3], [4, 5, 6]], ctx=ctx)
    x.attach_grad()
    with mx.autograd.record():
        y = nd.cupy_square(x)
    y.backward(nd.full((2, 3), 0.5, ctx=ctx))
    np.testing.assert_array_equal(y.asnumpy(), x.asnumpy() ** 2)
    np.testing.assert_array_equal(x.grad.asnumpy(), x.asnumpy())
    (kinds, forward, stream, where), (_, backward, _, _) = SEEN
    assert kinds == {emulated_cupy.ndarray} and where == device
    assert stream == mx.cuda.device(device).stream
    assert forward == [address(x), address(y)]
    assert backward[1] == address(x)
    assert not {"cupy_square", "_backward_cupy_square"} & set(mx.cuda.operators_on_host())


def test_requests_of_an_executor(gpu):
    net = mx.sym.cupy_square(mx.sym.var("x") + 1)
    x, dx = nd.array([1.0, 2.0], ctx=gpu), nd.array([10.0, 10.0], ctx=gpu)
    exe = net.bind(gpu, {"x": x}, args_grad={"x": dx}, grad_req="add")
    for _ in range(2):
        out = exe.forward(is_train=True)[0]
        exe.backward([nd.ones((2,), ctx=gpu)])
    np.testing.assert_array_equal(out.asnumpy(), [4, 9])
    np.testing.assert_array_equal(dx.asnumpy(), [18, 22])


def test_views_of_numpy_on_the_host():
    y = nd.cupy_square(nd.array([3.0]))
    assert y.asnumpy().tolist() == [9] and SEEN[0][0] == {np.ndarray}


def test_the_function_runs_ahead_of_the_device(gpu, emulated):
    """What it issues is neither waited for nor overtaken."""

    def fills(attrs, ctx, inputs, req, outputs):
        outputs[0][:] = inputs[0]
        outputs[1].fill(1)

    entry = op.register("cupy_fills").set_num_outputs(2)
    entry.set_attr("FInferShape", op.ElemwiseShape(1, 2))
    entry.set_attr("FInferType", op.ElemwiseType(1, 2))
    entry.set_attr("FCompute<gpu>", fills, views="cupy")
    x = nd.zeros((50,), ctx=gpu, dtype="int32")
    nd.waitall()
    with emulated.held():
        same, filled = nd.cupy_fills(x + 7)
        later = same + filled
    np.testing.assert_array_equal(later.asnumpy(), np.full(50, 0x01010101 + 7))
    with pytest.raises(mx.MXNetError, match="no kernel matches on cpu"):
        nd.cupy_fills(nd.zeros((3,))).asnumpy()


def test_a_decorated_function(gpu):
    @op.op("cupy_triple", views="cupy")
    def triple(x):
        SEEN.append(type(x))
        return x * 3

    @triple.gradient
    def _(out_grads, inputs, outputs):
        return out_grads[0] * 3

    for ctx, kind in ((gpu, emulated_cupy.ndarray), (mx.cpu(), np.ndarray)):
        x = nd.array([1.0, 2.0], ctx=ctx)
        x.attach_grad("add")
        for _ in range(2):
            with mx.autograd.record():
                y = nd.cupy_triple(x)
            y.backward()
        assert y.asnumpy().tolist() == [3, 6] and x.grad.asnumpy().tolist() == [6, 6]
        assert SEEN.pop() is kind


def registered(name, run):
    entry = op.register(name, views="cupy")
    entry.set_attr("FInferShape", op.ElemwiseShape(1, 1))
    entry.set_attr("FInferType", op.ElemwiseType(1, 1))
    entry.set_attr("FCompute<gpu>", run)
    return getattr(nd, name)


def test_arrays_without_elements(gpu):
    def run(attrs, ctx, inputs, req, outputs):
        assert inputs[0].shape == outputs[0].shape == (0, 3)

    with mx.util.np_shape(True):
        assert registered("cupy_nothing", run)(nd.zeros((0, 3), ctx=gpu)).shape == (0, 3)


def test_an_output_that_is_replaced_is_an_error(gpu):
    def run(attrs, ctx, inputs, req, outputs):
        outputs[0] = inputs[0] * 2

    with pytest.raises(mx.MXNetError, match=r"replaced outputs\[0\] by another object"):
        registered("cupy_replaces", run)(nd.ones((3,), ctx=gpu)).asnumpy()


def test_an_array_that_is_kept_is_warned_of(gpu):
    kept = []

    def run(attrs, ctx, inputs, req, outputs):
        outputs[0][:] = inputs[0]
        kept.append(inputs[0])

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        registered("cupy_keeps", run)(nd.ones((3,), ctx=gpu)).asnumpy()
    assert [w for w in seen if "'cupy_keeps': a view of an operand" in str(w.message)]


def test_an_exception_reaches_the_caller(gpu):
    def run(attrs, ctx, inputs, req, outputs):
        raise ZeroDivisionError("of the function")

    with pytest.raises(ZeroDivisionError, match="of the function"):
        registered("cupy_raises", run)(nd.ones((3,), ctx=gpu)).asnumpy()
    assert not emulated_cupy._State.streams and not emulated_cupy._State.devices


def test_without_cupy_the_error_says_what_to_install(gpu, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    needs = "operator 'cupy_square' takes arrays of CuPy .*pip install rsnet.cuda13"
    with pytest.raises(ImportError, match=needs):
        nd.cupy_square(nd.ones((3,), ctx=gpu)).asnumpy()


def test_views_that_there_are_not():
    class Other(mx.OperatorProperty):
        views = "jax"

    expected = "invalid views 'jax': expected one of: ndarray, numpy, cupy"
    with pytest.raises(ValueError, match=expected):
        mx.operator.register("cupy_other")(Other)


def test_what_is_written_by_the_address_of_an_output_stays(gpu):
    """An operator on NDArrays may hand their memory to CuPy by itself."""

    def run(attrs, ctx, inputs, req, outputs):
        found = outputs[0].__cuda_array_interface__
        assert found["stream"] == ctx.stream
        memory = emulated_cupy.UnownedMemory(found["data"][0], 12, outputs[0])
        there = emulated_cupy.ndarray((3,), "int32", emulated_cupy.MemoryPointer(memory, 0))
        with emulated_cupy.Device(0), emulated_cupy.Stream.from_external(Handle(ctx.stream)):
            there.fill(2)

    class Handle:
        def __init__(self, ptr):
            self.ptr = ptr

        def __cuda_stream__(self):
            return 0, self.ptr

    entry = op.register("cupy_by_address")
    entry.set_attr("FInferShape", op.ElemwiseShape(1, 1))
    entry.set_attr("FInferType", op.ElemwiseType(1, 1))
    entry.set_attr("FCompute<gpu>", run)
    got = nd.cupy_by_address(nd.zeros((3,), ctx=gpu, dtype="int32"))
    np.testing.assert_array_equal(got.asnumpy(), np.full(3, 0x02020202))


def test_a_user_operator_has_a_kernel_for_devices(gpu):
    def infer(ctx):
        ctx.out("out").like(ctx.inp("in"))

    op.define("cupy_user", inputs="in", outputs="out", infer=infer)

    @op.kernel("cupy_user", where=op.device("gpu"))
    def on_device(ctx):
        assert ctx.inp("in").context == gpu
        ctx.out("out")[:] = ctx.inp("in") + 1

    @op.kernel("cupy_user", where=op.device("cpu") & (op.dtype("in") == "float32"))
    def on_host(ctx):
        ctx.out("out")[:] = ctx.inp("in") + 2

    assert nd.cupy_user(nd.zeros((2,), ctx=gpu)).asnumpy().tolist() == [1, 1]
    assert nd.cupy_user(nd.zeros((2,))).asnumpy().tolist() == [2, 2]
    assert "cupy_user" not in mx.cuda.operators_on_host()
    net = mx.sym.cupy_user(mx.sym.var("x"))
    exe = net.simple_bind(gpu, x=(2,), grad_req="null")
    assert exe.forward(x=nd.zeros((2,), ctx=gpu))[0].asnumpy().tolist() == [1, 1]
    with pytest.raises(mx.MXNetError, match="no kernel matches on cpu"):
        nd.cupy_user(nd.zeros((2,), dtype="int32")).asnumpy()

"""How kernels come to a device: who loads them, and what is said when that fails."""

import collections

import numpy as np
import pytest
from conftest import assert_near
from processes import printed

import rsnet as mx
from rsnet import _core, nd


def test_a_call_with_a_kernel_does_not_run_on_the_host(gpu):
    x = nd.array(np.arange(12.0).reshape(3, 4), ctx=gpu)
    before = set(mx.cuda.operators_on_host())
    y = nd.softmax(nd.relu(nd.dot(x, x.T) - 3).sum(axis=0, keepdims=True))
    y.wait_to_read()
    assert set(mx.cuda.operators_on_host()) == before
    assert "cuda" in [name for name, _, _ in _core.operator_kernels("relu")]


def test_every_function_belongs_to_a_source_and_has_its_types():
    functions = _core.cuda_functions()
    assert len(functions) == len({(source, name) for source, _, name in functions})
    by_source = collections.Counter(source for source, _, _ in functions)
    assert by_source["elementwise"] > 500 and by_source["dense"] >= 3
    assert not [name for _, _, name in functions if "$" in name]


@pytest.mark.parametrize("n", [1, 255, 256, 257, 70_000])
def test_grids_cover_every_element_once(n, gpu):
    x = nd.arange(n, ctx=gpu)
    y = nd.ones((n,), ctx=gpu)
    x.attach_grad()
    with mx.autograd.record():
        out = x * 2 + y
    out.backward()
    np.testing.assert_array_equal(out.asnumpy(), np.arange(n) * 2 + 1)
    np.testing.assert_array_equal(x.grad.asnumpy(), np.full(n, 2.0))


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((70_001,), 0), ((5, 3001), 1), ((3001, 5), 0), ((7, 1500, 2), (0, 2)), ((2000, 2), 1)],
)
@pytest.mark.parametrize("op", ["sum", "max", "mean", "norm"])
def test_reductions_of_every_form(op, shape, axis, gpu):
    values = np.random.RandomState(3).standard_normal(shape).astype("float32")
    got = getattr(nd, op)(nd.array(values, ctx=gpu), axis=axis).asnumpy()
    assert_near(got, getattr(nd, op)(nd.array(values), axis=axis).asnumpy())


@pytest.mark.parametrize("kernel", [(2, 2), (3, 3), (1, 3)])
def test_maxima_of_windows_ignore_nan_as_on_the_host(kernel, gpu):
    random = np.random.RandomState(4)
    values = random.randint(-2, 3, (2, 3, 7, 8)).astype("float32")
    values[random.uniform(size=values.shape) < 0.4] = np.nan
    values[random.uniform(size=values.shape) < 0.1] = -np.inf
    values[0, 0] = np.nan
    found = []
    for ctx in (mx.cpu(), gpu):
        x = nd.array(values, ctx=ctx)
        x.attach_grad()
        with mx.autograd.record():
            y = nd.Pooling(x, kernel=kernel, stride=(2, 1), pad=(0, 0), pool_type="max")
        y.backward(nd.arange(y.size, ctx=ctx).reshape(y.shape))
        found.append((y.asnumpy(), x.grad.asnumpy()))
    (host, slopes), (device, found_slopes) = found
    np.testing.assert_array_equal(device, host)
    np.testing.assert_array_equal(found_slopes, slopes)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (65, 63, 17), (3, 130, 200), (128, 64, 16)])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_products_of_every_form(sizes, transposed, gpu):
    m, n, k = sizes
    ta, tb = transposed
    random = np.random.RandomState(1)
    a = random.standard_normal((k, m) if ta else (m, k)).astype("float32")
    b = random.standard_normal((n, k) if tb else (k, n)).astype("float32")
    results = []
    for ctx in (mx.cpu(), gpu):
        x, y = nd.array(a, ctx=ctx), nd.array(b, ctx=ctx)
        x.attach_grad()
        y.attach_grad()
        with mx.autograd.record():
            out = nd.dot(x, y, transpose_a=ta, transpose_b=tb)
        out.backward(nd.array(random.standard_normal((m, n)), ctx=ctx) * 0 + 0.5)
        results.append([out.asnumpy(), x.grad.asnumpy(), y.grad.asnumpy()])
    for want, got in zip(*results, strict=True):
        assert_near(got, want)


@pytest.mark.process
def test_what_is_missing_is_named():
    text = printed(
        """
        import rsnet as mx
        x = mx.nd.array([1.0], ctx=mx.gpu(0))
        try:
            mx.nd.relu(x)
        except Exception as error:
            print(type(error).__name__, error)
        print(mx.nd.relu(mx.nd.array([-1.0])).asnumpy())
        """,
        RSNET_CUDA_LOADER="",
    )
    lines = text.splitlines()
    if "need CuPy" not in lines[0]:
        pytest.skip("CuPy is installed")
    assert "operators on gpu(0) need CuPy" in lines[0] and "pip install rsnet[cuda13]" in lines[0]
    assert lines[-1] == "[0.]"


@pytest.mark.process
def test_a_cupy_that_cannot_use_the_device_is_named():
    text = printed(
        """
        import sys, types

        class CUDARuntimeError(RuntimeError):
            pass

        class Device:
            def __init__(self, number):
                pass

            def __enter__(self):
                raise CUDARuntimeError("cudaErrorInsufficientDriver")

            def __exit__(self, *error):
                pass

        cupy = types.ModuleType("cupy")
        cupy.__version__ = "14.2.0"
        cupy.cuda = types.SimpleNamespace(
            Device=Device, compiler=types.SimpleNamespace(CompileException=SyntaxError)
        )
        sys.modules["cupy"] = cupy
        import rsnet as mx

        try:
            mx.nd.relu(mx.nd.array([1.0], ctx=mx.gpu(0)))
        except mx.MXNetError as error:
            print(error)
        """,
        RSNET_CUDA_LOADER="",
    )
    assert "operators on gpu(0) need CuPy" in text
    assert "gpu(0), and CuPy 14.2.0 cannot: cudaErrorInsufficientDriver" in text


@pytest.mark.process
def test_a_source_that_does_not_compile_is_shown():
    text = printed("""
        import rsnet as mx
        from rsnet.cuda import _loader

        text = _loader._text
        _loader._text = lambda name: text(name) + "__global__ void wrong() { undeclared = 1; }"
        try:
            mx.nd.relu(mx.nd.array([1.0], ctx=mx.gpu(0)))
        except Exception as error:
            print(error)
    """)
    assert "elementwise.cu does not compile" in text and "undeclared" in text


@pytest.mark.process
def test_threads_that_wait_for_one_another_are_a_fault():
    """A barrier that some threads of a block pass by is an error of the operation."""
    text = printed("""
        import rsnet as mx
        from rsnet.cuda import _loader

        text = _loader._text
        broken = "if (threadIdx.x == 0) __syncthreads(); for (Index i = first()"
        _loader._text = lambda name: text(name).replace("for (Index i = first()", broken)
        x = mx.nd.array([1.0, 2.0], ctx=mx.gpu(0))
        y = mx.nd.relu(x)
        try:
            y.asnumpy()
        except mx.MXNetError as error:
            print(str(error).splitlines()[0])
        try:
            mx.nd.waitall()
        except mx.MXNetError:
            pass
    """)
    assert text.splitlines()[0].startswith("relu: gpu(0): ")
    assert "CUDA error 719" in text


def lenet():
    x = mx.sym.Variable("data")
    x = mx.sym.Convolution(x, kernel=(3, 3), num_filter=4, pad=(1, 1), name="c1")
    x = mx.sym.BatchNorm(x, fix_gamma=False, name="n1")
    x = mx.sym.Activation(x, act_type="relu")
    x = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")
    x = mx.sym.Convolution(x, kernel=(3, 3), num_filter=6, stride=(2, 2), num_group=2, name="c2")
    x = mx.sym.Activation(x, act_type="tanh")
    x = mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=10, name="f1")
    x = mx.sym.Dropout(x, p=0.3)
    x = mx.sym.FullyConnected(x, num_hidden=3, name="f2")
    return mx.sym.SoftmaxOutput(x, name="softmax")


def trained(ctx, steps=3):
    """Parameters and outputs after some steps of a small network."""
    mx.random.seed(7)
    exe = lenet().simple_bind(ctx, data=(6, 1, 8, 8), softmax_label=(6,))
    random = np.random.RandomState(5)
    moments = {}
    for name, array in exe.arg_dict.items():
        array[:] = random.standard_normal(array.shape).astype("float32") * 0.3
        moments[name] = nd.zeros(array.shape, ctx=ctx)
    exe.arg_dict["softmax_label"][:] = np.arange(6) % 3
    for array in exe.aux_dict.values():
        array[:] = 1
    for _ in range(steps):
        out = exe.forward(is_train=True)[0]
        exe.backward()
        for name, grad in exe.grad_dict.items():
            if name not in ("data", "softmax_label"):
                w = exe.arg_dict[name]
                nd.sgd_mom_update(w, grad, moments[name], lr=0.1, momentum=0.9, out=w)
    arrays = {**exe.arg_dict, **exe.aux_dict}
    return [out.asnumpy()] + [arrays[name].asnumpy() for name in sorted(arrays)]


def test_a_network_trains_on_kernels_alone(gpu):
    before = set(mx.cuda.operators_on_host())
    got = trained(gpu)
    assert set(mx.cuda.operators_on_host()) - before == set()
    for a, b in zip(got, trained(mx.cpu()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)

"""Kernels that a program compiles: `mx.rtc.CudaModule`, and the older `mx.rtc.Rtc`."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd

AXPY = r"""
extern "C" __global__ void axpy(const float *x, float *y, float alpha) {
  int i = threadIdx.x + blockIdx.x * blockDim.x;
  y[i] += alpha * x[i];
}
"""
SIGNATURE = "const float *x, float *y, float alpha"


@pytest.fixture
def axpy():
    return mx.rtc.CudaModule(AXPY).get_kernel("axpy", SIGNATURE)


def test_a_kernel_takes_arrays_and_numbers(gpu, axpy):
    x, y = nd.arange(12, ctx=gpu), nd.ones((12,), ctx=gpu)
    axpy.launch([x, y, 3.0], gpu, (3, 1, 1), (4, 1, 1))
    np.testing.assert_array_equal(y.asnumpy(), 3 * np.arange(12) + 1)


def test_launches_are_ordered_with_operators_and_are_issued_at_once(gpu, axpy, emulated):
    x, y = nd.ones((8,), ctx=gpu), nd.zeros((8,), ctx=gpu)
    nd.waitall()
    with emulated.held():
        for _ in range(5):
            axpy.launch([x, y, 2], gpu, (1, 1, 1), (8, 1, 1))
            y = y * 2
            x += 1
    want, step = np.zeros(8), np.ones(8)
    for _ in range(5):
        want, step = (want + 2 * step) * 2, step + 1
    np.testing.assert_array_equal(y.asnumpy(), want)


def test_templates_are_exported_by_name(gpu):
    source = """
template <typename DType> __global__ void axpy(const DType *x, DType *y, DType alpha) {
  int i = threadIdx.x + blockIdx.x * blockDim.x;
  y[i] += alpha * x[i];
}"""
    module = mx.rtc.CudaModule(source, exports=["axpy<float>", "axpy<double>"])
    for dtype, c_type in (("float32", "float"), ("float64", "double")):
        kernel = module.get_kernel(
            f"axpy<{c_type}>", f"const {c_type} *x, {c_type} *y, {c_type} alpha"
        )
        x, y = nd.ones((10,), gpu, dtype), nd.zeros((10,), gpu, dtype)
        kernel.launch([x, y, 0.5], gpu, (1, 1, 1), (10, 1, 1))
        assert y.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(y.asnumpy(), np.full(10, 0.5))


def test_numbers_of_every_type_arrive(gpu):
    types = {"int8_t": -7, "unsigned char": 200, "int": -70000, "long long": 2**40, "double": 0.1}
    source = "#include <stdint.h>\n" + "".join(
        f'extern "C" __global__ void fill_{i}(double *y, const {c_type} value) '
        "{ y[threadIdx.x] = (double)value; }\n"
        for i, c_type in enumerate(types)
    )
    module = mx.rtc.CudaModule(source)
    for i, (c_type, value) in enumerate(types.items()):
        y = nd.zeros((3,), gpu, "float64")
        kernel = module.get_kernel(f"fill_{i}", f"double* __restrict__ y, {c_type} const value")
        kernel.launch([y, np.float64(value) if c_type == "double" else value], gpu, *GRID)
        np.testing.assert_array_equal(y.asnumpy(), np.full(3, value))


GRID = ((1, 1, 1), (3, 1, 1))


def test_blocks_have_dynamic_shared_memory_and_three_axes(gpu):
    source = r"""
extern "C" __global__ void reverse(const int *x, int *y) {
  extern __shared__ int row[];
  int at = threadIdx.x + blockDim.x * threadIdx.y, all = blockDim.x * blockDim.y;
  row[at] = x[all * blockIdx.z + at];
  __syncthreads();
  y[all * blockIdx.z + at] = row[all - 1 - at];
}"""
    kernel = mx.rtc.CudaModule(source).get_kernel("reverse", "const int *, int *")
    x, y = nd.arange(48, ctx=gpu, dtype="int32"), nd.zeros((48,), gpu, "int32")
    for shared in (48, 60 << 10):
        y[:] = 0
        kernel.launch([x, y], gpu, (1, 1, 4), (4, 3, 1), shared)
        want = np.arange(48).reshape(4, 12)[:, ::-1].ravel()
        np.testing.assert_array_equal(y.asnumpy(), want)


def test_views_and_an_array_that_comes_twice(gpu, axpy):
    x = nd.arange(8, ctx=gpu)
    axpy.launch([x[4:], x[:4], 1], gpu, (1, 1, 1), (4, 1, 1))
    axpy.launch([x, x, 1], gpu, (1, 1, 1), (8, 1, 1))
    np.testing.assert_array_equal(x.asnumpy(), [8, 12, 16, 20, 8, 10, 12, 14])


def test_a_failed_operand_is_the_error_of_what_is_written(gpu, axpy):
    @mx.op.op("fails_before_a_launch")
    def fail(x):
        raise ValueError("no numbers today")

    x, y = nd.fails_before_a_launch(nd.ones((4,), ctx=gpu)), nd.zeros((4,), ctx=gpu)
    axpy.launch([x, y, 1], gpu, (1, 1, 1), (4, 1, 1))
    with pytest.raises(ValueError, match="no numbers today"):
        y.asnumpy()


def test_a_refusal_of_the_driver_names_the_kernel(gpu, axpy):
    x, y = nd.ones((4,), ctx=gpu), nd.zeros((4,), ctx=gpu)
    axpy.launch([x, y, 1], gpu, (1, 1, 1), (4, 1, 1), 1 << 20)
    with pytest.raises(mx.MXNetError, match="cuFuncSetAttribute .* of axpy"):
        y.wait_to_read()
    x[:] = 2  # nothing else is harmed
    np.testing.assert_array_equal(x.asnumpy(), np.full(4, 2))


def test_source_and_names_that_are_wrong():
    with pytest.raises(mx.MXNetError, match="mx.rtc does not compile"):
        mx.rtc.CudaModule('extern "C" __global__ void f(float *x) { x[0] = undeclared; }')
    with pytest.raises(mx.MXNetError, match="no kernel 'axp'"):
        mx.rtc.CudaModule(AXPY).get_kernel("axp", SIGNATURE)
    with pytest.raises(TypeError, match="invalid source"):
        mx.rtc.CudaModule(b"text")


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("const flaot *x", "invalid parameter 0 'const flaot \\*x' of the signature"),
        ("float *x, int **y", "invalid parameter 1"),
        ("const float *x, float *y", r"invalid signature of axpy '\[8, 8\]'.* \[8, 8, 4\]"),
        ("const float *x, float *y, double alpha", r"expected .* \[8, 8, 4\]"),
        ("const float *x, float *y, float a, int n", r"expected .* \[8, 8, 4\]"),
        ("", "invalid signature of axpy"),
    ],
)
def test_signatures_that_do_not_fit(signature, message):
    with pytest.raises(ValueError, match=message):
        mx.rtc.CudaModule(AXPY).get_kernel("axpy", signature)


def test_launches_that_are_refused(gpu, axpy):
    x, y = nd.ones((4,), ctx=gpu), nd.zeros((4,), ctx=gpu)
    one, four = (1, 1, 1), (4, 1, 1)
    refused = {
        "invalid number of arguments '2': expected 3": ([x, y], gpu, one, four),
        "invalid ctx 'cpu": ([x, y, 1], mx.cpu(), one, four),
        "invalid device of x 'cpu.0.': expected gpu": ([nd.ones(4), y, 1], gpu, one, four),
        "invalid dtype of y '.*int32.*': expected float32": (
            [x, y.astype("int32"), 1],
            gpu,
            one,
            four,
        ),
        "invalid x '3': expected an array of float32": ([3, y, 1], gpu, one, four),
        "invalid alpha of type NDArray: expected a number": ([x, y, y], gpu, one, four),
        r"invalid grid_dims '\(0, 1, 1\)'": ([x, y, 1], gpu, (0, 1, 1), four),
        r"invalid grid_dims '\(1, 1\)'": ([x, y, 1], gpu, (1, 1), four),
        r"invalid block_dims '\(64, 64, 1\)'.*1024 threads": ([x, y, 1], gpu, one, (64, 64, 1)),
        "invalid shared_mem '-1'": ([x, y, 1], gpu, one, four, -1),
    }
    for message, arguments in refused.items():
        with pytest.raises(ValueError, match=f"axpy: {message}"):
            axpy.launch(*arguments)
    np.testing.assert_array_equal(y.asnumpy(), np.zeros(4))


def test_integers_must_fit_their_parameter(gpu):
    source = 'extern "C" __global__ void put(int *y, signed char n) { *y = n; }'
    kernel = mx.rtc.CudaModule(source).get_kernel("put", "int *y, signed char n")
    y = nd.zeros((1,), gpu, "int32")
    for value in (128, -129, 0.5, "1", 1j):
        with pytest.raises(ValueError, match="put: invalid n .* fits int8"):
            kernel.launch([y, value], gpu, (1, 1, 1), (1, 1, 1))


def test_the_older_interface_declares_arrays(gpu):
    x, y = nd.arange(10, ctx=gpu), nd.zeros((10,), gpu)
    body = "int i = threadIdx.x; if (i < x_dims[0] && y_ndim == 1) y[i] = x[i] * 10;"
    kernel = mx.rtc.Rtc("ten_times", [("x", x)], [("y", y)], body)
    kernel.push([x], [y], (1, 1, 1), (32, 1, 1))
    np.testing.assert_array_equal(y.asnumpy(), 10 * np.arange(10))
    with pytest.raises(ValueError, match=r"ten_times: invalid shape '\(4,\)': expected \(10,\)"):
        kernel.push([x[:4]], [y], (1, 1, 1), (32, 1, 1))
    with pytest.raises(ValueError, match="invalid number of arguments '1': expected 2"):
        kernel.push([x], [], (1, 1, 1), (32, 1, 1))

"""Arrays: creation, NumPy, arithmetic, indexing, methods, files, DLPack, laziness and errors."""

import operator
import threading

import numpy as np
import pytest
from arrays import DTYPES, counting

import rsnet as mx
from rsnet import _core, nd

# Creation and NumPy


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_round_trip(dtype):
    values = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    x = nd.array(values, dtype=dtype)
    assert x.dtype is np.dtype(dtype).type
    assert x.shape == (2, 3) and x.size == 6 and x.ndim == 2
    np.testing.assert_array_equal(x.asnumpy(), values)
    assert x.asnumpy().dtype == values.dtype


def test_array_takes_float32_unless_it_copies_an_array():
    assert nd.array(np.array([1, 2])).dtype is np.float32
    assert nd.array(np.array([1.0])).dtype is np.float32
    assert nd.array(nd.array([1], dtype="int32")).dtype is np.int32
    with pytest.raises(TypeError, match="invalid source_array <object .*: expected an array"):
        nd.array(object())
    with pytest.raises(TypeError, match="invalid dtype 'real': expected one of: float32"):
        nd.array([1], dtype="real")


def test_creation_functions_match_numpy():
    cases = [
        (nd.zeros((2, 3)), np.zeros((2, 3))),
        (nd.ones(4, dtype="int32"), np.ones(4)),
        (nd.full((2,), 7.5), np.full(2, 7.5)),
        (nd.arange(2, 8, 2), np.arange(2, 8, 2)),
        (nd.arange(3, repeat=2), [0, 0, 1, 1, 2, 2]),
        (nd.linspace(0, 1, 5), np.linspace(0, 1, 5)),
        (nd.eye(3, 4, 1), np.eye(3, 4, 1)),
        (nd.moveaxis(nd.array(counting(2, 3, 4)), 0, 2), np.moveaxis(counting(2, 3, 4), 0, 2)),
    ]
    for got, want in cases:
        np.testing.assert_array_equal(got.asnumpy(), want)


def test_extents_are_whole_numbers():
    for make in (nd.zeros, nd.ones, nd.empty):
        with pytest.raises(TypeError, match=r"2\.5"):
            make((2.5,))
        assert make((np.int64(2), 3)).shape == (2, 3) and make(np.int32(4)).shape == (4,)
    with pytest.raises(TypeError, match=r"12\.5"):
        nd.ones((25,)).reshape((12.5, 2))


def test_large_integers_are_exact():
    big = 2**53
    for got, want in [
        (nd.arange(big, big + 3, dtype="int64"), [big, big + 1, big + 2]),
        (nd.arange(float(big), float(big + 4), 2, dtype="int64"), [big, big + 2]),
        (nd.linspace(big, big + 2, 3, dtype="int64"), [big, big + 1, big + 2]),
        (nd.linspace(-big - 3, -big - 1, 2, endpoint=False, dtype="int64"), [-big - 3, -big - 2]),
        (nd.full((2,), big + 1, dtype="int64"), [big + 1] * 2),
        (nd.array([big + 1, -big - 1], dtype="int64"), [big + 1, -big - 1]),
    ]:
        assert got.asnumpy().tolist() == want


def test_squeeze_shares_memory_only_inplace():
    x = nd.zeros((1, 2, 1))
    y = x.squeeze()
    y[:] = 5
    assert y.shape == (2,) and x.asnumpy().sum() == 0
    x.squeeze(axis=-1, inplace=True)[:] = 5
    assert x.asnumpy().sum() == 10
    for inplace in (False, True):
        assert x.squeeze(axis=(0, -1), inplace=inplace).shape == (2,)
        for axis in (3, -4, (0, 5)):
            with pytest.raises(ValueError, match="out of range|expected -3 to 2"):
                x.squeeze(axis=axis, inplace=inplace)
    with pytest.raises(ValueError, match="expand_dims: invalid axis 5: expected -4 to 3"):
        x.expand_dims(5, inplace=True)


def test_boolean_masks_are_no_indices():
    x = nd.arange(4).reshape((2, 2))
    mask = nd.array([1, 0], dtype="bool")
    for key in (mask, (slice(None), mask)):
        with pytest.raises(ValueError, match="boolean mask"):
            x[key]
        with pytest.raises(ValueError, match="boolean mask"):
            x[key] = 0
    assert x.asnumpy().tolist() == [[0, 1], [2, 3]]


def test_asnumpy_is_a_copy():
    x = nd.ones((2,))
    x.asnumpy()[:] = 5
    assert x.asnumpy().tolist() == [1, 1]


def test_gpu_is_a_clear_error():
    with pytest.raises(mx.MXNetError, match="gpu"):
        nd.zeros((2,), ctx=mx.gpu(0))


# Contexts


def test_contexts():
    assert str(mx.cpu(1)) == "cpu(1)" and mx.cpu(1) == mx.Context("cpu", 1)
    assert mx.Context(mx.gpu(2)).device_typeid == 2
    assert len({mx.cpu(0), mx.cpu(0), mx.cpu(1)}) == 2
    with pytest.raises(KeyError, match="invalid device type 'tpu'"):
        mx.Context("tpu")
    with mx.cpu(1):
        with mx.Context("cpu", 2):
            assert nd.zeros((1,)).context == mx.cpu(2)
        assert mx.current_context() == mx.cpu(1)
    assert mx.current_context() == mx.cpu(0)
    assert nd.zeros((1,)).copyto(mx.cpu(3)).context == mx.cpu(3)


# Arithmetic


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("size", [1, 16, 3000, 100_000])
def test_arithmetic_matches_numpy(dtype, size):
    a = np.arange(1, size + 1).astype(dtype)
    b = (np.arange(size) % 7 + 1).astype(dtype)
    x, y = nd.array(a, dtype=dtype), nd.array(b, dtype=dtype)
    for f in (
        lambda p, q: p + q,
        lambda p, q: p - q,
        lambda p, q: p * q,
        lambda p, q: p == q,
        lambda p, q: p != q,
        lambda p, q: p < q,
        lambda p, q: p <= q,
        lambda p, q: p > q,
        lambda p, q: p >= q,
        lambda p, q: p + 2,
        lambda p, q: 3 - p,
        lambda p, q: p * 2,
        lambda p, q: p > 3,
        lambda p, q: 3 > p,
        lambda p, q: -p,
    ):
        got = f(x, y)
        assert got.dtype is np.dtype(dtype).type
        np.testing.assert_allclose(got.asnumpy(), f(a, b).astype(dtype))
    if dtype != "int32":
        np.testing.assert_allclose((x / y).asnumpy(), a / b, rtol=1e-6)
        np.testing.assert_allclose((2 / x).asnumpy(), 2 / a, rtol=1e-6)
        np.testing.assert_allclose((x % y).asnumpy(), a % b, rtol=1e-6)
        np.testing.assert_allclose((y**2).asnumpy(), b**2, rtol=1e-5)
        np.testing.assert_allclose((2**y).asnumpy(), 2**b, rtol=1e-5)


def test_broadcasting():
    a, b = counting(2, 1, 3), counting(4, 1)
    np.testing.assert_array_equal((nd.array(a) + nd.array(b)).asnumpy(), a + b)


def test_no_type_promotion():
    with pytest.raises(mx.MXNetError, match="expected float32, got float64"):
        nd.ones((2,)) + nd.ones((2,), dtype="float64")
    with pytest.raises(TypeError, match="operand 'rhs' of type ndarray: expected an NDArray or a"):
        nd.ones((2,)) + np.ones(2)


def test_comparisons_with_other_types_are_errors():
    x = nd.ones((2,))
    for other in (None, "a", object()):
        for compare in (operator.eq, operator.ne, operator.lt):
            with pytest.raises(TypeError, match="invalid operand 'rhs' of type .*: expected an ND"):
                compare(x, other)


@pytest.mark.parametrize("name", ["add", "power", "maximum", "not_equal"])
@pytest.mark.parametrize("other", [np.ones(2), [1, 2], "a", None], ids=lambda v: type(v).__name__)
def test_functions_of_two_operands_say_what_they_take(name, other):
    function, got = getattr(nd, name), type(other).__name__
    text = f"^{name}: invalid operand of type {got}: expected an NDArray or a number .mx.nd.array"
    for operands in ((nd.ones((2,)), other), (other, nd.ones((2,))), (1, other)):
        with pytest.raises(TypeError, match=text):
            function(*operands)


def test_modules_of_old_programs():
    assert mx.nd.ndarray.NDArray is nd.NDArray and mx.nd.ndarray.zeros is nd.zeros
    assert issubclass(mx.error.ValueError, (mx.MXNetError, ValueError))

    @mx.error.register
    class Overheated(mx.MXNetError):
        pass

    assert isinstance(mx.error.find("rsnet.error.Overheated: 95"), Overheated)
    assert type(mx.error.find("nothing: known")) is mx.MXNetError


def test_inplace_keeps_the_object():
    x = nd.ones((2, 3))
    same = x
    x += 2
    x *= nd.array([[1, 2, 3]])
    x -= 1
    x /= 2
    assert x is same
    np.testing.assert_array_equal(x.asnumpy(), (3 * np.array([[1, 2, 3]] * 2) - 1) / 2)


def test_functions_of_numbers_and_arrays():
    assert nd.add(2, 3) == 5
    assert nd.maximum(2, 3) == 3
    x = nd.array([1, 5])
    assert nd.maximum(x, 3).asnumpy().tolist() == [3, 5]
    assert nd.minimum(3, x).asnumpy().tolist() == [1, 3]
    assert nd.subtract(10, x).asnumpy().tolist() == [9, 5]
    assert nd.greater(x, nd.array([2, 2])).asnumpy().tolist() == [0, 1]


def test_out_writes_into_the_array():
    x, y, z = nd.array([1, 2]), nd.array([3, 4]), nd.zeros((2,))
    assert nd.elemwise_add(x, y, out=z) is z
    assert z.asnumpy().tolist() == [4, 6]
    nd.elemwise_add(z[0:1], y[1:2], out=z[1:2])
    assert z.asnumpy().tolist() == [4, 8]


def test_overlapping_out_is_as_if_it_were_not():
    x = nd.array(counting(6))
    nd.elemwise_add(x[0:5], x[0:5], out=x[1:6])
    assert x.asnumpy().tolist() == [0, 0, 2, 4, 6, 8]


# Indexing


# Methods


@pytest.mark.parametrize(
    ("codes", "reverse", "want"),
    [
        ((0, -1), False, (2, 12)),
        ((-3, 4), False, (6, 4)),
        ((0, -3), False, (2, 12)),
        ((-4, 1, 2, -2), False, (1, 2, 3, 4)),
        ((2, -4, -1, 3, -2), False, (2, 1, 3, 4)),
        ((4, 0, 2), False, (4, 3, 2)),
        ((-1,), False, (24,)),
    ],
)
def test_reshape_codes(codes, reverse, want):
    assert nd.zeros((2, 3, 4)).reshape(codes, reverse=reverse).shape == want


def test_reshape_of_the_docs():
    x = nd.zeros((10, 5, 4))
    assert x.reshape((-1, 0)).shape == (40, 5)
    assert x.reshape((-1, 0), reverse=True).shape == (50, 4)
    with pytest.raises(ValueError, match="expected one of 200 elements"):
        x.reshape((7, -1))
    with pytest.raises(mx.MXNetError, match="expected one extent at most to infer"):
        x.reshape((-1, -1))


def test_one_element_takes_the_shape_without_axes():
    x = nd.full((1, 1), 2)
    x.attach_grad()
    with mx.autograd.record():
        y = x.reshape(()) ** 2
    y.backward()
    assert x.reshape(()).shape == y.shape == () and x.grad.asnumpy().tolist() == [[4]]
    with pytest.raises(ValueError, match=r"invalid shape \(\): expected one of 2 elements"):
        nd.zeros((2,)).reshape(())


def test_copies_and_casts():
    x = nd.array([1.7, -2.3, 300])
    assert x.astype("int32").asnumpy().tolist() == [1, -2, 300]
    assert x.astype("float32", copy=False) is x
    y = nd.zeros((3,), dtype="int64")
    assert x.copyto(y) is y and y.asnumpy().tolist() == [1, -2, 300]
    with pytest.warns(RuntimeWarning):
        assert x.copyto(x) is False
    with pytest.raises(TypeError, match="invalid other 3: expected an NDArray or a Context"):
        x.copyto(3)
    z = x.copy()
    z[:] = 0
    assert x.asnumpy()[2] == 300
    assert x.as_in_context(mx.cpu(0)) is x
    big = 2**40 + 1
    assert nd.array([big], dtype="int64").copy().asnumpy()[0] == big


def test_scalars_truth_and_iteration():
    assert nd.array([3.5]).asscalar() == np.float32(3.5)
    with pytest.raises(ValueError, match=r"shape \(2,\): expected one element"):
        nd.ones((2,)).asscalar()
    assert bool(nd.array([1])) and not bool(nd.array([0]))
    with pytest.raises(ValueError, match="truth value .* is ambiguous"):
        bool(nd.ones((2,)))
    assert len(nd.ones((3, 2))) == 3
    assert [row.asnumpy().tolist() for row in nd.array([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    assert hash(nd.ones((1,))) is not None
    with pytest.raises(AttributeError, match="no attribute 'something'"):
        nd.ones((1,)).something = 1


def test_repr():
    assert repr(nd.ones((2, 3))) == "\n[[1. 1. 1.]\n [1. 1. 1.]]\n<NDArray 2x3 @cpu(0)>"


def test_function_signature_and_docs():
    import inspect

    signature = inspect.signature(nd.FullyConnected)
    assert list(signature.parameters)[:3] == ["data", "weight", "bias"]
    assert "num_hidden" in signature.parameters and "out" in signature.parameters
    assert (
        "Parameters" in nd.FullyConnected.__doc__ and nd.FullyConnected.__name__ == "FullyConnected"
    )


def test_keyword_and_positional_arguments_agree():
    x, w = nd.array(counting(2, 3)), nd.array(counting(4, 3))
    a = nd.FullyConnected(x, w, num_hidden=4, no_bias=True)
    b = nd.FullyConnected(weight=w, data=x, no_bias="True", num_hidden="4", name="fc")
    np.testing.assert_array_equal(a.asnumpy(), b.asnumpy())
    with pytest.raises(TypeError, match="multiple values"):
        nd.FullyConnected(x, data=x, num_hidden=4)


# Files and pickles


# DLPack


# Asynchrony and errors


def test_many_threads_on_shared_arrays():
    shared = nd.ones((16,))
    results = [None] * 8

    def work(i):
        x = nd.zeros((16,))
        for _ in range(200):
            x = x + shared
        results[i] = x.asnumpy()[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [200.0] * 8


def test_inplace_sums_from_many_threads_lose_nothing():
    total = nd.zeros((16,))

    def work():
        for _ in range(200):
            total.__iadd__(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert total.asnumpy().tolist() == [1600.0] * 16


def test_long_chains_are_lazy_and_right():
    x, one = nd.zeros((100_000,)), nd.ones((100_000,))
    for _ in range(50):
        x = x + one
    assert x.asnumpy()[-1] == 50
    x = nd.zeros((16,))
    for _ in range(1000):
        x = x + 1
    assert x.asnumpy()[0] == 1000


def test_memory_is_reused():
    x = nd.ones((1 << 16,))
    x.wait_to_read()
    for _ in range(20):
        x = x + 1
    nd.waitall()
    before = _core.memory_usage()
    for _ in range(200):
        x = x + 1
        x.wait_to_read()
    nd.waitall()
    after = _core.memory_usage()
    # What earlier tests left in the pool's other size classes counts on both sides.
    assert after[0] <= before[0] + (1 << 20)
    assert after[0] + after[1] <= before[0] + before[1] + (1 << 21)


# ---- memory of NumPy arrays --------------------------------------------------------------------


WHOLE = "abs negative floor ceil round rint trunc fix relu square sign".split()


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 3037000499, -(2**63), 2**63 - 1])
def test_functions_of_integers_are_exact(value):
    x = nd.array(np.array([value]), dtype="int64")
    at = np.array([value])
    with np.errstate(over="ignore"):
        expected = {
            "abs": np.abs(at), "negative": -at, "relu": np.maximum(at, 0), "square": at * at,
            "sign": np.sign(at),
        }  # fmt: skip
        for name in WHOLE:
            assert getattr(nd, name)(x).asnumpy() == expected.get(name, at), name
        assert (x**2).asnumpy() == at * at
    three = nd.array(np.array([3]), dtype="int64")
    assert nd.broadcast_power(three, three * 13).asnumpy() == 3**39


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"]
)
@pytest.mark.parametrize("value", [0, 1, 2.5, -3, 127, True, 1e-3])
def test_filling_a_whole_array_equals_numpy(dtype, value):
    x, expected = nd.ones((3, 2), dtype=dtype), np.ones((3, 2), dtype=dtype)
    x[:] = value
    expected[:] = np.array(value).astype(dtype)
    np.testing.assert_array_equal(x.asnumpy(), expected)
    assert x.asnumpy().dtype == np.dtype(dtype)
    np.testing.assert_array_equal(nd.full((3, 2), value, dtype=dtype).asnumpy(), expected)


def test_an_array_without_axes_is_assigned_an_array():
    x = nd.array(3)
    assert x.shape == ()
    x[:] = nd.array(4)
    assert x.asscalar() == 4
    x[:] = np.array(5.0)
    assert x.asscalar() == 5
    a = nd.array(2)
    a.attach_grad()
    with mx.autograd.record():
        x[:] = a * 3
        y = x * 2
    y.backward()
    assert (y.asscalar(), a.grad.asscalar()) == (12, 6)


def test_an_operator_in_python_takes_an_array_without_axes():
    class Doubles(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0] * 2)

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            self.assign(in_grad[0], req[0], out_grad[0] * 2)

    @mx.operator.register("doubles_without_axes")
    class DoublesProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Doubles()

    x = nd.array(3)
    x.attach_grad()
    with mx.autograd.record():
        y = nd.Custom(x, op_type="doubles_without_axes")
    y.backward()
    assert (y.shape, y.asscalar(), x.grad.asscalar()) == ((), 6, 2)


def test_shapes_and_dtypes_of_other_arrays():
    rows, batch = nd.ones((4, 3)), nd.zeros((2, 2), dtype="float16")
    found = rows.reshape_like(batch, lhs_begin=0, lhs_end=1, rhs_begin=0)
    assert found.shape == (2, 2, 3) and rows.reshape_like(nd.ones((12,))).shape == (12,)
    assert rows.astype(batch).dtype == batch.dtype
    assert rows.astype(rows, copy=False) is rows

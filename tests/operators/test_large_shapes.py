"""Extents beyond every machine: shapes are inferred without lists as long as an axis, what has too
many elements is refused by operator and node, and memory that is not there is an error.
"""

import numpy as np
import pytest
from processes import printed

import rsnet as mx
from rsnet import nd, sym

F, S = nd._internal, sym._internal

INFERENCE = """
import rsnet as mx
S, x, y = mx.sym._internal, mx.sym.var("x"), mx.sym.var("y")
n = 2**40
for net, shapes in [
    (S._npi_delete(x, int_ind=-1, axis=1), {"x": (2, n)}),
    (S._npi_delete(x, start=1, step=3, axis=1), {"x": (2, n)}),
    (S._npi_insert_slice(x, y, step=-2, axis=1), {"x": (2, n), "y": (2, 1)}),
    (S._npi_insert_slice(x, val=1, start=0, stop=n, axis=1), {"x": (2, n)}),
    (S._npi_insert_scalar(x, val=1, int_ind=3, axis=0), {"x": (2, n)}),
    (S._npi_average(x, y, axis=1, returned=True), {"x": (n, 4), "y": (4,)}),
    (S._npi_average(x, y, axis=1, returned=True), {"x": (4, n), "y": (4, n)}),
    (S._npi_pad(x, pad_width=((1, 1), (n, 2)), mode="edge"), {"x": (2, n)}),
    (S._np_roll(x, shift=(3,)), {"x": (2, n)}),
]:
    print(net.infer_shape(**shapes)[1])
try:
    S._npi_insert_slice(x, y, step=-2, axis=1, name="wide").infer_shape(x=(2, n), y=(3,))
except mx.MXNetError as error:
    print(str(error).splitlines()[0])
"""


@pytest.mark.process
def test_no_list_is_as_long_as_an_axis():
    n = 2**40
    *shapes, refused = printed(INFERENCE).splitlines()
    assert shapes == [
        str(expected)
        for expected in [
            [(2, n - 1)], [(2, n - (n - 1 + 2) // 3)], [(2, n + n // 2)], [(2, 2 * n)],
            [(3, n)], [(n,), ()], [(4,), (4,)], [(4, 2 * n + 2)], [(2, n)],
        ]
    ]  # fmt: skip
    assert refused.startswith("_npi_insert_slice 'wide': argument 'values' has shape (3,)")


HUGE = 2**62
TOO_LARGE = {
    "FullyConnected": (lambda v: sym.FullyConnected(v, num_hidden=5, name="n"), (3, 4, HUGE)),
    "Concat": (lambda v: sym.concat(v, v, dim=1, name="n"), (2, HUGE)),
    "diag": (lambda v: sym.diag(v, k=1, name="n"), (2**63 - 1,)),
    "reverse": (lambda v: sym.reverse(v, axis=1, name="n"), (2, HUGE, 2**40, 3)),
    "_npi_rot90": (lambda v: S._npi_rot90(v, k=1, axes=(0, 1), name="n"), (2, 3, HUGE)),
    "_np_diagflat": (lambda v: S._np_diagflat(v, name="n"), (2**31, 2**31)),
    "UpSampling": (lambda v: sym.UpSampling(v, scale=4, sample_type="nearest", name="n"),
        (1, 1, HUGE, 2)),
    "space_to_depth": (lambda v: sym.space_to_depth(v, block_size=2, name="n"), (1, HUGE, 2, 2)),
    "relu": (lambda v: sym.relu(v, name="n"), (2**30, 2**30)),
}  # fmt: skip


@pytest.mark.parametrize("np_shape", [False, True])
@pytest.mark.parametrize("operator", TOO_LARGE)
def test_shapes_of_too_many_elements_are_refused_by_node(operator, np_shape):
    make, shape = TOO_LARGE[operator]
    net = make(sym.var("v"))
    with mx.np_shape(np_shape):
        for infer in (
            net.infer_shape,
            net.infer_shape_partial,
            lambda **shapes: net.simple_bind(mx.cpu(), **shapes),
        ):
            with pytest.raises(
                mx.MXNetError, match=rf"(?m)^{operator} 'n': argument '\w+' has shape"
            ):
                infer(v=shape)


def test_an_output_of_too_many_elements_is_refused():
    net = sym.broadcast_add(sym.var("a"), sym.var("b"), name="outer")
    with pytest.raises(mx.MXNetError, match=r"^broadcast_add 'outer': argument 'output' has shape"):
        net.infer_shape(a=(2**40, 1), b=(1, 2**40))


def test_an_unknown_extent_does_not_hide_the_others():
    with pytest.raises(mx.MXNetError, match=r"^relu 'n': .* expected less than 2\^60 elements"):
        sym.relu(sym.var("v"), name="n").infer_shape_partial(v=(0, 2**60))
    assert sym.relu(sym.var("v")).infer_shape_partial(v=(0, 2**59))[1] == [(0, 2**59)]


SHORT_OF_MEMORY = """
import resource
import rsnet as mx
F = mx.nd._internal
side = 12_000
x = mx.nd.ones((side,), dtype="int8")
mx.nd.waitall()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20), resource.RLIM_INFINITY))
y = F._np_diagflat(x)
print(y.sum(axis=1).min().asscalar())
long = mx.nd.ones((100_000_000,), dtype="int8")
for call in (
    lambda: F._npi_pad(long, pad_width=((1, 1),), mode="maximum"),
    lambda: F._npi_diff(long),
    lambda: F._npi_ediff1d(long),
):
    try:
        call().wait_to_read()
    except mx.base.MXNetError as error:
        print(isinstance(error, MemoryError), str(error).split(":")[0])
"""


@pytest.mark.process
def test_memory_that_is_not_there_is_an_error():
    assert printed(SHORT_OF_MEMORY).splitlines() == [
        "1",
        "True _npi_pad",
        "True _npi_diff",
        "True _npi_ediff1d",
    ]


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 4), (0, 3), (1, 1)])
def test_rolls_as_numpy(shape):
    values = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    axes = [(), (0,), (-1,), (0, len(shape) - 1)]
    for axis in axes:
        for shift in (1, -2, 5, 0):
            given = {"axis": axis} if axis else {}
            want = np.roll(values, (shift,) * len(axis) if axis else shift, axis or None)
            with mx.np_shape(True):
                x = nd.array(values)
                x.attach_grad()
                with mx.autograd.record():
                    y = F._np_roll(x, shift=(shift,) * max(len(axis), 1), **given)
                np.testing.assert_array_equal(y.asnumpy(), want)
                y.backward(nd.array(want))
                np.testing.assert_array_equal(x.grad.asnumpy(), values)

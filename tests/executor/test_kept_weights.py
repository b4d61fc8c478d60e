"""What convolutions make of their weights is kept between calls, and follows every write."""

import re

import numpy as np
import pytest

import rsnet as mx

nd, sym = mx.nd, mx.sym

#: One convolution for every kind of kernel that orders or transforms its filters.
CASES = {
    "transformed": ((2, 32, 28, 28), {"kernel": (3, 3), "num_filter": 32, "pad": (1, 1)}),
    "transformed, stride 2": ((1, 3, 75, 69), {"kernel": (7, 7), "num_filter": 64, "stride": 2}),
    "direct": ((2, 6, 30, 31), {"kernel": (5, 3), "num_filter": 7}),
    "1x1": ((1, 64, 14, 14), {"kernel": (1, 1), "num_filter": 96}),
    "1x1 in groups": ((1, 40, 17, 19), {"kernel": (1, 1), "num_filter": 24, "num_group": 2}),
}


def case(name):
    shape, params = CASES[name]
    stride = params.get("stride", 1)
    return shape, {**params, "stride": (stride, stride), "no_bias": True}


def bound(name, dtype="float32", grad_req="null", **more):
    """An executor of one convolution, with random arguments."""
    shape, params = case(name)
    net = sym.Convolution(sym.Variable("x"), name="c", **params)
    exe = net.simple_bind(mx.cpu(), grad_req=grad_req, x=shape, type_dict={"x": dtype}, **more)
    rng = np.random.default_rng(3)
    for array in exe.arg_arrays:
        array[:] = rng.uniform(-1, 1, array.shape)
    return exe


def expected(name, exe):
    """The outputs for the arguments of now, by a call that keeps nothing."""
    _, params = case(name)
    return nd.Convolution(exe.arg_dict["x"], exe.arg_dict["c_weight"], **params).asnumpy()


def kept(exe):
    """Bytes that the executor keeps."""
    found = re.search(r"Kept, made of weights: (\d+) bytes", exe.debug_str())
    return int(found[1]) if found else 0


def forward(exe, is_train=False):
    return exe.forward(is_train=is_train)[0].asnumpy()


def check(name, exe, times=3):
    want = expected(name, exe)
    for _ in range(times):
        np.testing.assert_array_equal(forward(exe), want)


def in_place(weight, exe):
    weight += 1


def by_slice(weight, exe):
    weight[1:3] = 0.5


def by_view(weight, exe):
    weight[0][:] = 2


def by_numpy(weight, exe):
    weight[:] = np.full(weight.shape, 0.25)


def by_copy(weight, exe):
    nd.full(weight.shape, 3, dtype=weight.dtype).copyto(weight)


def by_out(weight, exe):
    nd.broadcast_mul(weight, nd.full((1,) * weight.ndim, 2, dtype=weight.dtype), out=weight)


def by_optimizer(weight, exe):
    nd.sgd_update(weight, nd.ones_like(weight), out=weight, lr=0.5)


def by_copy_params(weight, exe):
    exe.copy_params_from({"c_weight": nd.full(weight.shape, 0.125, dtype=weight.dtype)})


def by_another_executor(weight, exe):
    """An operator of another graph that writes the same memory."""
    net = sym.sgd_update(sym.Variable("w"), sym.Variable("g"), lr=0.5)
    other = net.bind(mx.cpu(), {"w": weight, "g": nd.ones_like(weight)})
    other.forward()


def by_random(weight, exe):
    mx.random.uniform(-1, 1, shape=weight.shape, out=weight)


def in_bulk(weight, exe):
    with mx.engine.bulk(8):
        weight *= 2
        exe.forward()
        weight -= 1


WRITES = [
    in_place,
    by_slice,
    by_view,
    by_numpy,
    by_copy,
    by_out,
    by_optimizer,
    by_copy_params,
    by_another_executor,
    by_random,
    in_bulk,
]


@pytest.mark.parametrize("name", CASES)
def test_results_follow_every_write(name):
    exe = bound(name)
    check(name, exe)
    assert kept(exe) > 0
    for write in [*WRITES, *WRITES[::-1]]:
        write(exe.arg_dict["c_weight"], exe)
        check(name, exe, times=1)
        write(exe.arg_dict["c_weight"], exe)
        check(name, exe)
        assert kept(exe) > 0, write.__name__


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_dtypes(dtype):
    exe = bound("direct", dtype)
    check("direct", exe)
    in_place(exe.arg_dict["c_weight"], exe)
    check("direct", exe)
    assert kept(exe) > 0


def test_functions_gathered_with_writes_see_each_of_them():
    exe = bound("direct")
    weight = exe.arg_dict["c_weight"]
    check("direct", exe)
    before = weight.copy()
    with mx.engine.bulk(64):
        results = []
        for _ in range(4):
            weight += 1
            results.append(exe.forward()[0].copy())
    weight[:] = before
    for result in results:
        weight += 1
        np.testing.assert_array_equal(result.asnumpy(), expected("direct", exe))


def test_memory_that_others_may_write_is_not_kept():
    """A NumPy array over the memory, or a capsule, writes without a trace."""
    exe = bound("direct")
    weight = exe.arg_dict["c_weight"]
    check("direct", exe)
    view = np.from_dlpack(weight)
    assert np.shares_memory(view, np.from_dlpack(weight))
    for value in (0.5, 2.0):
        mx.nd.from_dlpack(nd.to_dlpack_for_write(weight))[:] = value
        check("direct", exe)
    outside = np.ones(weight.shape, "float32")
    own = nd.from_numpy(outside, zero_copy=True)
    other = exe._symbol.bind(mx.cpu(), {"x": exe.arg_dict["x"], "c_weight": own})
    check("direct", other)
    outside.flags.writeable = True
    outside[:] = 5
    check("direct", other)
    assert kept(other) == 0


def test_training_passes_keep_nothing_and_give_up_what_was_kept():
    exe = bound("direct", grad_req="write")
    check("direct", exe)
    assert kept(exe) > 0
    want = expected("direct", exe)
    for _ in range(3):
        np.testing.assert_array_equal(forward(exe, is_train=True), want)
        exe.backward(nd.ones(want.shape))
        assert kept(exe) == 0
    check("direct", exe)
    assert kept(exe) > 0


def test_one_call_with_a_weight_keeps_nothing():
    exe = bound("direct")
    for _ in range(4):
        in_place(exe.arg_dict["c_weight"], exe)
        check("direct", exe, times=1)
        assert kept(exe) == 0


def test_a_graph_that_writes_its_own_weights():
    shape, params = case("direct")
    weight = sym.Variable("c_weight")
    y = sym.Convolution(sym.Variable("x"), weight, name="c", **params)
    net = sym.Group([y, sym.sgd_update(weight, sym.Variable("g"), lr=0.5)])
    exe = net.simple_bind(mx.cpu(), grad_req="null", x=shape, g=(7, 6, 5, 3))
    for array in exe.arg_arrays:
        array[:] = np.random.default_rng(5).uniform(-1, 1, array.shape)
    for _ in range(4):
        before = exe.arg_dict["c_weight"].copy()
        updated = before - 0.5 * exe.arg_dict["g"]
        y = exe.forward()[0].asnumpy()
        either = [
            nd.Convolution(exe.arg_dict["x"], w, **params).asnumpy() for w in (before, updated)
        ]
        assert any(np.array_equal(y, one) for one in either)


def test_hybridized_blocks_and_their_parameters():
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Conv2D(32, 3, padding=1, in_channels=16), mx.gluon.nn.Conv2D(8, 1))
    net.initialize(mx.init.Xavier())
    x = nd.random.uniform(shape=(1, 16, 28, 28))
    net.hybridize(static_alloc=True, static_shape=True)
    plain = [net(x).asnumpy() for _ in range(4)]
    for got in plain[1:]:
        np.testing.assert_array_equal(got, plain[0])
    for block in net:
        block.weight.set_data(block.weight.data() * 2)
        block.bias.set_data(block.bias.data() + 1)
        got = [net(x).asnumpy() for _ in range(3)]
        net.hybridize(active=False)
        want = net(x).asnumpy()
        net.hybridize(static_alloc=True, static_shape=True)
        for one in got:
            np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-5)

"""Kernels of compiled libraries for a device: its memory, its stream, its temporary space."""

import threading

import numpy as np
import pytest
from conftest import until
from plugins import compiled

import rsnet as mx
from rsnet import nd, sym

pytestmark = pytest.mark.process  # the compiler is one


@pytest.fixture(scope="module", autouse=True)
def library():
    return mx.load_library(compiled("device.c", ldflags=["-ldl"]))


def test_a_kernel_has_temporary_space_of_its_device(gpu, emulated):
    x = np.random.normal(size=(64, 33)).astype("float32")
    y = nd.on_device_copy(nd.array(x, ctx=gpu))
    assert y.context == gpu
    np.testing.assert_array_equal(y.asnumpy(), x)
    exe = sym.on_device_copy(sym.var("x") * 2).simple_bind(gpu, x=x.shape, grad_req="null")

    def run():
        np.testing.assert_array_equal(exe.forward(x=nd.array(x, ctx=gpu))[0].asnumpy(), 2 * x)
        nd.waitall()

    for _ in range(3):
        run()
    gpu.empty_cache()
    live = emulated.live_bytes()
    for _ in range(20):
        run()
    # The pool has it back after every run, whichever blocks of it were in use at once.
    until(lambda: gpu.empty_cache() or emulated.live_bytes() <= live)


def test_space_is_not_shared_by_calls_at_the_same_time(gpu):
    wrong = []

    def work(k):
        x = nd.full((10_000,), k, ctx=gpu)
        wrong.extend(i for i in range(30) if (nd.on_device_copy(x).asnumpy() != k).any())

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert wrong == []


def test_space_that_the_device_does_not_have(gpu):
    x = nd.ones(3, ctx=gpu)
    with pytest.raises(MemoryError, match="on_device_copy: .*cannot get 4611686018427387904 bytes"):
        nd.on_device_copy(x, more=2**62).asnumpy()
    assert nd.on_device_copy(x).asnumpy().tolist() == [1, 1, 1]


def test_a_kernel_for_devices_alone_does_not_run_on_the_host():
    with pytest.raises(mx.MXNetError, match="no kernel matches on cpu"):
        nd.on_device_copy(nd.ones(3)).asnumpy()


@pytest.mark.parametrize("n", [3, 5000])
@pytest.mark.parametrize(("lib", "name"), [("scale.c", "c_scale"), ("mxnet_seldom.cc", "ms_twice")])
def test_kernels_for_the_host_get_copies(gpu, lib, name, n):
    """A plain kernel, and a property, whose state is made for the host, too."""
    mx.load_library(compiled(lib))
    values = {"by": 2} if name == "c_scale" else {}
    x = np.full(1 if name == "ms_twice" else n, 3, "float32")
    y = getattr(nd, name)(nd.array(x, ctx=gpu), **values)
    assert y.context == gpu
    np.testing.assert_array_equal(y.asnumpy(), 2 * x)
    exe = getattr(sym, name)(sym.var("x"), **values).simple_bind(gpu, x=x.shape)
    np.testing.assert_array_equal(exe.forward(is_train=True, x=x)[0].asnumpy(), 2 * x)
    if name == "ms_twice":
        exe.backward(nd.ones(x.shape, ctx=gpu))
        np.testing.assert_array_equal(exe.grad_dict["x"].asnumpy(), 2)

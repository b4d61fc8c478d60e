"""What goes wrong with devices is said clearly, at the wait, with operator and node."""

import numpy as np
import pytest
from processes import printed

import rsnet as mx
from rsnet import nd


def test_a_device_number_out_of_range():
    for make in (lambda c: nd.zeros((2,), ctx=c), lambda c: mx.random.uniform(shape=(2,), ctx=c)):
        with pytest.raises(
            mx.MXNetError,
            match=r"gpu\(9\) is not available: expected a number below 2, the number of",
        ):
            make(mx.gpu(9))
    with pytest.raises(mx.MXNetError, match=r"gpu\(-1\) is not available"):
        nd.zeros((2,), ctx=mx.gpu(-1))
    with pytest.raises(RuntimeError, match=r"gpu\(9\) is not available"):
        mx.engine.push_sync(lambda rc: None, mx.gpu(9), mutate_vars=[mx.engine.new_variable()])


def test_arrays_of_different_devices_in_one_call(gpu):
    x, y = nd.ones((2,), ctx=gpu), nd.ones((2,))
    for a, b, got, expected in (
        (x, y, r"cpu\(0\)", r"gpu\(0\)"),
        (y, x, r"gpu\(0\)", r"cpu\(0\)"),
        (x, nd.ones((2,), ctx=mx.gpu(1)), r"gpu\(1\)", r"gpu\(0\)"),
    ):
        text = rf"input 1 is on {got}, expected it on {expected}: copy it with as_in_context"
        with pytest.raises(mx.MXNetError, match=text):
            (a + b).wait_to_read()
    with pytest.raises(mx.MXNetError, match=r"output 0 is on cpu\(0\), expected it on gpu\(0\)"):
        nd.square(x, out=y)


def test_memory_that_is_not_there(gpu):
    with pytest.raises(MemoryError, match=r"gpu\(0\): cannot allocate 4000000000 bytes"):
        nd.zeros((1_000_000_000,), ctx=gpu)
    # What is cached is released before an allocation fails.
    for n in (37_000_000, 42_000_000, 47_000_000):
        x = mx.nd.empty((n,), ctx=gpu)
        del x
        nd.waitall()
    gpu.empty_cache()


def test_a_limit_of_a_device(gpu):
    nd.waitall()
    gpu.empty_cache()
    used = mx.cuda.memory_usage(0).used_bytes
    mx.cuda.set_memory_limit(used + (1 << 20), 0)
    try:
        assert mx.cuda.memory_usage(0).limit_bytes == used + (1 << 20)
        for n in (100_000, 120_000, 200_000):  # what is cached gives way
            nd.empty((n,), ctx=gpu).wait_to_read()
        assert mx.cuda.memory_usage(0).cached_bytes >= 800_000
        text = rf"gpu\(0\): cannot allocate 4000000 bytes: \d+ are in use of a limit of {used}"
        with pytest.raises(MemoryError, match=text[:-3]):
            nd.empty((1_000_000,), ctx=gpu)
        nd.empty((1_000_000,), ctx=mx.gpu(1)).wait_to_read()
    finally:
        mx.cuda.set_memory_limit(None, 0)
    nd.empty((1_000_000,), ctx=gpu).wait_to_read()
    mx.cuda.set_memory_limit("1GB", 0)
    assert mx.cuda.memory_usage(0).limit_bytes == 10**9
    mx.cuda.set_memory_limit(None, 0)
    for limit in (-1, "much", 0.5):
        with pytest.raises((TypeError, ValueError), match="invalid memory_limit"):
            mx.cuda.set_memory_limit(limit)


def test_an_operation_that_fails_on_a_device_poisons_what_it_writes(gpu):
    x = nd.array([[1.0, 2.0], [2.0, 4.0]], ctx=gpu)  # singular
    y = nd._internal._npi_solve(x, x)
    z = y + 1
    with pytest.raises(mx.MXNetError, match="_npi_solve: .*singular"):
        z.asnumpy()
    np.testing.assert_array_equal((x + 1).asnumpy(), [[2, 3], [3, 5]])


def test_the_engine_takes_functions_for_a_device(gpu):
    var, seen = mx.engine.new_variable(), []
    mx.engine.push_sync(lambda rc: seen.append(rc.ctx), gpu, mutate_vars=[var])
    mx.engine.wait_for_var(var)
    assert seen == [gpu]


@pytest.mark.process
def test_a_fault_is_raised_at_the_wait_and_stays():
    text = printed("""
        import ctypes, os, warnings
        warnings.simplefilter("ignore")
        import rsnet as mx
        from rsnet import nd

        x = nd.ones((4,), ctx=mx.gpu(0))
        x.wait_to_read()
        ctypes.CDLL(os.environ["RSNET_LIBCUDA"]).emulated_fail_after(1)
        exe = mx.sym.square(mx.sym.Variable("x"), name="sq").bind(mx.gpu(0), {"x": x})
        out = exe.forward()[0]
        for _ in range(2):
            try:
                out.asnumpy()
                print("no error")
            except mx.MXNetError as e:
                print(str(e).splitlines()[0])
        try:
            nd.zeros((4,), ctx=mx.gpu(0)).wait_to_read()
            print("no error")
        except mx.MXNetError as e:
            print("CUDA error 719" in str(e))
        print(nd.ones((2,)).asnumpy())
        try:
            nd.waitall()
        except mx.MXNetError:
            pass
    """)
    lines = text.splitlines()
    assert lines[0].startswith("square 'sq': gpu(0): ")
    assert "CUDA error 719 (CUDA_ERROR_LAUNCH_FAILED)" in lines[0]
    assert lines[1] == lines[0] and lines[2:] == ["True", "[1. 1.]"]


@pytest.mark.process
@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({"RSNET_LIBCUDA": "/no/such/libcuda.so"}, "no CUDA driver was found (/no/such/libcuda.so"),
        ({"RSNET_EMULATED_VERSION": "11040"}, "it supports CUDA 11.4, expected 12.0 or later"),
        ({"RSNET_EMULATED_DEVICES": "0"}, "CUDA_ERROR_NO_DEVICE"),
    ],
    ids=["no driver", "too old", "no device"],
)
def test_a_driver_that_does_not_serve(setting, expected):
    text = printed(
        """
        import rsnet as mx
        print(mx.context.num_gpus(), mx.cuda.is_available())
        try:
            mx.nd.zeros((2,), ctx=mx.gpu(0))
        except mx.MXNetError as e:
            print(e)
        print(mx.nd.ones((2,)).asnumpy())
        """,
        **setting,
    )
    lines = text.splitlines()
    assert lines[0] == "0 False" and lines[-1] == "[1. 1.]"
    assert lines[1].startswith("gpu(0) is not available: ") and expected in lines[1]
    assert ("pip install rsnet[cuda13]" in lines[1]) == ("no CUDA driver" in lines[1])


@pytest.mark.process
def test_the_driver_is_loaded_by_the_first_use_of_a_device():
    text = printed("""
        import os
        import rsnet as mx

        def loaded():
            return os.environ["RSNET_LIBCUDA"] in open("/proc/self/maps").read()

        net = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=3)
        net.simple_bind(mx.cpu(), x=(2, 2)).forward()[0].asnumpy()
        mx.gpu(0)
        print(loaded(), mx.context.num_gpus(), loaded())
    """)
    assert text == "False 2 True"


@pytest.mark.process
def test_a_forked_child_is_told_that_it_cannot_use_the_device():
    text = printed("""
        import os, sys, warnings
        warnings.simplefilter("ignore")
        import rsnet as mx
        from rsnet import nd

        x = nd.ones((1000,), ctx=mx.gpu(0))
        y = (x + 1) * 2
        child = os.fork()
        if child == 0:
            for use in (lambda: y.asnumpy(), lambda: nd.zeros((2,), ctx=mx.gpu(0)),
                        lambda: mx.gpu(1).empty_cache()):
                try:
                    use()
                    print("no error")
                except mx.MXNetError as e:
                    print(str(e)[:120])
            print((nd.ones((2,)) + 1).asnumpy())
            del x, y
            sys.stdout.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(y.asnumpy().sum())
    """)
    lines = text.splitlines()
    assert sum("cannot be used in a forked child" in line for line in lines) >= 2, text
    assert lines[-2:] == ["[2. 2.]", "4000.0"]


@pytest.mark.process
def test_a_fork_before_the_first_use_is_harmless():
    text = printed("""
        import os, warnings
        warnings.simplefilter("ignore")
        import rsnet as mx

        child = os.fork()
        if child == 0:
            print((mx.nd.ones((2,), ctx=mx.gpu(0)) + 1).asnumpy(), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print((mx.nd.ones((2,), ctx=mx.gpu(0)) + 2).asnumpy())
    """)
    assert text.splitlines() == ["[2. 2.]", "[3. 3.]"]


@pytest.mark.process
@pytest.mark.parametrize("engine", ["ThreadedEngine", "NaiveEngine"])
def test_a_program_ends_while_a_device_is_busy(engine):
    text = printed(
        """
        import warnings
        warnings.simplefilter("ignore")
        import rsnet as mx
        x = mx.nd.ones((64,), ctx=mx.gpu(0))
        for _ in range(50):
            x = x + 1
        print("pushed")
        """,
        RSNET_EMULATED_DELAY_US="500",
        MXNET_ENGINE_TYPE=engine,
    )
    assert text == "pushed"


@pytest.mark.process
def test_one_worker_is_enough():
    text = printed(
        """
        import warnings
        warnings.simplefilter("ignore")
        import rsnet as mx
        mx.engine.set_num_threads(1)
        x = mx.nd.ones((64,), ctx=mx.gpu(0))
        y = mx.nd.ones((64,), ctx=mx.gpu(1))
        for _ in range(20):
            x, y = y.as_in_context(mx.gpu(0)) + 1, x.as_in_context(mx.gpu(1)) + 1
        print(x.asnumpy()[0], y.asnumpy()[0])
        """,
        RSNET_EMULATED_DELAY_US="200",
    )
    assert text == "21.0 21.0"

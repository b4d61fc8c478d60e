"""Launches of bound graphs that are recorded and issued again as a whole."""

import gc
import threading

import numpy as np
import pytest
from conftest import until
from processes import printed

import rsnet as mx
from rsnet import nd

#: Passes after which launches are recorded.
PLAIN = 2


def network(dropout=0.0):
    x = mx.sym.Variable("data")
    x = mx.sym.Convolution(x, kernel=(3, 3), num_filter=4, pad=(1, 1), name="c1")
    x = mx.sym.BatchNorm(x, fix_gamma=False, name="n1")
    x = mx.sym.Activation(x, act_type="relu")
    x = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")
    if dropout:
        x = mx.sym.Dropout(x, p=dropout)
    x = mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=6, name="f1")
    x = mx.sym.tanh(x * 2 + 1)
    return mx.sym.SoftmaxOutput(x, name="softmax")


def bound(ctx, net, seed=5):
    exe = net.simple_bind(ctx, data=(4, 1, 6, 6), softmax_label=(4,))
    random = np.random.RandomState(seed)
    for array in exe.arg_dict.values():
        array[:] = random.standard_normal(array.shape).astype("float32") * 0.4
    for array in exe.aux_dict.values():
        array[:] = 1
    return exe


def passes(exe, count, train=True):
    """Outputs and gradients of passes whose inputs and weights change."""
    random, kept = np.random.RandomState(9), []
    mx.random.seed(4)
    ctx = exe.outputs[0].context if exe.outputs else None
    for n in range(count):
        exe.arg_dict["data"][:] = random.standard_normal((4, 1, 6, 6)).astype("float32")
        exe.arg_dict["softmax_label"][:] = (np.arange(4) + n) % 6
        out = exe.forward(is_train=train)[0]
        kept.append(out.asnumpy())
        if train:
            exe.backward()
            for name, grad in exe.grad_dict.items():
                if name.startswith(("c1", "n1", "f1")):
                    nd.sgd_update(exe.arg_dict[name], grad, lr=0.1, out=exe.arg_dict[name])
            kept.append(exe.grad_dict["data"].asnumpy())
        nd.random.uniform(shape=(300,), ctx=ctx)  # takes memory between passes
    return kept + [exe.arg_dict[n].asnumpy() for n in sorted(exe.arg_dict)]


def assert_same(got, want):
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_passes_are_recorded_and_their_results_are_those_of_the_host(dropout, gpu, emulated):
    before = emulated.replays()
    got = passes(bound(gpu, network(dropout)), 7)
    assert emulated.replays() - before >= 2 * (7 - PLAIN)
    assert_same(got, passes(bound(mx.cpu(), network(dropout)), 7))


def test_inference_and_training_are_recorded_apart(gpu, emulated):
    net, found = network(), []
    for ctx in (mx.cpu(), gpu):
        exe = bound(ctx, net)
        before, kept = emulated.replays(), []
        for train in (True, False, True, False) * 4:
            kept += passes(exe, 1, train)
        found.append(kept)
    assert emulated.replays() - before > 16 - 2 * PLAIN
    assert_same(found[1], found[0])


def test_results_are_those_of_launches_one_by_one(gpu, emulated, monkeypatch):
    recorded = passes(bound(gpu, network()), 6)
    monkeypatch.setenv("MXNET_ENABLE_CUDA_GRAPHS", "0")
    before = emulated.replays()
    plain = passes(bound(gpu, network()), 6)
    assert emulated.replays() == before
    for one, other in zip(recorded, plain, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_driver_that_cannot_record(gpu, emulated, monkeypatch):
    monkeypatch.setenv("RSNET_EMULATED_NO_GRAPHS", "1")
    before = emulated.replays()
    got = passes(bound(gpu, network()), 6)
    assert emulated.replays() == before
    assert_same(got, passes(bound(mx.cpu(), network()), 6))


def test_recordings_end_with_their_executor(gpu, emulated):
    gc.collect()
    nd.waitall()
    graphs, exe = emulated.graphs(), bound(gpu, network())
    passes(exe, 5)
    nd.waitall()
    assert emulated.graphs() > graphs
    live = emulated.live_bytes()
    del exe
    gc.collect()
    until(lambda: nd.waitall() or emulated.graphs() <= graphs)
    until(lambda: gpu.empty_cache() or emulated.live_bytes() < live)


def test_an_executor_may_end_while_the_device_computes(gpu, emulated):
    exe = bound(gpu, network())
    passes(exe, 5)
    expected = exe.forward(is_train=False)[0].asnumpy()
    for _ in range(PLAIN + 1):
        exe.forward(is_train=False)
    nd.waitall()
    with emulated.held() as queued:
        out = exe.forward(is_train=False)[0]
        until(queued)
        del exe
        gc.collect()
        others = [nd.zeros((2000,), ctx=gpu) for _ in range(20)]
    np.testing.assert_array_equal(out.asnumpy(), expected)
    assert not any(x.asnumpy().any() for x in others)


def test_other_work_of_the_device_goes_on_beside(gpu, emulated, monkeypatch):
    """Two executors and imperative calls, from two threads."""
    monkeypatch.setenv("RSNET_EMULATED_JITTER_US", "100")
    want = [passes(bound(mx.cpu(), network(), seed), 6) for seed in (1, 2)]
    got, errors = [None, None], []

    def work(k):
        try:
            got[k] = passes(bound(gpu, network(), k + 1), 6)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    [t.start() for t in threads]
    x = nd.ones((5000,), ctx=gpu)
    for _ in range(60):
        x = x + 1
    [t.join() for t in threads]
    assert not errors and x.asnumpy()[0] == 61
    for k in range(2):
        assert_same(got[k], want[k])


def test_passes_that_are_watched_are_not_recorded(gpu, emulated, tmp_path):
    exe = bound(gpu, network())
    mx.profiler.set_config(filename=str(tmp_path / "trace.json"), profile_symbolic=True)
    before = emulated.replays()
    mx.profiler.set_state("run")
    try:
        passes(exe, 5)
    finally:
        mx.profiler.set_state("stop")
    assert emulated.replays() == before
    passes(exe, 5)
    assert emulated.replays() > before
    nd.waitall()
    mx.profiler.dump()


@pytest.mark.process
def test_a_fault_in_recorded_work_names_its_first_operator():
    text = printed("""
        import ctypes, os
        import rsnet as mx
        y = mx.sym.var("x")
        for k in range(6):
            y = mx.sym.clip(y, a_min=-9, a_max=9, name=f"clip{k}")
        exe = y.simple_bind(mx.gpu(0), x=(4,), grad_req="null")
        for _ in range(5):
            exe.forward()[0].wait_to_read()
        driver = ctypes.CDLL(os.environ["RSNET_LIBCUDA"])
        assert driver.emulated_replays() == 3
        driver.emulated_fail_after(3)
        out = exe.forward()[0]
        try:
            out.asnumpy()
        except mx.MXNetError as error:
            print(str(error).splitlines()[0])
        try:
            mx.nd.waitall()
        except mx.MXNetError:
            pass
    """)
    line = text.splitlines()[0]
    assert "CUDA error 719" in line and "clip" in line

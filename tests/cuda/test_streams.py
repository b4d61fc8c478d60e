"""Operations on a device end when their work is issued, and everything is ordered nevertheless."""

import random
import signal
import threading

import numpy as np
import pytest
from conftest import until
from processes import printed

import rsnet as mx
from rsnet import nd

#: Elements of arrays whose copies go beside the work of the device.
MANY = 40_000


def test_operations_are_issued_while_the_device_has_not_begun(gpu, emulated):
    x = nd.ones((8,), ctx=gpu)
    nd.waitall()
    with emulated.held() as queued:
        y = x
        for _ in range(50):
            y = y + 1
        until(lambda: queued() >= 100)  # a launch and a mark each
    np.testing.assert_array_equal(y.asnumpy(), np.full(8, 51))


def test_a_batch_is_copied_while_the_device_computes(gpu, emulated):
    x, batch = nd.ones((8,), ctx=gpu), np.arange(MANY, dtype="float32")
    nd.waitall()
    with emulated.held():
        y = x + 1
        there = nd.array(batch, ctx=gpu)
        back = there.as_in_context(mx.cpu())
        np.testing.assert_array_equal(back.asnumpy(), batch)
        np.testing.assert_array_equal(there.asnumpy(), batch)
        z = y * there[:8]
    np.testing.assert_array_equal(z.asnumpy(), 2 * batch[:8])


def test_a_result_is_read_while_the_device_has_more_to_do(gpu, emulated):
    x = nd.ones((8,), ctx=gpu)
    loss = x + 1
    loss.wait_to_read()
    with emulated.held():
        later = x * 3
        np.testing.assert_array_equal(loss.asnumpy(), np.full(8, 2))
        loss.wait_to_read()
    np.testing.assert_array_equal(later.asnumpy(), np.full(8, 3))


def test_memory_in_use_is_not_overwritten_by_its_next_owner(gpu, emulated):
    values = np.arange(MANY, dtype="float32")
    for _ in range(3):
        x = nd.array(values, ctx=gpu)
        nd.waitall()
        with emulated.held() as queued:
            y = x + 1
            until(queued)
            del x
            others = [nd.array(np.zeros(MANY, "float32"), ctx=gpu) for _ in range(4)]
        np.testing.assert_array_equal(y.asnumpy(), values + 1)
        assert all(not other.asnumpy().any() for other in others)


def test_an_array_in_use_is_not_overwritten(gpu, emulated):
    values = np.arange(MANY, dtype="float32")
    for size in (MANY, 10):  # through either stream
        x = nd.array(values[:size], ctx=gpu)
        with emulated.held() as queued:
            y = x + 1
            until(queued)
            writing = threading.Thread(target=x.__setitem__, args=(slice(None), np.zeros(size)))
            writing.start()
            writing.join(0.05)
        writing.join()
        z = x + 2
        np.testing.assert_array_equal(y.asnumpy(), values[:size] + 1)
        np.testing.assert_array_equal(z.asnumpy(), np.full(size, 2))


def test_memory_that_is_released_is_not_in_use(gpu, emulated):
    x = nd.array(np.arange(MANY, dtype="float32"), ctx=gpu)
    with emulated.held() as queued:
        y = x + 1
        until(queued)
        del x
        release = threading.Thread(target=gpu.empty_cache)
        release.start()
    release.join()
    np.testing.assert_array_equal(y.asnumpy(), np.arange(MANY) + 1)


def test_a_device_waits_for_another_one(emulated):
    x = nd.array(np.arange(MANY, dtype="float32"), ctx=mx.gpu(0))
    nd.waitall()
    with emulated.held(0):
        y = x + 1
        there = y.as_in_context(mx.gpu(1))
        z = there * 2
    np.testing.assert_array_equal(z.asnumpy(), 2 * (np.arange(MANY) + 1))
    assert z.context == mx.gpu(1)


def test_waits_are_for_the_device(gpu, emulated):
    x = nd.ones((8,), ctx=gpu)
    for wait in (nd.waitall, mx.engine.wait_for_all, None):
        ended = threading.Event()
        with emulated.held() as queued:
            y = x + 1

            def run(wait=wait, y=y, ended=ended):
                (wait or y.wait_to_read)()
                ended.set()

            waiting = threading.Thread(target=run)
            waiting.start()
            until(queued)
            assert not ended.wait(0.05)
        waiting.join()
        assert ended.is_set()


def test_a_wait_for_the_device_can_be_interrupted(gpu, emulated):
    class Stopped(Exception):
        pass

    def stop(*_):
        raise Stopped

    x = nd.ones((8,), ctx=gpu)
    nd.waitall()
    before = signal.signal(signal.SIGALRM, stop)
    try:
        with emulated.held():
            y = x + 1
            with pytest.raises(Stopped):  # the signal may come before the wait
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                y.asnumpy()
    finally:
        signal.signal(signal.SIGALRM, before)
    np.testing.assert_array_equal(y.asnumpy(), np.full(8, 2))


def test_a_pushed_function_gets_the_stream_and_ends_with_the_device(gpu, emulated):
    x, seen, ended = nd.ones((8,), ctx=gpu), [], threading.Event()
    nd.waitall()
    var = mx.engine.new_variable()
    with emulated.held():
        y = x + 1
        mx.engine.push_sync(lambda rc: seen.append(rc.stream), gpu, mutate_vars=[var])
        mx.engine.push_sync(lambda rc: ended.set(), const_vars=[var])
        until(lambda: seen)
        assert not ended.wait(0.05)
    mx.engine.wait_for_var(var)
    assert seen == [mx.cuda.device(0).stream] and ended.wait(60)
    np.testing.assert_array_equal(y.asnumpy(), np.full(8, 2))


class Program:
    """A random program over arrays of some devices; the same for the same seed."""

    def __init__(self, seed, contexts):
        self.random, self.contexts, self.read = random.Random(seed), contexts, []
        self.sizes = [7, MANY]
        self.arrays = {size: [self.fresh(size) for _ in range(4)] for size in self.sizes}

    def fresh(self, size):
        start, at = self.random.randrange(100), self.random.randrange(len(self.contexts))
        values = (np.arange(size, dtype="float32") * 7 + start) % 101
        return nd.array(values, ctx=self.contexts[at])

    def step(self):
        pick, arrays = self.random, self.arrays[self.random.choice(self.sizes)]
        i, j = pick.randrange(4), pick.randrange(4)
        x, y, size = arrays[i], arrays[j], arrays[0].size
        kind = pick.randrange(9)
        if kind == 0:
            arrays[i] = (x + y.as_in_context(x.context)) * 0.5
        elif kind == 1:
            x += 1
        elif kind == 2:
            y.copyto(x) if i != j else None
        elif kind == 3:
            low = pick.randrange(size)
            x[low:] = y[: size - low].as_in_context(x.context) - 3
        elif kind == 4:
            x[:] = np.full(size, pick.randrange(50), "float32")
        elif kind == 5:
            arrays[i] = self.fresh(size)
        elif kind == 6:
            at = pick.randrange(len(self.contexts))
            arrays[i] = x.as_in_context(self.contexts[at])
        elif kind == 7:
            arrays[i] = nd.sort(x) if size < MANY else nd.reverse(x, axis=0)
        else:
            self.read.append(x.asnumpy())

    def run(self, steps):
        for _ in range(steps):
            self.step()
        return self.read + [x.asnumpy() for size in self.sizes for x in self.arrays[size]]


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_match_the_host(seed, monkeypatch):
    monkeypatch.setenv("RSNET_EMULATED_JITTER_US", "300")
    contexts = [mx.gpu(0), mx.gpu(1), mx.cpu()]
    got = Program(seed, contexts).run(120)
    want = Program(seed, [mx.cpu()] * 3).run(120)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)
    nd.waitall()


def random_graph(seed):
    """A symbol of two groups, which cross often."""
    pick = random.Random(seed)
    entries = [mx.sym.Variable(f"x{i}") for i in range(3)]
    for _ in range(14):
        a, b = pick.choice(entries), pick.choice(entries)
        with mx.AttrScope(ctx_group=pick.choice(["first", "second"])):
            entries.append(
                pick.choice(
                    [
                        lambda a=a, b=b: (a + b) * 0.5,
                        lambda a=a, b=b: mx.sym.maximum(a, b),
                        lambda a=a, b=b: a - 0.25 * b,
                        lambda a=a, b=b: mx.sym.reverse(a, axis=0) + b,
                    ]
                )()
            )
    return mx.sym.Group([sum(entries[1:], entries[0]), entries[-1]])


def passes(net, contexts):
    ctx = contexts[0]
    groups = {"first": contexts[0], "second": contexts[1]}
    names = net.list_arguments()
    args = {name: nd.zeros((4, 50), ctx=ctx) for name in names}
    grads = {name: nd.zeros((4, 50), ctx=ctx) for name in names}
    exe = net.bind(ctx, args, args_grad=grads, grad_req="add", group2ctx=groups)
    kept = []
    for n in range(6):
        for k, name in enumerate(names):
            args[name][:] = np.arange(200, dtype="float32").reshape(4, 50) % (5 + n + k)
        outs = exe.forward(is_train=True)
        exe.backward([nd.ones(out.shape, ctx=out.context) for out in outs])
        kept += [out.copyto(mx.cpu()) for out in outs]
        for name in names:
            grads[name] *= 0.5
    return [x.asnumpy() for x in kept + list(grads.values())]


@pytest.mark.parametrize("seed", range(4))
def test_random_graphs_match_the_host(seed, monkeypatch):
    monkeypatch.setenv("RSNET_EMULATED_JITTER_US", "200")
    net = random_graph(seed)
    want = passes(net, [mx.cpu(), mx.cpu()])
    for contexts in ([mx.gpu(0), mx.gpu(1)], [mx.gpu(0), mx.cpu()], [mx.gpu(0), mx.gpu(0)]):
        for got, expected in zip(passes(net, contexts), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)
    nd.waitall()


@pytest.mark.process
@pytest.mark.parametrize("engine", ["ThreadedEngine", "NaiveEngine"])
def test_a_fault_names_the_operator_and_ends_every_later_use(engine):
    text = printed(
        """
        import ctypes, os, warnings
        warnings.simplefilter("ignore")
        import rsnet as mx
        from rsnet import nd

        def first_line(f):
            try:
                f()
                return "no error"
            except mx.MXNetError as e:
                return str(e).splitlines()[0]

        x, before = nd.ones((4,), ctx=mx.gpu(0)), nd.ones((4,), ctx=mx.gpu(0))
        there = nd.ones((4,), ctx=mx.gpu(1))
        host = nd.ones((4,))
        nd.waitall()
        ctypes.CDLL(os.environ["RSNET_LIBCUDA"]).emulated_fail_after(3)
        b = nd.square(nd.exp(x))
        b.wait_to_read()
        d = nd.exp(nd.sqrt(b))  # the fault may come before memory for `d` is asked for
        print(first_line(d.wait_to_read))
        away = d.as_in_context(mx.cpu()) + 1
        print(first_line(d.asnumpy))
        print(first_line(before.asnumpy))
        print(first_line(away.asnumpy))
        print(first_line(lambda: nd.zeros((2,), ctx=mx.gpu(0)).wait_to_read()))
        first_line(nd.waitall)
        print(first_line(nd.waitall))
        print((there + host.as_in_context(mx.gpu(1))).asnumpy(), (host + 1).asnumpy())
        """,
        MXNET_ENGINE_TYPE=engine,
    )
    lines = text.splitlines()
    assert "CUDA error 719 (CUDA_ERROR_LAUNCH_FAILED)" in lines[0]
    assert lines[0].startswith("sqrt: gpu(0): ")
    for line in lines[1:5]:
        assert "CUDA error 719" in line, text
    assert lines[5] == "no error"
    assert lines[6] == "[2. 2. 2. 2.] [2. 2. 2. 2.]"

"""What is left when training ends early: an interrupt, a callback that raises, a fork."""

import gc
import os

import numpy as np
import pytest
from processes import printed

import rsnet as mx
from rsnet import _core, nd

X = np.random.default_rng(0).normal(size=(80, 6)).astype("float32")
Y = (X[:, 0] > 0).astype("float32")


def network():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=5, name="fc1")
    net = mx.sym.Activation(net, act_type="tanh")
    net = mx.sym.FullyConnected(net, num_hidden=2, name="fc2")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def weights(shapes=((5, 6), (5,), (2, 5), (2,))):
    """First values by name, the same in every call."""
    draw = np.random.default_rng(1)
    names = ("fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias")
    return {name: nd.array(draw.normal(size=shape)) for name, shape in zip(names, shapes)}


class Stopped(Exception):
    pass


def trained(batches=None, context=None, failing=False):
    """A module after this many batches: the data ends there, or a callback raises."""
    module = mx.mod.Module(network(), context=context or mx.cpu())
    rows = len(X) if batches is None or failing else 8 * batches
    data = mx.io.NDArrayIter(X[:rows], Y[:rows], batch_size=8)

    def stop(param):
        if failing and param.nbatch + 1 == batches:
            raise Stopped

    def fit():
        module.fit(
            data,
            num_epoch=1,
            arg_params=weights(),
            optimizer="adam",
            batch_end_callback=stop,
            progress=False,
        )

    if failing:
        with pytest.raises(Stopped):
            fit()
    else:
        fit()
    return module


CONTEXTS = [None, [mx.cpu(0), mx.cpu(1)]]


@pytest.mark.parametrize("context", CONTEXTS, ids=["one device", "two devices"])
def test_a_callback_that_raises_leaves_the_state_of_its_batch(context):
    expected, _ = trained(3, context).get_params()
    module = trained(3, context, failing=True)
    found, _ = module.get_params()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name].asnumpy(), value.asnumpy(), err_msg=name)
    rest = mx.io.NDArrayIter(X[24:], Y[24:], batch_size=8)
    module.fit(rest, num_epoch=1, progress=False)  # goes on where it was
    whole, _ = trained(None, context).get_params()
    found, _ = module.get_params()
    for name, value in whole.items():
        np.testing.assert_array_equal(found[name].asnumpy(), value.asnumpy(), err_msg=name)


def test_a_callback_that_raises_keeps_no_memory():
    def used():
        gc.collect()
        nd.waitall()
        return _core.memory_usage()[0]

    trained(2, failing=True)
    before = used()
    for _ in range(5):
        trained(2, failing=True)
    assert used() == before


@pytest.mark.parametrize("when", ["epoch_end_callback", "eval_end_callback"])
def test_other_callbacks_that_raise(when):
    def stop(*_):
        raise Stopped

    module = mx.mod.Module(network())
    data = mx.io.NDArrayIter(X, Y, batch_size=8)
    with pytest.raises(Stopped):
        module.fit(data, data, num_epoch=2, arg_params=weights(), **{when: stop}, progress=False)
    assert np.isfinite(module.get_params()[0]["fc1_weight"].asnumpy()).all()
    data.reset()
    assert 0 <= module.score(data, "acc")[0][1] <= 1


INTERRUPTED = """
    import os, signal
    import numpy as np
    import rsnet as mx

    signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
    x = np.random.default_rng(0).normal(size=(80, 6)).astype("float32")
    data = mx.io.NDArrayIter(x, (x[:, 0] > 0).astype("float32"), batch_size=8)
    calls, ended = [], []

    class Interrupting(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            calls.append(is_train)
            if len(calls) == INTERRUPTING_CALL:
                os.kill(os.getpid(), signal.SIGINT)
            self.assign(out_data[0], req[0], in_data[0])

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            self.assign(in_grad[0], req[0], out_grad[0])

    @mx.operator.register("interrupting")
    class InterruptingProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Interrupting()

    def at_batch_end(param):
        ended.append(param.nbatch)
        if len(ended) == INTERRUPTING_BATCH:
            os.kill(os.getpid(), signal.SIGINT)

    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    net = mx.sym.Custom(net, op_type="interrupting")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
    try:
        module.fit(data, num_epoch=1000, batch_end_callback=at_batch_end, progress=False)
    except KeyboardInterrupt:
        print("interrupted", len(ended))
    arrays, _ = module.get_params()
    assert all(np.isfinite(a.asnumpy()).all() for a in arrays.values())
    module.save_checkpoint("PREFIX", 1, save_optimizer_states=True)
    data.reset()
    module.fit(data, num_epoch=20, optimizer_params={"learning_rate": 1}, progress=False)
    assert module.score(data, "acc")[0][1] > 0.8
"""


@pytest.mark.process
@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize(("call", "batch"), [(5, -1), (-1, 5)], ids=["operator", "callback"])
def test_an_interrupt_ends_fit_at_once(tmp_path, call, batch):
    code = INTERRUPTED.replace("INTERRUPTING_CALL", str(call))
    code = code.replace("INTERRUPTING_BATCH", str(batch)).replace("PREFIX", str(tmp_path / "m"))
    word, batches = printed(code).split()
    assert word == "interrupted" and int(batches) in (4, 5)
    assert (tmp_path / "m-0001.params").exists() and (tmp_path / "m-0001.states").exists()


FORKED = """
    import os
    import numpy as np
    import rsnet as mx

    x = np.random.default_rng(0).normal(size=(80, 6)).astype("float32")
    data = mx.io.NDArrayIter(x, (x[:, 0] > 0).astype("float32"), batch_size=8)
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
    fit = dict(num_epoch=2, optimizer="adam", progress=False)
    module.fit(data, **fit)
    before = module.predict(data).asnumpy()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert (module.predict(data).asnumpy() == before).all()
            data.reset()
            module.fit(data, **fit)
            assert (module.predict(data).asnumpy() != before).any()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert (module.predict(data).asnumpy() == before).all()
    print("well")
"""


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_trains_on_after_a_fork():
    assert printed(FORKED) == "well"


def test_an_epoch_without_batches_is_told(caplog):
    used_up = mx.io.NDArrayIter(X, Y, batch_size=8)
    list(used_up)
    module = mx.mod.Module(network())
    module.fit(used_up, num_epoch=2, arg_params=weights(), progress=False)
    told = [r.getMessage() for r in caplog.records if "gave no batch" in r.getMessage()]
    assert len(told) == 1 and told[0].startswith("Epoch[0]: train_data")


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_program_may_fork_after_fit_and_train_in_both():
    assert printed("""
        import os
        import numpy as np
        import rsnet as mx

        net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=400)
        module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
        rows = mx.io.NDArrayIter(np.ones((256, 600)), np.zeros(256), batch_size=64)
        module.fit(rows, num_epoch=1)
        child = os.fork()
        module.fit(rows, num_epoch=2, begin_epoch=1)
        if not child:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print("both")
    """) == "both"  # fmt: skip


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_reads_on_where_a_prefetching_iterator_was():
    """The batch that is being made at the fork comes next in both processes."""
    assert printed("""
        import os, signal, threading
        import numpy as np
        import rsnet as mx

        class Slow(mx.io.NDArrayIter):
            go_on = threading.Event()
            calls = 0

            def next(self):
                self.calls += 1
                if self.calls == 3:
                    self.go_on.wait()
                return super().next()

        rows = mx.io.PrefetchingIter([Slow(np.arange(12.0), batch_size=3) for _ in "ab"])
        next(rows), next(rows)  # the third waits
        child = os.fork()
        Slow.go_on.set()
        if not child:
            signal.alarm(60)
        found = [batch.data[1].asnumpy()[0] for batch in rows]
        rows.reset()
        found += [len(list(rows))]
        if not child:
            os._exit(0 if found == [6, 9, 4] else 1)
        print(*map(int, found), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """) == "6 9 4 0"  # fmt: skip

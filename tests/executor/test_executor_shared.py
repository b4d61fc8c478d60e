"""What executors share: memory, arrays, parameters, threads."""

import gc
import itertools
import threading
import weakref

import numpy as np
import pytest
from test_executor import arr, mlp

import rsnet as mx
from rsnet.base import MXNetError

sym, nd = mx.sym, mx.nd
rng = np.random.default_rng(0)


# ---- shared memory -----------------------------------------------------------------------------


def test_executors_of_different_sizes_share_memory():
    net = mlp()
    small = net.simple_bind(mx.cpu(), data=(2, 4))
    big = net.simple_bind(mx.cpu(), shared_exec=small, data=(64, 4))
    for exe in (small, big, small):
        exe.copy_params_from({k: arr(*v.shape) for k, v in exe.arg_dict.items()})
        lone = net.simple_bind(mx.cpu(), data=exe.arg_dict["data"].shape)
        lone.copy_params_from(exe.arg_dict)
        np.testing.assert_allclose(
            exe.forward(is_train=True)[0].asnumpy(), lone.forward(is_train=True)[0].asnumpy()
        )
        exe.backward()
        lone.backward()
        for name in net.list_arguments():
            np.testing.assert_allclose(
                exe.grad_dict[name].asnumpy(), lone.grad_dict[name].asnumpy(), rtol=1e-5, atol=1e-6
            )


def used_bytes():
    nd.waitall()
    gc.collect()
    return mx._core.memory_usage()[0]


@pytest.mark.slow
def test_shared_memory_does_not_depend_on_the_order_of_binding():
    net = mlp(hidden=64)
    sizes = set()
    for order in itertools.permutations([32, 1024, 256]):
        before, bound = used_bytes(), []
        for rows in order:
            last = bound[-1] if bound else None
            bound.append(net.simple_bind(mx.cpu(), shared_exec=last, data=(rows, 16)))
        for exe in bound:
            exe.forward(is_train=True)
            exe.backward()
        sizes.add(used_bytes() - before)
        del bound, exe, last
    assert len(sizes) == 1, sizes


def test_executors_that_share_memory_may_run_in_threads(monkeypatch):
    monkeypatch.setenv("MXNET_EXEC_PREFER_BULK_EXEC", "0")  # many segments, much to mingle
    net = sym.Variable("x")
    for _ in range(12):
        net = sym.Activation(net * 1.5, act_type="tanh")
    one = net.simple_bind(mx.cpu(), grad_req="null", x=(64,))
    two = net.simple_bind(mx.cpu(), grad_req="null", shared_exec=one, x=(64,))
    wrong = []

    def run(exe, value):
        data = np.full(64, value, dtype="float32")
        expected = data
        for _ in range(12):
            expected = np.tanh(expected * np.float32(1.5))
        for _ in range(60):
            got = exe.forward(x=data)[0].asnumpy()
            if not np.allclose(got, expected, rtol=1e-4):
                wrong.append(value)

    threads = [threading.Thread(target=run, args=a) for a in ((one, 0.1), (two, -0.7))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_shared_arguments_and_buffer():
    net = mlp()
    buffer = {}
    first = net.simple_bind(mx.cpu(), shared_buffer=buffer, data=(8, 4))
    second = net.simple_bind(
        mx.cpu(), shared_arg_names=["fc1_weight"], shared_exec=first, shared_buffer=buffer,
        data=(4, 4),
    )  # fmt: skip
    first.arg_dict["fc1_weight"][:] = 7
    assert (second.arg_dict["fc1_weight"].asnumpy() == 7).all()
    assert "data" in buffer


def test_arrays_of_an_executor_that_was_resized_or_freed():
    net = exact_net()
    big = net.simple_bind(mx.cpu(), data=(8, 3))
    for seed, array in enumerate(big.arg_arrays):
        array[:] = whole_numbers(array.shape, seed)
    expected = big.forward(is_train=True)[0].asnumpy()
    small = big.reshape(data=(2, 3))
    old_args, old_grads = big.arg_arrays, big.grad_arrays
    # Arrays of one size with gradients of the other fit nowhere.
    with pytest.raises(ValueError, match=r"gradient of data.*\(8, 3\).*\(2, 3\)"):
        net.bind(mx.cpu(), small.arg_arrays, old_grads)
    with pytest.raises(ValueError, match="gradient of data"):
        net.bind(mx.cpu(), old_args, small.grad_arrays)
    mixed = [small.arg_dict["data"], *old_args[1:]]
    again = net.bind(mx.cpu(), mixed, small.grad_arrays, shared_exec=big)
    grown = small.reshape(allow_up_sizing=True, data=(16, 3))
    assert grown.forward()[0].shape == (16, 4)
    # What is freed is kept as long as it is used.
    dead = weakref.ref(big)
    del big, old_args, old_grads, mixed
    gc.collect()
    assert dead() is None or small._bound["shared"] is dead()
    for exe in (small, again):
        exe.arg_dict["data"][:] = whole_numbers((8, 3), 0)[:2]
        np.testing.assert_array_equal(exe.forward(is_train=True)[0].asnumpy(), expected[:2])
        exe.backward(nd.ones((2, 4)))
        assert np.isfinite(exe.grad_dict["fc1_weight"].asnumpy()).all()


def test_gradients_on_another_device_are_refused():
    net = sym.Variable("a") * sym.Variable("b")
    args = [nd.ones((2,)), nd.ones((2,))]
    elsewhere = {"b": nd.zeros((2,), ctx=mx.cpu(1))}
    with pytest.raises(MXNetError, match=r"gradient of b.*cpu\(1\).*ctx=cpu\(0\)"):
        net.bind(mx.cpu(0), args, elsewhere)
    net.bind(mx.cpu(0), args, elsewhere, grad_req={"a": "write"})  # nobody asks for it
    with mx.AttrScope(ctx_group="far"):
        far = sym.Variable("b") * 2
    net = sym.Variable("a") * far
    groups = {"far": mx.cpu(1)}
    args = {"a": nd.ones((2,)), "b": nd.ones((2,), ctx=mx.cpu(1))}
    with pytest.raises(MXNetError, match=r"gradient of b.*cpu\(0\)"):
        net.bind(mx.cpu(0), args, {"b": nd.zeros((2,))}, group2ctx=groups)
    exe = net.bind(mx.cpu(0), args, {"b": nd.zeros((2,), ctx=mx.cpu(1))}, group2ctx=groups)
    exe.forward(is_train=True)
    exe.backward(nd.ones((2,)))
    assert exe.grad_dict["b"].asnumpy().tolist() == [2, 2]


def test_a_contradiction_names_both_ends():
    left, right = sym.Variable("a"), sym.Variable("b")
    for i in range(3):
        left, right = sym.exp(left, name=f"left{i}"), sym.tanh(right, name=f"right{i}")
    net = sym.elemwise_add(left, right, name="meet")
    shapes = {"a": (2, 3), "b": (4, 3)}
    for make in (net.infer_shape, net.memory_plan, lambda **kw: net.simple_bind(mx.cpu(), **kw)):
        with pytest.raises(ValueError, match="meet") as caught:
            make(**shapes)
        text = str(caught.value)
        assert "left0 (exp) (2, 3) <- variable a (2, 3)" in text
        assert "right0 (tanh) (4, 3) <- variable b (4, 3)" in text


# ---- threads -----------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [2, 8])
def test_one_executor_serves_many_threads(workers):
    net = mlp(hidden=32)
    exe = net.simple_bind(mx.cpu(), grad_req="null", data=(4, 16))
    exe.copy_params_from({k: arr(*v.shape) for k, v in exe.arg_dict.items() if k != "data"})
    inputs = [rng.standard_normal((4, 16)).astype("float32") for _ in range(16)]
    expected = [exe.forward(data=x)[0].asnumpy() for x in inputs]
    wrong = []

    def serve(seed):
        order = np.random.default_rng(seed)
        for _ in range(200):
            i = int(order.integers(len(inputs)))
            got = exe.forward(data=inputs[i])[0].asnumpy()
            if not np.array_equal(got, expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=serve, args=(i,)) for i in range(workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    # The first thread's inputs are the bound arrays: other threads' copies never reach them.
    np.testing.assert_array_equal(exe.arg_dict["data"].asnumpy(), inputs[-1])


def in_threads(count, work):
    """Runs `work(i)` in this many threads; raises what one of them raised."""
    errors = []

    def run(i):
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


def whole_numbers(shape, seed):
    """Sums of products of these are exact in float32, whatever their order."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype("float32")


def exact_net():
    net = sym.FullyConnected(sym.Variable("data"), num_hidden=6, name="fc1")
    net = sym.Activation(net, act_type="relu", name="relu")
    return sym.FullyConnected(net, num_hidden=4, no_bias=True, name="fc2")


@pytest.mark.parametrize("bulk", ["1", "0"])
@pytest.mark.parametrize("workers", [2, 8])
def test_one_executor_trained_by_many_threads(workers, bulk, monkeypatch):
    """Gradients are serialised: what is added up is the sum of all threads' steps, and what is
    written is the gradient of one of them."""
    monkeypatch.setenv("MXNET_EXEC_PREFER_BULK_EXEC", bulk)
    net, steps = exact_net(), 25
    names = ["fc1_weight", "fc1_bias", "fc2_weight"]
    data = [whole_numbers((5, 3), 100 + i) for i in range(workers)]
    head = nd.array(whole_numbers((5, 4), 99))

    def bound(req):
        exe = net.simple_bind(mx.cpu(), grad_req=dict.fromkeys(names, req), data=(5, 3))
        for seed, name in enumerate(names):
            exe.arg_dict[name][:] = whole_numbers(exe.arg_dict[name].shape, seed)
        return exe

    one, each, outputs = bound("write"), [], []
    for x in data:
        outputs.append(one.forward(is_train=True, data=x)[0].asnumpy())
        one.backward(head)
        each.append([one.grad_dict[n].asnumpy() for n in names])
    for req in ("add", "write"):
        exe = bound(req)

        def work(i, exe=exe):
            for _ in range(steps):
                got = exe.forward(is_train=True, data=data[i])[0]
                exe.backward(head)
                np.testing.assert_array_equal(got.asnumpy(), outputs[i])

        in_threads(workers, work)
        found = [exe.grad_dict[n].asnumpy() for n in names]
        if req == "add":
            for got, parts in zip(found, zip(*each, strict=True), strict=True):
                np.testing.assert_array_equal(got, steps * np.sum(parts, axis=0))
        else:
            for got, parts in zip(found, zip(*each, strict=True), strict=True):
                assert any(np.array_equal(got, part) for part in parts)


def test_one_loaded_model_used_by_many_threads(tmp_path):
    """Every thread binds and runs its own executors of one symbol over the same parameters."""
    net, prefix = mlp(hidden=16), str(tmp_path / "net")
    shapes, _, _ = net.infer_shape(data=(4, 6))
    params = {n: arr(*s) for n, s in zip(net.list_arguments(), shapes, strict=True)}
    params = {n: v for n, v in params.items() if n not in ("data", "softmax_label")}
    mx.model.save_checkpoint(prefix, 3, net, params, {})
    loaded, arg_params, _ = mx.model.load_checkpoint(prefix, 3)
    batches = [arr(rows, 6) for rows in (1, 4, 9)]

    def answers():
        found = []
        for x in batches:
            assert loaded.infer_shape(data=x.shape)[1] == [(x.shape[0], 3)]
            label = nd.zeros((x.shape[0],))
            args = arg_params | {"data": x, "softmax_label": label}
            found.append(loaded.bind(mx.cpu(), args).forward()[0].asnumpy())
            exe = loaded.simple_bind(mx.cpu(), data=x.shape)
            exe.copy_params_from(arg_params)
            found.append(exe.forward(is_train=True, data=x)[0].asnumpy())
            exe.backward()
            found.append(exe.grad_dict["fc1_weight"].asnumpy())
            found.append(np.array(loaded.memory_plan(data=x.shape).arena_bytes))
        return found

    expected = answers()

    def work(i):
        for _ in range(6):
            for got, want in zip(answers(), expected, strict=True):
                np.testing.assert_array_equal(got, want)

    in_threads(8, work)
    text = loaded.tojson()
    assert sym.load_json(text).tojson() == text == net.tojson()


def test_a_thread_sees_its_own_outputs():
    exe = (sym.Variable("x") * 2).simple_bind(mx.cpu(), x=(1,))
    exe.forward(x=nd.ones((1,)))
    seen = []

    def other():
        exe.forward(x=nd.array([5.0]))
        seen.append(exe.outputs[0].asnumpy()[0])

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [10]
    assert exe.outputs[0].asnumpy()[0] == 2


# ---- checkpoints -------------------------------------------------------------------------------


def test_checkpoint_round_trip(tmp_path):
    net = sym.BatchNorm(mlp().get_internals()["fc1_output"], name="bn")
    exe = net.simple_bind(mx.cpu(), data=(2, 4))
    exe.arg_dict["fc1_weight"][:] = arr(8, 4)
    params = {k: v for k, v in exe.arg_dict.items() if k != "data"}
    prefix = str(tmp_path / "net")
    mx.model.save_checkpoint(prefix, 3, net, params, exe.aux_dict)
    assert (tmp_path / "net-0003.params").exists()
    again, args, aux = mx.model.load_checkpoint(prefix, 3)
    assert again.tojson() == net.tojson()
    assert set(args) == set(params) and set(aux) == set(exe.aux_dict)
    np.testing.assert_array_equal(args["fc1_weight"].asnumpy(), params["fc1_weight"].asnumpy())
    nd.save(str(tmp_path / "bad-0001.params"), {"fc": nd.ones((1,))})
    with pytest.raises(ValueError, match="invalid name 'fc'"):
        mx.model.load_params(str(tmp_path / "bad"), 1)


def test_an_executor_with_a_monitor_is_freed():
    exe = (sym.Variable("x") * 2).simple_bind(mx.cpu(), x=(3,))
    monitor = mx.monitor.Monitor(1)
    monitor.install(exe)
    monitor.tic()
    exe.forward()
    assert monitor.toc()
    gone = weakref.ref(exe)
    del exe, monitor
    gc.collect()
    assert gone() is None


def test_a_monitor_cannot_run_what_shares_the_memory_of_its_run():
    s = mx.sym.tanh(mx.sym.exp(mx.sym.Variable("data")))
    one = s.simple_bind(mx.cpu(), data=(2, 3))
    two = s.simple_bind(mx.cpu(), data=(2, 3), shared_exec=one)
    for run in (one.forward, two.forward, lambda: two.partial_forward(False, 0)):
        said = []

        def monitor(name, array, run=run, said=said):
            with pytest.raises(MXNetError, match="cannot run the executor") as caught:
                run()
            said.append(caught)

        one.set_monitor_callback(monitor)
        one.forward(is_train=True)
        assert said
    one.set_monitor_callback(lambda name, array: None)
    assert two.forward()[0].shape == (2, 3)

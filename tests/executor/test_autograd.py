"""The autograd tape: scopes, marking, gradients, higher orders, functions."""

import copy
import threading
import time

import numpy as np
import pytest
from arrays import leaf

import rsnet as mx
from rsnet import autograd, nd


def test_scopes_restore_flags():
    assert not autograd.is_recording() and not autograd.is_training()
    with autograd.record():
        assert autograd.is_recording() and autograd.is_training()
        with autograd.pause():
            assert not autograd.is_recording() and not autograd.is_training()
        with autograd.predict_mode():
            assert autograd.is_recording() and not autograd.is_training()
    with autograd.record(train_mode=False), autograd.train_mode():
        assert autograd.is_training()
    with pytest.raises(RuntimeError), autograd.record():
        raise RuntimeError
    assert not autograd.is_recording() and not autograd.is_training()
    assert autograd.set_recording(True) is False and autograd.set_recording(False) is True


def test_flags_belong_to_the_thread():
    seen = []
    with autograd.record():
        t = threading.Thread(target=lambda: seen.append(autograd.is_recording()))
        t.start()
        t.join()
    assert seen == [False]


def test_gradient_of_arithmetic():
    x, y = leaf([1, 2, 3]), leaf([4, 5, 6])
    with autograd.record():
        z = x * y + x
    z.backward()
    assert x.grad.asnumpy().tolist() == [5, 6, 7]
    assert y.grad.asnumpy().tolist() == [1, 2, 3]


def test_broadcast_and_scalars():
    x, y = leaf(np.ones((2, 3))), leaf(np.full((1, 3), 2.0))
    with autograd.record():
        z = (x * y - 1) * 3
    z.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), np.full((2, 3), 6))
    np.testing.assert_allclose(y.grad.asnumpy(), np.full((1, 3), 6))


def test_head_gradients_and_requests():
    x = leaf([1, 2], "add")
    for _ in range(2):
        with autograd.record():
            y = x * x
        y.backward(nd.array([10, 1]))
    assert x.grad.asnumpy().tolist() == [40, 8]
    x = leaf([1, 2], "write")
    for _ in range(2):
        with autograd.record():
            y = x * 2
        y.backward()
    assert x.grad.asnumpy().tolist() == [2, 2]


def test_several_heads_are_summed():
    x = leaf([3.0])
    with autograd.record():
        a, b = x * 2, x * x
    autograd.backward([a, b], [None, nd.array([10])])
    assert x.grad.asnumpy().tolist() == [62]


def test_a_second_backward_needs_the_graph():
    x = leaf([1.0])
    with autograd.record():
        y = x * x
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(mx.MXNetError, match="not in a computational graph"):
        y.backward()


@pytest.mark.parametrize("hybrid", [False, True])
def test_what_a_backward_pass_went_through_goes_on_as_a_constant(hybrid):
    class Step(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, w, h):
            return F.split(F.concat(w * h + w, 2 * w, dim=0), num_outputs=2, axis=0)

    step, w, h = Step(), leaf([3.0]), nd.zeros((1,))
    if hybrid:
        step.hybridize()
    for expected in (1, 7, 7):  # h is not cut off from its history by hand
        with autograd.record():
            y, h = step(w, h)
        y.backward()
        assert w.grad.asscalar() == expected
    with autograd.record():
        h[:] = 5  # nothing needs its value any more
        with pytest.raises(mx.MXNetError, match="not in a computational graph"):
            (h * 2).backward()
    assert h.asscalar() == 5


def test_outside_of_a_graph():
    with pytest.raises(mx.MXNetError, match="not in a computational graph"):
        nd.ones((1,)).backward()
    x = leaf([1.0], "null")
    with autograd.record():
        y = x * 2
    with pytest.raises(
        mx.MXNetError, match="no inputs in computation graph that require gradients"
    ):
        y.backward()


def test_inplace_on_recorded_arrays_is_refused():
    x = leaf([1.0, 2.0])
    with autograd.record():
        y = x * 2
        with pytest.raises(mx.MXNetError, match="already in a computational graph"):
            y += 1
        with pytest.raises(mx.MXNetError, match="already in a computational graph"):
            y[0] = 3


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.__setitem__(slice(None), 3),
        lambda x: x.__setitem__(0, 3),
        lambda x: x.__setitem__(slice(None), np.ones(2)),
        lambda x: x.__setitem__(slice(None), nd.ones((2,))),
        lambda x: nd.ones((2,)).copyto(x),
        lambda x: nd.exp(nd.ones((2,)), out=x),
    ],
)
def test_what_a_recorded_call_has_read_is_not_overwritten(write):
    x = leaf([1.0, 2.0])
    with autograd.record():
        write(x)  # nothing has read it yet
        x_now = x.asnumpy()
        y = x * 2
        z = y * y * x
        for array in (x, y):
            with pytest.raises(mx.MXNetError, match="already in a computational graph"):
                write(array)
    z.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), 12 * x_now**2, rtol=1e-5)
    write(x)


def test_the_gradient_of_what_is_out_of_reach_is_an_error():
    x, w = leaf([1.0]), leaf([1.0])
    with autograd.record():
        y = nd.BlockGrad(x) * 2
    with pytest.raises(mx.MXNetError, match="2-th variable because it is unreachable"):
        autograd.grad([y], [x, w], retain_graph=True)
    assert autograd.grad([y], [x])[0].asnumpy().tolist() == [0]


def test_fresh_gradients_are_marked():
    x, y = leaf([1, 2]), leaf([1, 2])
    assert not x._fresh_grad
    with autograd.record():
        z = x * 2
    z.backward()
    assert x._fresh_grad and not y._fresh_grad
    x._fresh_grad = False
    assert not x._fresh_grad
    with pytest.raises(ValueError, match="without a gradient"):
        z.detach()._fresh_grad = True


def test_detach_cuts_history():
    x = leaf([2.0])
    with autograd.record():
        y = x * x
        z = y.detach() * x
    z.backward()
    assert x.grad.asnumpy().tolist() == [4]


def test_attach_grad_forgets_history():
    x = leaf([2.0])
    with autograd.record():
        y = x * x
        y.attach_grad()
        z = y * 3
    z.backward()
    assert y.grad.asnumpy().tolist() == [3] and x.grad.asnumpy().tolist() == [0]


def test_indexing_is_differentiable():
    x = leaf(np.arange(6).reshape(2, 3))
    with autograd.record():
        y = x[1] * 2 + x[0]
        z = x.reshape((3, 2)) * 5
    autograd.backward([y, z])
    np.testing.assert_array_equal(x.grad.asnumpy(), [[6, 6, 6], [7, 7, 7]])


def test_grad_returns_a_list():
    x = leaf([1.0, 2.0])
    with autograd.record():
        y = x * x * x
    (g,) = autograd.grad(y, x)
    np.testing.assert_allclose(g.asnumpy(), [3, 12])
    with pytest.raises(mx.MXNetError, match="1-th variable"):
        autograd.grad(y, nd.ones((2,)))


def test_higher_order():
    x = leaf([1.0, 2.0])
    with autograd.record():
        y = x * x * x
        (dy,) = autograd.grad(y, [x], create_graph=True, retain_graph=True)
    dy.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), [6, 12])


def test_very_long_chains():
    x = leaf([1.0])
    with autograd.record():
        y = x
        for _ in range(20_000):
            y = y + x
    y.backward()
    assert x.grad.asnumpy().tolist() == [20_001]
    with autograd.record():
        y = x
        for _ in range(200_000):
            y = y + x
    del y  # taken apart without recursion
    assert x.asnumpy().tolist() == [1.0]


def test_the_tape_keeps_only_what_gradients_use():
    """A sum needs neither operand: a chain of a hundred holds no intermediate result."""
    x = nd.ones((1 << 16,))
    x.attach_grad()
    nd.waitall()
    before = mx._core.memory_usage()[0]
    with autograd.record():
        y = x
        for _ in range(100):
            y = (y + x) * 1
        nd.waitall()
    # (What a wait covers is computed; memory goes back a moment later.)
    until = time.monotonic() + 30
    while mx._core.memory_usage()[0] - before > 4 * x.size * 4:
        assert time.monotonic() < until
    y.backward()
    assert x.grad.asnumpy()[0] == 101


def test_a_layer_against_numpy():
    rng = np.random.RandomState(1)
    data, weight, bias = rng.randn(4, 3), rng.randn(5, 3), rng.randn(5)
    x, w, b = leaf(data), leaf(weight), leaf(bias)
    with autograd.record():
        y = nd.FullyConnected(x, w, b, num_hidden=5)
        loss = (y * y).sum()
    loss.backward()
    out = data @ weight.T + bias
    np.testing.assert_allclose(x.grad.asnumpy(), 2 * out @ weight, rtol=1e-4)
    np.testing.assert_allclose(w.grad.asnumpy(), 2 * out.T @ data, rtol=1e-4)
    np.testing.assert_allclose(b.grad.asnumpy(), 2 * out.sum(0), rtol=1e-4)


def test_dropout_follows_the_training_flag():
    x = nd.ones((1000,))
    with autograd.record(train_mode=False):
        assert nd.Dropout(x, p=0.5).asnumpy().sum() == 1000
    with autograd.train_mode():
        assert (nd.Dropout(x, p=0.5).asnumpy() == 0).any()


@pytest.mark.parametrize("backward", [True, False])
@pytest.mark.parametrize("forward", [True, False])
def test_gradients_of_dropout_are_those_of_the_forward_pass(forward, backward):
    x = leaf(np.ones(1000))
    with autograd.record(train_mode=forward):
        y = nd.Dropout(x, p=0.5)
    y.backward(train_mode=backward)
    np.testing.assert_array_equal(x.grad.asnumpy(), y.asnumpy())


@pytest.mark.parametrize("backward", [True, False])
@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("mode", ["rnn_tanh", "lstm", "gru"])
def test_gradients_of_recurrent_dropout_are_those_of_the_forward_pass(mode, forward, backward):
    cells = {"rnn_tanh": 1, "gru": 3, "lstm": 4}[mode]
    rng = np.random.RandomState(0)
    weights = nd.array(
        rng.normal(0, 0.7, cells * (4 * 3 + 4 * 4 + 8 + 2 * 4 * 4 + 8)), dtype="float64"
    )
    states = [nd.zeros((2, 2, 4), dtype="float64")] * (2 if mode == "lstm" else 1)

    def loss(values):
        mx.random.seed(5)
        x = nd.array(values, dtype="float64")
        x.attach_grad()
        with autograd.record(train_mode=forward):
            y = nd.RNN(x, weights, *states, state_size=4, num_layers=2, mode=mode, p=0.5)
        y.backward(train_mode=backward)
        return y.asnumpy().sum(), x.grad.asnumpy()

    x, step = rng.normal(0, 1, (5, 2, 3)), rng.normal(0, 1, (5, 2, 3))
    slope = (loss(x + 1e-6 * step)[0] - loss(x - 1e-6 * step)[0]) / 2e-6
    assert (loss(x)[1] * step).sum() == pytest.approx(slope, rel=1e-5)


def test_get_symbol():
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    with autograd.record():
        z = nd.exp(x * y) + nd.ones((2,))
    s = autograd.get_symbol(z)
    names = s.list_arguments()
    assert [n.rstrip("0123456789") for n in names] == ["var", "var", "null"]
    assert all(n["name"].startswith(("node_", "var", "null")) for n in _nodes_of(s))
    with pytest.raises(mx.MXNetError):
        autograd.get_symbol(nd.ones((1,)))


def _nodes_of(symbol):
    import json

    return json.loads(symbol.tojson())["nodes"]


def test_head_gradients_must_fit():
    x = nd.ones((3, 2))
    x.attach_grad()
    for bad, word in (
        (nd.ones((2,)), "shape"),
        (nd.ones((3, 2), dtype="float64"), "dtype"),
        (nd.ones((4000, 5000)), "shape"),
    ):
        with autograd.record():
            y = nd.exp(x)
        with pytest.raises(
            (ValueError, TypeError, mx.MXNetError), match=f"head gradient 0.*{word}"
        ):
            y.backward(bad)
        with autograd.record():
            y = nd.exp(x)
        with pytest.raises(
            (ValueError, TypeError, mx.MXNetError), match=f"head gradient 0.*{word}"
        ):
            autograd.grad(y, x, head_grads=bad)
    with autograd.record():
        y = x * 3
    y.backward(nd.ones((6,)))  # as many elements, in another shape
    np.testing.assert_array_equal(x.grad.asnumpy(), np.full((3, 2), 3.0))


def region(x):
    y = nd.zeros((4,))
    y[1:3] = x
    return y[1:3]


def picked(x):
    y = nd.zeros((2, 2))
    y[[1, 0], [1, 0]] = x
    return nd.concat(y[1, 1], y[0, 0], dim=0)


def assigned(x, *, dtype="float32", shape=(2,)):
    y = nd.zeros(shape, dtype=dtype)
    y[:] = x
    return y.astype("float32")


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.copy(),
        lambda x: x.copyto(nd.zeros((2,))),
        lambda x: x.copyto(nd.zeros((2,), dtype="float64")).astype("float32"),
        lambda x: x.copyto(mx.cpu(1)).as_in_context(mx.cpu(0)),
        copy.copy,
        copy.deepcopy,
        nd.array,
        assigned,
        lambda x: assigned(x, dtype="float64"),
        lambda x: assigned(x, shape=(3, 2))[1],
        region,
        picked,
    ],
)
def test_copies_are_recorded(move):
    x = leaf([1, 2])
    with autograd.record():
        y = move(x)
        z = y * 2 + x
    z.backward()
    assert y.asnumpy().tolist() == [1, 2]
    assert x.grad.asnumpy().tolist() == [3, 3]


def test_a_copy_into_a_leaf_is_refused():
    x, y = leaf([1, 2]), leaf([3, 4])
    with autograd.record(), pytest.raises(mx.MXNetError, match="computational graph"):
        y[:] = x * 2


def test_a_training_gradient_of_an_inference_forward_reads_nothing_unwritten():
    """`backward` counts as training whatever `record` said."""
    big = [nd.full((64,), 7.0) for _ in range(20)]
    nd.waitall()
    del big  # whose memory is taken next
    x = leaf([1.0] * 64)
    with autograd.record(train_mode=False):
        y = nd.Dropout(x, p=0.5)
    y.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), np.ones(64))

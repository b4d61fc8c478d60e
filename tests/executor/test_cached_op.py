"""Cached graphs compute what their operators compute one by one, however calls overlap."""

import threading

import numpy as np
import pytest

import rsnet as mx
from rsnet import autograd, nd

ROWS, IN, OUT = 4, 5, 3


def network():
    """A symbol with a stateful layer, and its parameters as marked arrays."""
    data = mx.sym.Variable("data")
    hidden = mx.sym.FullyConnected(data, num_hidden=6, name="fc1")
    hidden = mx.sym.BatchNorm(hidden, fix_gamma=False, name="bn")
    hidden = mx.sym.Activation(hidden, act_type="tanh")
    return mx.sym.FullyConnected(hidden, num_hidden=OUT, name="fc2")


def arrays(symbol, seed=0, req="write"):
    rng = np.random.default_rng(seed)
    shapes, _, aux = symbol.infer_shape(data=(ROWS, IN))
    names = symbol.list_arguments() + symbol.list_auxiliary_states()
    made = {}
    for name, shape in zip(names, shapes + aux):
        made[name] = nd.array(rng.normal(size=shape))
        if name.endswith("var"):
            made[name][:] = 1
        if name != "data" and "moving" not in name:
            made[name].attach_grad(req)
    return made


def imperative(a):
    hidden = nd.FullyConnected(a["data"], a["fc1_weight"], a["fc1_bias"], num_hidden=6)
    hidden = nd.BatchNorm(
        hidden,
        a["bn_gamma"],
        a["bn_beta"],
        a["bn_moving_mean"],
        a["bn_moving_var"],
        fix_gamma=False,
    )
    hidden = nd.Activation(hidden, act_type="tanh")
    return nd.FullyConnected(hidden, a["fc2_weight"], a["fc2_bias"], num_hidden=OUT)


def cached(symbol, parameters=True):
    names = [n for n in symbol.list_arguments() if n != "data"] if parameters else ()
    op = nd.CachedOp(symbol, parameters=names)
    return lambda a: op(*[a[name] for name in symbol.list_inputs()])


def grads(a):
    return {k: v.grad.asnumpy() for k, v in a.items() if v.grad is not None}


def values(a):
    return {k: v.asnumpy() for k, v in a.items()}


def compare(scenario, parameters=True, req="write"):
    """Runs a scenario with both; everything it leaves behind must be equal."""
    symbol = network()
    left = []
    for run in (imperative, cached(symbol, parameters)):
        a = arrays(symbol, req=req)
        result = scenario(run, a)
        left.append((result, grads(a), values(a)))
    for one, other in zip(*left):
        for x, y in zip(*(v.values() if isinstance(v, dict) else v for v in (one, other))):
            np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-6)


def once(run, a):
    with autograd.record():
        y = run(a)
    y.backward()
    return [y.asnumpy()]


def twice_one_backward(run, a):
    with autograd.record():
        first = run(a)
        a = dict(a, data=a["data"] * 2)
        second = run(a)
        loss = (first * second).sum()
    loss.backward()
    return [first.asnumpy(), second.asnumpy()]


def chained(run, a):
    with autograd.record():
        y = run(a)
        z = run(dict(a, data=nd.concat(y, y, dim=1)[:, :IN]))
    z.backward()
    return [y.asnumpy(), z.asnumpy()]


def backward_in_other_order(run, a):
    with autograd.record():
        first = run(a)
        second = run(dict(a, data=a["data"] + 1))
    first.backward()
    kept = grads(a)
    second.backward()
    return list(kept.values())


def retained(run, a):
    with autograd.record():
        y = run(a)
    y.backward(retain_graph=True)
    kept = grads(a)
    y.backward(nd.ones_like(y) * 3)
    return list(kept.values())


def returned(run, a):
    for array in a.values():
        if array.grad is not None:
            array.grad[:] = 7
    with autograd.record():
        y = run(a)
    found = autograd.grad(y, [a["fc1_weight"], a["bn_gamma"]], retain_graph=True)
    found = [g.asnumpy() for g in found]
    again = autograd.grad(y, [a["fc1_bias"]])[0]
    with autograd.record():
        run(dict(a, data=a["data"] * 5)).backward()
    return [*found, again.asnumpy()]


def other_shapes(run, a):
    found = []
    for rows in (2, 4, 3, 2):
        with autograd.record():
            y = run(dict(a, data=a["data"][:rows]))
        y.backward()
        found += [y.asnumpy(), *grads(a).values()]
    return found


def not_recorded(run, a):
    y = run(a)
    with autograd.train_mode():
        z = run(a)
    return [y.asnumpy(), z.asnumpy()]


def data_has_gradient(run, a):
    data = nd.array(a["data"].asnumpy())
    data.attach_grad()
    with autograd.record():
        y = run(dict(a, data=data * 2)) + run(dict(a, data=data))
    y.backward()
    return [data.grad.asnumpy()]


def outputs_kept(run, a):
    found = []
    for i in range(4):
        with autograd.record():
            found.append(run(dict(a, data=a["data"] * i)))
        found[-1].backward()
    return [y.asnumpy() for y in found]


def dropped(run, a):
    for i in range(5):
        with autograd.record():
            run(dict(a, data=a["data"] * i))
    return once(run, a)


SCENARIOS = [
    once,
    twice_one_backward,
    chained,
    backward_in_other_order,
    retained,
    returned,
    other_shapes,
    not_recorded,
    data_has_gradient,
    outputs_kept,
    dropped,
]


@pytest.mark.parametrize("parameters", [True, False], ids=["parameters", "copied"])
@pytest.mark.parametrize("req", ["write", "add"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_cached_matches_imperative(scenario, req, parameters):
    compare(scenario, parameters, req)


def test_new_parameter_arrays_are_used():
    symbol = network()
    run = cached(symbol)
    for seed in range(3):
        a, b = arrays(symbol, seed), arrays(symbol, seed)
        once(run, a)
        once(imperative, b)
        for key, grad in grads(b).items():
            np.testing.assert_allclose(grads(a)[key], grad, rtol=2e-5, atol=2e-6)


def test_threads_call_one_graph():
    symbol = network()
    run = cached(symbol)
    a = arrays(symbol)
    expected = {i: imperative(dict(a, data=a["data"] * i)).asnumpy() for i in range(4)}
    wrong = []

    def work(i):
        for _ in range(20):
            got = run(dict(a, data=a["data"] * i)).asnumpy()
            if not np.allclose(got, expected[i], rtol=1e-5, atol=1e-6):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_random_operators_draw_anew():
    op = nd.CachedOp(mx.sym.Dropout(mx.sym.Variable("x"), p=0.5))
    x = nd.ones((200,))
    x.attach_grad()
    with autograd.record():
        y, z = op(x), op(x)
        total = y + z
    assert (y.asnumpy() != z.asnumpy()).any()
    total.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), total.asnumpy())


def test_one_executor_serves_a_training_loop():
    symbol = network()
    a = arrays(symbol)
    run = cached(symbol)
    for i in range(30):
        once(run, dict(a, data=a["data"] * i))
    before = mx._core.memory_usage()[0]
    for i in range(30):
        once(run, dict(a, data=a["data"] * i))
    assert mx._core.memory_usage()[0] <= before + 1024


def test_hook_sees_operators():
    seen = []
    op = nd.CachedOp(mx.sym.exp(mx.sym.Variable("x") * 2, name="e"))
    op._register_op_hook(
        lambda name, operator, array: seen.append((name, operator, array.asnumpy()))
    )
    op(nd.zeros((1,)))
    assert [s[:2] for s in seen][-1] == ("e_output", "exp")
    assert seen[-1][2].tolist() == [1.0]
    op._register_op_hook(None)
    op(nd.zeros((1,)))
    assert len(seen) == 2


def test_bad_input_is_refused_by_name():
    symbol = network()
    op = nd.CachedOp(symbol, name="net")
    with pytest.raises(mx.MXNetError, match=r"'net': got 1 arrays, expected 9: data, fc1_weight"):
        op(nd.ones((2, 5)))
    a = arrays(symbol)
    other = [a[name] for name in symbol.list_inputs()]
    other[3] = other[3].as_in_context(mx.cpu(1))
    with pytest.raises(mx.MXNetError, match=r"input 'bn_gamma' is on cpu\(1\), expected cpu\(0\)"):
        op(*other)
    other[3] = nd.ones((2,))
    with pytest.raises(mx.MXNetError, match="bn"):
        op(*other)
    with pytest.raises(TypeError, match="invalid input 0 1.0"):
        op(1.0)
    with pytest.raises(mx.MXNetError, match="unknown input of the cached graph 'foo'"):
        nd.CachedOp(symbol, parameters=["foo"])
    with pytest.raises(mx.MXNetError, match="two inputs are named 'x'"):
        nd.CachedOp(mx.sym.Variable("x") + mx.sym.Variable("x"))


def test_higher_order_is_refused():
    x = nd.ones((2,))
    x.attach_grad()
    op = nd.CachedOp(mx.sym.square(mx.sym.Variable("x")))
    with autograd.record():
        y = op(x)
        with pytest.raises(NotImplementedError, match="create_graph=True"):
            autograd.grad(y, [x], create_graph=True)


def test_an_error_does_not_spoil_later_calls():
    class Picky(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            if in_data[0].asnumpy()[0] < 0:
                raise ValueError("negative")
            self.assign(out_data[0], req[0], in_data[0])

    @mx.operator.register("picky_in_cached_op")
    class PickyProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Picky()

    op = nd.CachedOp(mx.sym.Custom(mx.sym.Variable("x"), op_type="picky_in_cached_op"))
    assert op(nd.ones((1,))).asnumpy()[0] == 1
    with pytest.raises(ValueError, match="negative"):
        op(-nd.ones((1,))).asnumpy()
    assert op(nd.ones((1,)) * 2).asnumpy()[0] == 2


def test_out_takes_the_outputs():
    op = nd.CachedOp(mx.sym.Variable("x") * 2)
    out = nd.zeros((2,))
    assert op(nd.ones((2,)), out=out) is out
    assert out.asnumpy().tolist() == [2.0, 2.0]


def test_a_graph_whose_shapes_depend_on_numbers_runs_operator_by_operator():
    x, keep = mx.sym.Variable("x"), mx.sym.Variable("keep")
    kept = mx.sym.contrib.boolean_mask(mx.sym.exp(x), keep, name="kept") * 2
    for symbol in (kept, mx.sym.load_json(kept.tojson())):
        assert symbol.infer_shape_partial(x=(3, 2)) == ([(3, 2), (3,)], [(0, 2)], [])
        op = mx.nd.CachedOp(symbol)
        a = mx.nd.array([[0, 1], [2, 3], [4, 5]])
        for mask in ([1, 0, 1], [0, 0, 0], [0, 1, 0]):
            a.attach_grad()
            with mx.autograd.record():
                y = op(a, mx.nd.array(mask))
            y.backward()
            want = 2 * np.exp(a.asnumpy())
            chosen = np.array(mask, bool)
            np.testing.assert_allclose(y.asnumpy(), want[chosen], rtol=1e-6)
            np.testing.assert_allclose(a.grad.asnumpy(), want * chosen[:, None], rtol=1e-6)
            rows = symbol.eval(x=a, keep=mx.nd.array(mask))[0]
            np.testing.assert_array_equal(rows.asnumpy(), y.asnumpy())
    dropped = mx.sym.Dropout(mx.sym.broadcast_add(kept, mx.sym.zeros((1, 2))), p=0.99)
    given = {"x": a, "keep": mx.nd.array([1, 0, 1])}
    with mx.autograd.record():
        given = {name: array.as_in_context(mx.cpu(1)) for name, array in given.items()}
        (y,) = dropped.eval(ctx=mx.cpu(1), **given)
    assert y.context == mx.cpu(1)
    np.testing.assert_allclose(y.asnumpy(), 2 * np.exp(a.asnumpy()[[0, 2]]), rtol=1e-6)
    with pytest.raises(mx.MXNetError, match="record"):
        y.backward()
    with pytest.raises(ValueError, match="expected a key 'keep'"):
        kept.eval(x=a)
    text = "_contrib_boolean_mask 'kept': the shape of its output depends on the numbers"
    for bind in (
        lambda: kept.simple_bind(mx.cpu(), x=(3, 2)),
        lambda: (kept + x).simple_bind(mx.cpu(), x=(3, 2)),
        lambda: kept.bind(mx.cpu(), {"x": a, "keep": mx.nd.ones(3)}),
    ):
        with pytest.raises(NotImplementedError, match=rf"{text}.*nd\.CachedOp and hybridized"):
            bind()


def masked_loops(F, x, keep, start):
    """A loop, a condition and a loop whose end numbers decide, each on the rows that a mask
    keeps."""
    rows = F.contrib.boolean_mask(x, keep)
    outputs, total = F.contrib.foreach(lambda row, state: (row * state, state + row), rows, start)
    chosen = F.contrib.cond(x.sum() > 0, lambda: rows * 2, lambda: rows - 1)
    _, last = F.contrib.while_loop(
        lambda i, v: i < 3, lambda i, v: ([v], [i + 1, v * total]),
        [F.zeros((1,)), F.ones((2,))], max_iterations=4,
    )  # fmt: skip
    return outputs, total, chosen, last[1]


def test_loops_beside_masks():
    class Loops(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x, keep, start):
            return masked_loops(F, x, keep, start)

    x, start = mx.nd.array([[0, 1], [2, 3], [4, 6]]), mx.nd.array([0.5, -1])
    net, steps = Loops(), []
    for hybridized in (False, True):
        net.hybridize(hybridized)
        for keep in ([1, 0, 1], [0, 1, 0]):
            x.attach_grad()
            start.attach_grad()
            with mx.autograd.record():
                outputs = net(x, mx.nd.array(keep), start)
                total = sum((y * y).sum() for y in outputs)
            total.backward()
            arrays = [*outputs, x.grad, start.grad]
            steps.append([array.asnumpy() for array in arrays])
    for plain, cached in zip(steps[:2], steps[2:], strict=True):
        for a, b in zip(plain, cached, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


def test_auxiliary_states_of_a_loop_beside_a_mask():
    class Normed(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.norm = mx.gluon.nn.BatchNorm(in_channels=2)

        def hybrid_forward(self, F, x, keep):
            rows = F.expand_dims(F.contrib.boolean_mask(x, keep), 0)
            return F.contrib.foreach(lambda row, s: (self.norm(row), s), rows, F.zeros((1,)))[0]

    means = []
    for hybridized in (False, True):
        net = Normed()
        net.initialize()
        net.hybridize(hybridized)
        with mx.autograd.record():
            y = net(mx.nd.array([[1, 2], [3, 5], [7, 1]]), mx.nd.array([1, 0, 1]))
        y.backward()
        means.append(net.norm.running_mean.data().asnumpy())
    np.testing.assert_allclose(means[0], [0.4, 0.15], rtol=1e-5)
    np.testing.assert_allclose(means[1], means[0], rtol=1e-6)


def test_attributes_of_nodes_are_no_parameters_of_operators():
    with mx.AttrScope(mood="calm"):
        doubled = mx.sym.Variable("x") * 2
        kept = mx.sym.contrib.boolean_mask(doubled, mx.sym.Variable("keep"))
    y = mx.nd.CachedOp(kept)(mx.nd.array([[1, 2], [3, 4]]), mx.nd.array([0, 1]))
    assert y.asnumpy().tolist() == [[6, 8]]


def test_wrong_masks_are_refused():
    x, mask = mx.nd.ones((2, 4)), mx.nd.contrib.boolean_mask
    half = mx.nd.array([0, 1])
    for call, text in (
        (lambda: mask(x, mx.nd.ones(3)), r"invalid index of shape \(3,\): expected \(2,\)"),
        (lambda: mask(x, half, axis=2), r"boolean_mask: invalid axis 2: expected -2 to 1"),
        (lambda: mask(x, half * 0, out=mx.nd.ones((3, 4))), r"out of shape \(3, 4\): expected \(0"),
        (lambda: mask(x, half, out=mx.nd.ones((3, 4))), r"has shape \(3, 4\), expected \(1, 4\)"),
    ):
        for kind in (ValueError, mx.MXNetError):
            with pytest.raises(kind, match=text):
                call()
    with pytest.raises(TypeError, match=r"invalid index \[0, 1\]: expected an NDArray"):
        mask(x, [0, 1])


def test_a_hybridized_block_may_mask():
    class Masked(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.norm = mx.gluon.nn.BatchNorm(in_channels=2)
            self.dense = mx.gluon.nn.Dense(1, in_units=2)

        def hybrid_forward(self, F, x, keep):
            return self.dense(F.contrib.boolean_mask(self.norm(x), keep))

    net = Masked()
    net.initialize(mx.init.One())
    x, keep = mx.nd.array([[0, 1], [2, 3], [4, 6]]), mx.nd.array([1, 0, 1])
    steps = []
    for hybridized in (False, True):
        net.norm.running_mean.set_data(mx.nd.zeros(2))
        net.hybridize(hybridized)
        x.attach_grad()
        with mx.autograd.record():
            y = net(x, keep)
        y.backward()
        arrays = y, x.grad, net.dense.weight.grad(), net.norm.running_mean.data()
        steps.append([array.asnumpy() for array in arrays])
    for plain, cached in zip(*steps, strict=True):
        np.testing.assert_allclose(plain, cached, rtol=1e-5, atol=1e-6)


def test_flags_are_those_of_mxnet():
    mx.nd.CachedOp(mx.sym.exp(mx.sym.Variable("x")), [("static_alloc", True), ("inline_limit", 2)])
    with pytest.raises(ValueError, match="invalid flag 'static': expected one of: backward_bulk"):
        mx.nd.CachedOp(mx.sym.exp(mx.sym.Variable("x")), [("static", True)])

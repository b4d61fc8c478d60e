"""Recurrent cells: each against NumPy, fused against unfused, weights by gate, sentences, files."""

import itertools

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd, rnn, sym

N, T, C, H = 2, 3, 5, 4
LAYOUT = pytest.mark.filterwarnings("ignore:FusedRNNCell transposes")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def arrays_for(net, seed=0, **shapes):
    rng = np.random.default_rng(seed)
    found, _, _ = net.infer_shape(**shapes)
    names = net.list_arguments()
    return {n: rng.normal(0, 0.5, s).astype("float32") for n, s in zip(names, found, strict=True)}


def run(net, arrays):
    exe = net.simple_bind(mx.cpu(), grad_req="null", **{n: a.shape for n, a in arrays.items()})
    return [o.asnumpy() for o in exe.forward(**{n: nd.array(a) for n, a in arrays.items()})]


def step_rnn(x, states, w):
    h = np.tanh(
        x @ w["i2h_weight"].T + w["i2h_bias"] + states[0] @ w["h2h_weight"].T + w["h2h_bias"]
    )
    return h, [h]


def step_lstm(x, states, w):
    gates = x @ w["i2h_weight"].T + w["i2h_bias"] + states[0] @ w["h2h_weight"].T + w["h2h_bias"]
    i, f, g, o = np.split(gates, 4, axis=1)
    c = sigmoid(f) * states[1] + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    return h, [h, c]


def step_gru(x, states, w):
    ir, iz, inew = np.split(x @ w["i2h_weight"].T + w["i2h_bias"], 3, axis=1)
    hr, hz, hnew = np.split(states[0] @ w["h2h_weight"].T + w["h2h_bias"], 3, axis=1)
    r, z = sigmoid(ir + hr), sigmoid(iz + hz)
    h = (1 - z) * np.tanh(inew + r * hnew) + z * states[0]
    return h, [h]


CELLS = {
    "rnn": (rnn.RNNCell, step_rnn, 1), "lstm": (rnn.LSTMCell, step_lstm, 2),
    "gru": (rnn.GRUCell, step_gru, 1),
}  # fmt: skip


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("layout", ["NTC", "TNC"])
@pytest.mark.parametrize("merged", [True, False])
def test_cells_match_numpy(kind, layout, merged):
    make, step, count = CELLS[kind]
    cell = make(H, prefix="p_")
    outputs, states = cell.unroll(T, sym.Variable("data"), layout=layout, merge_outputs=merged)
    net = sym.Group([*([outputs] if merged else outputs), *states])
    arrays = arrays_for(net, data=(N, T, C) if layout == "NTC" else (T, N, C))
    weights = {n.removeprefix("p_"): a for n, a in arrays.items()}
    by_time = arrays["data"] if layout == "TNC" else arrays["data"].swapaxes(0, 1)
    now, expected = [np.zeros((N, H))] * count, []
    for x in by_time:
        out, now = step(x, now, weights)
        expected.append(out)
    got = run(net, arrays)
    if merged:
        joined = np.stack(expected, axis=layout.find("T"))
        np.testing.assert_allclose(got[0], joined, rtol=1e-4, atol=1e-5)
    else:
        for mine, want in zip(got, expected, strict=False):
            np.testing.assert_allclose(mine, want, rtol=1e-4, atol=1e-5)
    for mine, want in zip(got[-count:], now, strict=True):
        np.testing.assert_allclose(mine, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["rnn_relu", "rnn_tanh", "lstm", "gru"])
@pytest.mark.parametrize(("layers", "both"), list(itertools.product([1, 2], [False, True])))
@pytest.mark.parametrize("layout", ["NTC", "TNC"])
@LAYOUT
def test_fused_cells_are_the_cells_that_unfuse_gives(mode, layers, both, layout):
    fused = rnn.FusedRNNCell(H, layers, mode, bidirectional=both, prefix="f_")
    net, _ = fused.unroll(T, sym.Variable("data"), layout=layout, merge_outputs=True)
    shape = (N, T, C) if layout == "NTC" else (T, N, C)
    arrays = arrays_for(net, data=shape)
    stack = fused.unfuse()
    plain, _ = stack.unroll(T, sym.Variable("data"), layout=layout, merge_outputs=True)
    packed = {"f_parameters": nd.array(arrays["f_parameters"])}
    unpacked = stack.pack_weights(fused.unpack_weights(packed))
    own = {"data": arrays["data"], **{n: a.asnumpy() for n, a in unpacked.items()}}
    np.testing.assert_allclose(run(net, arrays)[0], run(plain, own)[0], rtol=1e-4, atol=1e-5)
    back = fused.pack_weights(stack.unpack_weights(unpacked))
    np.testing.assert_array_equal(back["f_parameters"].asnumpy(), arrays["f_parameters"])


def test_pieces_of_fused_parameters_come_from_the_initializer_that_their_name_selects():
    cell = mx.rnn.FusedRNNCell(8, num_layers=1, mode="gru", prefix="p_")
    outputs, _ = cell.unroll(3, mx.sym.Variable("data"), layout="TNC", merge_outputs=True)
    module = mx.mod.Module(outputs, label_names=None)
    module.bind([("data", (3, 2, 4))], for_training=False)
    rules = mx.init.Mixed([".*parameters", ".*"], [mx.init.Constant(0.5), mx.init.Constant(7)])
    module.init_params(rules)
    weights = cell.unpack_weights(module.get_params()[0])
    assert (weights["p_l0_i2h_r_weight"].asnumpy() == 0.5).all()


@LAYOUT
def test_the_last_states_of_a_fused_cell():
    fused = rnn.FusedRNNCell(H, 2, "lstm", bidirectional=True, get_next_state=True)
    net, states = fused.unroll(T, sym.Variable("data"), merge_outputs=True)
    group = sym.Group([net, *states])
    shapes = [o.shape for o in run(group, arrays_for(group, data=(N, T, C)))]
    assert shapes == [(N, T, 2 * H), (4, N, H), (4, N, H)]
    assert [i["shape"] for i in fused.state_info] == [(4, 0, H)] * 2


def test_stacks_with_dropout_zoneout_and_residuals():
    stack = rnn.SequentialRNNCell()
    stack.add(rnn.LSTMCell(H, prefix="l0_"))
    stack.add(rnn.DropoutCell(0.5))
    stack.add(rnn.ResidualCell(rnn.GRUCell(H, prefix="l1_")))
    stack.add(rnn.ZoneoutCell(rnn.RNNCell(H, prefix="l2_"), 0.3, 0.2))
    net, states = stack.unroll(T, sym.Variable("data"), merge_outputs=True)
    assert len(states) == 4
    arrays = arrays_for(net, data=(N, T, C))
    first = run(net, arrays)[0]
    assert first.shape == (N, T, H)
    np.testing.assert_array_equal(first, run(net, arrays)[0])  # random in training only
    stack.reset()
    single, following = stack(sym.Variable("x"), stack.begin_state())
    assert single.infer_shape(x=(N, C))[1] == [(N, H)] and len(following) == 4


def test_residuals_add_the_input():
    def outputs(make):
        net, _ = make().unroll(T, sym.Variable("data"), merge_outputs=True)
        return net

    plain = outputs(lambda: rnn.RNNCell(C, prefix="r_"))
    added = outputs(lambda: rnn.ResidualCell(rnn.RNNCell(C, prefix="r_")))
    arrays = arrays_for(plain, data=(N, T, C))
    expected = run(plain, arrays)[0] + arrays["data"]
    np.testing.assert_allclose(run(added, arrays)[0], expected, rtol=1e-5)


def test_zoneout_keeps_what_was():
    cell = rnn.ZoneoutCell(rnn.RNNCell(H, prefix="r_"), zoneout_outputs=1 - 1e-6)
    net, _ = cell.unroll(T, sym.Variable("data"), merge_outputs=True)
    arrays = arrays_for(net, data=(N, T, C))
    exe = net.simple_bind(mx.cpu(), data=(N, T, C))
    exe.copy_params_from({n: nd.array(a) for n, a in arrays.items()})
    assert not exe.forward(is_train=True)[0].asnumpy().any()


def test_zoneout_keeps_the_step_before():
    def outputs(zoneout):
        cell = rnn.RNNCell(60, prefix="r_")
        if zoneout:
            cell = rnn.ZoneoutCell(cell, zoneout_outputs=0.5)
        net, _ = cell.unroll(2, sym.Variable("data"), merge_outputs=True)
        arrays = arrays_for(net, data=(1, 2, C))
        exe = net.simple_bind(mx.cpu(), data=(1, 2, C))
        exe.copy_params_from({n: nd.array(a) for n, a in arrays.items()})
        return exe.forward(is_train=True)[0].asnumpy()[0]

    first, second = outputs(zoneout=True)
    new = outputs(zoneout=False)[1]
    kept = second == first
    assert 5 < kept.sum() < 55 and first[kept].any()
    np.testing.assert_allclose(second[~kept], new[~kept], rtol=1e-5)


@pytest.mark.parametrize("shape", [(3, 16, 10), (1, 3, 16, 10), (7, 3, 16, 10)])
def test_the_batch_may_be_left_out_of_the_input_shape_of_convolutional_cells(shape):
    cell = rnn.ConvLSTMCell(shape, 10, i2h_stride=(2, 1))
    assert [info["shape"] for info in cell.state_info] == [(0, 10, 8, 10)] * 2
    last_axis = rnn.ConvRNNCell((1, 16, 10, 3), 10, conv_layout="NHWC")
    assert last_axis.state_info[0]["shape"] == (0, 16, 10, 10)


@pytest.mark.parametrize("make", [rnn.ConvRNNCell, rnn.ConvLSTMCell, rnn.ConvGRUCell])
@pytest.mark.parametrize("kernel", [(3, 3), (1, 1)])
def test_convolutional_cells_with_kernels_of_one_are_dense_cells(make, kernel):
    """On images of one pixel, kernels with zeros beside their centre multiply by matrices."""
    dense = {rnn.ConvRNNCell: step_rnn, rnn.ConvLSTMCell: step_lstm, rnn.ConvGRUCell: step_gru}[
        make
    ]
    pad = tuple(k // 2 for k in kernel)
    cell = make((C, 1, 1), H, h2h_kernel=kernel, i2h_kernel=kernel, i2h_pad=pad,
                activation="tanh", prefix="c_")  # fmt: skip
    steps = [sym.Variable(f"t{i}") for i in range(T)]
    outputs, states = cell.unroll(T, steps)
    net = sym.Group(outputs)
    arrays = arrays_for(net, **{f"t{i}": (N, C, 1, 1) for i in range(T)})
    centre = tuple(k // 2 for k in kernel)
    weights = {
        n.removeprefix("c_"): a[(..., *centre)] if a.ndim == 4 else a
        for n, a in arrays.items() if n.startswith("c_")
    }  # fmt: skip
    now = [np.zeros((N, H))] * len(states)
    for i, got in enumerate(run(net, arrays)):
        want, now = dense(arrays[f"t{i}"][:, :, 0, 0], now, weights)
        np.testing.assert_allclose(got[:, :, 0, 0], want, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="odd"):
        make((C, 8, 8), H, h2h_kernel=(2, 2))


def test_names_are_those_of_mxnet():
    outputs, states = rnn.LSTMCell(H, prefix="l_").unroll(2, sym.Variable("data"))
    net = sym.Group(outputs)
    assert net.list_arguments() == [
        "data", "l_i2h_weight", "l_i2h_bias", "l_h2h_weight", "l_h2h_bias",
    ]  # fmt: skip
    assert [s.list_outputs() for s in states] == [["l_t1_out_output"], ["l_t1_state_output"]]
    begin = rnn.GRUCell(H, prefix="g_").begin_state(func=sym.Variable)
    assert [s.name for s in begin] == ["g_begin_state_0"]
    begin = rnn.GRUCell(H).begin_state(func=sym.ones, shape=(2, H))  # instead of the cell's own
    assert begin[0].infer_shape()[1] == [(2, H)]
    both = rnn.BidirectionalCell(rnn.GRUCell(3, prefix="a_"), rnn.GRUCell(3, prefix="b_"))
    outputs, states = both.unroll(2, sym.Variable("data"), merge_outputs=False)
    assert [o.name for o in outputs] == ["bi_t0", "bi_t1"]
    assert [[s.name for s in direction] for direction in states] == [["a_t1_out"], ["b_t1_out"]]
    assert both.unroll(2, sym.Variable("data"), merge_outputs=True)[0].name == "bi_out"


def test_states_that_are_inputs_need_no_further_shapes():
    cell = rnn.LSTMCell(H, prefix="l_")
    begin = cell.begin_state(func=sym.Variable)
    assert begin[1].attr_dict()["l_begin_state_1"] == {"__layout__": "NC", "__shape__": f"(0, {H})"}
    net = sym.Group(cell.unroll(2, sym.Variable("data"), begin_state=begin)[0])
    shapes = dict(zip(net.list_arguments(), net.infer_shape(data=(3, 2, 5))[0], strict=True))
    assert shapes["l_begin_state_0"] == shapes["l_begin_state_1"] == (3, H)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: rnn.GRUCell(H).unroll(0, sym.Variable("x")),
            "invalid length 0: expected at least 1",
        ),
        (
            lambda: rnn.LSTMCell(H).unroll(2, sym.Variable("x"), begin_state=[sym.Variable("h")]),
            "invalid begin_state of 1 states: expected 2",
        ),
        (
            lambda: rnn.FusedRNNCell(3).unpack_weights({"lstm_parameters": nd.ones((5,))}),
            "lstm_parameters has 5 elements, expected 72",
        ),
    ],
)
def test_wrong_sizes_are_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_both_directions_keep_what_fused_cells_have_joined():
    cells = [rnn.FusedRNNCell(3, prefix=f"{side}_") for side in "lr"]
    both, data = rnn.BidirectionalCell(*cells), sym.Variable("data")
    outputs, _ = both.unroll(4, data, layout="TNC")
    assert outputs.infer_shape(data=(4, 2, 5))[1] == [(4, 2, 6)]
    apart, _ = both.unroll(4, data, layout="TNC", merge_outputs=False)
    both_ways = sym.Group([outputs, *[sym.expand_dims(step, axis=0) for step in apart]])
    bound = both_ways.simple_bind(mx.cpu(), data=(4, 2, 5))
    for i, array in enumerate(bound.arg_dict.values()):
        array[:] = np.random.RandomState(i).normal(size=array.shape)
    whole, *steps = bound.forward()
    np.testing.assert_allclose(np.concatenate([s.asnumpy() for s in steps]), whole.asnumpy(), 1e-5)


def test_cells_share_given_parameters():
    params = rnn.RNNParams("shared_")
    first, second = rnn.RNNCell(C, params=params), rnn.RNNCell(C, params=params)
    state = first.begin_state()
    out, state = first(sym.Variable("x"), state)
    out, state = second(out, state)
    assert len(out.list_arguments()) == 5


@LAYOUT
def test_first_values_of_biases():
    lstm, fused = rnn.LSTMCell(H, prefix="l_"), rnn.FusedRNNCell(H, prefix="f_")
    for cell in (lstm, fused):
        net, _ = cell.unroll(T, sym.Variable("data"), merge_outputs=True)
        mod = mx.mod.Module(net, label_names=None)
        mod.bind([("data", (N, T, C))], for_training=False)
        mod.init_params(mx.init.Xavier())
        by_gate = cell.unpack_weights(mod.get_params()[0])
        for name, value in by_gate.items():
            if name.endswith("_bias"):
                expected = 1.0 if name.endswith("i2h_f_bias") else 0.0
                if cell is fused and name.endswith("h2h_f_bias"):
                    expected = 1.0
                assert np.all(value.asnumpy() == expected), name
            else:
                assert value.asnumpy().std() > 0.05, name


@pytest.mark.parametrize("make", [
    lambda: rnn.LSTMCell(H, prefix="l_"),
    lambda: rnn.FusedRNNCell(H, 2, bidirectional=True, prefix="l_"),
])  # fmt: skip
@LAYOUT
def test_checkpoints_hold_weights_by_gate(make, tmp_path):
    cell, prefix = make(), str(tmp_path / "net")
    net, _ = cell.unroll(T, sym.Variable("data"), merge_outputs=True)
    arrays = arrays_for(net, data=(N, T, C))
    params = {n: nd.array(a) for n, a in arrays.items() if n != "data"}
    rnn.do_rnn_checkpoint([cell], prefix)(0, net, params, {})
    assert all(
        "i2h_i_" in n or "_i2h_" in n or "_h2h_" in n for n in mx.model.load_params(prefix, 1)[0]
    )
    _, loaded, aux = rnn.load_rnn_checkpoint(cell, prefix, 1)
    assert aux == {} and loaded.keys() == params.keys()
    for name, value in params.items():
        np.testing.assert_array_equal(loaded[name].asnumpy(), value.asnumpy())


def test_sentences_become_batches():
    words = [["the", "cat"], ["the", "dog", "sat"], ["a", "cat", "sat"], ["a", "dog"]]
    coded, vocab = rnn.encode_sentences(words, invalid_label=0, start_label=1)
    assert coded[0] == [1, 2] and vocab["\n"] == 0 and sorted(vocab.values()) == list(range(6))
    with pytest.raises(ValueError, match="invalid word 'bird': expected one of"):
        rnn.encode_sentences([["bird"]], vocab)
    assert rnn.encode_sentences([["bird"]], vocab, unknown_token="a")[0] == [[vocab["a"]]]
    for layout in ("NT", "TN"):
        batches = rnn.BucketSentenceIter(coded, 2, invalid_label=0, layout=layout)
        seen = list(batches)
        assert sorted(b.bucket_key for b in seen) == [2, 3] and batches.default_bucket_key == 3
        for batch in seen:
            data, label = batch.data[0].asnumpy(), batch.label[0].asnumpy()
            assert tuple(batch.provide_data[0].shape) == data.shape
            if layout == "TN":
                data, label = data.T, label.T
            np.testing.assert_array_equal(label[:, :-1], data[:, 1:])
            assert not label[:, -1].any()
    with pytest.raises(ValueError, match="layout"):
        rnn.BucketSentenceIter(coded, 2, layout="CT")


@pytest.mark.parametrize("layout", ["NC", "", None])
@pytest.mark.parametrize("cell", [rnn.LSTMCell, rnn.FusedRNNCell])
def test_a_layout_without_an_axis_of_time_is_refused(cell, layout):
    with pytest.raises(ValueError, match="invalid layout .*: expected an axis of time"):
        cell(4).unroll(2, inputs=sym.Variable("data"), layout=layout)


def test_a_bucketing_language_model_learns():
    """Sentences that count upwards: the next word is certain after the first."""
    rng = np.random.default_rng(0)
    starts = rng.integers(1, 6, 200)
    sentences = [
        list(range(s, s + int(n))) for s, n in zip(starts, rng.integers(3, 7, 200), strict=True)
    ]
    batches = rnn.BucketSentenceIter(sentences, 10, buckets=[4, 6], invalid_label=0)
    stack = rnn.SequentialRNNCell()
    stack.add(rnn.LSTMCell(16, prefix="l0_"))

    def sym_gen(length):
        embed = sym.Embedding(sym.Variable("data"), input_dim=12, output_dim=8, name="embed")
        outputs, _ = stack.unroll(length, embed, merge_outputs=True)
        scores = sym.FullyConnected(
            sym.reshape(outputs, shape=(-1, 16)), num_hidden=12, name="pred"
        )
        label = sym.reshape(sym.Variable("softmax_label"), shape=(-1,))
        net = sym.SoftmaxOutput(scores, label, name="softmax", use_ignore=True, ignore_label=0)
        return net, ("data",), ("softmax_label",)

    mod = mx.mod.BucketingModule(sym_gen, default_bucket_key=batches.default_bucket_key)
    mod.fit(
        batches, num_epoch=8, eval_metric=mx.metric.Perplexity(0), optimizer="adam",
        optimizer_params={"learning_rate": 0.03}, initializer=mx.init.Xavier(),
    )  # fmt: skip
    assert mod.score(batches, mx.metric.Perplexity(0))[0][1] < 1.3

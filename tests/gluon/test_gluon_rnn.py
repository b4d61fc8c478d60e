"""Recurrent cells and layers: unrolled they agree with each other and with NumPy."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import autograd, gluon, nd
from rsnet.gluon import contrib, nn, rnn

BATCH, STEPS, WIDTH, HIDDEN = 2, 5, 3, 4


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def filled(net, seed=0):
    net.initialize(mx.init.Normal(0.5))
    rng = np.random.default_rng(seed)
    for param in net.collect_params().values():
        if param._shape_is_known():
            param.set_data(nd.array(rng.normal(0, 0.5, param.shape)))
    return net


def sequence(seed=1):
    return nd.array(np.random.default_rng(seed).normal(size=(BATCH, STEPS, WIDTH)))


# ---- against NumPy -----------------------------------------------------------------------------


def numpy_steps(cell, x, kind):
    """What a cell computes, step by step."""
    w, r, b, c = (p.data().asnumpy() for p in cell.collect_params().values())
    h = memory = np.zeros((BATCH, HIDDEN))
    found = []
    for t in range(x.shape[1]):
        i2h, h2h = x[:, t] @ w.T + b, h @ r.T + c
        if kind == "rnn":
            h = np.tanh(i2h + h2h)
        elif kind == "lstm":
            i, f, g, o = np.split(i2h + h2h, 4, axis=1)
            memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(memory)
        else:
            (ir, iz, i_n), (hr, hz, hn) = np.split(i2h, 3, axis=1), np.split(h2h, 3, axis=1)
            z = sigmoid(iz + hz)
            h = (1 - z) * np.tanh(i_n + sigmoid(ir + hr) * hn) + z * h
        found.append(h)
    return np.stack(found, axis=1)


CELLS = {
    "rnn": lambda: rnn.RNNCell(HIDDEN, input_size=WIDTH),
    "lstm": lambda: rnn.LSTMCell(HIDDEN, input_size=WIDTH),
    "gru": lambda: rnn.GRUCell(HIDDEN, input_size=WIDTH),
}
LAYERS = {
    "rnn": lambda: rnn.RNN(HIDDEN, activation="tanh", layout="NTC", input_size=WIDTH),
    "lstm": lambda: rnn.LSTM(HIDDEN, layout="NTC", input_size=WIDTH),
    "gru": lambda: rnn.GRU(HIDDEN, layout="NTC", input_size=WIDTH),
}


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybrid"])
@pytest.mark.parametrize("kind", list(CELLS))
def test_cells_and_layers_match_numpy(kind, hybrid):
    cell, x = filled(CELLS[kind]()), sequence()
    cell.hybridize(hybrid)
    expected = numpy_steps(cell, x.asnumpy(), kind)
    outputs, states = cell.unroll(STEPS, x, merge_outputs=True)
    np.testing.assert_allclose(outputs.asnumpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(states[0].asnumpy(), expected[:, -1], rtol=1e-4, atol=1e-5)
    layer = filled(LAYERS[kind]())
    layer.hybridize(hybrid)
    for mine, theirs in zip(layer.collect_params().values(), cell.collect_params().values()):
        mine.set_data(theirs.data())
    np.testing.assert_allclose(layer(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    _, states = layer(x, layer.begin_state(BATCH))
    np.testing.assert_allclose(states[0].asnumpy()[0], expected[:, -1], rtol=1e-4, atol=1e-5)


# ---- unrolling ---------------------------------------------------------------------------------


def stack():
    cells = rnn.HybridSequentialRNNCell()
    cells.add(rnn.LSTMCell(HIDDEN))
    cells.add(rnn.ResidualCell(rnn.GRUCell(HIDDEN)))
    cells.add(rnn.DropoutCell(0.0))
    return cells


MANY = {
    "rnn": (lambda: rnn.RNNCell(HIDDEN, activation="relu"), HIDDEN),
    "lstm": (lambda: rnn.LSTMCell(HIDDEN), HIDDEN),
    "gru": (lambda: rnn.GRUCell(HIDDEN), HIDDEN),
    "stack": (stack, HIDDEN),
    "both ways": (lambda: rnn.BidirectionalCell(rnn.LSTMCell(3), rnn.GRUCell(2)), 5),
    "zoneout": (lambda: rnn.ZoneoutCell(rnn.RNNCell(HIDDEN), 0.5, 0.5), HIDDEN),
    "variational": (lambda: contrib.rnn.VariationalDropoutCell(rnn.LSTMCell(HIDDEN), 0.3), HIDDEN),
    "projected": (lambda: contrib.rnn.LSTMPCell(HIDDEN, 2), 2),
}


class Unrolled(gluon.HybridBlock):
    """A cell unrolled in a network, so that it can be one graph."""

    def __init__(self, cell, layout="NTC"):
        super().__init__()
        self.cell = cell
        self.layout = layout

    def hybrid_forward(self, F, x, lengths=None):
        outputs, states = self.cell.unroll(
            STEPS, x, layout=self.layout, merge_outputs=True, valid_length=lengths
        )
        return outputs, list(states)


@pytest.mark.parametrize("name", list(MANY))
def test_unrolled_cells_are_one_graph(name):
    make, width = MANY[name]
    net = Unrolled(make())
    net.initialize(mx.init.Normal(0.5))
    x, lengths = sequence(), nd.array([2, STEPS])
    found = []
    for hybrid in (False, True):
        net.hybridize(hybrid)
        for given in ((x,), (x, lengths)):
            if hybrid:
                net._clear_cached_op()
            outputs, states = net(*given)
            assert outputs.shape == (BATCH, STEPS, width)
            found.append([outputs.asnumpy(), *[s.asnumpy() for s in states]])
    for plain, hybrid in zip(found[:2], found[2:]):
        for a, b in zip(plain, hybrid):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert (found[1][0][0, 2:] == 0).all() and (found[1][0][1] == found[0][0][1]).all()


@pytest.mark.parametrize("name", ["rnn", "stack", "both ways"])
def test_sequences_come_in_all_forms(name):
    cell = filled(MANY[name][0]())
    x = sequence()
    whole, _ = cell.unroll(STEPS, x, merge_outputs=True)
    steps, _ = cell.unroll(STEPS, x, merge_outputs=False)
    assert isinstance(steps, list) and len(steps) == STEPS
    np.testing.assert_array_equal(nd.stack(*steps, axis=1).asnumpy(), whole.asnumpy())
    listed = [x[:, t] for t in range(STEPS)]
    again, _ = cell.unroll(STEPS, listed, merge_outputs=True)
    np.testing.assert_array_equal(again.asnumpy(), whole.asnumpy())
    turned, _ = cell.unroll(STEPS, x.swapaxes(0, 1), layout="TNC", merge_outputs=True)
    np.testing.assert_array_equal(turned.swapaxes(0, 1).asnumpy(), whole.asnumpy())


def test_states_end_where_sequences_end():
    cell, x = filled(rnn.LSTMCell(HIDDEN, input_size=WIDTH)), sequence()
    _, states = cell.unroll(STEPS, x, valid_length=nd.array([2, 5]))
    _, short = cell.unroll(2, x[:, :2])
    for a, b in zip(states, short):
        np.testing.assert_allclose(a.asnumpy()[0], b.asnumpy()[0], rtol=1e-5)


def test_layers_take_the_lengths_of_sequences():
    layer = filled(rnn.LSTM(HIDDEN, layout="NTC", input_size=WIDTH, use_sequence_length=True))
    x, lengths = sequence(), nd.array([2, 5])
    outputs, states = layer(x, layer.begin_state(BATCH), lengths)
    assert (outputs.asnumpy()[0, 2:] == 0).all()
    np.testing.assert_allclose(states[0].asnumpy()[0, 0], outputs.asnumpy()[0, 1], rtol=1e-5)
    with pytest.raises(ValueError, match="use_sequence_length=True"):
        filled(rnn.LSTM(HIDDEN))(x, None, lengths)


def test_gradients_flow_through_hybrid_cells_step_by_step():
    x = sequence()
    found = []
    for hybrid in (False, True):
        cell = filled(rnn.GRUCell(HIDDEN, input_size=WIDTH))
        cell.hybridize(hybrid)
        with autograd.record():
            outputs, _ = cell.unroll(STEPS, x, merge_outputs=True)
            loss = (outputs**2).sum()
        loss.backward()
        found.append([p.grad().asnumpy() for p in cell.collect_params().values()])
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_zoneout_keeps_steps_while_training():
    cell = rnn.ZoneoutCell(rnn.RNNCell(50, input_size=WIDTH), zoneout_outputs=0.5)
    cell.initialize(mx.init.Normal(0.5))
    with autograd.record():
        outputs, _ = cell.unroll(2, nd.ones((1, 2, WIDTH)), merge_outputs=True)
    first, second = outputs.asnumpy()[0]
    assert 5 < (first == 0).sum() < 45 and 5 < (first == second).sum() < 45


@pytest.mark.parametrize("rate", [0, 0.5])
def test_variational_dropout_gives_one_array_unless_states_are_dropped(rate):
    def unrolled(**rates):
        cell = contrib.rnn.VariationalDropoutCell(rnn.RNNCell(HIDDEN, input_size=WIDTH), **rates)
        cell.initialize()
        return cell.unroll(2, nd.ones((1, 2, WIDTH)))[0]

    assert unrolled(drop_inputs=rate, drop_outputs=rate).shape == (1, 2, HIDDEN)
    assert [step.shape for step in unrolled(drop_states=0.5)] == [(1, HIDDEN)] * 2


@pytest.mark.parametrize("what", ["inputs", "states", "outputs"])
def test_variational_dropout_has_one_mask_for_a_sequence(what):
    cell = rnn.RNNCell(60, activation="relu", input_size=60, prefix="r_")
    cell.initialize(mx.init.Zero())
    through = cell.h2h_weight if what == "states" else cell.i2h_weight
    through.set_data(nd.array(np.eye(60)))  # what was dropped stays 0
    varied = contrib.rnn.VariationalDropoutCell(cell, **{f"drop_{what}": 0.5})

    def dropped():
        with autograd.record():
            outputs, _ = varied.unroll(
                4, nd.ones((1, 4, 60)), begin_state=[nd.ones((1, 60))], merge_outputs=True
            )
        return outputs.asnumpy()[0] == 0

    first, second = dropped(), dropped()
    assert 5 < first[0].sum() < 55
    for step in first[1:]:
        np.testing.assert_array_equal(step, first[0])
    assert (first != second).any()  # another sequence has another mask


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_convolutional_cells(kind, axes):
    shape = (3,) + (4,) * axes
    cell = getattr(contrib.rnn, f"Conv{axes}D{kind}Cell")(shape, 2, 3, 3, i2h_pad=1)
    cell.initialize()
    outputs, states = cell.unroll(2, nd.ones((1, 2, *shape)), merge_outputs=True)
    assert outputs.shape == (1, 2, 2) + (4,) * axes
    assert [s.shape for s in states] == [i["shape"] for i in cell.state_info(1)]
    assert cell.prefix.startswith(f"conv_{kind.lower()}")


# ---- wrong use ---------------------------------------------------------------------------------


def test_wrong_use_is_refused():
    cell = filled(rnn.LSTMCell(HIDDEN))
    with pytest.raises(AssertionError, match="got 3 inputs, expected 4 steps"):
        cell.unroll(4, [nd.ones((1, WIDTH))] * 3)
    with pytest.raises(AssertionError, match="expected 4 steps, got 5"):
        cell.unroll(4, sequence())
    with pytest.raises(ValueError, match="invalid layout 'NC'"):
        cell.unroll(4, sequence(), layout="NC")
    both = rnn.BidirectionalCell(rnn.RNNCell(2), rnn.RNNCell(2))
    with pytest.raises(NotImplementedError, match="expected a call of unroll"):
        both(nd.ones((1, 2)), [])
    with pytest.raises(AssertionError, match="ZoneoutCell: invalid base_cell, a BidirectionalCell"):
        rnn.ZoneoutCell(both)
    modified = rnn.ResidualCell(cell)
    with pytest.raises(
        AssertionError, match="has a modifier, such as ZoneoutCell: expected a call of the"
    ):
        cell.begin_state(1)
    with pytest.raises(AssertionError, match="has a modifier already"):
        rnn.ResidualCell(cell)
    assert len(modified.begin_state(1)) == 2
    layer = filled(rnn.LSTM(HIDDEN))
    with pytest.raises(ValueError, match=r"inputs have shape \(5, 2\), expected 3 axes"):
        layer(nd.ones((5, 2)))
    with pytest.raises(ValueError, match="got 1 states, expected 2"):
        layer(nd.ones((5, 2, 3)), [nd.ones((1, 2, 4))])
    with pytest.raises(
        ValueError, match=r"invalid shape \(1, 3, 4\) of a state: expected \(1, 2, 4\)"
    ):
        layer(nd.ones((5, 2, 3)), [nd.ones((1, 3, 4))] * 2)
    with pytest.raises(AssertionError, match="expected odd extents"):
        contrib.rnn.Conv1DRNNCell((3, 8), 2, 3, 2)
    with pytest.raises(AssertionError, match="invalid input_shape"):
        contrib.rnn.Conv2DRNNCell((3, 8), 2, 3, 3)


def test_layers_are_saved_as_in_mxnet(tmp_path):
    layer = filled(rnn.LSTM(HIDDEN, 2, bidirectional=True, input_size=WIDTH, prefix="lstm_"))
    assert list(layer.collect_params())[:5] == [
        "lstm_l0_i2h_weight",
        "lstm_l0_h2h_weight",
        "lstm_l0_i2h_bias",
        "lstm_l0_h2h_bias",
        "lstm_r0_i2h_weight",
    ]
    layer.hybridize()
    x = nd.ones((STEPS, BATCH, WIDTH))
    layer(x)
    symbol_file, params_file = layer.export(str(tmp_path / "lstm"))
    names = ["data0", "data1", "data2"]
    block = gluon.SymbolBlock.imports(symbol_file, names, params_file)
    outputs = block(x, *layer.begin_state(BATCH))
    np.testing.assert_allclose(outputs[0].asnumpy(), layer(x).asnumpy(), rtol=1e-5)


def test_files_name_weights_by_cells_as_in_mxnet(tmp_path):
    net = nn.Sequential()
    net.add(filled(rnn.LSTM(HIDDEN, 2, bidirectional=True, input_size=WIDTH)))
    net.add(filled(rnn.GRU(HIDDEN, 2, input_size=2 * HIDDEN)))
    net.save_parameters(tmp_path / "net.params")
    names = set(nd.load(str(tmp_path / "net.params")))
    assert {"0._unfused.1.r_cell.h2h_bias", "1._unfused.0.i2h_weight"} <= names
    x = nd.ones((STEPS, BATCH, WIDTH))
    expected = net(x).asnumpy()
    net.initialize(mx.init.Zero(), force_reinit=True)
    net.load_parameters(tmp_path / "net.params")
    np.testing.assert_array_equal(net(x).asnumpy(), expected)


def test_embedding_and_layers_in_one_network():
    net = nn.HybridSequential()
    net.add(nn.Embedding(10, WIDTH), rnn.LSTM(HIDDEN, layout="NTC"), nn.Dense(10, flatten=False))
    net.initialize()
    net.hybridize()
    assert net(nd.array([[1, 2, 3], [4, 5, 6]])).shape == (2, 3, 10)

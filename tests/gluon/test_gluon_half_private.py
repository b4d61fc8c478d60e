"""Half-private names of Gluon that programs import; results as MXNet 1.9.1 has them."""

import pickle
from multiprocessing.pool import ThreadPool

import numpy as np
import pytest

import rsnet as mx
from rsnet import gluon, nd
from rsnet.gluon.block import _BlockScope, _flatten, _regroup
from rsnet.gluon.data.dataloader import _as_in_context, _MultiWorkerIter
from rsnet.gluon.data.dataset import _DownloadedDataset, _LazyTransformDataset
from rsnet.gluon.loss import _apply_weighting, _reshape_like
from rsnet.gluon.model_zoo.vision import resnet
from rsnet.gluon.nn.conv_layers import _Pooling
from rsnet.gluon.rnn.rnn_cell import (
    _cells_begin_state,
    _cells_state_info,
    _format_sequence,
    _get_begin_state,
    _mask_sequence_variable_length,
    _reverse_sequences,
)
from rsnet.gluon.utils import _brief_print_list, _get_repo_file_url, _get_repo_url, _indent

X = nd.arange(24).reshape((2, 3, 4))
STEPS = [nd.ones((2, 4))] * 2
DEVICES = [mx.cpu(0), mx.cpu(1)]


def test_weights_of_losses():
    loss = _apply_weighting(nd, nd.ones((2, 2)), 2, nd.array([[1], [0]]))
    assert loss.asnumpy().tolist() == [[2, 2], [0, 0]]
    assert _apply_weighting(nd, loss) is loss
    with pytest.raises(AssertionError, match="expected a number"):
        _apply_weighting(nd, loss, "a")
    assert _reshape_like(nd, nd.ones((4,)), loss).shape == (2, 2)


@pytest.mark.parametrize(
    ("args", "shapes", "axis", "batch"),
    [
        ((3, X, "NTC", True), (2, 3, 4), 1, 2),
        ((3, X, "NTC", None), (2, 3, 4), 1, 2),
        ((None, X, "NTC", False), [(2, 4)] * 3, 1, 2),
        ((3, X, "TNC", True, "NTC"), (3, 2, 4), 0, 2),
        ((3, X, "TNC", False, "NTC"), [(2, 4)] * 3, 0, 2),
        ((1, nd.ones((2, 1, 4)), "NTC", False), [(2, 4)], 1, 2),
        ((2, STEPS, "NTC", True), (2, 2, 4), 1, 2),
        ((2, STEPS, "NTC", False), [(2, 4)] * 2, 1, 2),
        ((2, STEPS, "NTC", None), [(2, 4)] * 2, 1, 2),
        ((2, STEPS, "TNC", True, "NTC"), (2, 2, 4), 0, 2),
    ],
)
def test_sequences_as_one_array_or_a_list(args, shapes, axis, batch):
    found, *rest = _format_sequence(*args)
    assert ([s.shape for s in found] if isinstance(found, list) else found.shape) == shapes
    assert rest == [axis, nd, batch]


def test_the_values_of_a_sequence_are_in_order():
    moved = _format_sequence(3, X, "TNC", True, "NTC")[0].asnumpy()
    np.testing.assert_array_equal(moved, X.asnumpy().swapaxes(0, 1))
    steps = _format_sequence(3, X, "NTC", False)[0]
    np.testing.assert_array_equal(steps[1].asnumpy(), X.asnumpy()[:, 1])


def test_sequences_of_symbols():
    parts, axis, F, batch = _format_sequence(2, mx.sym.var("x"), "NTC", False)
    assert (len(parts), axis, F, batch) == (2, 1, mx.sym, 0)
    whole = _format_sequence(2, [mx.sym.var("a"), mx.sym.var("b")], "NTC", True)[0]
    assert whole.list_arguments() == ["a", "b"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((2, None, "NTC", True), "invalid inputs None"),
        ((2, [], "NTC", True), "invalid inputs"),
        ((3, STEPS, "NTC", True), "got 2 inputs, expected 3 steps"),
        ((4, X, "NTC", False), "got 3 steps .* expected 4"),
        ((None, mx.sym.var("x"), "NTC", False), "expected a length"),
    ],
)
def test_sequences_that_are_none(args, says):
    with pytest.raises(AssertionError, match=says):
        _format_sequence(*args)


def test_states_of_cells():
    cells = [gluon.rnn.LSTMCell(5), gluon.rnn.GRUCell(3)]
    assert [info["shape"] for info in _cells_state_info(cells, 2)] == [(2, 5), (2, 5), (2, 3)]
    states = _cells_begin_state(cells, batch_size=2)
    assert [s.shape for s in states] == [(2, 5), (2, 5), (2, 3)]
    for inputs in (nd.ones((2, 4)), [nd.ones((2, 4))]):
        own = _get_begin_state(cells[0], nd, None, inputs, 2)
        assert [s.shape for s in own] == [(2, 5)] * 2
    assert _get_begin_state(cells[0], nd, [1], nd.ones((2, 4)), 2) == [1]
    symbols = _get_begin_state(cells[0], mx.sym, None, mx.sym.var("x"), 0)
    assert all(isinstance(s, mx.sym.Symbol) for s in symbols)


def test_ends_of_sequences():
    lengths = nd.array([1, 3])
    ones = nd.ones((2, 3, 1))
    masked = _mask_sequence_variable_length(nd, ones, 3, lengths, 1, True)
    assert masked.asnumpy().ravel().tolist() == [1, 0, 0, 1, 1, 1]
    parts = _mask_sequence_variable_length(nd, [nd.ones((2, 1))] * 3, 3, lengths, 1, False)
    assert [p.asnumpy().ravel().tolist() for p in parts] == [[1, 1], [0, 1], [0, 1]]
    steps = [nd.array([[i], [i + 10]]) for i in range(3)]
    assert _reverse_sequences(steps, 3) == steps[::-1]
    back = _reverse_sequences(steps, 3, nd.array([2, 3]))
    assert [b.asnumpy().ravel().tolist() for b in back] == [[1, 12], [0, 11], [2, 10]]


def test_nested_lists():
    flat, structure = _flatten([X, [X, None]], "input")
    assert len(flat) == 3 and structure == [0, [0, -1]]
    assert _regroup(flat, structure) == [X, [X, None]]
    prefix, params = _BlockScope.create("mine_", None, "hint")
    assert prefix == params.prefix == "mine_"


def test_texts():
    assert _indent("a\nb\nc", 2) == "a\n  b\n  c"
    assert _brief_print_list("abc") == "'a', 'b', 'c'"
    assert _brief_print_list("abcdefghij", 4) == "'a', 'b', ..., 'i', 'j'"


def test_data_sets_of_ones_own(tmp_path):
    class Own(_DownloadedDataset):
        def _get_data(self):
            self._data, self._label = nd.ones((3, 2)), np.arange(3)

    root = tmp_path / "data"
    data = Own(str(root), None)
    assert root.is_dir() and len(data) == 3 and data[1][1] == 1
    assert Own(str(root), lambda x, y: (x * 2, y))[0][0].asnumpy().tolist() == [2, 2]
    with pytest.raises(NotImplementedError, match="does not define _get_data"):
        _DownloadedDataset(str(root), None)
    assert _LazyTransformDataset(gluon.data.SimpleDataset([1, 2]), lambda x: x * 3)[1] == 6


def test_pooling_of_ones_own():
    class Own(_Pooling):
        def __init__(self, pool_size, **kwargs):
            super().__init__(pool_size, None, (0, 0), False, False, "avg", "NCHW", True, **kwargs)

    layer = Own((2, 2), prefix="own_")
    image = nd.arange(16).reshape((1, 1, 4, 4))
    want = gluon.nn.AvgPool2D(2)(image)
    assert (layer(image) == want).asnumpy().all() and layer.prefix == "own_"
    assert isinstance(gluon.nn.MaxPool2D(), _Pooling)
    assert _Pooling((1, 1), global_pool=True, pool_type="max")(image).shape == (1, 1, 1, 1)
    with pytest.raises(TypeError, match="invalid pool_size None: expected extents"):
        gluon.nn.MaxPool2D(pool_type="avg")


def test_tables_of_resnet():
    kind, layers, channels = resnet.resnet_spec[50]
    block = resnet.resnet_block_versions[0][kind]
    assert block is resnet.BottleneckV1
    net = resnet.resnet_net_versions[0](block, layers, channels, classes=7, prefix="r_")
    same = resnet.get_resnet(1, 50, classes=7, prefix="r_")
    assert list(net.collect_params()) == list(same.collect_params())


def test_paths_of_layers():
    from rsnet.gluon.contrib.nn.basic_layers import HybridConcurrent

    assert HybridConcurrent is gluon.contrib.nn.HybridConcurrent


def test_a_trainer_of_ones_own_scales_gradients():
    net = gluon.nn.Dense(1, in_units=1)
    net.initialize(init="zeros")

    class Own(gluon.Trainer):
        def step(self, batch_size, ignore_stale_grad=False):
            if not self._kv_initialized:
                self._init_kvstore()
            self._check_and_rescale_grad(self._scale / batch_size)
            self._update(ignore_stale_grad)

    trainer = Own(net.collect_params(), "sgd", {"learning_rate": 1})
    assert trainer._param2idx == {net.bias.name: 0, net.weight.name: 1}
    with mx.autograd.record():
        y = net(nd.ones((4, 1)))
    y.backward()
    trainer.step(8)
    assert net.bias.data().asnumpy().tolist() == [-0.5]


def test_a_block_is_optimized_for_any_backend():
    net = gluon.nn.Dense(2)
    net.initialize()
    with pytest.raises(ValueError, match="invalid backend None"):
        net.optimize_for(nd.ones((1, 3)))
    assert net.optimize_for(nd.ones((1, 3)), backend="MKLDNN") is None
    assert net._active and net.weight.shape == (2, 3) and net._cached_op is not None


def test_cells_of_ones_own_apply_activations():
    class Cell(gluon.rnn.HybridRecurrentCell):
        act = "tanh"

        def state_info(self, batch_size=0):
            return [{"shape": (batch_size, 2), "__layout__": "NC"}]

        def hybrid_forward(self, F, inputs, states):
            total = inputs + states[0]
            output = self._get_activation(F, total, self.act, name=f"t{self._counter}_out")
            return output, [output]

    x = np.array([[[1.0, -2.0], [3.0, -4.0]]])
    for act, function in (
        ("tanh", np.tanh),
        ("softrelu", lambda v: np.log1p(np.exp(v))),
        (gluon.nn.LeakyReLU(0.5), lambda v: np.where(v > 0, v, v / 2)),
        (lambda v, name: v * 2, lambda v: v * 2),
    ):
        cell = Cell()
        cell.act = act
        first = function(x[:, 0])
        expected = np.stack([first, function(x[:, 1] + first)], axis=1)
        found = cell.unroll(2, nd.array(x), merge_outputs=True)[0]
        np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("pinned", [False, True])
def test_batches_of_a_pool_of_ones_own(pinned):
    def load(samples, batchify_fn, dataset=None):
        return pickle.dumps(batchify_fn([samples, (dataset or samples)[:2]]))

    with ThreadPool(2) as pool:
        batches = _MultiWorkerIter(
            pool, nd.array, [[1, 2], [3, 4], [5, 6]], pin_memory=pinned, worker_fn=load, prefetch=2
        )
        assert len(batches) == 3
        found = [batch.asnumpy().tolist() for batch in batches]
        assert found == [[[i, i + 1]] * 2 for i in (1, 3, 5)]
        own = _MultiWorkerIter(pool, nd.array, [[1], [0]], dataset=[7, 8], pin_memory=pinned)
        first = own.next()
        assert first.asnumpy().tolist() == [8]
        assert first.context == (mx.cpu_pinned(0) if pinned else mx.cpu())


def test_a_loader_of_ones_own_changes_what_the_pool_is_asked():
    class Own(_MultiWorkerIter):
        def _push_next(self):
            samples = next(self._iter, None)
            if samples is not None:
                asked = self._worker_pool.apply_async(self._worker_fn, (samples, self._sent_idx))
                self._data_buffer[self._sent_idx] = asked
                self._sent_idx += 1

    with ThreadPool(2) as pool:
        batches = Own(pool, None, ["a", "b"], worker_fn=lambda *asked: asked, prefetch=5)
        assert [tuple(batch) for batch in batches] == [("a", 0), ("b", 1)]


def test_loaders_of_ones_own_hand_on_what_they_were_told():
    class Own(gluon.data.DataLoader):
        def __iter__(self):
            with ThreadPool(1) as pool:
                yield from _MultiWorkerIter(
                    pool, self._batchify_fn, self._batch_sampler, self._pin_memory,
                    self._pin_device_id, prefetch=self._prefetch, dataset=self._dataset,
                )  # fmt: skip

    loader = Own(gluon.data.SimpleDataset([1, 2, 3]), 2, pin_memory=True)
    assert [batch.context for batch in loader] == [mx.cpu_pinned(0)] * 2
    batches = list(Own(gluon.data.ArrayDataset(np.arange(3), np.eye(3)), 2, num_workers=1))
    assert [b.shape for batch in batches for b in batch] == [(2,), (2, 3), (1,), (1, 3)]
    assert all(isinstance(b, nd.NDArray) for batch in batches for b in batch)


def test_nested_batches_in_another_context():
    moved = _as_in_context([nd.ones((1,)), (nd.ones((2,)), "text")], mx.cpu(1))
    assert [a.context for a in (moved[0], moved[1][0])] == [mx.cpu(1)] * 2
    assert moved[1][1] == "text"


def test_addresses_of_files(monkeypatch):
    assert _get_repo_file_url("gluon/x", "a.zip") == f"{_get_repo_url()}gluon/x/a.zip"
    monkeypatch.setenv("MXNET_GLUON_REPO", "file:///mine")
    assert _get_repo_file_url("gluon/x", "a.zip") == "file:///mine/gluon/x/a.zip"
    assert mx.gluon.model_zoo.model_store._model_sha1 == {}


def test_parameters_that_wrap_others():
    class Doubled(gluon.Parameter):
        def __init__(self, other):
            super().__init__(other.name, shape=other.shape)
            for name in ("_data", "_grad", "_ctx_list", "_ctx_map", "_trainer"):
                setattr(self, name, getattr(other, name))

        def data(self, ctx=None):
            return self._check_and_get(self._data, ctx) * 2

    weight = gluon.Parameter("w", shape=(2,), init="ones")
    with pytest.raises(RuntimeError, match="has not been initialized"):
        weight._check_and_get(None, list)
    weight.initialize(ctx=DEVICES)
    own = Doubled(weight)
    assert own.data(DEVICES[1]).asnumpy().tolist() == [2, 2]
    assert own._check_and_get(own._grad, list) is weight._grad
    assert own._ctx_map == weight._ctx_map == [[], [0, 1]]


def test_a_sample_takes_the_place_of_a_parameter():
    dense = gluon.nn.Dense(1, in_units=2, use_bias=False)
    assert dense.weight._ctx_map is None
    dense.initialize(ctx=[mx.cpu(2), mx.cpu(0)])
    here = dense.weight._ctx_map[mx.cpu().device_typeid & 1]
    assert here == [1, None, 0]
    mean = nd.array([[1.0, 2.0]])
    mean.attach_grad()
    for hybrid in (False, True):
        dense.hybridize(hybrid)
        with mx.autograd.record():
            dense.weight._data[here[0]] = 3 * mean
            out = dense(nd.array([[5.0, 7.0]]))
        out.backward()
        assert out.asscalar() == 57 and mean.grad.asnumpy().tolist() == [[15, 21]]


def test_parameters_of_deformable_layers_are_in_order():
    offset, own = ["offset_weight", "offset_bias"], ["deformable_conv_weight"]
    for kind, order in (("Deformable", offset + own), ("ModulatedDeformable", own + offset)):
        layer = getattr(gluon.contrib.cnn, f"{kind}Convolution")(2, use_bias=False)
        prefix = layer.prefix
        assert [name.removeprefix(prefix) for name in layer.collect_params()] == order


def test_parameters_of_a_graph_end_with_its_auxiliary_states():
    data = mx.sym.var("data")
    out = mx.sym.FullyConnected(mx.sym.BatchNorm(data, name="b"), num_hidden=1, name="f")
    names = list(gluon.SymbolBlock(out, data).collect_params())
    assert names == out.list_arguments()[1:] + out.list_auxiliary_states()

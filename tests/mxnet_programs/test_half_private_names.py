"""Half-private names of MXNet's modules that programs import; results as MXNet 1.9.1 has them."""

import ctypes
import importlib

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd
from rsnet._mxnet_names import HALF_PRIVATE

DEVICES = [mx.cpu(0), mx.cpu(1)]


def names_of(module):
    return importlib.import_module(f"rsnet.{module}")


@pytest.mark.parametrize("module", sorted(HALF_PRIVATE))
def test_every_listed_name_is_there_and_no_other(module):
    file = importlib.import_module(f"rsnet._half_private.{module.replace('.', '_')}")
    assert set(file.__all__) == HALF_PRIVATE[module] and file.__doc__
    for name in HALF_PRIVATE[module]:
        assert getattr(names_of(module), name) is getattr(file, name)
    with pytest.raises(AttributeError, match="no attribute '_no_such_name'"):
        _ = names_of(module)._no_such_name


def on_devices(value, shape=(2,)):
    return [nd.full(shape, value, ctx=ctx) for ctx in DEVICES]


def numbers(blocks):
    return [[array.asnumpy().tolist() for array in block] for block in blocks]


def test_a_loop_of_ones_own_updates_in_the_store():
    from rsnet.model import _create_kvstore, _initialize_kvstore, _update_params_on_kvstore

    first = {"w": nd.ones((2,)), "fixed": nd.ones((2,))}
    assert _create_kvstore("local", 1, first) == _create_kvstore(None, 2, first) == (None, False)
    store, on_store = _create_kvstore("local", 2, first)
    assert on_store and store.type == "local"
    store.set_optimizer(mx.optimizer.SGD(learning_rate=0.5))
    weights, names = [on_devices(0), on_devices(0)], ["w", "fixed"]
    _initialize_kvstore(store, weights, first, names, on_store)
    assert numbers(weights) == [[[1, 1]] * 2] * 2
    _update_params_on_kvstore(weights, [on_devices(1), [None, None]], store, names)
    assert numbers(weights) == [[[0, 0]] * 2, [[1, 1]] * 2]


def test_a_loop_of_ones_own_updates_on_the_devices():
    from rsnet.model import _initialize_kvstore, _update_params

    store, weights, grads = mx.kv.create("local"), [on_devices(0)] * 3, [on_devices(2)] * 3
    _initialize_kvstore(store, weights, {n: nd.ones((2,)) for n in "abc"}, "abc", False)
    assert numbers(weights) == [[[0, 0]] * 2] * 3
    grads[1], calls = [None, None], []
    grads[0], grads[2] = on_devices(1), on_devices(3)
    _update_params(weights, grads, lambda *step: calls.append(step), 2, store, "abc")
    assert numbers([grads[0], grads[2]]) == [[[2, 2]] * 2, [[6, 6]] * 2]
    assert [indices for indices, _, _ in calls] == [(0, 4), (1, 5)]
    assert calls[1][1][1] is grads[2][1] and calls[1][2][0] is weights[0][1]
    updater = mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=1))
    one = [[nd.ones((2,))]]
    _update_params(one, [[nd.ones((2,))]], updater, 1)
    assert numbers(one) == [[[0, 0]]]


def test_what_cannot_be_says_what_to_use():
    with pytest.raises(NotImplementedError, match="no sparse storage; use _create_kvstore"):
        mx.model._create_sparse_kvstore("local")
    with pytest.raises(mx.MXNetError, match="MXNDArrayWaitAll.*no C interface.*rsnet.load_library"):
        mx.base._LIB.MXNDArrayWaitAll()
    with pytest.raises(mx.MXNetError, match="returned -1, expected 0"):
        mx.base.check_call(-1)
    mx.base.check_call(0)


def test_values_for_calls_of_c():
    assert mx.base.c_str("é").value == "é".encode() and mx.base.mx_uint(3).value == 3
    assert list(mx.base.c_array(mx.base.mx_uint, [1, 2])) == [1, 2]
    assert mx.base._as_list(3) == [3] and mx.base._as_list((1,)) == (1,)


def test_names_of_modules():
    base = names_of("module.base_module")
    assert base._as_list("ab") == ["ab"] and base._as_list([1]) == [1]
    data, labels = base._parse_data_desc(["data"], ["l"], [("data", (2, 3))], [("l", (2,))])
    assert data[0].shape == (2, 3) and labels[0].name == "l"
    with pytest.raises(ValueError, match="'x' is not found"):
        base._check_input_names(mx.sym.Variable("data"), ["x"], "data", True)


def halves(axis=0):
    shape = (2, 2) if axis == 0 else (4, 1)
    bounds = [(0, 2), (2, 4)] if axis == 0 else [(0, 1), (1, 2)]
    return [[(slice(*b), nd.zeros(shape, ctx=c)) for b, c in zip(bounds, DEVICES)]]


def test_batches_are_divided_among_devices():
    group, manager = names_of("module.executor_group"), names_of("executor_manager")
    rows = nd.arange(8).reshape((4, 2))
    batch = mx.io.DataBatch([rows], [rows])
    assert group._split_input_slice(10, [1, 1, 2]) == [slice(0, 2), slice(2, 4), slice(4, 10)]
    for load in (
        lambda into: group._load_data(batch, into, [0]),
        lambda into: group._load_label(batch, into, [0]),
        lambda into: manager._load_data(batch, into),
        lambda into: manager._load_label(batch, into),
    ):
        into = halves()
        load(into)
        assert [a.asnumpy().tolist() for _, a in into[0]] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    into = halves(axis=1)
    group._load_general([rows], into, [1])
    assert [a.asnumpy().ravel().tolist() for _, a in into[0]] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    whole = [(slice(0, 1), nd.zeros((4, 2)))]
    group._load_general([rows], [whole], [-1])
    single = nd.zeros((4, 2))
    manager._load_general([rows], [single])
    assert (whole[0][1] == rows).asnumpy().all() and (single == rows).asnumpy().all()
    parts = [[nd.ones((2, 3)), nd.zeros((1, 3))], [nd.ones((2,)), nd.ones((2,))]]
    merged = group._merge_multi_context(parts, [0, -1])
    assert [m.shape for m in merged] == [(3, 3), (2,)]
    places = group._prepare_group2ctxs({"a": DEVICES, "b": mx.cpu(2)}, 2)
    assert places == [{"a": c, "b": mx.cpu(2)} for c in DEVICES]


def test_the_arrays_of_a_group_have_their_rows():
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2), name="s")
    module = mx.mod.Module(net, label_names=["s_label"], context=DEVICES)
    module.bind([("data", (4, 3))], [("s_label", (4,))])
    group = module._exec_group
    shapes = [[(rows, array.shape) for rows, array in one] for one in group.data_arrays]
    assert shapes == [[(slice(0, 2), (2, 3)), (slice(2, 4), (2, 3))]]
    assert group.label_arrays[0][1][1] is group.execs[1].arg_dict["s_label"]
    module = mx.mod.Module(net, label_names=None)
    module.bind([("data", (4, 3))], for_training=False)
    assert module._exec_group.label_arrays is None


def test_executors_share_parameters():
    bind = names_of("executor_manager")._bind_exec
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc")
    params, inputs = ["fc_weight", "fc_bias"], {}
    one = bind(net, mx.cpu(), {"data": (4, 3)}, params, True)
    two = bind(net, mx.cpu(), {"data": (2, 3)}, params, True, one, inputs)
    two.arg_dict["fc_weight"][:] = 7
    two.grad_dict["fc_weight"][:] = 5
    assert one.arg_dict["fc_weight"][0, 0].asscalar() == 7
    assert one.grad_dict["fc_weight"][0, 0].asscalar() == 5
    assert set(inputs) == {"data"} and one.grad_dict["data"] is None
    some = bind(net, mx.cpu(), {"data": (4, 3)}, params, {"fc_weight", "data"})
    assert [n for n, g in some.grad_dict.items() if g is not None] == ["fc_weight"]
    none = bind(net, mx.cpu(), {"data": (4, 3)}, params, input_types={"data": np.float64})
    assert set(none.grad_dict.values()) <= {None}
    assert none.arg_dict["fc_weight"].dtype == np.float64


def test_arrays_by_name():
    for module in (mx.io, mx.io.utils):
        found = module._init_data({"b": np.ones(2), "a": nd.ones((2,))}, False, "data")
        assert [(n, x.shape) for n, x in found] == [("a", (2,)), ("b", (2,))]
    pairs = mx.io._init_data([np.arange(4), np.ones((4, 2))], True, "data")
    assert [n for n, _ in pairs] == ["_0_data", "_1_data"]
    assert mx.io._has_instance(pairs, mx.nd.NDArray) and not mx.io._has_instance(pairs, str)
    chosen = mx.io._getdata_by_idx(pairs, np.array([2, 0]))
    assert chosen[0][1].asnumpy().tolist() == [2, 0] and chosen[1][1].shape == (2, 2)
    assert mx.io._init_data(None, True, "data") == []


def test_rates_and_decays_of_many():
    rule = mx.optimizer.SGD(learning_rate=0.5, wd=0.1, param_idx2name={0: "a_weight", 1: "a_bias"})
    rule.set_lr_mult({"a_bias": 2})
    assert (rule._get_lrs([0, 1]), rule._get_wds([0, 1])) == ([0.5, 1.0], [0.1, 0.0])


def test_sparse_classes_have_no_instances():
    from rsnet.ndarray.sparse import BaseSparseNDArray, CSRNDArray, RowSparseNDArray

    for kind in (BaseSparseNDArray, CSRNDArray, RowSparseNDArray):
        assert not isinstance(nd.ones((2,)), kind)
        with pytest.raises(NotImplementedError, match=f"{kind.__name__}: rsnet has no sparse"):
            kind(None)
    assert issubclass(CSRNDArray, BaseSparseNDArray)


def test_attributes_of_public_objects():
    x = nd.ones((2,))
    assert x.as_nd_ndarray() is x
    symbol = mx.sym.var("x")
    assert isinstance(symbol.handle, int) and symbol.handle == symbol.handle
    assert (mx.recordio._IR_FORMAT, mx.recordio._IR_SIZE) == ("IfQQ", 24)
    sentences = [[1, 2, 3], [2, 3], [4, 5, 6], [1, 2]]
    batches = mx.rnn.BucketSentenceIter(sentences, 2, buckets=[2, 3], invalid_label=0)
    assert (
        [a.shape for a in batches.nddata] == [a.shape for a in batches.ndlabel] == [(2, 2), (2, 3)]
    )
    assert (batches.nddata[1][:, 1:] == batches.ndlabel[1][:, :-1]).asnumpy().all()


def test_the_counts_of_a_score():
    metric = mx.metric.F1(average="micro")
    for _ in range(2):
        metric.update([nd.array([1, 0, 0])], [nd.array([[0.3, 0.7], [0.4, 0.6], [0.9, 0.1]])])
        metric.reset_local()
    found = metric.metrics
    assert (found.true_positives, found.total_examples, found.precision) == (0, 0, 0)
    assert (found.global_true_positives, found.global_false_positives) == (2, 2)
    assert (found.global_true_negatives, found.global_false_negatives) == (2, 0)
    assert (found.global_precision, found.global_recall) == (0.5, 1)
    assert found.global_fscore == metric.get_global()[1] == pytest.approx(2 / 3)


def test_rows_of_files_have_numbers(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("".join(f"{i},1\n" for i in range(7)))
    batches = mx.io.CSVIter(data_csv=str(path), data_shape=(2,), batch_size=3)
    assert isinstance(batches, mx.io.MXDataIter)
    assert [b.index.tolist() for b in batches] == [[0, 1, 2], [3, 4, 5], [6, 0, 1]]
    assert batches.getindex().dtype == np.uint64


def test_modules_and_names_that_libraries_reach_through_others():
    from rsnet.image.image import _get_interp_method

    from rsnet.contrib.amp import amp

    assert isinstance(amp._amp_initialized, bool) and amp.init is mx.contrib.amp.init
    assert mx.metric.ndarray is nd
    assert _get_interp_method(9, (4, 4, 2, 2)) == 3 and _get_interp_method(1) == 1
    assert mx.base.NDArrayHandle is ctypes.c_void_p

"""Arguments and files that few programs have."""

import io
import warnings

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd
from rsnet.base import MXNetError


def test_top_k_accuracy_wants_a_label_for_each_row():
    metric = mx.metric.TopKAccuracy(2)
    with pytest.raises(ValueError, match="invalid number of labels 4: expected 1"):
        metric.update([nd.array([0, 1, 1, 0])], [nd.array([[0.1, 0.9, 0]])])


def test_a_composite_metric_selects_by_name():
    metric = mx.metric.CompositeEvalMetric(["acc"], label_names=["b"], output_names=["two"])
    labels = {"a": nd.array([0]), "b": nd.array([1])}
    rows = nd.array([[0.9, 0.1]])
    metric.update_dict(labels, {"one": rows, "two": rows})
    assert metric.get() == (["accuracy"], [0.0])
    metric.update_dict(labels, {"one": 1 - rows, "two": 1 - rows})
    assert metric.get() == (["accuracy"], [0.5])
    metric.update_dict(labels, {"one": 1 - rows, "two": 1 - rows})
    assert metric.get()[1][0] == pytest.approx(2 / 3)


def sequences(length):
    net = mx.sym.sum(mx.sym.Variable("data"), axis=1, keepdims=True)
    net = mx.sym.FullyConnected(net, num_hidden=2, name="fc")
    return mx.sym.SoftmaxOutput(net, name="softmax"), ("data",), ("softmax_label",)


def test_a_checkpoint_of_buckets_has_the_states(tmp_path):
    prefix = str(tmp_path / "x")
    batch = mx.io.DataBatch([nd.ones((4, 3))], [nd.zeros(4)], bucket_key=3)

    def stepped(mod):
        mod.forward_backward(batch)
        mod.update()
        return mod.get_params()[0]["fc_weight"].asnumpy()

    def made(mod):
        mod.bind([("data", (4, 3))], [("softmax_label", (4,))])
        mod.init_params()
        mod.init_optimizer(optimizer_params={"momentum": 0.9})
        return mod

    one = made(mx.mod.BucketingModule(sequences, default_bucket_key=3))
    stepped(one)
    mx.callback.module_checkpoint(one, prefix, save_optimizer_states=True)(0)
    expected = stepped(one)
    again = made(mx.mod.BucketingModule.load(prefix, 1, sequences, default_bucket_key=3))
    again._curr_module.load_optimizer_states(f"{prefix}-0001.states")
    np.testing.assert_array_equal(stepped(again), expected)


class OfTime(mx.io.NDArrayIter):
    """Batches of 6 sentences with 2 words, the words first."""

    def __init__(self):
        super().__init__(np.zeros((12, 2)), np.zeros((12, 2)), batch_size=6)

    def turned(self, descs):
        return [mx.io.DataDesc(d.name, d.shape[::-1], d.dtype, "TN") for d in descs]

    provide_data = property(lambda self: self.turned(super().provide_data))
    provide_label = property(lambda self: self.turned(super().provide_label))


def words():
    net = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=3, output_dim=2)
    net = mx.sym.FullyConnected(mx.sym.reshape(net, shape=(-1, 2)), num_hidden=3)
    label = mx.sym.reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
    return mx.sym.SoftmaxOutput(net, label, name="softmax")


def test_devices_share_sentences_not_words():
    manager = mx.executor_manager.DataParallelExecutorManager(
        words(), [mx.cpu(0), mx.cpu(1)], OfTime(), work_load_list=[1, 2]
    )
    assert manager.slices == [slice(0, 2), slice(2, 6)]
    assert [exe.arg_dict["data"].shape for exe in manager._first.train_execs] == [(2, 2), (2, 4)]


def test_the_rate_of_training_is_that_of_sentences(monkeypatch):
    import rsnet.module.progress as progress

    monkeypatch.setattr("sys.stderr", io.StringIO())
    shown = progress.Progress(True, range(1), OfTime(), None, None)
    assert shown._batch_size == 6


def test_a_batch_for_each_device_needs_all_data():
    net = mx.sym.FullyConnected(
        mx.sym.Variable("a") + mx.sym.Variable("b"), num_hidden=2, name="fc"
    )
    mod = mx.mod.Module(
        mx.sym.SoftmaxOutput(net, name="softmax"), ("a", "b"), context=[mx.cpu(0), mx.cpu(1)]
    )
    mod.bind([("a", (4, 2)), ("b", (4, 2))], [("softmax_label", (4,))])
    mod.init_params()
    ones, label = nd.ones((2, 2)), nd.zeros((2,))
    mod.forward([mx.io.DataBatch([ones, ones], [label])] * 2)
    assert mod.get_outputs()[0].shape == (4, 2)
    with pytest.raises(ValueError, match=r"1 data arrays, expected 2: \['a', 'b'\]"):
        mod.forward([mx.io.DataBatch([ones], [label])] * 2)


@pytest.mark.parametrize(("size", "count"), [(5 / 2, 3), (3.0, 3), (0, 0)])
def test_a_resized_iterator_ends(size, count):
    batches = mx.io.ResizeIter(mx.io.NDArrayIter(np.arange(4.0), batch_size=2), size)
    assert sum(1 for _ in zip(range(10), batches, strict=False)) == count


@pytest.mark.parametrize("size", [-1, float("nan"), float("inf"), "3", None])
def test_sizes_that_are_no_number_of_batches(size):
    with pytest.raises(ValueError, match="invalid size .*: expected a number of batches"):
        mx.io.ResizeIter(mx.io.NDArrayIter(np.arange(4.0), batch_size=2), size)


def test_damaged_lists_are_named(tmp_path):
    index, records, listed = (tmp_path / f"x.{kind}" for kind in ("idx", "rec", "lst"))
    index.write_bytes(b"0\t0\n\xff\n")
    records.write_bytes(b"")
    listed.write_bytes(b"0\t1\t\xff.jpg\n")
    with pytest.raises(MXNetError, match=r"cannot read '.*x\.idx'.*utf-8"):
        mx.recordio.MXIndexedRecordIO(str(index), str(records), "r")
    with pytest.raises(MXNetError, match=r"cannot read '.*x\.lst'.*utf-8"):
        mx.image.ImageIter(1, (3, 4, 4), path_imglist=str(listed), path_root=str(tmp_path))


def test_integers_of_libsvm_are_exact(tmp_path):
    path = tmp_path / "x.libsvm"
    path.write_text("16777217 0:16777219 1:2\n9007199254740993 1:1e3\n")
    batches = mx.io.LibSVMIter(data_libsvm=str(path), data_shape=(2,), batch_size=2, dtype="int64")
    batch = batches.next()
    assert batch.data[0].asnumpy().tolist() == [[16777219, 2], [0, 1000]]
    assert batch.label[0].asnumpy().ravel().tolist() == [16777217, 9007199254740993]


@pytest.mark.parametrize("name", ["PolyScheduler", "CosineScheduler"])
def test_a_warm_up_as_long_as_the_schedule(name):
    kind = getattr(mx.lr_scheduler, name)
    with pytest.raises(ValueError, match="invalid warmup_steps 5: expected another number"):
        kind(max_update=5, warmup_steps=5)
    schedule = kind(max_update=5, warmup_steps=7, base_lr=0.7)  # the rate stays, as in MXNet
    assert [schedule(n) for n in (0, 7, 8)] == [0, 0.7, 0.7]


@pytest.mark.parametrize("name", ["PolyScheduler", "CosineScheduler"])
def test_what_a_learning_rate_does_to_a_schedule_is_said(name):
    kind = getattr(mx.lr_scheduler, name)
    text = f"learning_rate=0.5 has no effect, as the {name} was made with base_lr=1.0"
    with pytest.warns(UserWarning, match=text):
        optimizer = mx.optimizer.SGD(learning_rate=0.5, lr_scheduler=kind(10, base_lr=1.0))
    assert optimizer.learning_rate == 1.0
    with pytest.warns(UserWarning, match="learning_rate=0.5 replaces base_lr=1.0"):
        optimizer = mx.optimizer.SGD(
            learning_rate=0.5, lr_scheduler=kind(10, base_lr=1.0, warmup_steps=20)
        )
    assert optimizer.lr_scheduler(30) == 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mx.optimizer.SGD(learning_rate=0.5, lr_scheduler=kind(10, base_lr=0.5))


def test_an_unknown_word_gets_a_number_of_its_own():
    encoded, known = mx.rnn.encode_sentences(
        [["a", "x"], ["b", "y"]], {"a": 0, "b": 1}, invalid_label=2, unknown_token="?"
    )
    assert encoded == [[0, 3], [1, 3]] and known == {"a": 0, "b": 1, "?": 3}


def test_the_error_of_a_label_says_what_passes():
    metric = mx.metric.CrossEntropy()
    rows = nd.array([[0.25, 0.75]])
    metric.update([nd.array([-1])], [rows])
    assert metric.get()[1] == pytest.approx(-np.log(0.75))
    with pytest.raises(IndexError, match="label -3: expected 0 to 1, or -1 to -2 for the last"):
        metric.update([nd.array([-3])], [rows])


@pytest.mark.parametrize(("centered", "arrays"), [(False, 1), (True, 3)])
def test_a_stored_rmsprop_says_centered_only(centered, arrays):
    stored = vars(mx.optimizer.RMSProp(centered=centered))
    assert "zero_states" not in stored, "MXNet's pickles have no such number"
    made = mx.optimizer.RMSProp.__new__(mx.optimizer.RMSProp)
    made.__setstate__(stored)
    assert len(made.create_state(0, nd.ones(2))) == arrays


def stepped(name, **options):
    """A weight after one step."""
    one = mx.optimizer.create(name, learning_rate=0.1, **options)
    weight = nd.array([0.5, -0.25, 2.0])
    one.update(0, weight, nd.array([0.1, -0.1, 0.3]), one.create_state(0, weight))
    return weight.asnumpy().tolist()


NAMES = "adadelta adagrad adam adamax dcasgd ftml ftrl lamb lars nadam nag rmsprop sgd signum"


@pytest.mark.parametrize("name", NAMES.split())
def test_a_limit_of_0_or_less_is_none(name):
    free = stepped(name)
    assert stepped(name, clip_gradient=-1) == stepped(name, clip_gradient=0) == free
    if name == "lamb":
        assert stepped(name, upper_bound=0) == free != stepped(name, upper_bound=0.1)
    if name == "rmsprop":
        assert stepped(name, clip_weights=-1) == free
        np.testing.assert_allclose(free, [0.1838, 0.0662, 1.6838], atol=1e-4)
        np.testing.assert_allclose(stepped(name, clip_weights=0.1), [0.1, 0.0662, 0.1], atol=1e-4)

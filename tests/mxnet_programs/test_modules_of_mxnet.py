"""Small modules of MXNet: registries, features, paths of imports, text, older autograd, kernels."""

import ctypes
import logging
import warnings
from collections import Counter, OrderedDict

import numpy as np
import pytest

import rsnet as mx
from rsnet import gluon, nd
from rsnet._mxnet_names import PLACES
from rsnet.contrib import autograd as old_autograd
from rsnet.contrib import text


class Rule:
    def __init__(self, size=1):
        self.size = size


register = mx.registry.get_register_func(Rule, "rule")
create = mx.registry.get_create_func(Rule, "rule")


@register
@mx.registry.get_alias_func(Rule, "rule")("dos", "zwei")
class Two(Rule):
    pass


def test_a_registry_creates_by_name_json_and_instance():
    assert mx.registry.get_registry(Rule) == {"two": Two, "dos": Two, "zwei": Two}
    assert create("TWO").size == 1 and create("dos", size=2).size == 2
    assert create('["zwei", {"size": 3}]').size == create({"rule": "two", "size": 3}).size == 3
    assert create('{"rule": "two", "size": 4}').size == 4
    assert create('["two"]').size == create('{"rule": "two"}').size == 1
    two = Two()
    assert create(two) is create(rule=two) is two


def test_metrics_and_initializers_are_registries():
    metrics = mx.registry.get_registry(mx.metric.EvalMetric)
    assert metrics["ce"] is mx.metric.CrossEntropy
    assert mx.registry.get_registry(mx.init.Initializer)["zeros"] is mx.init.Zero
    mine = mx.registry.get_create_func(mx.metric.EvalMetric, "metric")("custommetric", max, "most")
    assert mine.get()[0] == "most"


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: create("three"), ValueError, "invalid rule 'three': expected one of: dos, two"),
        (lambda: create(3), TypeError, "invalid rule 3: expected a name or a Rule"),
        (lambda: create(Two(), 3), ValueError, "rule is an instance"),
        (lambda: create('["two", 3]'), ValueError, "invalid arguments 3 of rule 'two': expected"),
        (lambda: create('["two"'), ValueError, "invalid rule '.*': expected the JSON of a name"),
        (lambda: register(int), TypeError, "expected a subclass of Rule"),
    ],
)
def test_a_registry_names_what_is_wrong(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_replacing_a_class_warns():
    class Base:
        pass

    enter = mx.registry.get_register_func(Base, "thing")
    enter(type("A", (Base,), {}))
    with pytest.warns(UserWarning, match="thing 'a': .* replaces"):
        enter(type("A", (Base,), {}))


def test_features():
    features = mx.runtime.Features()
    assert features.is_enabled("opencv") and not features.is_enabled("TVM_OP")
    assert features.is_enabled("CUDA") == (mx.num_gpus() > 0)
    assert [f.name for f in mx.runtime.feature_list()] == list(features)
    assert "✔ LAPACK" in repr(features)
    with pytest.raises(RuntimeError, match="unknown feature 'WINGS'"):
        features.is_enabled("wings")


def test_lines_of_a_logger_begin_with_level_and_place(tmp_path):
    path = tmp_path / "log.txt"
    logger = mx.log.getLogger("a logger of this test", str(path), level=mx.log.INFO)
    assert mx.log.getLogger("a logger of this test", str(path)) is logger
    logger.info("%d steps", 3)
    logger.debug("not written")
    [line] = path.read_text().splitlines()
    assert line.startswith("[I ") and line.endswith("] 3 steps")
    assert "test_modules_of_mxnet:" in line
    assert mx.log.getLogger() is logging.getLogger()
    with pytest.warns(DeprecationWarning, match="use getLogger"):
        mx.log.get_logger("another logger of this test")


def test_libinfo():
    [path] = mx.libinfo.find_lib_path()
    assert path == mx._core.__file__
    assert mx.libinfo.find_include_path() == mx.sysconfig.get_include()


def test_documentation_of_operators_by_name():
    assert mx.ndarray_doc.ReshapeDoc.__doc__ == mx.nd.Reshape.__doc__
    assert mx.symbol_doc.ActivationDoc.__doc__ == mx.sym.Activation.__doc__
    assert issubclass(mx.symbol_doc.ActivationDoc, mx.symbol_doc.SymbolDoc)
    for module in (mx.ndarray_doc, mx.symbol_doc):
        with pytest.raises(AttributeError, match="no attribute 'NoSuchDoc'"):
            _ = module.NoSuchDoc


@pytest.mark.skipif(mx.num_gpus() > 0, reason="there is a GPU")
def test_kernels_of_cuda_need_a_gpu():
    for call in (
        lambda: mx.rtc.CudaModule("extern"),
        lambda: mx.rtc.Rtc("name", [], [], ""),
        lambda: mx.context.gpu_memory_info(0),
        lambda: mx.util.get_gpu_memory(0),
    ):
        with pytest.raises(mx.MXNetError, match="num_gpus|no CUDA driver|no device"):
            call()


@pytest.mark.parametrize("old", sorted(PLACES))
def test_old_paths_are_the_modules(old):
    import importlib

    module = importlib.import_module(f"rsnet.{old}")
    assert module is importlib.import_module(f"rsnet.{PLACES[old]}")
    found = mx
    for name in old.split("."):
        found = getattr(found, name)
    assert found is module


def test_environment_variables(monkeypatch):
    monkeypatch.delenv("RSNET_OF_THIS_TEST", raising=False)
    assert mx.util.getenv("RSNET_OF_THIS_TEST") is None
    mx.util.setenv("RSNET_OF_THIS_TEST", "3")
    assert mx.util.getenv("RSNET_OF_THIS_TEST") == "3"
    mx.util.setenv("RSNET_OF_THIS_TEST", None)
    assert mx.util.getenv("RSNET_OF_THIS_TEST") is None


def test_old_sections_record_and_train():
    x, slope = nd.array([1, 2]), nd.zeros((2,))
    old_autograd.mark_variables([x], [slope])
    with old_autograd.train_section():
        assert mx.autograd.is_recording() and mx.autograd.is_training()
        with old_autograd.test_section():
            assert not mx.autograd.is_recording() and not mx.autograd.is_training()
        y = x * x
    assert not mx.autograd.is_recording() and not mx.autograd.is_training()
    old_autograd.compute_gradient([y])
    assert slope.asnumpy().tolist() == [2, 4]


def test_gradients_of_functions():
    x, y = nd.array([1, 2]), nd.array([3, 6])
    grads, value = old_autograd.grad_and_loss(lambda a, b: a * b)(x, y)
    assert [g.asnumpy().tolist() for g in grads] == [[3, 6], [1, 2]]
    assert value.asnumpy().tolist() == [3, 12]
    [only] = old_autograd.grad(lambda a, b: a * b, argnum=1)(x, y)
    assert only.asnumpy().tolist() == [1, 2]
    with pytest.raises(TypeError, match="expected an NDArray"):
        old_autograd.grad(lambda a: a)(3)


def test_a_module_learns_from_a_data_loader():
    x = np.arange(10, dtype="float32").reshape(5, 2)
    data = gluon.data.ArrayDataset(x, np.arange(5, dtype="float32"))
    batches = mx.contrib.io.DataLoaderIter(gluon.data.DataLoader(data, 2, last_batch="keep"))
    assert batches.provide_data == [("data", (2, 2))]
    assert batches.provide_label == [("softmax_label", (2,))]
    for _ in range(2):
        seen = [
            (b.data[0].asnumpy().tolist(), b.label[0].asnumpy().tolist(), b.pad) for b in batches
        ]
        assert len(seen) == 3 and seen[0] == ([[0, 1], [2, 3]], [0, 1], 0)
        assert seen[2] == ([[8, 9], [0, 0]], [4, 0], 1)
        batches.reset()
    net = mx.sym.LinearRegressionOutput(
        mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1), name="softmax"
    )
    mx.mod.Module(net).fit(batches, num_epoch=1, eval_metric="mse")
    with pytest.raises(ValueError, match="at least one batch"):
        mx.contrib.io.DataLoaderIter([])
    with pytest.raises(ValueError, match="batches of data and label"):
        mx.contrib.io.DataLoaderIter([nd.zeros((3,))])


WORDS = Counter("is is life life ! . good great".split())


def test_a_vocabulary_numbers_tokens_by_frequency():
    words = text.vocab.Vocabulary(WORDS, reserved_tokens=["<pad>"])
    assert words.idx_to_token == ["<unk>", "<pad>", "is", "life", "!", ".", "good", "great"]
    assert words.to_indices(["life", "none"]) == [3, 0] and words.to_tokens([1, 2]) == [
        "<pad>",
        "is",
    ]
    assert words.to_tokens(2) == "is" and len(words) == 8 and words.unknown_token == "<unk>"
    assert len(text.vocab.Vocabulary(WORDS, most_freq_count=2, min_freq=2)) == 3
    for wrong in ({"min_freq": 0}, {"reserved_tokens": ["<unk>"]}, {"reserved_tokens": ["a", "a"]}):
        with pytest.raises(ValueError, match="invalid"):
            text.vocab.Vocabulary(WORDS, **wrong)
    for index in (8, -1, "a"):
        with pytest.raises(ValueError, match="expected 0 to 7"):
            words.to_tokens([index])


VECTORS = "a 0.5 0.25\nlife 0.125 2\n<unk> 9 9\n"


def test_vectors_of_a_file(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text(VECTORS)
    vectors = text.embedding.create("GloVe", pretrained_file_name="vectors.txt", **_root(path))
    custom = text.embedding.CustomEmbedding(str(path))
    assert custom.idx_to_token == vectors.idx_to_token == ["<unk>", "a", "life"]
    assert custom.vec_len == 2 and custom.idx_to_vec.asnumpy().tolist()[0] == [9, 9]
    assert custom.get_vecs_by_tokens("a").asnumpy().tolist() == [0.5, 0.25]
    found = custom.get_vecs_by_tokens(["Life", "none"], lower_case_backup=True)
    assert found.asnumpy().tolist() == [[0.125, 2], [9, 9]]
    custom.update_token_vectors("a", nd.array([5, 6]))
    assert custom.get_vecs_by_tokens("a").asnumpy().tolist() == [5, 6]
    with pytest.raises(ValueError, match="invalid token 'none'"):
        custom.update_token_vectors("none", nd.array([5, 6]))
    with pytest.raises(ValueError, match=r"shape \(3,\): expected \(1, 2\)"):
        custom.update_token_vectors("a", nd.array([5, 6, 7]))
    words = text.vocab.Vocabulary(WORDS, most_freq_count=2)
    chosen = text.embedding.CustomEmbedding(str(path), vocabulary=words)
    assert chosen.idx_to_vec.asnumpy().tolist() == [[9, 9], [9, 9], [0.125, 2]]
    both = text.embedding.CompositeEmbedding(words, [chosen, custom])
    assert both.vec_len == 4 and both.to_indices("life") == 2
    assert both.idx_to_vec.asnumpy().tolist()[2] == [0.125, 2, 0.125, 2]


def _root(path):
    """`path` put where `GloVe` looks for it."""
    folder = path.parent / "glove"
    folder.mkdir()
    (folder / path.name).write_text(path.read_text())
    return {"embedding_root": str(path.parent)}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("a 1 2\nb 1\nc 1 2 3\n", "line 3: 'c' has 3 numbers, expected 2"),
        ("a 1 2\nb one\n", "line 2: expected numbers: could not convert"),
        ("a 1 2\nb\n", "line 2: expected a token and its vector"),
        ("", "expected lines of a token"),
    ],
)
def test_damaged_files_of_vectors(tmp_path, lines, message):
    path = tmp_path / "vectors.txt"
    path.write_text(lines)
    with warnings.catch_warnings(), pytest.raises(ValueError, match=message):
        warnings.simplefilter("ignore")  # of the line that looks like a header
        text.embedding.CustomEmbedding(str(path))


def test_absent_files_of_vectors(tmp_path):
    with pytest.raises(ValueError, match="expected a file"):
        text.embedding.CustomEmbedding(str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="expected the vectors 'wiki.simple.vec' there"):
        text.embedding.FastText(embedding_root=str(tmp_path))


def test_one_history_for_a_row():
    """Numbers of MXNet 1.9.1."""
    rule = mx.optimizer.create("groupadagrad", learning_rate=0.1)
    weight, state = nd.array([[1, 2], [3, 4]]), nd.zeros((2, 1))
    for step in range(3):
        grad = nd.array([[0.1, -0.2], [0, 0.5]]) * (step + 1)
        rule.update(0, weight, grad, state)
    np.testing.assert_allclose(weight.asnumpy()[1], [3, 3.6187053], rtol=1e-6)
    np.testing.assert_allclose(state.asnumpy().ravel(), [0.35, 1.75], rtol=1e-6)
    with pytest.raises(ValueError, match="expected 2-D"):
        rule.create_state(0, nd.zeros((3,)))


def test_tolerances_by_dtype():
    half, single = np.zeros(2, "float16"), np.zeros(2, "float32")
    tools = mx.test_utils
    assert tools.get_tols(half, single, None, None) == (1e-2, 1e-1)
    assert tools.get_tols(half, single, 0.5, None) == (0.5, 1e-1)
    assert (tools.get_rtol(), tools.get_rtol(2), tools.get_atol(3), tools.get_etol()) == (
        1e-5,
        2,
        3,
        0,
    )
    assert tools.effective_dtype(nd.zeros((2,))) == np.float32


def test_helpers_of_programs(tmp_path):
    batches = mx.io.NDArrayIter(np.zeros((4, 2)), batch_size=2)
    dummy = mx.test_utils.DummyIter(batches)
    assert dummy.next() is dummy.next() and dummy.provide_data == batches.provide_data
    assert mx.test_utils.create_2d_tensor(2, 2).asnumpy().tolist() == [[0, 0], [1, 1]]
    assert mx.test_utils.create_vector(3).asnumpy().tolist() == [0, 1, 2]
    assert mx.test_utils.get_im2rec_path().endswith("im2rec.py")
    with pytest.raises(FileNotFoundError, match="put http://host/data.zip there"):
        mx.test_utils.download("http://host/data.zip", dirname=str(tmp_path))
    (tmp_path / "data.zip").write_text("")
    path = mx.test_utils.download("http://host/data.zip", dirname=str(tmp_path))
    assert path == str(tmp_path / "data.zip")


def test_blocks_are_checked_in_both_ways():
    def net():
        return gluon.nn.Dense(3, activation="tanh")

    mx.test_utils.check_gluon_hybridize_consistency(net, [nd.ones((2, 4))])
    with pytest.raises(AssertionError, match="Location of maximum error"):
        mx.test_utils.check_gluon_hybridize_consistency(net, [nd.ones((2, 4))], lambda x: x[:, :3])


def test_parameters_from_a_dict():
    params = gluon.ParameterDict("net_")
    params.get("weight", shape=(2,)).initialize()
    params.load_dict({"arg:net_weight": nd.array([1, 2])})
    assert params["net_weight"].data().asnumpy().tolist() == [1, 2]
    with pytest.raises(AssertionError, match="is missing in param_dict"):
        params.load_dict({})
    with pytest.raises(ValueError, match="of file 'x': expected one of"):
        params.load_dict({"net_weight": nd.ones((2,)), "b": nd.ones((1,))}, filename="x")


def test_a_shape_of_another_size_is_an_error_of_both_kinds():
    for kind in (ValueError, mx.MXNetError):
        with pytest.raises(kind, match="expected one of 4 elements"):
            nd.ones((2, 2)).reshape((5,))


def test_words_of_a_text_and_what_follows(tmp_path):
    from rsnet.gluon.contrib.data.text import WikiText2

    lines = " = Title = \n\n the cat sat on <unk> mat \n the dog sat \n\n\n a b c d e f g \n"
    (tmp_path / "wiki.train.tokens").write_text(lines * 2)
    (tmp_path / "wiki.valid.tokens").write_text("the cat rests\n" * 3)
    train = WikiText2(str(tmp_path), seq_len=5)
    assert [part.asnumpy().tolist() for part in train[0]] == [[2, 5, 2, 1, 4], [5, 2, 1, 4, 9]]
    assert len(train) == 9 and len(train.vocabulary) == 17 and train.frequencies["the"] == 4
    valid = WikiText2(str(tmp_path), "validation", train.vocabulary, seq_len=4)
    assert valid[0][0].asnumpy().tolist() == [4, 9, 0, 1] and len(valid) == 2
    with pytest.raises(FileNotFoundError, match="wiki.test.tokens"):
        WikiText2(str(tmp_path), "test")
    with pytest.raises(ValueError, match="invalid segment 'dev'"):
        WikiText2(str(tmp_path), "dev")


@pytest.mark.parametrize("kvstore", [mx.kv.create("teststore"), "teststore"])
def test_a_module_is_trained_through_a_store_that_has_no_optimizer(kvstore):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="fc")
    net = mx.sym.LinearRegressionOutput(net, mx.sym.Variable("softmax_label"))
    module = mx.mod.Module(net, context=[mx.cpu(0), mx.cpu(1)])
    rows = mx.io.NDArrayIter(np.ones((4, 2)), np.ones((4, 1)), batch_size=4)
    module.fit(rows, num_epoch=1, kvstore=kvstore, initializer=mx.init.Zero(), eval_metric="mse")
    assert module.get_params()[0]["fc_bias"].asscalar() == np.float32(0.01)


def test_the_store_that_only_sums_trains_a_network():
    store = mx.kv.create("teststore")
    values = [nd.ones((2,)), nd.full((2,), 2)]
    store.pushpull("w", values)
    assert [v.asnumpy().tolist() for v in values] == [[3, 3]] * 2
    net = gluon.nn.Dense(1, in_units=2)
    devices = [mx.cpu(0), mx.cpu(1)]
    net.initialize(init="zeros", ctx=devices)
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore="teststore")
    losses = []
    with mx.autograd.record():
        losses = [net(nd.ones((2, 2), ctx=ctx)) for ctx in devices]
    mx.autograd.backward(losses)
    trainer.step(4)
    assert {p.asscalar() for p in net.bias.list_data()} == {np.float32(-0.01)}


def test_names_are_added_by_alias():
    @mx.metric.register
    @mx.metric.alias("always_three")
    class AlwaysThreeMetric(mx.metric.EvalMetric):
        def __init__(self):
            super().__init__("three")

    @mx.init.alias("threes")
    class Threes(mx.init.Initializer):
        def _init_weight(self, name, array):
            array[:] = 3

    for name in ("always_three", "AlwaysThreeMetric"):
        assert isinstance(mx.metric.create(name), AlwaysThreeMetric)
    assert isinstance(mx.init.create("threes"), Threes)


def test_hooks_have_handles():
    handle, hooks, seen = gluon.utils.HookHandle(), OrderedDict(), []
    handle.attach(hooks, seen.append)
    with pytest.raises(RuntimeError, match="a hook already"):
        handle.attach(hooks, seen.append)
    assert list(hooks.values()) == [seen.append]
    handle.detach()
    handle.detach()
    assert not hooks
    with gluon.nn.Dense(1).register_forward_hook(print) as registered:
        assert isinstance(registered, gluon.utils.HookHandle)


def test_names_where_mxnet_has_them():
    from rsnet.gluon.contrib.estimator.event_handler import CheckpointHandler, EarlyStoppingHandler
    from rsnet.image.detection import ImageDetIter

    assert CheckpointHandler.__name__ == "CheckpointHandler" and EarlyStoppingHandler
    assert ImageDetIter is mx.image.ImageDetIter
    assert isinstance(np.float32(1), mx.base.numeric_types)
    assert isinstance(np.int64(1), mx.base.integer_types)
    assert not mx.is_np_array() and mx.util.is_np_array() is False
    assert mx.optimizer.Optimizer.opt_registry["sgd"] is mx.optimizer.SGD
    assert mx.test_utils.is_op_runnable() and not mx.test_utils.has_tvm_ops()


def test_a_rate_is_a_number():
    rule = mx.optimizer.SGD(learning_rate=np.float32(0.5))
    with pytest.raises(TypeError, match="invalid learning_rate '0.1': expected a number"):
        rule.set_learning_rate("0.1")
    assert rule.learning_rate == 0.5


@pytest.mark.parametrize("together", [False, True])
def test_states_of_another_optimizer_are_refused_by_name(together):
    adam = mx.optimizer.get_updater(mx.optimizer.Adam())
    adam(0, nd.ones((2,)), nd.ones((2,)))
    rule = mx.optimizer.SGD(momentum=0.9, param_idx2name={0: "fc1_weight"})
    updater, weight = mx.optimizer.get_updater(rule), nd.ones((2,))
    updater.set_states(adam.get_states())
    step = ([0], [nd.ones((2,))], [weight]) if together else (0, nd.ones((2,)), weight)
    says = r"parameter 'fc1_weight': expected an array \(2,\) of float32, as SGD makes, got \("
    with pytest.raises(ValueError, match=says):
        updater(*step)
    assert weight.asnumpy().tolist() == [1, 1]


def test_states_move_to_the_device_of_their_weight():
    updater = mx.optimizer.get_updater(mx.optimizer.SGD(momentum=0.9))
    updater(0, nd.ones((2,)), nd.ones((2,)))
    states = updater.get_states()
    other = mx.optimizer.get_updater(mx.optimizer.SGD(momentum=0.9))
    other.set_states(states)
    assert other.states_synced == {0: False}
    weight = nd.ones((2,), ctx=mx.cpu(1))
    other(0, nd.ones((2,), ctx=mx.cpu(1)), weight)
    assert other.states[0].context == mx.cpu(1) and other.states_synced == {0: True}
    inner = other.sync_state_context((nd.ones(1), [None, 3]), mx.cpu(2))
    assert inner[0].context == mx.cpu(2) and inner[1] == [None, 3]
    with pytest.warns(DeprecationWarning, match="use set_lr_mult"):
        other.optimizer.set_lr_scale({0: 0.5})
    assert other.optimizer.lr_mult == {0: 0.5}


def test_helpers_of_interfaces_to_c():
    text = (ctypes.c_char * 3)(b"a", b"b", b"c")
    pointer = ctypes.cast(text, ctypes.POINTER(ctypes.c_char))
    assert mx.base.ctypes2buffer(pointer, 2) == bytearray(b"ab")
    with pytest.raises(TypeError, match="pointer to ctypes.c_char"):
        mx.base.ctypes2buffer(3, 2)
    doc = mx.base.build_param_doc(
        ["a", "b", "a"], ["int", "str", "float"], ["First.", "", "Again."]
    )
    assert doc == "Parameters\n----------\na : int\n    First.\nb : str\n"
    assert "Again." in mx.base.build_param_doc(["a"] * 2, ["int"] * 2, ["First.", "Again."], False)


def test_names_of_one_thing():
    assert mx.contrib.quant is mx.contrib.quantization
    assert nd._internal.CachedOp is nd.CachedOp

"""Modules: calls out of order, wrong arguments, wrong batches."""

import numpy as np
import pytest
from test_module import batches, bound, mlp, trained

import rsnet as mx
from rsnet import nd


def test_steps_out_of_order_say_what_is_missing():
    mod = mx.mod.Module(mlp())
    batch = mx.io.DataBatch([nd.ones((4, 6))], [nd.ones((4,))])
    with pytest.raises(AssertionError, match="Module.forward: call bind and init_params first"):
        mod.forward(batch)
    with pytest.raises(AssertionError, match="call bind first"):
        mod.init_params()
    mod = bound()
    mod.init_params()
    with pytest.raises(AssertionError, match="call init_optimizer first"):
        mod.update()
    with pytest.raises(AssertionError, match="number of epochs"):
        mod.fit(batches())
    with pytest.raises(AssertionError, match="inputs_need_grad"):
        mod.get_input_grads()


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: mx.mod.Module(mlp(), data_names=["image"]), ValueError, "'image' is not found"),
        (lambda: mx.mod.Module(mlp(), fixed_param_names=["w"]), ValueError, "'w' is not found"),
        (lambda: bound().bind([("x", (4, 6))], force_rebind=True), ValueError, "data_names"),
        (lambda: bound().bind([3], force_rebind=True), TypeError, "invalid shape 3"),
        (lambda: mx.mod.Module(mlp(), work_load_list=[1, 2]), ValueError, "one per context"),
        (lambda: trained(module={"work_load_list": [0]}), ValueError,
         r"invalid work_load_list \[0\]"),
        (
            lambda: trained(module={"work_load_list": [-1, 2], "context": [mx.cpu(0), mx.cpu(1)]}),
            ValueError, r"invalid work_load_list \[-1, 2\]: expected numbers greater than 0",
        ),
        (lambda: mx.mod.Module(None), TypeError, "invalid symbol None: expected a Symbol"),
        (lambda: mx.mod.Module([mlp()]), TypeError, "invalid symbol .*: expected a Symbol"),
        (lambda: mx.mod.Module(mlp()).fit(batches(), num_epoch="3"), TypeError, "num_epoch '3'"),
        (lambda: trained(begin_epoch=0.5), TypeError, "fit: invalid begin_epoch 0.5"),
        (lambda: trained(sparse_row_id_fn=len), NotImplementedError, "sparse"),
        (lambda: trained(kvstore="dist_sync"), NotImplementedError, "mpi4py"),
        (lambda: trained(kvstore="locale"), ValueError, "invalid kvstore 'locale'"),
        (
            lambda: bound().init_params(
                arg_params={"fc1_bias": nd.ones((8,)), "fc1_wieght": nd.ones((8, 6))}
            ),
            RuntimeError, "missing parameter 'fc1_weight'.*got one for 'fc1_wieght'",
        ),
        (lambda: trained(optimizer=3), TypeError, "expected a name or an Optimizer"),
        (
            lambda: trained(module={"context": [mx.cpu(i) for i in range(40)]}),
            ValueError, "Some splits are empty",
        ),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(make, error, says):
    with pytest.raises(error, match=says):
        make()


def test_a_wrong_batch_is_named():
    mod = bound()
    mod.init_params()
    with pytest.raises(ValueError, match="2 data arrays, expected 1"):
        mod.forward(mx.io.DataBatch([nd.ones((4, 6)), nd.ones((4, 6))], [nd.ones((4,))]))
    with pytest.raises(TypeError, match="invalid data of the batch None: expected a list"):
        mod.forward(mx.io.DataBatch(None, [nd.ones((4,))]))
    with pytest.raises(mx.MXNetError, match="fc1"):
        mod.forward(mx.io.DataBatch([nd.ones((4, 5))], [nd.ones((4,))]))


class Repeats(mx.io.DataIter):
    """Returns `batch` twice."""

    provide_data = [mx.io.DataDesc("data", (4, 6))]
    provide_label = [mx.io.DataDesc("softmax_label", (4,))]

    def __init__(self, batch):
        super().__init__(4)
        self.batch, self.left = batch, 2

    def reset(self):
        self.left = 2

    def next(self):
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return self.batch


@pytest.mark.parametrize(
    ("batch", "says"), [(None, "None"), (([1.0], [2.0]), r"\(\[1.0\], \[2.0\]\)")]
)
def test_an_iterator_that_returns_no_batch_is_an_error(batch, says):
    with pytest.raises(TypeError, match=f"returned {says}, expected a DataBatch"):
        mx.mod.Module(mlp()).fit(Repeats(batch), num_epoch=1)


def test_a_misspelt_label_is_not_trained_on_zeros():
    data = mx.io.NDArrayIter(np.ones((4, 6)), np.ones(4), batch_size=4, label_name="label")
    with pytest.raises(ValueError, match=r"labels \['label'\]: expected \['softmax_label'\]"):
        mx.mod.Module(mlp()).fit(data, num_epoch=1)


def test_labels_that_the_symbol_does_not_take_are_left_alone():
    loss = mx.sym.MakeLoss(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc"))
    mod = mx.mod.Module(loss, label_names=None)
    with pytest.warns(UserWarning, match="label_shapes don't match"):
        mod.bind([("data", (4, 6))], [("label", (4,))])
    mod.init_params()
    mod.forward(mx.io.DataBatch([nd.ones((4, 6))], [nd.ones((4,))]))
    assert mod.get_outputs()[0].shape == (4, 2)


def test_a_misspelt_fixed_parameter_is_shown_the_parameters():
    with pytest.raises(ValueError, match="fc1_wieght") as caught:
        mx.mod.Module(mlp(), fixed_param_names=["fc1_wieght"])
    suggested = str(caught.value).split(":\n\t")[1].split("\n\t")
    assert suggested == ["fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"]


def test_data_of_no_numbers_is_named():
    with pytest.raises(TypeError, match="invalid softmax_label array.*of numbers.*'a'"):
        mx.io.NDArrayIter(np.ones((2, 3)), np.array(["a", "b"]))


@pytest.mark.parametrize("pad", [-1, 5, 99])
def test_padding_is_a_number_of_rows_of_the_batch(pad):
    mod = bound()
    mod.init_params()
    batch = mx.io.DataBatch([nd.ones((4, 6))], [nd.ones((4,))], pad=pad)
    with pytest.raises(ValueError, match=f"invalid pad {pad}: expected 0 to 4"):
        mod.predict(Repeats(batch))


def test_a_label_that_the_symbol_lacks_is_a_warning():
    with pytest.warns(UserWarning, match="'other' is not found"):
        mx.mod.Module(mlp(), label_names=["other"])


@pytest.mark.parametrize("form", ["module", "buckets"])
def test_a_warning_of_unknown_labels_names_the_line_that_creates_the_module(form):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2)
    with pytest.warns(UserWarning, match="label_names") as seen:  # noqa: PT031
        if form == "module":
            mx.mod.Module(net, label_names=["other"])
        else:
            mx.mod.BucketingModule(lambda key: (net, ["data"], ["other"]), default_bucket_key=1)
    assert {warning.filename for warning in seen} == {__file__}


def test_fit_names_the_argument_that_is_no_iterator_or_metric():
    module = mx.mod.Module(mx.sym.SoftmaxOutput(mx.sym.Variable("data"), name="softmax"))
    with pytest.raises(TypeError, match="invalid train_data array.* expected a DataIter"):
        module.fit(np.zeros((4, 2)), num_epoch=1)
    with pytest.raises(TypeError, match="invalid metric None: expected an EvalMetric"):
        mx.metric.create(None)


def test_modules_tell_their_shapes_by_the_names_of_old():
    data = mx.io.NDArrayIter(np.ones((4, 2)), np.ones(4), batch_size=2)
    net = mx.sym.SoftmaxOutput(
        mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2), name="softmax"
    )
    module = mx.mod.Module(net)
    assert module._data_shapes is None and module._label_shapes is None
    with pytest.warns(UserWarning, match="label_shapes"):  # as in MXNet
        module.bind(data.provide_data, module._label_shapes, for_training=False)
    assert module._label_shapes is None and module._data_shapes == module.data_shapes
    module.bind(data.provide_data, data.provide_label, force_rebind=True)
    assert module._label_shapes == data.provide_label


@pytest.mark.parametrize("batch", [np.ones((1, 2)), nd.ones((1, 2))])
def test_an_array_is_no_batch(batch):
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2)
    module = mx.mod.Module(net, label_names=None)
    module.bind([("data", (1, 2))], for_training=False)
    module.init_params()
    with pytest.raises(TypeError, match=r"expected a DataBatch\(\[array\]\), got one"):
        module.forward(batch)
    assert module.forward(mx.io.DataBatch([nd.array(batch)])) is None


@pytest.mark.parametrize("fault", ["shape", "missing"])
@pytest.mark.parametrize("allow_missing", [False, True])
def test_parameters_of_another_network_leave_all_as_they_were(fault, allow_missing):
    mod = bound()
    mod.init_params(mx.init.One())
    names = sorted(mod.get_params()[0])
    before = {name: array.asnumpy().tolist() for name, array in mod.get_params()[0].items()}
    others = {name: nd.array(before[name]) + 1 for name in names}
    others[names[-1]] = nd.ones((9, 9))
    aux = {}
    if fault == "missing":
        del others[names[-1]]
        aux = {"none": nd.ones((1,))} if allow_missing else aux
    with pytest.raises((RuntimeError, ValueError)):
        mod.set_params(others, aux, allow_missing=allow_missing)
    after = {name: array.asnumpy().tolist() for name, array in mod.get_params()[0].items()}
    on_device = {n: mod._exec_group.execs[0].arg_dict[n].asnumpy().tolist() for n in names}
    assert after == on_device == before

"""Bad input: an error that says what was wrong, and a process and an engine that go on working."""

import sys

import numpy as np
import pytest
from recovery import says, still_working  # noqa: F401

import rsnet as mx

Error = mx.base.MXNetError


# ---- shapes, dtypes, names, parameters -----------------------------------------------------------


def test_wrong_shape():
    with pytest.raises(Error) as error:
        mx.nd.FullyConnected(
            mx.nd.ones((2, 4)), mx.nd.ones((10, 3)), mx.nd.ones((10,)), num_hidden=10
        )
    says(error, "FullyConnected", "weight", "3", "4")


def test_wrong_shape_in_a_graph_names_the_node():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=10, name="fc1")
    with pytest.raises(Error) as error:
        net.infer_shape(data=(2, 4), fc1_weight=(10, 3))
    says(error, "fc1", "weight", "3", "4")
    with pytest.raises(Error) as error:
        net.simple_bind(mx.cpu(), data=(2, 4), fc1_weight=(10, 3))
    says(error, "fc1", "weight")


def test_shapes_that_do_not_broadcast():
    with pytest.raises(Error) as error:
        mx.nd.ones((2, 3)) + mx.nd.ones((2, 4))
    says(error, "broadcast_add", "3", "4")


def test_wrong_dtype():
    with pytest.raises(Error) as error:
        mx.nd.ones((2,)) + mx.nd.ones((2,), dtype="float64")
    says(error, "broadcast_add", "float32", "float64")


def test_dtype_that_does_not_exist():
    with pytest.raises((Error, TypeError, ValueError)) as error:
        mx.nd.zeros((2,), dtype="float31")
    says(error, "float31")


def test_unknown_parameter():
    with pytest.raises(Error) as error:
        mx.nd.Activation(mx.nd.ones((2,)), act_type="relu", alpha=3)
    says(error, "Activation", "alpha", "act_type")


def test_parameter_value_out_of_range():
    with pytest.raises(Error) as error:
        mx.nd.Dropout(mx.nd.ones((2,)), p=1.5)
    says(error, "Dropout", "p", "1.5")


def test_enum_value_that_does_not_exist():
    with pytest.raises(Error) as error:
        mx.nd.Activation(mx.nd.ones((2,)), act_type="rely")
    says(error, "Activation", "act_type", "rely", "relu")


def test_text_where_a_number_belongs():
    with pytest.raises(Error) as error:
        mx.nd.sum(mx.nd.ones((2,)), axis="two")
    says(error, "sum", "axis", "two")


def test_missing_parameter():
    with pytest.raises(Error) as error:
        mx.nd.FullyConnected(mx.nd.ones((2, 4)), mx.nd.ones((10, 4)), no_bias=True)
    says(error, "FullyConnected", "num_hidden")


def test_missing_argument():
    with pytest.raises((Error, TypeError)) as error:
        mx.nd.FullyConnected(mx.nd.ones((2, 4)), num_hidden=10)
    says(error, "FullyConnected")


def test_argument_that_is_no_array():
    with pytest.raises((Error, TypeError, AssertionError)) as error:
        mx.nd.relu(3)
    says(error, "data", "3")


def test_operator_that_does_not_exist():
    with pytest.raises(AttributeError) as error:
        mx.nd.no_such_operator(mx.nd.ones((2,)))
    says(error, "no_such_operator")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: mx.nd.sum(x, axis=5), ("sum", "axis 5", "(2, 3, 4)")),
        (lambda x: mx.nd.sum(x, axis=(1, -2)), ("sum", "axis -2", "(1, -2)")),
        (lambda x: mx.nd.swapaxes(x, dim1=0, dim2=3), ("SwapAxis", "axis 3", "(2, 3, 4)")),
        (lambda x: mx.nd.transpose(x, axes=(0, -1, 2)), ("transpose", "(0, -1, 2)")),
        (lambda x: mx.nd.reshape(x, shape=(-1, -2, -4)), ("Reshape", "(-1, -2, -4)")),
        (lambda x: mx.nd.broadcast_to(x, shape=(1, -2)), ("broadcast_to", "(1, -2)")),
        (lambda x: mx.nd.concat(x, mx.nd.ones((3, 3, 4)), dim=1), ("Concat", "arg1", "(3, 3, 4)")),
    ],
)
def test_axis_out_of_range(call, words):
    with pytest.raises(Error) as error:
        call(mx.nd.ones((2, 3, 4)))
    says(error, *words)
    assert "?, ?" not in str(error.value)


def test_index_out_of_range():
    with pytest.raises(IndexError) as error:
        mx.nd.ones((3, 4))[3]
    says(error, "3", "axis 0")


def test_reshape_to_another_size():
    with pytest.raises((Error, ValueError)) as error:
        mx.nd.ones((2, 3)).reshape((5,))
    says(error, "6", "(5,)")


def test_out_of_the_wrong_shape():
    with pytest.raises(Error) as error:
        mx.nd.relu(mx.nd.ones((2, 3)), out=mx.nd.ones((3, 2)))
    says(error, "relu")


def test_negative_extent():
    with pytest.raises((Error, ValueError)):
        mx.nd.zeros((2, -3))


def test_huge_array():
    with pytest.raises((Error, MemoryError, ValueError)):
        mx.nd.zeros((1 << 40, 1 << 40)).wait_to_read()


# ---- graphs --------------------------------------------------------------------------------------


def test_duplicate_argument_names():
    net = mx.sym.Variable("x") + mx.sym.Variable("x")
    with pytest.raises((Error, ValueError)) as error:
        net.simple_bind(mx.cpu(), x=(2,))
    says(error, "x")


def test_bind_with_a_name_missing():
    net = mx.sym.Variable("a") + mx.sym.Variable("b")
    with pytest.raises((Error, ValueError)) as error:
        net.bind(mx.cpu(), {"a": mx.nd.ones((2,))})
    says(error, "b")


def test_bind_with_too_few_arrays():
    net = mx.sym.Variable("a") + mx.sym.Variable("b")
    with pytest.raises((Error, ValueError)):
        net.bind(mx.cpu(), [mx.nd.ones((2,))])


def test_composing_with_an_unknown_argument():
    with pytest.raises((Error, TypeError)) as error:
        mx.sym.FullyConnected(
            mx.sym.Variable("data"), wait=mx.sym.Variable("w"), num_hidden=2, name="fc"
        )
    says(error, "wait")


def test_too_little_is_known_to_bind():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=10, name="fc1")
    with pytest.raises((Error, ValueError)) as error:
        net.simple_bind(mx.cpu())
    says(error, "data")


def test_forward_with_an_unknown_input():
    exe = (mx.sym.Variable("x") + 1).simple_bind(mx.cpu(), x=(2,))
    with pytest.raises((Error, TypeError, ValueError)) as error:
        exe.forward(y=mx.nd.ones((2,)))
    says(error, "y")


def test_forward_with_another_shape():
    exe = (mx.sym.Variable("x") + 1).simple_bind(mx.cpu(), x=(2,))
    with pytest.raises((Error, ValueError)) as error:
        exe.forward(x=mx.nd.ones((3,)))
    says(error, "x")


def test_backward_of_what_cannot_be_differentiated():
    x = mx.nd.ones((2,))
    with pytest.raises(Error):
        x.backward()


# ---- engine --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reads", "writes"), [("ab", "b"), ("aa", "b"), ("a", "bb")])
def test_variable_listed_twice(reads, writes):
    """Read and written, read twice, written twice."""
    variables = {n: mx.engine.new_variable() for n in "ab"}
    with pytest.raises((Error, ValueError)):
        mx.engine.push_sync(
            lambda ctx: None,
            mx.cpu(),
            [variables[n] for n in reads],
            [variables[n] for n in writes],
        )
    for v in variables.values():
        mx.engine.delete_variable(v)


def test_exception_in_a_pushed_function():
    v = mx.engine.new_variable()

    def fail(run_context):
        raise KeyError("from the function")

    mx.engine.push_sync(fail, mx.cpu(), [], [v])
    with pytest.raises(KeyError, match="from the function"):
        mx.engine.wait_for_var(v)


# ---- operators in Python -------------------------------------------------------------------------


class Broken(Exception):
    """Raised by the operators below."""


class BrokenParam(mx.Parameter):
    """Where `bad_input_op` fails."""

    where: str = mx.field("nowhere", doc="Which method raises.")


class BrokenOp(mx.Operator):
    def __init__(self, where):
        self.where = where
        if where == "constructor":
            raise Broken("constructor")

    def forward(self, ctx, in_data, req, out_data, aux_states):
        if self.where == "forward":
            raise Broken("forward")
        self.assign(out_data[0], req[0], in_data[0] * 2)

    def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux_states):
        if self.where == "backward":
            raise Broken("backward")
        self.assign(in_grad[0], req[0], out_grad[0] * 2)


@mx.operator.register("bad_input_op")
class BrokenProperty(mx.OperatorProperty):
    Param = BrokenParam

    def list_arguments(self):
        return ["data"]

    def infer_shape(self, in_shape):
        if self.param.where == "infer_shape":
            raise Broken("infer_shape")
        return in_shape, [in_shape[0]], []

    def create_operator(self, ctx):
        return BrokenOp(self.param.where)


@pytest.mark.parametrize("where", ["infer_shape", "constructor", "forward"])
def test_exception_inside_an_imperative_call(where):
    with pytest.raises(Broken, match=where) as error:
        mx.nd.bad_input_op(mx.nd.ones((2,)), where=where).asnumpy()
    assert "in " + where.replace("constructor", "__init__") in "".join(frames(error))
    assert mx.nd.bad_input_op(mx.nd.ones((2,))).asnumpy().tolist() == [2.0, 2.0]


def frames(error):
    import traceback

    return traceback.format_exception(error.type, error.value, error.value.__traceback__)


def test_exception_inside_backward():
    x = mx.nd.ones((2,))
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.bad_input_op(x, where="backward")
    with pytest.raises(Broken, match="backward"):
        y.backward()
        x.grad.asnumpy()


@pytest.mark.parametrize("where", ["infer_shape", "constructor", "forward", "backward"])
def test_exception_inside_a_graph_names_the_node(where):
    net = mx.sym.bad_input_op(mx.sym.Variable("data"), where=where, name="faulty")
    with pytest.raises(Broken, match=where) as error:
        exe = net.simple_bind(mx.cpu(), data=(2,))
        exe.forward(is_train=True, data=mx.nd.ones((2,)))
        exe.backward([mx.nd.ones((2,))])
        exe.outputs[0].asnumpy()
        exe.grad_dict["data"].asnumpy()
    if sys.version_info >= (3, 11):
        says(error, "bad_input_op", "faulty")


def test_an_executor_recovers_from_an_exception():
    """Inputs that make it fail, then inputs that do not."""
    fail = [True]

    class Sometimes(mx.Operator):
        def forward(self, ctx, in_data, req, out_data, aux_states):
            if fail[0]:
                raise Broken("this time")
            self.assign(out_data[0], req[0], in_data[0] + 1)

    @mx.operator.register("bad_input_sometimes")
    class SometimesProperty(mx.OperatorProperty):
        def list_arguments(self):
            return ["data"]

        def infer_shape(self, in_shape):
            return in_shape, [in_shape[0]], []

        def create_operator(self, ctx):
            return Sometimes()

    net = mx.sym.relu(mx.sym.bad_input_sometimes(mx.sym.Variable("data")))
    exe = net.simple_bind(mx.cpu(), grad_req="null", data=(2,))
    with pytest.raises(Broken):
        exe.forward(data=mx.nd.ones((2,)))[0].asnumpy()
    fail[0] = False
    assert exe.forward(data=mx.nd.ones((2,)))[0].asnumpy().tolist() == [2.0, 2.0]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_numbers_pass_through(value):
    x = mx.nd.array([value, 1.0])
    assert np.array_equal((x + 1).asnumpy(), [value, 2.0], equal_nan=True)


def test_an_array_by_name_never_takes_the_place_of_another():
    x, w = mx.nd.ones((2, 3)), mx.nd.ones((4, 3))
    with pytest.raises(TypeError, match="array 'bias' but not 'weight'"):
        mx.nd.FullyConnected(x, bias=w, no_bias=True, num_hidden=4)
    with pytest.raises(TypeError, match="array 'rhs' but not 'lhs'"):
        mx.nd.elemwise_add(rhs=x)
    assert mx.nd.FullyConnected(weight=w, data=x, no_bias=True, num_hidden=4).shape == (2, 4)


def test_an_extent_is_a_whole_number():
    net = mx.sym.exp(mx.sym.Variable("a"))
    for call in (
        lambda: net.infer_shape(a=(2.7, 3)),
        lambda: net.simple_bind(mx.cpu(), a=(2.7, 3)),
    ):
        with pytest.raises(TypeError, match=r"float|invalid shape \(2.7, 3\) of 'a'"):
            call()
    assert net.infer_shape(a=(np.int64(2), 3))[1] == [(2, 3)]

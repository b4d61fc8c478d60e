"""What few operators by MXNet's names use, and mistakes that must not end the process."""

import numpy as np
import pytest
from plugins import compiled
from processes import printed

import rsnet as mx
from rsnet import nd, sym

pytestmark = pytest.mark.process  # the compiler is one

LIBRARY = "mxnet_seldom.cc"


@pytest.fixture(scope="module", autouse=True)
def library():
    return mx.load_library(compiled(LIBRARY))


def gradient(function, value=1.0, **params):
    x = nd.array([value])
    x.attach_grad()
    with mx.autograd.record():
        y = function(x, **params)
    y.backward()
    return x.grad.asscalar()


def bound_gradient(function, value=1.0, **params):
    net = function(sym.var("x"), **params)
    exe = net.bind(mx.cpu(), {"x": nd.array([value])}, {"x": nd.zeros(1)})
    exe.forward(is_train=True)
    exe.backward(nd.ones(1))
    return exe.grad_dict["x"].asscalar()


@pytest.mark.parametrize(
    ("name", "with_three", "by_default"),
    [("ms_seven", 7, 7), ("ms_none", 1, 1), ("ms_same", 3, 1)],
)
def test_backward_operators_have_the_parameters_that_the_gradient_gives_them(
    name, with_three, by_default
):
    for params, expected in (({"scale": 3}, with_three), ({}, by_default)):
        assert gradient(getattr(nd, name), **params) == expected
        assert bound_gradient(getattr(sym, name), **params) == expected


def test_parameters_that_a_backward_operator_does_not_have_are_refused():
    with pytest.raises(mx.MXNetError, match="_backward_ms_scaled.*sacle"):
        gradient(nd.ms_unknown)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("ms_two_in", 543), ("ms_two_nonloss", 543), ("ms_two_out", 3 + 40 + 100 * 10 + 1000 * 15)],
)
def test_standard_gradients_in_functions(name, expected):
    """The digits: gradients of both outputs, then what the gradient reads."""
    x = nd.array([5.0])
    x.attach_grad()
    with mx.autograd.record():
        a, b = getattr(nd, name)(x)
        c = 3 * a + 4 * b
    c.backward()
    assert x.grad.asscalar() == expected


def test_an_error_says_what_rsnet_knows_of_a_failed_rule():
    with pytest.raises(mx.MXNetError, match="ms_why: invalid output 3 of a gradient: expected"):
        gradient(nd.ms_why)


def test_states_last_from_forward_to_backward_and_from_run_to_run():
    x = nd.array([2.0])
    x.attach_grad()
    with mx.autograd.record():
        y = nd.ms_state(x)
    assert y.asscalar() == 2 + 100 + 1000
    y.backward()
    assert x.grad.asscalar() == 1
    exe = sym.ms_state(sym.var("x")).bind(mx.cpu(), {"x": x}, {"x": nd.zeros(1)})
    for run in (1, 2, 3):
        assert exe.forward(is_train=True)[0].asscalar() == 2 * run + 1100
        exe.backward(nd.ones(1))
        assert exe.grad_dict["x"].asscalar() == run


def plan_of(net):
    return {x.name: x for x in net.memory_plan(grad_req="null", x=(64,)).entries}


def test_memory_of_an_ignored_input_is_free_for_others():
    h = sym.exp(sym.var("x"), name="h")
    net = sym.ms_like(sym.exp(h, name="y"), h, name="z")
    assert plan_of(net)["y_output"].inplace_of == "h_output"


@pytest.mark.parametrize("name", ["ms_identity", "ms_copy"])
def test_identities_share_memory_with_what_others_read(name):
    h = sym.exp(sym.var("x"), name="h")
    plan = plan_of(getattr(sym, name)(h, name="i") * h)
    assert (plan["i_output"].inplace_of == "h_output") == (name == "ms_identity")


@pytest.mark.parametrize("name", ["ms_no_stream", "ms_stream"])
def test_kernels_run_with_and_without_a_stream(name):
    code = f"""
        import rsnet as mx
        mx.load_library({compiled(LIBRARY)!r})
        for n in (8000, 9000):
            print(int(mx.nd.{name}(mx.nd.ones(n)).asnumpy().sum()))
    """
    assert printed(code).split() == ["16000", "18000"]


def test_a_failed_check_may_throw_while_its_message_is_made():
    code = f"""
        import rsnet as mx
        mx.load_library({compiled(LIBRARY)!r})
        for name, value in (("ms_throws", 1), ("ms_fatal", 1), ("ms_fatal", 2)):
            try:
                getattr(mx.nd, name)(mx.nd.array([value])).asnumpy()
            except mx.MXNetError as error:
                print(str(error).splitlines()[0])
    """
    lines = printed(code).splitlines()
    assert "vector" in lines[0] and "fatal one" in lines[1] and "vector" in lines[2], lines


def test_a_resource_that_was_not_requested_is_an_error():
    with pytest.raises(mx.MXNetError, match="ms_no_resource.*resource 0: 0 are requested"):
        nd.ms_no_resource(nd.ones(1)).asnumpy()


def test_checks_of_equal_values():
    assert nd.ms_checks(nd.ones(1)).asscalar() == 0


def test_asynchronous_operators_end_when_they_say_so():
    assert nd.ms_async(nd.ones(1)).asscalar() == 5
    assert nd.ms_later(nd.ones(1)).asscalar() == 5


def test_half_precision_is_rounded_to_nearest():
    exact = np.array([1 + k / 4096 for k in range(9)] + [65519, 6e-8, 3e-8, -0.1], "float32")
    got = nd.ms_half(nd.array(exact)).asnumpy()
    assert np.array_equal(got, exact.astype("float16"))


def test_a_function_that_is_null_is_refused():
    with pytest.raises(mx.MXNetError, match="'ms_null': its function for <cpu> is null"):
        mx.load_library(compiled(LIBRARY, "NULL_COMPUTE"))


def test_a_shape_may_be_none_and_that_is_not_a_scalar():
    x = nd.ones((3,))
    assert nd.ms_shape(x).shape == (3,)
    assert nd.ms_shape(x, shape=None).shape == (3,)
    assert nd.ms_shape(x, shape=(2, 4)).shape == (2, 4)
    net = sym.load_json(sym.ms_shape(sym.var("x")).tojson())
    assert net.infer_shape(x=(3,))[1] == [(3,)]
    with mx.util.np_shape(True):
        assert nd.ms_shape(x, shape=()).shape == ()
    with pytest.raises(mx.MXNetError, match="None and None"):
        nd.ms_shape(x, known=None)
    assert "shape : Shape or None, optional, default=None" in nd.ms_shape.__doc__


def test_properties_with_two_auxiliary_states():
    a, b = nd.array([2.0]), nd.array([3.0])
    x = nd.array([5.0])
    arrays = [x, a, b]
    for array in arrays:
        array.attach_grad()
        array.grad[:] = 7
    with mx.autograd.record():
        y = nd.ms_aux(x, a=a, b=b)
    y.backward()
    assert y.asscalar() == 13
    assert [array.grad.asscalar() for array in arrays] == [32, 0, 0]
    net = sym.ms_aux(sym.var("x"), name="n")
    assert net.list_auxiliary_states() == ["n_a", "n_b"]
    assert net.infer_shape_partial()[1] == [(9,)]


def test_an_entry_that_is_declared_twice_is_read_once():
    x, dx = nd.array([3.0]), nd.zeros(1)
    exe = sym.ms_twice(sym.var("x")).bind(mx.cpu(), {"x": x}, {"x": dx})
    assert exe.forward(is_train=True)[0].asscalar() == 6
    exe.backward(nd.array([5.0]))
    assert dx.asscalar() == 10


def test_resources_of_the_gradient_are_asked_for_with_the_gradient():
    x = nd.array([3.0])
    x.attach_grad()
    with mx.autograd.record():
        y = nd.ms_poor(x)
    assert y.asscalar() == 6
    with pytest.raises(mx.MXNetError, match="no space for gradients"):
        y.backward()
        nd.waitall()


def test_no_operator_is_created_before_shapes_are_inferred():
    with pytest.raises(mx.MXNetError, match="InferType or InferShape returns false for known"):
        nd.ms_unsure(nd.array([3.0])).asscalar()

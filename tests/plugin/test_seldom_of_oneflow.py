"""What few operators by OneFlow's names use, and mistakes that must not end the process."""

import numpy as np
import pytest
from plugins import compiled
from processes import printed

import rsnet as mx
from rsnet import nd, sym

pytestmark = pytest.mark.process  # the compiler is one

LIBRARY = "oneflow_seldom.cpp"


@pytest.fixture(scope="module", autouse=True)
def library():
    return mx.load_library(compiled(LIBRARY))


def gradient(name, value=1.0, head=1.0):
    x = nd.array([value])
    x.attach_grad()
    with mx.autograd.record():
        y = getattr(nd, name)(x)
    y.backward(nd.array([head]))
    return x.grad.asscalar()


def test_a_failed_check_may_ask_for_what_is_not_known_yet():
    code = f"""
        import rsnet as mx
        mx.load_library({compiled(LIBRARY)!r})
        try:
            mx.sym.os_check(mx.sym.var("x")).infer_type(x="int32")
        except mx.MXNetError as error:
            print(str(error).splitlines()[0])
        try:
            mx.nd.os_check(mx.nd.ones((2, 3), dtype="int32"))
        except mx.MXNetError as error:
            print(str(error).splitlines()[0])
    """
    first, second = printed(code).splitlines()
    assert "Check failed: " in first and "x has the shape ?" in first, first
    assert "x has the shape (2, 3)" in second


def test_arrays_go_to_the_arguments_that_a_gradient_names():
    assert nd.os_subtract(a=nd.array([2.0]), x=nd.array([5.0]), must=1).asscalar() == -195
    assert gradient("os_named", 2.0, 5.0) == -195


def test_optional_outputs():
    x = nd.array([3.0])
    assert nd.os_optional(x).asscalar() == 3
    assert [y.asscalar() for y in nd.os_optional(x, out_counts=(1, 1))] == [7, 7]
    assert nd.os_spelling(x).asscalar() == 3
    assert gradient("os_uses_optional", head=5.0) == 5


def test_a_gradient_may_ask_which_outputs_have_one():
    for use_z, expected in ((True, 3), (False, -3)):
        x = nd.array([1.0])
        x.attach_grad()
        with mx.autograd.record():
            y, z = nd.os_arrives(x)
            loss = 3 * y + z if use_z else 3 * y
        loss.backward()
        assert x.grad.asscalar() == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("os_same_name", "has the name of the operator that it is for"),
        ("os_defines_own_name", "has the name of the operator that it is for"),
        ("os_twice", "operator 'g' of a gradient is defined twice"),
    ],
)
def test_names_of_a_gradient_are_unique(name, text):
    with pytest.raises(mx.MXNetError, match=f"{name}: .*{text}"):
        gradient(name)


def test_scalars_say_which_operand_counts():
    assert gradient("os_half") == 0.5


def test_inputs_that_a_kernel_modifies():
    state = nd.array([4.0])
    assert [nd.os_mutable(nd.ones(1), state).asscalar() for _ in range(2)] == [5, 6]
    assert state.asscalar() == 6
    assert sym.os_mutable(sym.var("x"), name="n").list_auxiliary_states() == ["n_s"]


def test_memory_of_an_input_of_which_only_the_header_matters_is_free():
    h = sym.exp(sym.var("x"), name="h")
    net = sym.os_header(sym.exp(h, name="y"), h, name="z")
    plan = {x.name: x for x in net.memory_plan(grad_req="null", x=(64,)).entries}
    assert plan["y_output"].inplace_of == "h_output"


def test_kernels_without_elements():
    before = nd.os_runs(nd.ones(1)).asscalar()
    with mx.util.np_shape(True):
        nd.os_always(nd.zeros((0,))).asnumpy()
    assert nd.os_runs(nd.ones(1)).asscalar() == before + 1


@pytest.mark.parametrize("name", ["os_nested", "os_texts"])
def test_small_promises(name):
    assert getattr(nd, name)(nd.ones(1)).asscalar() == 1


def test_chars_are_signed_bytes():
    y = nd.os_chars(nd.ones(1))
    assert np.dtype(y.dtype) == np.int8 and y.asscalar() == -5


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("os_one_to_two", r"Check failed: .*size.* \(1 vs. 2\)"),
        ("os_no_size", "reads 'tmp_buffer', and has no SetInferTmpSizeFn"),
        ("os_beyond", "argument 'x' has no array 1: expected 0 to 0"),
    ],
)
def test_mistakes_are_errors(name, text):
    with pytest.raises(mx.MXNetError, match=f"{name}: .*{text}"):
        y = getattr(nd, name)(nd.ones(1))
        (y[0] if isinstance(y, list) else y).asnumpy()


def test_a_name_of_the_operator_lives_as_long_as_the_context():
    assert nd.os_named_by_a_text_of_more_than_fifteen_letters(nd.ones(1)).asscalar() == 1

"""Callbacks that answer oddly, and those that another library has for an operator."""

import pytest
from plugins import compiled

import rsnet as mx
from rsnet import autograd, nd, sym

pytestmark = pytest.mark.process  # the compiler is one

GUEST = ["cb_later", "cb_part", "cb_tmp", "cb_rule"]


@pytest.fixture(scope="module", autouse=True)
def library():
    """The library in C, whose operators are in `nd`, and then its guest."""
    names = mx.load_library(compiled("callbacks.c"))
    with pytest.raises(mx.MXNetError, match="cb_later.*no kernel"):
        nd.cb_later(nd.ones(2), n=1).asnumpy()
    assert mx.load_library(compiled("guest.cpp")) == GUEST
    return names


def bound(f, n=3, **given):
    return f(sym.var("a")).simple_bind(mx.cpu(), a=(n,), grad_req="null", **given)


@pytest.mark.parametrize("size", [3, 5000])
@pytest.mark.parametrize("name", ["cb_part", "cb_tmp"])
def test_what_a_guest_throws_is_an_error(name, size):
    """The operator's library has no guard against exceptions, its guest has one."""
    with pytest.raises(mx.MXNetError, match=rf"(?s){name}.*C\+\+ exception: thrown by a guest"):
        getattr(nd, name)(nd.ones(size), n=1).asnumpy()
    with pytest.raises(mx.MXNetError, match=r"C\+\+ exception: thrown by a guest"):
        bound(lambda a: getattr(sym, name)(a + 1, n=1), size).forward()[0].asnumpy()


def test_what_a_guests_gradient_throws_is_an_error():
    x = nd.ones(3)
    x.attach_grad()
    with autograd.record():
        y = nd.cb_rule(x, n=1)
    with pytest.raises(mx.MXNetError, match=r"(?s)cb_rule.*C\+\+ exception: thrown by a guest"):
        y.backward()


def test_functions_see_what_a_later_library_adds():
    assert nd.cb_later(nd.ones(2), n=1).asnumpy().tolist() == [7, 7]
    assert bound(lambda a: sym.cb_later(a, n=1)).forward()[0].asnumpy().tolist() == [7, 7, 7]
    assert mx.load_library(compiled("guest.cpp")) == GUEST


@pytest.mark.parametrize("name", ["check", "names", "resources"])
def test_only_inference_may_be_without_an_answer(name):
    op = f"cb_unknown_{name}"
    with pytest.raises(mx.MXNetError, match=f"(?s){op}.*no answer, and why"):
        getattr(nd, op)(nd.ones(3), n=1).asnumpy()
    with pytest.raises(mx.MXNetError, match="no answer, and why"):
        bound(lambda a: getattr(sym, op)(a, n=1)).forward()[0].asnumpy()


@pytest.mark.parametrize("name", ["cb_unknown_rule", "cb_unknown_deps"])
def test_the_rule_of_a_gradient_has_an_answer(name):
    x = nd.ones(3)
    x.attach_grad()
    with pytest.raises(mx.MXNetError, match="no answer, and why"):
        with autograd.record():
            y = getattr(nd, name)(x, n=1)
        y.backward()
        x.grad.asnumpy()


def test_signatures_have_an_answer_and_in_place_pairs_need_none():
    with pytest.raises(mx.MXNetError, match="no answer, and why"):
        mx.sbp.signatures("cb_unknown_sbp", (3,), n=1)
    assert bound(lambda a: sym.cb_unknown_inplace(a, n=1)).forward(a=nd.ones(3))[0].asnumpy().all()
    with pytest.raises(mx.MXNetError, match="check of library .*callbacks.* inference only"):
        nd.cb_unknown_silent(nd.ones(3), n=1)


def test_random_numbers_are_asked_for():
    mx.random.seed(0)
    for _ in range(2):
        with pytest.raises(mx.MXNetError, match="random numbers were not requested"):
            nd.cb_asks_nothing(nd.ones(3), n=1).asnumpy()
    with pytest.raises(mx.MXNetError, match="random numbers were not requested"):
        bound(lambda a: sym.cb_asks_nothing(a, n=1)).forward()[0].asnumpy()
    first, second = (nd.cb_asks_random(nd.ones(3), n=1).asnumpy() for _ in range(2))
    assert (first != second).all()


def test_calls_that_draw_are_not_merged():
    exe = bound(lambda a: sym.cb_asks_random(a, n=1) - sym.cb_asks_random(a, n=1))
    assert exe.forward()[0].asnumpy().all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_resources_are_told_no_dtype(dtype):
    assert nd.cb_wants_no_dtype(nd.ones(3, dtype=dtype), n=1).asnumpy().tolist() == [1, 1, 1]


def test_the_flag_says_which_operators_are_for_gradients(library):
    assert "cb_for_gradients" in library
    assert "cb_for_gradients" not in vars(nd) and "cb_rule" in vars(nd)
    with pytest.raises(mx.MXNetError, match="'cb_for_gradients' is not registered"):
        mx.user_op_builder("b").Op("cb_for_gradients")

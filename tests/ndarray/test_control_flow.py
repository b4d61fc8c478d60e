"""Loops and conditions on arrays: what they return, their gradients, and errors."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import autograd, nd

contrib = nd.contrib


def test_foreach_stacks_outputs_and_hands_on_states():
    data = nd.arange(6).reshape((3, 2))
    out, state = contrib.foreach(lambda x, s: (x + s, x + s), data, nd.zeros((2,)))
    want = np.cumsum(data.asnumpy(), 0)
    np.testing.assert_array_equal(out.asnumpy(), want)
    np.testing.assert_array_equal(state.asnumpy(), want[-1])


def test_foreach_keeps_the_structure_of_lists():
    data, other = nd.arange(6).reshape((3, 2)), nd.ones((3, 4))
    body = lambda x, s: ([x[0], [x[1] * 2]], [s[0] + 1])  # noqa: E731
    (first, (second,)), (state,) = contrib.foreach(body, [data, other], [nd.zeros((1,))])
    assert first.shape == (3, 2) and second.shape == (3, 4) and state.asscalar() == 3
    out, states = contrib.foreach(lambda x, s: ([], s), data, [])
    assert out == [] and states == []


def test_the_gradient_of_a_loop_reaches_free_variables():
    data, w = nd.array([1, 2, 3]), nd.array([0.5])
    for x in (data, w):
        x.attach_grad()
    with mx.autograd.record():
        out, _ = contrib.foreach(lambda x, s: (s * w + x, s * w + x), data, nd.zeros((1,)))
        total = out.sum()
    total.backward()
    np.testing.assert_allclose(data.grad.asnumpy(), [1.75, 1.5, 1])
    # Outputs are 1, w + 2 and w * (w + 2) + 3.
    np.testing.assert_allclose(w.grad.asnumpy(), [1 + 2 * 0.5 + 2])


def test_while_loop_fills_up_with_zeros():
    def sums(**options):
        return contrib.while_loop(
            lambda i, s: i <= 3, lambda i, s: ([i + s], [i + 1, s + i]),
            (nd.array([1]), nd.array([0])), **options,
        )  # fmt: skip

    (out,), states = sums(max_iterations=5)
    assert out.asnumpy().ravel().tolist() == [1, 3, 6, 0, 0]
    assert [s.asscalar() for s in states] == [4, 6]
    (out,), _ = sums(max_iterations=2)
    assert out.asnumpy().ravel().tolist() == [1, 3]
    out, states = sums(max_iterations=0)
    assert out == [] and states[0].asscalar() == 1


def test_a_loop_may_have_no_outputs():
    def step(i, s):
        return None, [i + 1, s * 2]

    start = [nd.array([0]), nd.array([1])]
    out, (i, s) = contrib.while_loop(lambda i, s: i < 4, step, start, max_iterations=9)
    assert out == [] and (i.asscalar(), s.asscalar()) == (4, 16)


def test_cond_runs_one_branch():
    ran = []
    branches = (lambda: ran.append(1) or nd.ones(2), lambda: ran.append(2) or nd.zeros(2))
    assert contrib.cond(nd.array([1]), *branches).asnumpy().tolist() == [1, 1]
    assert contrib.cond(nd.array([0]), *branches).asnumpy().tolist() == [0, 0]
    assert ran == [1, 2]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: contrib.foreach(lambda x, s: (x, s), [nd.ones(3), nd.ones(4)], []), "one extent"),
        (
            lambda: contrib.foreach(lambda x, s: (x, s), nd.ones(3)[3:], []),
            "extent 0 .* at least 1",
        ),
        (lambda: contrib.foreach(lambda x, s: (x, s), nd.array(2).reshape(()), []), "one axis"),
        (lambda: contrib.foreach(lambda x, s: (x, s), "a", []), "invalid data of type str"),
        (lambda: contrib.while_loop(bool, bool, [], max_iterations=1), "at least one array"),
        (
            lambda: contrib.while_loop(
                lambda i: 1, lambda i: (i, [i, i]), nd.ones(1), max_iterations=1
            ),
            "new loop variables 2: expected 1",
        ),
        (lambda: contrib.foreach(lambda x, s: None, nd.ones(3), []), "invalid result None of a"),
        (
            lambda: contrib.while_loop(lambda i: 1, lambda i: (i,), nd.ones(1), max_iterations=1),
            r"of a loop's body: expected \(outputs, loop_vars\)",
        ),
        (lambda: contrib.rand_zipfian(nd.ones(1), 2, 0), "invalid range_max 0: expected 1 or more"),
        (lambda: contrib.cond(nd.ones(2), list, list), r"shape \(2,\): expected one element"),
        (lambda: contrib.boolean_mask(nd.ones((2, 3)), nd.ones(3)), r"expected \(2,\)"),
    ],
)
def test_errors_name_argument_and_expectation(call, error):
    with pytest.raises((ValueError, TypeError), match=error):
        call()


@pytest.fixture(params=["nd", "sym"])
def interface(request):
    """`contrib` of arrays or symbols, with an array or a symbol."""
    if request.param == "nd":
        return contrib, nd.ones(1)
    return mx.sym.contrib, mx.sym.var("x")


@pytest.mark.parametrize(
    "limit", [None, -1, float("nan"), float("inf"), 2**63, "5", [5], nd.ones(2)]
)
def test_a_limit_of_steps_is_a_number(interface, limit):
    functions, x = interface
    with pytest.raises(ValueError, match="invalid max_iterations .*: expected a number of"):
        functions.while_loop(lambda i: i < 3, lambda i: (i, i + 1), x, max_iterations=limit)


@pytest.mark.parametrize("limit", [2, 2.5, np.int64(2), nd.array([2])])
def test_a_limit_of_steps_is_any_number(interface, limit):
    functions, x = interface
    out, _ = functions.while_loop(lambda i: i < 9, lambda i: (i, i + 1), x, max_iterations=limit)
    if functions is not contrib:
        out = out.eval(x=nd.ones(1))[0]
    assert out.asnumpy().tolist() == [[1], [2]]


@pytest.mark.parametrize("pred", ["a", "", None, [], [1], object()])
def test_a_condition_is_an_array_or_a_number(pred):
    text = "invalid condition .*: expected an array of one element, or a number"
    with pytest.raises(TypeError, match=text):
        contrib.cond(pred, list, list)
    with pytest.raises(TypeError, match=text):
        contrib.while_loop(lambda i: pred, lambda i: (i, i), nd.ones(1), max_iterations=2)
    with pytest.raises(TypeError, match="invalid pred .*: expected a Symbol or a function"):
        mx.sym.contrib.cond(pred, list, list)


@pytest.mark.parametrize("pred", [True, 1, np.float32(1), np.array([1]), nd.ones(1), np.bool_(1)])
def test_a_condition_is_any_number(pred):
    assert contrib.cond(pred, lambda: "then", lambda: "else") == "then"


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda f, x: f.foreach(3, x, []), "body 3"),
        (lambda f, x: f.while_loop(3, list, x, max_iterations=2), "cond 3"),
        (lambda f, x: f.while_loop(list, 3, x, max_iterations=2), "func 3"),
        (lambda f, x: f.cond(x, 3, list), "then_func 3"),
        (lambda f, x: f.cond(x, list, 3), "else_func 3"),
    ],
)
def test_what_is_called_is_a_function(interface, call, what):
    with pytest.raises(TypeError, match=f"invalid {what}: expected a function"):
        call(*interface)


def test_boolean_mask_and_its_gradient():
    x = nd.arange(6).reshape((3, 2))
    x.attach_grad()
    with mx.autograd.record():
        y = contrib.boolean_mask(x, nd.array([1, 0, 1]))
    y.backward()
    assert y.asnumpy().tolist() == [[0, 1], [4, 5]]
    assert x.grad.asnumpy().tolist() == [[1, 1], [0, 0], [1, 1]]
    assert contrib.boolean_mask(x, nd.array([0, 1]), axis=1).asnumpy().tolist() == [[1], [3], [5]]
    assert contrib.boolean_mask(x, nd.zeros(3)).shape == (0, 2)


def test_special_values():
    x = nd.array([1, np.inf, -np.inf, np.nan])
    assert contrib.isinf(x).asnumpy().tolist() == [0, 1, 1, 0]
    assert contrib.isnan(x).asnumpy().tolist() == [0, 0, 0, 1]
    assert contrib.isfinite(x).asnumpy().tolist() == [1, 0, 0, 0]
    whole = nd.array([1, 2**31 - 1], dtype="int32")
    assert contrib.isinf(whole).asnumpy().tolist() == [0, 0]
    assert contrib.isfinite(whole).asnumpy().tolist() == [1, 1]


def test_steps_are_stacked_in_parts(monkeypatch):
    monkeypatch.setattr("rsnet.ndarray._contrib._STACKED", 3)
    data = nd.arange(1, 9).reshape((8, 1))
    data.attach_grad()
    with autograd.record():
        sums, total = nd.contrib.foreach(lambda x, s: (x + s, x + s), data, nd.zeros((1,)))
    sums.backward()
    assert sums.asnumpy().ravel().tolist() == np.cumsum(np.arange(1, 9)).tolist()
    assert data.grad.asnumpy().ravel().tolist() == [8, 7, 6, 5, 4, 3, 2, 1]
    assert total.asscalar() == 36


def test_missing_steps_cost_one_block_of_zeros():
    rows, _ = nd.contrib.while_loop(
        lambda i: i < 2, lambda i: (i, [i + 1]), [nd.zeros(1)], max_iterations=100_000
    )
    assert rows.shape == (100_000, 1)
    assert rows[:4].asnumpy().ravel().tolist() == [0, 1, 0, 0]

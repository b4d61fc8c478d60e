"""rsnet.engine: its functions say which argument is wrong, and why."""

from functools import partial

import pytest

import rsnet as mx
from rsnet import engine

PUSHES = [engine.push_sync, engine.push_async, engine.new_operator]


def test_bad_arguments():
    v = engine.new_variable()
    with pytest.raises(TypeError, match="variable"):
        engine.push_sync(None, mutate_vars=[1])
    with pytest.raises(TypeError, match="callable"):
        engine.push_sync(3, mutate_vars=[v])
    with pytest.raises(ValueError, match="prop"):
        engine.push_sync(None, mutate_vars=[v], prop="quick")
    with pytest.raises(ValueError):
        engine.set_num_threads(0)


@pytest.mark.parametrize("n", [0, -1, -(2**62)])
def test_numbers_of_threads_are_checked(n):
    before = engine.num_threads()
    match = f"invalid number of threads {n}: expected a number of at least 1"
    with pytest.raises(ValueError, match=match):
        engine.set_num_threads(n)
    assert engine.num_threads() == before
    if n:
        with pytest.raises(ValueError, match=f"invalid size {n}: expected a number of at least 0"):
            engine.set_bulk_size(n)


def test_an_operation_of_too_many_variables_is_refused():
    vs = [engine.new_variable() for _ in range(65_536)]
    with pytest.raises(
        mx.MXNetError, match="'many': invalid number of variables 65536: expected at most 65535"
    ):
        engine.push_sync(lambda rc: None, const_vars=vs, name="many")
    done = []
    engine.push_sync(lambda rc: done.append(1), const_vars=vs[1:])
    engine.wait_for_all()
    assert done == [1]


@pytest.mark.parametrize("push", [engine.push_sync, engine.push_async])
def test_a_text_is_no_context(push):
    with pytest.raises(TypeError, match="invalid ctx 'cpu': expected a Context"):
        push(lambda *_: None, "cpu", [], [])


def test_variables_may_come_from_a_generator():
    """Nobody else keeps these alive."""
    log = []
    op = engine.new_operator(
        lambda rc: log.append("again"),
        (engine.new_variable() for _ in range(2)),
        iter([engine.new_variable()]),
    )
    for _ in range(2):
        engine.push(op)
    fresh = (engine.new_variable() for _ in range(2))
    engine.push_sync(lambda rc: log.append("once"), mutate_vars=fresh)
    engine.push_async(lambda rc, done: done(), const_vars=iter({engine.new_variable(): 0}))
    engine.wait_for_all()
    assert sorted(log) == ["again", "again", "once"]


@pytest.mark.parametrize("argument", ["const_vars", "mutate_vars"])
def test_a_variable_instead_of_a_list_is_named(argument):
    pushes = (engine.push_sync, engine.push_async, engine.new_operator)
    for push in pushes:
        with pytest.raises(
            TypeError, match=f"invalid {argument} .*: expected a list of engine variables"
        ):
            push(lambda *args: None, **{argument: engine.new_variable()})
        with pytest.raises(
            TypeError, match=f"invalid item of {argument} 3: expected an engine variable"
        ):
            push(lambda *args: None, **{argument: [3]})


class Broken:
    def __init__(self, error):
        self.error = error

    def __iter__(self):
        raise self.error


@pytest.mark.parametrize("error", [KeyError("mine"), TypeError("mine"), StopIteration("mine")])
def test_what_an_iterable_raises_is_raised(error):
    for push in PUSHES:
        for argument in ("const_vars", "mutate_vars"):
            with pytest.raises(type(error), match="mine") as raised:
                push(lambda *args: None, **{argument: Broken(error)})
            assert raised.value is error


def test_a_list_in_the_place_of_the_context_is_told_shortly():
    variables = [engine.new_variable() for _ in range(5000)]
    for push in (engine.push_sync, engine.push_async):
        with pytest.raises(
            TypeError, match="invalid ctx .*Variable.*: expected a Context.*const_vars"
        ) as raised:
            push(lambda *args: None, variables)
        assert len(str(raised.value)) < 300
    op = engine.new_operator(None)
    with pytest.raises(TypeError, match="invalid ctx 3: expected a Context.*None$"):
        engine.push(op, 3)


@pytest.mark.parametrize("priority", [10**12, -(2**31) - 1, 2**31])
def test_a_priority_out_of_range_is_a_value_error(priority):
    op = engine.new_operator(None)
    for push, what in [(engine.push_sync, None), (engine.push_async, print), (engine.push, op)]:
        with pytest.raises(
            ValueError,
            match=f"invalid priority {priority}: expected a number from -2147483648 to 2147483647",
        ):
            push(what, priority=priority)
    with pytest.raises(TypeError, match="priority"):
        engine.push_sync(None, priority="high")


@pytest.mark.parametrize(
    ("argument", "value"), [("priority", 1.5), ("priority", None), ("name", 5), ("prop", 5)]
)
def test_arguments_of_other_types_are_named(argument, value):
    for push in (engine.push_sync, engine.push_async):
        with pytest.raises(TypeError, match=f"invalid {argument} {value}: expected a"):
            push(print, **{argument: value})
    if argument != "priority":
        with pytest.raises(TypeError, match=f"invalid {argument} {value}: expected a"):
            engine.new_operator(print, **{argument: value})


def test_the_ends_of_the_range_of_priorities():
    for priority in (-(2**31), 2**31 - 1):
        engine.push_sync(None, priority=priority)
    engine.wait_for_all()


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), -1, 1e20])
def test_a_limit_out_of_range_is_a_value_error(seconds):
    with pytest.raises(
        ValueError, match="invalid seconds .*: expected a number from 0 to 1e19, or None"
    ):
        engine.set_wait_timeout(seconds)


def test_a_limit_that_is_no_number_is_a_type_error():
    with pytest.raises(TypeError, match="invalid seconds 'a': expected a number, or None"):
        engine.set_wait_timeout("a")


async def of_async(*args):
    pass


def of_generator(*args):
    yield


async def of_both(*args):
    yield


class Holder:
    async def method(self, *args):
        pass


class Answering:
    async def __call__(self, *args):
        pass


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (of_async, "an async function"),
        (Holder().method, "an async function"),
        (Answering(), "an async function"),
        (partial(of_async, 1), "an async function"),
        (partial(Holder().method, 1), "an async function"),
        (partial(Answering(), 1), "an async function"),
        (of_generator, "a generator"),
        (of_both, "an async generator"),
    ],
)
def test_a_function_whose_call_runs_nothing_is_refused(function, kind):
    takers = [*PUSHES, engine.set_hook, lambda f: engine.delete_variable(engine.new_variable(), f)]
    for take in takers:
        with pytest.raises(
            TypeError,
            match=f"invalid fn .*: expected a function whose call does the work, not {kind}",
        ):
            take(function)


def test_a_function_is_judged_by_the_code_that_it_has_now():
    def function(*args):
        pass

    engine.push_sync(function)
    engine.wait_for_all()
    function.__code__ = of_async.__code__
    with pytest.raises(TypeError, match="does the work, not an async function"):
        engine.push_sync(function)


class Counting:
    """Called in all the ways that run something."""

    def __init__(self, *args):
        self.calls = [args]

    def __call__(self, *args):
        self.calls.append(args)

    def method(self, *args):
        self.calls.append(args)


def test_whatever_else_is_callable_is_called():
    one, calls = Counting(), []
    append = one.calls.append
    for function in [one, one.method, partial(one), partial(one.method), append, Counting]:
        engine.push_sync(function)
        engine.wait_for_all()
        calls.append(len(one.calls))
    assert calls == [2, 3, 4, 5, 6, 6]


def test_a_partial_function_of_itself_is_looked_at_once():
    endless = partial(print)
    endless.__setstate__((endless, (), {}, {}))
    engine.new_operator(endless)  # whoever calls it is lost


def test_what_is_no_function_is_refused():
    v = engine.new_variable()
    for take in [*PUSHES, engine.set_hook, lambda f: engine.delete_variable(v, f)]:
        with pytest.raises(TypeError, match="invalid fn 5: expected a callable"):
            take(5)
    engine.push_sync(None, mutate_vars=[v])  # the variable is still there


def test_deleted_variables_are_refused_by_all():
    v = engine.new_variable()
    engine.delete_variable(v)
    for push in PUSHES:
        for argument in ("const_vars", "mutate_vars"):
            with pytest.raises(ValueError, match="variable .* is deleted"):
                push(lambda *args: None, **{argument: [v]})
    for use in (engine.wait_for_var, engine.delete_variable):
        with pytest.raises(ValueError, match="variable .* is deleted"):
            use(v)
    with pytest.raises(ValueError, match="variable .* is deleted"):
        engine.delete_variable(v, lambda: None)

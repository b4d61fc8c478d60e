"""rsnet.engine: which of the functions that are ready goes first.

Who has the interpreter keeps it here until it waits. So no function begins before all are pushed,
they begin one after the other, and what they log is the order in which they were taken.
"""

import contextlib
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsnet import engine

ORDINARY = [0] * 100


@contextlib.contextmanager
def held():
    """The calling thread has the interpreter to itself, and waits for everything at the end."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        yield
        engine.wait_for_all()
    finally:
        sys.setswitchinterval(interval)


def begun(priorities, **how):
    """The priorities, pushed in this order, in the order in which their functions begin."""
    log = []
    with held():
        for p in priorities:
            engine.push_sync(lambda rc, p=p: log.append(p), priority=p, **how)
    return log


def test_greater_priorities_begin_first_and_those_below_zero_last():
    assert begun([-5, *ORDINARY, 5, -1, 10, 0]) == [10, 5, *ORDINARY, 0, -1, -5]


def test_the_ends_of_the_range():
    least, most = -(2**31), 2**31 - 1
    assert begun([least, -1, 0, 1, most]) == [most, 1, 0, -1, least]


@given(st.lists(st.integers(-3, 3), max_size=30))
def test_equals_begin_in_the_order_of_their_pushes(priorities):
    log = []
    with held():
        for i, p in enumerate(priorities):
            engine.push_sync(lambda rc, i=i: log.append(i), priority=p)
    assert log == sorted(range(len(priorities)), key=lambda i: -priorities[i])


@pytest.mark.parametrize("between", [False, True])
def test_functions_that_become_ready_together(between):
    gate, start, log = engine.new_variable(), engine.new_variable(), []
    with held():
        engine.push_sync(lambda rc: log.append("gate"), mutate_vars=[gate])
        if between:
            engine.push_sync(None, const_vars=[gate], mutate_vars=[start])
        reads = [start if between else gate]
        for p in [-5, *ORDINARY, 5, -1, 10]:
            engine.push_sync(lambda rc, p=p: log.append(p), const_vars=reads, priority=p)
    assert log == ["gate", 10, 5, *ORDINARY, -1, -5]


def test_functions_made_ready_by_the_token_of_another_thread():
    gate, tokens, log = engine.new_variable(), [], []
    engine.push_async(lambda rc, on_complete: tokens.append(on_complete), mutate_vars=[gate])
    for p in [-5, *ORDINARY, 5]:
        engine.push_sync(lambda rc, p=p: log.append(p), const_vars=[gate], priority=p)
    while not tokens:
        time.sleep(0.001)
    with held():
        tokens[0]()
    assert log == [5, *ORDINARY, -5]


def test_what_is_ready_later_overtakes_what_has_not_begun():
    gate, log = engine.new_variable(), []
    with held():
        engine.push_sync(lambda rc: log.append("gate"), mutate_vars=[gate])
        for _ in ORDINARY:
            engine.push_sync(lambda rc: log.append(0))
        engine.push_sync(lambda rc: log.append(-1), priority=-1)
        engine.push_sync(lambda rc: log.append(1), const_vars=[gate], priority=1)
        engine.push_sync(lambda rc: log.append(0), const_vars=[gate])
    assert log == ["gate", 1, *ORDINARY, 0, -1]


def test_what_runs_is_not_overtaken():
    log = []

    def outer(rc):
        engine.push_sync(lambda rc: log.append("urgent"), priority=1)
        log.append("outer")

    with held():
        engine.push_sync(outer)
        engine.push_sync(lambda rc: log.append("ordinary"))
    assert log == ["outer", "urgent", "ordinary"]


@pytest.mark.parametrize("prop", ["cpu_prioritized", "gpu_prioritized", "delete_var"])
def test_a_prioritized_property_goes_before_ordinary_functions(prop):
    log = []
    with held():
        engine.push_sync(lambda rc: log.append(0))
        engine.push_sync(lambda rc: log.append("below"), prop=prop, priority=-1)
        engine.push_sync(lambda rc: log.append("by prop"), prop=prop)
        engine.push_sync(lambda rc: log.append(1), priority=1)
        engine.push_sync(lambda rc: log.append("both"), prop=prop, priority=2)
    assert log == ["both", 1, "by prop", "below", 0]


@pytest.mark.parametrize("prop", ["async", "no_skip", "copy_from_gpu"])
def test_other_properties_have_priorities(prop):
    assert begun([-1, 0, 0, 2], prop=prop) == [2, 0, 0, -1]


@pytest.mark.parametrize(
    "writes", [0, 1]
)  # runs of an operation that writes borrow it, others share it
def test_priorities_of_ready_made_operations(writes):
    log, priorities = [], [-1, 0, 0, 3, 5]
    made = [
        engine.new_operator(
            lambda rc, p=p: log.append(p), [], [engine.new_variable() for _ in range(writes)]
        )
        for p in priorities
    ]
    with held():
        for op, p in zip(made, priorities, strict=True):
            engine.push(op, priority=p)
    assert log == [5, 3, 0, 0, -1]


def test_each_push_of_a_ready_made_operation_has_its_own_priority():
    log = []
    op = engine.new_operator(lambda rc: log.append("op"), [], [])
    with held():
        engine.push_sync(lambda rc: log.append(0))
        engine.push(op, priority=-1)
        engine.push(op, priority=1)
        engine.push(op)
    assert log == ["op", 0, "op", "op"]


def test_priorities_of_functions_that_end_by_their_token():
    log = []

    def begin(p):
        def function(rc, on_complete):
            log.append(p)
            on_complete()

        return function

    with held():
        for p in [-1, 0, 0, 2, 1]:
            engine.push_async(begin(p), priority=p)
    assert log == [2, 1, 0, 0, -1]


def test_a_priority_in_a_bulk():
    log = []
    with held(), engine.bulk(10):
        for text in ["one", "two"]:
            engine.push_sync(lambda rc, text=text: log.append(text))
        engine.push_sync(lambda rc: log.append("later"), priority=-1)
        engine.push_sync(lambda rc: log.append("urgent"), priority=1)
        engine.push_sync(lambda rc: log.append("three"))
    # (The second function of a bulk is ready when the first is done.)
    assert log[0] == "urgent" and log[-1] == "later"
    assert sorted(log[1:-1]) == ["one", "three", "two"]

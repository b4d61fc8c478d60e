"""Bulks: functions that are pushed as one operation."""

import threading

import pytest
from engines import quiet  # noqa: F401

from rsnet import engine


def test_a_bulk_of_too_many_variables_becomes_several():
    done, vs = [], [engine.new_variable() for _ in range(70_000)]
    with engine.bulk(70_000):
        for i, v in enumerate(vs):
            engine.push_sync(lambda rc, i=i: done.append(i), mutate_vars=[v])
    engine.wait_for_all()
    assert sorted(done) == list(range(70_000))  # the two share nothing


def test_bulk_size_is_restored():
    before = engine.set_bulk_size(0)
    with engine.bulk(10):
        assert engine.set_bulk_size(10) == 10
    assert engine.set_bulk_size(before) == 0


def in_another_thread(f):
    """Calls `f` in a thread of its own, which has no bulk."""
    thread = threading.Thread(target=f)
    thread.start()
    thread.join()


def test_bulk_pushes_several_functions_as_one_operation():
    log, v = [], engine.new_variable()
    with engine.bulk(4):
        for i in range(10):
            engine.push_sync(lambda rc, i=i: log.append(i), mutate_vars=[v])
        in_another_thread(engine.wait_for_all)
        assert log == list(range(8)) and v.version == 2
    engine.wait_for_var(v)
    assert log == list(range(10)) and v.version == 3


def test_a_wait_flushes_the_bulk_of_its_thread():
    log, v = [], engine.new_variable()
    with engine.bulk(100):
        engine.push_sync(lambda rc: log.append(1), mutate_vars=[v])
        engine.wait_for_var(v)
        assert log == [1]
        engine.push_sync(lambda rc: log.append(2), mutate_vars=[v])
        engine.push_sync(lambda rc: log.append(3), mutate_vars=[v], priority=1)
        in_another_thread(engine.wait_for_all)
        assert log == [1, 2, 3]


def test_a_failure_in_a_bulk_names_the_function_and_stops_the_rest():
    ran, v, w = [], engine.new_variable(), engine.new_variable()

    def broken(rc):
        raise KeyError("inside")

    with engine.bulk(10):
        engine.push_sync(lambda rc: ran.append(1), mutate_vars=[v])
        engine.push_sync(broken, mutate_vars=[w])
        engine.push_sync(lambda rc: ran.append(2), mutate_vars=[v])
    with pytest.raises(KeyError) as caught:
        engine.wait_for_var(v)
    assert ran == [1]
    assert any("broken" in n and "test_bulk.py:" in n for n in caught.value.__notes__)
    engine.push_sync(lambda rc: ran.append(3), const_vars=[w])
    engine.wait_for_all()
    assert ran == [1, 3]  # the error was raised once, and is over


def test_waiting_for_oneself_in_a_bulk_is_an_error():
    v = engine.new_variable()
    with engine.bulk(10):
        engine.push_sync(lambda rc: None, mutate_vars=[v])
        engine.push_sync(lambda rc: engine.wait_for_var(v), mutate_vars=[v])
    with pytest.raises(ValueError, match="waits for itself"):
        engine.wait_for_var(v)

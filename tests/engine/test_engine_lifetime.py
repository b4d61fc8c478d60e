"""rsnet.engine: the last function of a variable, and `stop`."""

import gc
import threading
import time
import weakref

import pytest
from processes import printed

import rsnet as mx
from rsnet import engine

ENGINES = ["ThreadedEngine", "NaiveEngine"]


def test_delete_variable_runs_its_function_last():
    v, log, done = engine.new_variable(), [], threading.Event()
    gate = threading.Event()
    engine.push_sync(lambda rc: (gate.wait(), log.append("use")), mutate_vars=[v])
    engine.delete_variable(v, lambda: (log.append("delete"), done.set()))
    with pytest.raises(ValueError, match="deleted"):
        engine.push_sync(None, mutate_vars=[v])
    gate.set()
    assert done.wait(20)
    assert log == ["use", "delete"]


def test_stop_and_start():
    v, log = engine.new_variable(), []
    engine.push_sync(lambda rc: log.append(1), mutate_vars=[v])
    engine.stop()
    assert log == [1]
    engine.start()
    engine.push_sync(lambda rc: log.append(2), mutate_vars=[v])
    engine.wait_for_var(v)
    assert log == [1, 2]


def test_stop_inside_a_function_is_an_error():
    v, seen = engine.new_variable(), []

    def function(run):
        try:
            engine.stop()
        except mx.MXNetError as error:
            seen.append(str(error))

    engine.push_sync(function, None, [], [v])
    engine.wait_for_var(v)
    assert len(seen) == 1 and "wait for that operation itself" in seen[0]
    engine.stop()
    engine.start()


@pytest.mark.parametrize("wait", [engine.wait_for_all, engine.stop])
def test_waits_cover_the_last_function(wait):
    log = []
    for i in range(20):
        v = engine.new_variable()
        engine.push_sync(lambda rc, i=i: log.append(i), mutate_vars=[v])
        engine.delete_variable(v, lambda i=i: (time.sleep(0.002), log.append(-i)))
        wait()
        assert log[-2:] == [i, -i]


def test_the_last_function_runs_after_an_error_and_its_own_is_raised():
    v, log = engine.new_variable(), []

    def close():
        log.append("close")
        raise ConnectionError("was closed")

    engine.push_sync(lambda rc: 1 / 0, mutate_vars=[v])
    with pytest.raises(ZeroDivisionError):
        engine.wait_for_var(v)
    engine.delete_variable(v, close)
    with pytest.raises(ConnectionError, match="was closed"):
        engine.wait_for_all()
    assert log == ["close"]
    engine.wait_for_all()

    v = engine.new_variable()
    engine.push_sync(lambda rc: 1 / 0, mutate_vars=[v])
    engine.delete_variable(v, lambda: log.append("in spite"))
    with pytest.raises(ZeroDivisionError):
        engine.wait_for_all()
    assert log == ["close", "in spite"]


def test_a_report_names_the_last_function():
    gate, v = threading.Event(), engine.new_variable()

    def close_slowly():
        gate.wait(20)

    engine.set_wait_timeout(0.1)
    try:
        engine.delete_variable(v, close_slowly)
        with pytest.raises(mx.MXNetError, match="close_slowly' is running"):
            engine.wait_for_all()
    finally:
        gate.set()
        engine.set_wait_timeout(None)
    engine.wait_for_all()


@pytest.mark.process
@pytest.mark.parametrize("kind", ENGINES)
def test_the_variable_is_gone_when_its_last_function_runs(kind):
    code = """
        from rsnet import engine
        v, log = engine.new_variable(), []
        def last():
            for use in (lambda: engine.push_sync(None, mutate_vars=[v]),
                        lambda: engine.delete_variable(v)):
                try:
                    use()
                except ValueError as error:
                    log.append("is deleted" in str(error))
        def use(rc):
            engine.delete_variable(v, last)
            log.append("use")
        engine.push_sync(use, mutate_vars=[v])
        for _ in range(2):  # what it pushed, too
            engine.wait_for_all()
        print(log)
        """
    assert printed(code, MXNET_ENGINE_TYPE=kind) == "['use', True, True]"


@pytest.mark.process
def test_the_naive_engine_runs_the_last_function_in_the_call():
    code = """
        import threading
        from rsnet import engine
        v, log = engine.new_variable(), []
        def fail():
            log.append(threading.current_thread().name)
            raise KeyError("mine")
        engine.delete_variable(v, fail)
        print(log)
        try:
            engine.wait_for_all()
        except KeyError as error:
            print(error)
        """
    assert printed(code, MXNET_ENGINE_TYPE="NaiveEngine").splitlines() == [
        "['MainThread']",
        "'mine'",
    ]


def test_stop_with_a_limit_raises_the_report_and_leaves_the_engine_as_it_was():
    gate, v, log = threading.Event(), engine.new_variable(), []
    engine.push_sync(lambda rc: (gate.wait(20), log.append("done")), mutate_vars=[v], name="stuck")
    engine.set_wait_timeout(0.1)
    try:
        with pytest.raises(mx.MXNetError, match="(?s)a wait for everything .*'stuck' is running"):
            engine.stop()
    finally:
        engine.set_wait_timeout(None)
    x = mx.nd.ones((2, 2)) * 3
    assert x.asnumpy().tolist() == [[3, 3], [3, 3]]
    gate.set()
    engine.stop()
    assert log == ["done"]


def test_stop_raises_no_error_of_an_operation():
    v = engine.new_variable()
    engine.push_sync(lambda rc: 1 / 0, mutate_vars=[v])
    engine.stop()
    with pytest.raises(ZeroDivisionError):
        engine.wait_for_var(v)


class Held:
    """Something that a function holds."""


@pytest.mark.parametrize("runs", [0, 3])
def test_an_operator_whose_function_holds_it_is_collected(runs):
    def make():
        held, v = Held(), engine.new_variable()

        def function(rc):
            return held, operators

        operators = [engine.new_operator(function, [], [v])]
        for _ in range(runs):
            engine.push(operators[0])
        engine.wait_for_var(v)
        return weakref.ref(held)

    gone = make()
    assert gone() is not None
    for _ in range(100):  # a thread may still be about to let go of its last run
        gc.collect()
        if gone() is None:
            break
        time.sleep(0.05)
    assert gone() is None


def test_an_operator_with_a_push_pending_is_not_collected():
    gate, v, log = threading.Event(), engine.new_variable(), []

    def push():
        held = Held()

        def function(rc):
            log.append((type(held).__name__, len(operators)))

        operators = [engine.new_operator(function, [], [v])]
        engine.push(operators[0])

    engine.push_sync(lambda rc: gate.wait(20), mutate_vars=[v])
    push()
    gc.collect()
    gate.set()
    engine.wait_for_var(v)
    assert log == [("Held", 1)]

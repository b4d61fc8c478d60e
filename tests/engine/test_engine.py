"""rsnet.engine: order, errors, waits, callbacks.

Arguments: `test_engine_arguments.py`; priorities: `test_engine_priorities.py`; what ends variables
and threads: `test_engine_lifetime.py`; processes of their own: `test_engine_process.py`.
"""

import threading

import pytest
from engines import quiet  # noqa: F401
from hypothesis import given, settings
from hypothesis import strategies as st

import rsnet as mx
from rsnet import engine


def test_writers_run_in_push_order():
    v, log = engine.new_variable(), []
    for i in range(200):
        engine.push_sync(lambda rc, i=i: log.append(i), mutate_vars=[v])
    engine.wait_for_var(v)
    assert log == list(range(200))
    assert v.version == 200


def test_readers_run_side_by_side():
    engine.set_num_threads(2)
    v, meet = engine.new_variable(), threading.Barrier(2)
    for _ in range(2):
        engine.push_sync(lambda rc: meet.wait(20), const_vars=[v])
    engine.wait_for_all()


def test_a_push_returns_at_once():
    event = threading.Event()
    v = engine.new_variable()
    engine.push_sync(lambda rc: event.wait(), mutate_vars=[v])
    event.set()
    engine.wait_for_var(v)


def test_async_is_done_when_completed():
    v, tokens, log = engine.new_variable(), [], []
    engine.push_async(lambda rc, done: tokens.append(done), mutate_vars=[v])
    engine.push_sync(lambda rc: log.append("after"), const_vars=[v])

    def complete():
        while not tokens:
            pass
        log.append("completed")
        tokens[0]()

    thread = threading.Thread(target=complete)
    thread.start()
    engine.wait_for_all()
    thread.join()
    assert log == ["completed", "after"]
    with pytest.raises(RuntimeError, match="twice"):
        tokens[0]()


def test_async_fails_by_its_token():
    v = engine.new_variable()
    engine.push_async(lambda rc, done: done(error=KeyError("k")), mutate_vars=[v])
    with pytest.raises(KeyError):
        engine.wait_for_var(v)


def test_a_forgotten_token_is_an_error():
    v = engine.new_variable()
    engine.push_async(lambda rc, done: None, mutate_vars=[v], name="forgetful")
    with pytest.raises(Exception, match="forgetful.*without being completed"):
        engine.wait_for_var(v)


def test_the_original_exception_is_raised_once():
    v, w = engine.new_variable(), engine.new_variable()
    error = ZeroDivisionError("mine")

    def fail(rc):
        raise error

    ran = []
    engine.push_sync(fail, mutate_vars=[v], name="failing")
    engine.push_sync(lambda rc: ran.append(1), const_vars=[v], mutate_vars=[w])
    with pytest.raises(ZeroDivisionError) as caught:
        engine.wait_for_var(w)
    assert caught.value is error
    assert any("failing" in note for note in error.__notes__)
    assert "fail" in [frame.name for frame in caught.traceback]
    engine.wait_for_var(v)  # reported already
    engine.wait_for_all()
    assert not ran


def test_no_skip_runs_after_an_error():
    v, ran = engine.new_variable(), []
    engine.push_async(lambda rc, done: done(error=ValueError()), mutate_vars=[v])
    engine.push_sync(lambda rc: ran.append(1), const_vars=[v], prop="no_skip")
    with pytest.raises(ValueError):
        engine.wait_for_all()
    assert ran == [1]


def test_duplicates_are_named():
    v = engine.new_variable()
    for reads, writes, text in [
        ([v], [v], "both read"),
        ([v, v], [], "read twice"),
        ([], [v, v], "written twice"),
    ]:
        with pytest.raises(ValueError, match=text):
            engine.push_sync(None, const_vars=reads, mutate_vars=writes)
        with pytest.raises(ValueError, match=text):
            engine.new_operator(None, reads, writes)


def test_ready_made_operation():
    v, log = engine.new_variable(), []
    op = engine.new_operator(lambda rc: log.append(str(rc.ctx)), [], [v], name="append")
    for _ in range(5):
        engine.push(op)
    engine.delete_operator(op)
    engine.wait_for_var(v)
    assert log == ["cpu(0)"] * 5
    with pytest.raises(ValueError, match="deleted"):
        engine.push(op)


def test_an_operation_may_push_and_wait():
    v, w = engine.new_variable(), engine.new_variable()
    log = []

    def outer(rc):
        engine.push_sync(lambda rc: log.append("inner"), mutate_vars=[w])
        engine.wait_for_var(w)
        engine.push_sync(lambda rc: log.append("second"), mutate_vars=[w])
        engine.wait_for_all()
        log.append("outer")

    engine.push_sync(outer, mutate_vars=[v])
    engine.wait_for_all()
    assert log == ["inner", "second", "outer"]


def test_nested_callbacks_with_one_worker():
    engine.set_num_threads(1)
    depth = []

    def nest(n):
        def f(rc):
            depth.append(n)
            if n:
                v = engine.new_variable()
                engine.push_sync(nest(n - 1), mutate_vars=[v])
                engine.wait_for_var(v)

        return f

    v = engine.new_variable()
    engine.push_sync(nest(8), mutate_vars=[v])
    engine.wait_for_var(v)
    assert depth == list(range(8, -1, -1))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sets(st.integers(0, 5), max_size=3), st.sets(st.integers(0, 5), max_size=2)),
        max_size=60,
    )
)
def test_random_programs_match_sequential(program):
    def step(state, i, reads, writes):
        total = sum(state[r] for r in reads) + i
        for w in writes:
            state[w] = (state[w] * 31 + total) % 1000003

    expected, got = [0] * 6, [0] * 6
    variables = [engine.new_variable() for _ in range(6)]
    for i, (reads, writes) in enumerate(program):
        reads = reads - writes
        step(expected, i, reads, writes)
        engine.push_sync(
            lambda rc, i=i, r=reads, w=writes: step(got, i, r, w),
            const_vars=[variables[r] for r in reads],
            mutate_vars=[variables[w] for w in writes],
        )
    engine.wait_for_all()
    assert got == expected


def test_waiting_for_oneself_is_an_error():
    v, w = engine.new_variable(), engine.new_variable()

    def own(rc):
        engine.wait_for_var(v)

    engine.push_sync(own, mutate_vars=[v], name="own")
    with pytest.raises(ValueError, match="'own' waits for itself"):
        engine.wait_for_var(v)

    def indirect(rc):
        engine.push_sync(None, const_vars=[v], mutate_vars=[w])
        engine.wait_for_var(w)

    v = engine.new_variable()
    engine.push_sync(indirect, mutate_vars=[v])
    with pytest.raises(ValueError, match="waits for itself"):
        engine.wait_for_var(v)


def test_hang_detector_names_operation_and_line():
    v, gate = engine.new_variable(), threading.Event()
    engine.set_wait_timeout(0.1)
    engine.push_sync(lambda rc: gate.wait(), mutate_vars=[v], name="stuck")
    try:
        with pytest.raises(Exception, match=r"variable \d+ .*\n.*'stuck'.*test_engine\.py:\d+"):
            engine.wait_for_var(v)
    finally:
        gate.set()


def test_hang_detector_names_all_that_is_waited_for_and_nothing_else():
    u, v, w, gate = (*(engine.new_variable() for _ in range(3)), threading.Event())
    engine.set_wait_timeout(0.1)
    other = threading.Event()
    engine.push_sync(lambda rc: other.wait(20), mutate_vars=[engine.new_variable()], name="aside")
    engine.push_sync(lambda rc: gate.wait(20), mutate_vars=[u], name="first")
    engine.push_sync(lambda rc: None, const_vars=[u], mutate_vars=[v], name="second")
    engine.push_sync(lambda rc: None, const_vars=[v], mutate_vars=[w], name="third")
    try:
        with pytest.raises(Exception, match="has not ended within 0.1 s") as caught:
            engine.wait_for_var(w)
        lines = [line.strip() for line in str(caught.value).splitlines()[1:]]
        assert [line.split(",")[0] for line in lines] == [
            "operation 'first' is running",
            "operation 'second' waits for others",
            "operation 'third' waits for others",
        ]
        assert all("test_engine.py:" in line for line in lines)
        with pytest.raises(Exception, match="a wait for everything") as caught:
            engine.wait_for_all()
        assert "'aside' is running" in str(caught.value)
    finally:
        gate.set()
        other.set()


def test_wait_for_all_beside_an_endless_pusher():
    stop, v = threading.Event(), engine.new_variable()

    def forever():
        while not stop.is_set():
            engine.push_sync(None, mutate_vars=[v])

    thread = threading.Thread(target=forever)
    thread.start()
    log, w = [], engine.new_variable()
    engine.push_sync(lambda rc: log.append(1), mutate_vars=[w])
    engine.wait_for_all()
    stop.set()
    thread.join()
    assert log == [1]


def test_hook_sees_the_life_of_an_operation():
    seen, v = [], engine.new_variable()
    engine.set_hook(lambda event, id, name, ctx, time_ns: seen.append((name, event)))
    engine.push_sync(lambda rc: None, mutate_vars=[v], name="seen")
    engine.wait_for_var(v)
    engine.set_hook(None)
    told = threading.Event()
    engine.push_sync(lambda rc: told.set())
    assert told.wait(20)
    while len(seen) < 3:
        pass
    assert [e for n, e in seen if n == "seen"] == ["queued", "started", "finished"]


def test_many_functions_use_few_threads():
    before = threading.active_count()
    count = []
    for _ in range(3000):
        engine.push_sync(lambda rc: count.append(1))
    engine.wait_for_all()
    assert len(count) == 3000
    assert threading.active_count() - before < 50


def test_an_operation_that_is_complete_may_wait_for_anything():
    """Its function goes on after it has called its token; its place in the engine is another's by
    then.
    """
    gate, ended, said = threading.Event(), threading.Event(), []
    v, z = engine.new_variable(), engine.new_variable()

    def fn(rc, on_complete):
        try:
            on_complete()
            engine.push_sync(lambda rc: gate.wait(20), mutate_vars=[z])
            for _ in range(5000):
                engine.push_sync(None, mutate_vars=[z])
            threading.Timer(0.2, gate.set).start()
            engine.wait_for_var(z)
            said.append(z.version)
        except Exception as e:
            said.append(e)
        finally:
            gate.set()
            ended.set()

    engine.push_async(fn, mutate_vars=[v])
    assert ended.wait(60)
    assert said == [5001]


def test_a_failure_names_the_line_of_its_push():
    def fails(rc):
        raise ZeroDivisionError

    def plain(v):
        engine.push_sync(fails, mutate_vars=[v])

    def ready_made(v):
        engine.push(engine.new_operator(fails, [], [v]))

    for push in [plain, ready_made]:
        v = engine.new_variable()
        push(v)
        with pytest.raises(ZeroDivisionError) as caught:
            engine.wait_for_var(v)
        assert any("fails" in n and "test_engine.py:" in n for n in caught.value.__notes__)


def test_a_ready_made_operation_lives_until_its_runs_are_done():
    gate, log, v = threading.Event(), [], engine.new_variable()

    def wait_and_log(rc):
        gate.wait(20)
        log.append(1)

    op = engine.new_operator(wait_and_log, [], [v])
    for _ in range(3):
        engine.push(op)
    del op, wait_and_log
    gate.set()
    engine.wait_for_var(v)
    assert log == [1, 1, 1] and v.version == 3


def test_a_chain_of_functions_needs_no_deep_stack():
    v, log = engine.new_variable(), []
    gate = threading.Event()
    engine.push_sync(lambda rc: gate.wait(20), mutate_vars=[v])
    for i in range(20000):
        engine.push_sync(None, mutate_vars=[v])
        if i % 1000 == 0:
            engine.push_sync(lambda rc, i=i: log.append(i), mutate_vars=[v])
    gate.set()
    engine.wait_for_var(v)
    assert log == list(range(0, 20000, 1000))


def test_an_absent_device_is_refused():
    from rsnet.context import Context

    v, ran = engine.new_variable(), []
    ctx = Context("gpu", 0)
    for prop in ["normal", "copy_from_gpu", "copy_to_gpu", "gpu_prioritized"]:
        with pytest.raises(RuntimeError, match=r"gpu\(0\) is not available"):
            engine.push_sync(lambda rc: ran.append(1), ctx, mutate_vars=[v], prop=prop)
    with pytest.raises(RuntimeError, match=r"gpu\(0\) is not available"):
        engine.push(engine.new_operator(None, [], [v]), ctx)
    engine.wait_for_var(v)
    assert v.version == 0 and not ran


@pytest.mark.parametrize(
    "prop",
    ["normal", "copy_from_gpu", "copy_to_gpu", "cpu_prioritized", "async", "no_skip", "delete_var"],
)
def test_properties_keep_the_order_and_show_the_device(prop):
    from rsnet.context import Context

    v, log = engine.new_variable(), []
    for i in range(20):
        ctx = Context("cpu", i % 3)
        run = lambda rc, i=i: log.append((i, str(rc.ctx), rc.stream))  # noqa: E731
        engine.push_sync(run, ctx, mutate_vars=[v], prop=prop)
    engine.wait_for_var(v)
    assert log == [(i, f"cpu({i % 3})", None) for i in range(20)]


def test_a_variable_is_well_again_once_its_error_is_raised():
    """Behind an engine variable there are no bytes that could be bad."""

    def fail(context):
        raise KeyError("first")

    ran = []
    a, b = engine.new_variable(), engine.new_variable()
    engine.push_sync(fail, mx.cpu(), [], [a])
    engine.push_sync(lambda context: ran.append("skipped"), mx.cpu(), [a], [b])
    with pytest.raises(KeyError, match="first"):
        engine.wait_for_var(b)
    assert ran == []
    # The chain has one error, and it has been raised.
    engine.wait_for_var(a)
    engine.push_sync(lambda context: ran.append("runs"), mx.cpu(), [a], [b])
    engine.wait_for_var(b)
    assert ran == ["runs"]
    engine.push_sync(fail, mx.cpu(), [], [a])
    with pytest.raises(KeyError, match="first"):
        engine.wait_for_var(a)

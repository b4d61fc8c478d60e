"""Failures, signals and events of operations are reported once, to the call that they concern."""

import re
import threading

import pytest
from processes import printed, run

import rsnet as mx
from rsnet import engine

pytestmark = pytest.mark.process

CUSTOM = """
    import os, signal, threading, time
    import rsnet as mx
    from rsnet import engine

    def custom(name, function):
        class Op(mx.operator.CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux):
                self.assign(out_data[0], req[0], function(in_data[0]))

            def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
                self.assign(in_grad[0], req[0], function(out_grad[0]))

        class Property(mx.operator.CustomOpProp):
            def create_operator(self, *args):
                return Op()

        mx.operator.register(name)(Property)

    def waits(x):
        begun.set()
        time.sleep(1)

    begun = threading.Event()

    def when_it_waits(do):
        def watch():
            begun.wait()
            do()
        threading.Thread(target=watch, daemon=True).start()
    """


def custom_program(code):
    return CUSTOM + code


@pytest.mark.parametrize("kind", ["ThreadedEngine", "NaiveEngine"])
@pytest.mark.parametrize("call", ["tape", "backward", "graph"])
def test_ctrl_c_leaves_the_call_that_runs_a_callback(kind, call):
    code = custom_program(
        """
    custom("waits", lambda x: waits(x) if pause == "now" else x * 2)
    pause = "now"
    weight, other = mx.nd.ones(3), mx.nd.ones(3)
    when_it_waits(lambda: os.kill(os.getpid(), signal.SIGINT))
    try:
        if CALL == "tape":
            mx.nd.Custom(weight, op_type="waits")
        elif CALL == "backward":
            weight.attach_grad()
            pause = "later"
            with mx.autograd.record():
                y = mx.nd.Custom(weight, op_type="waits")
            pause = "now"
            y.backward()
        else:
            net = mx.sym.Custom(mx.sym.Variable("x"), op_type="waits")
            net.bind(mx.cpu(), {"x": weight}).forward()[0].asnumpy()
        print("nothing was raised")
    except KeyboardInterrupt:
        print("interrupted")
    mx.nd.waitall()
    print(weight.asnumpy().tolist(), (weight + other).asnumpy().tolist())
    """
    ).replace("CALL", repr(call))
    expected = "interrupted\n[1.0, 1.0, 1.0] [2.0, 2.0, 2.0]"
    assert printed(code, MXNET_ENGINE_TYPE=kind) == expected


def test_what_a_signal_handler_raises_leaves_the_call_and_the_result_says_so():
    code = custom_program(
        """
    custom("waits", waits)

    def alarm(*args):
        raise TimeoutError("too late")

    signal.signal(signal.SIGALRM, alarm)
    out = mx.nd.zeros(3)
    when_it_waits(lambda: os.kill(os.getpid(), signal.SIGALRM))
    try:
        mx.nd.Custom(mx.nd.ones(3), op_type="waits", out=out)
        print("nothing was raised")
    except TimeoutError as error:
        print(error)
    mx.nd.waitall()
    try:
        out.asnumpy()
    except mx.MXNetError as error:
        print("never computed" in str(error), "too late" in str(error), "Custom" in str(error))
    out[:] = 1
    print(out.asnumpy().tolist())
    """
    )
    assert printed(code) == "too late\nTrue True True\n[1.0, 1.0, 1.0]"


def test_a_loop_of_callbacks_can_be_stopped():
    code = custom_program(
        """
    def stops(x):
        begun.set()
        time.sleep(0.01)
        return x

    custom("stops", stops)
    when_it_waits(lambda: os.kill(os.getpid(), signal.SIGINT))
    x = mx.nd.ones(3)
    try:
        while True:
            mx.nd.Custom(x, op_type="stops")
    except KeyboardInterrupt:
        print("stopped")
    """
    )
    assert printed(code) == "stopped"


def test_what_an_operator_itself_raises_is_raised_by_the_wait():
    code = custom_program(
        """
    def raises(x):
        raise TimeoutError("its own")

    custom("raises", raises)
    y = mx.nd.Custom(mx.nd.ones(3), op_type="raises")
    try:
        y.wait_to_read()
    except TimeoutError as error:
        print(error)
    """
    )
    assert printed(code) == "its own"


@pytest.mark.parametrize("kind", ["ThreadedEngine", "NaiveEngine"])
@pytest.mark.parametrize(
    "inner", ["mx.nd.take(x, far, mode='raise')", "mx.nd.Custom(x, op_type='fails')"]
)
@pytest.mark.parametrize("wait", ["y.wait_to_read", "mx.nd.waitall"])
def test_an_error_that_passes_through_a_callback_is_raised_once(kind, inner, wait):
    code = custom_program(
        f"""
    def fails(x):
        raise IndexError("inner")

    custom("fails", fails)
    custom("passes", lambda x: {inner} + 1)
    x, far = mx.nd.ones(3), mx.nd.array([1e9])
    y = mx.nd.Custom(x, op_type="passes")
    for wait in ({wait}, y.wait_to_read, mx.nd.waitall):
        try:
            wait()
            print("fine")
        except IndexError:
            print("raised")
    """
    )
    assert printed(code, MXNET_ENGINE_TYPE=kind).split() == ["raised", "fine", "fine"]


def test_an_error_that_nobody_waited_for_is_printed_at_exit():
    code = """
        import threading
        from rsnet import engine
        def bad(rc): raise ValueError("never told")
        v, w, done = engine.new_variable(), engine.new_variable(), threading.Event()
        engine.push_sync(bad, mutate_vars=[v])
        engine.push_sync(lambda rc: done.set(), mutate_vars=[w])
        done.wait()
        engine.wait_for_var(w)
        TELL
        """
    ended = run(code.replace("TELL", ""))
    assert ended.returncode == 0
    first, *_, place = ended.stderr.splitlines()
    assert first == "rsnet: an error that no wait has raised:"
    assert "\nValueError: never told\n" in ended.stderr and "in _at_exit" not in ended.stderr
    if hasattr(Exception, "add_note"):
        assert re.fullmatch(r"raised in operator bad, pushed at <string>:\d+", place)
    told = run(
        code.replace(
            "TELL", "\n        try: engine.wait_for_var(v)\n        except ValueError: pass"
        )
    )
    assert told.returncode == 0 and told.stderr == ""


@pytest.mark.parametrize(
    "last",
    [
        "return x * 2",
        "return mx.nd.dot(large, large) * 2",
        "mx.nd.dot(large, large).asnumpy()",
        "return mx.nd.Custom(x, op_type='plain')",
        "return mx.nd.Custom(x, op_type='plain').asnumpy()",
        "raise SystemExit(3)",
    ],
)
def test_what_an_exit_skips_in_a_pending_backward_is_not_told(last):
    code = custom_program(
        f"""
    def ends(x):
        if not pending:
            return x
        begun.set()
        while True:  # until the exit skips operations
            try:
                mx.nd.dot(large, large).asnumpy()
            except mx.MXNetError:
                break
        {last}

    def program():
        x = mx.nd.ones((600, 600))
        x.attach_grad()
        with mx.autograd.record():
            y = mx.nd.Custom(x, op_type="ends")
        pending.append(True)
        y.backward()

    large, pending = mx.nd.ones((600, 600)), []
    custom("ends", ends)
    custom("plain", lambda x: x + 1)
    threading.Thread(target=program, daemon=True).start()
    begun.wait()
    """
    )
    ended = run(code)
    assert ended.returncode == 0 and "Traceback" not in ended.stderr


def test_what_still_runs_is_named_at_exit():
    """(After a second or two: it never ends.)"""
    code = """
        import threading
        from rsnet import engine
        v, begun = engine.new_variable(), threading.Event()
        def run(rc):
            begun.set()
            threading.Event().wait()
        engine.push_sync(run, mutate_vars=[v], name="endless")
        engine.push_sync(lambda rc: None, mutate_vars=[v], name="skipped")
        begun.wait()
        """
    ended = run(code)
    assert ended.returncode == 0
    assert ended.stderr == "rsnet: still running at exit, and abandoned: endless\n"


def test_each_of_several_operations_pending_at_a_fork_is_told():
    code = """
        import os, threading
        from rsnet import engine
        gate, vars = threading.Event(), [engine.new_variable() for _ in range(3)]
        for i, v in enumerate(vars):
            engine.push_sync(lambda rc: gate.wait(), mutate_vars=[v], name=f"op{i}")
        child = os.fork()
        if child == 0:
            told = []
            for v in vars:
                try:
                    engine.wait_for_var(v)
                    told.append("fine")
                except Exception as error:
                    told.append(str(error))
            right = all(
                f"op{i}: pending at fork" in t and "<string>:6" in t for i, t in enumerate(told)
            )
            print(told if not right else "right", flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        gate.set()
        engine.wait_for_all()
        """
    assert printed(code) == "right"


def test_functions_that_wait_for_each_other_get_an_error():
    mine, met = [engine.new_variable(), engine.new_variable()], threading.Barrier(2)

    def waits_for(other):
        def function(rc):
            met.wait()
            engine.wait_for_var(other)

        return function

    engine.push_sync(waits_for(mine[1]), mutate_vars=[mine[0]], name="one")
    engine.push_sync(waits_for(mine[0]), mutate_vars=[mine[1]], name="other")
    with pytest.raises(ValueError, match="waits for itself: variable"):
        engine.wait_for_all()
    engine.wait_for_all()


def test_a_report_follows_the_waits_of_functions():
    held, waits, ended = engine.new_variable(), engine.new_variable(), threading.Event()
    tokens = []
    engine.push_async(lambda rc, done: tokens.append(done), mutate_vars=[held], name="holds")

    def function(rc):
        while not ended.is_set():
            try:
                engine.wait_for_var(held)
            except mx.MXNetError:
                pass  # its own report

    def report():
        with pytest.raises(mx.MXNetError) as raised:
            engine.wait_for_var(waits)
        return str(raised.value)

    engine.push_sync(function, mutate_vars=[waits], name="between")
    engine.set_wait_timeout(0.1)
    try:
        # (The function may just have given up one wait and not begun the next.)
        reports = (report() for _ in range(100))
        assert any("'between' is running" in told and "'holds'" in told for told in reports)
    finally:
        engine.set_wait_timeout(None)
        ended.set()
        while not tokens:
            pass
        tokens[0]()
        engine.wait_for_all()


def test_functions_start_with_a_fresh_thread_state_and_leave_none():
    found, v = [], engine.new_variable()

    def changes(rc):
        mx.autograd.set_recording(True)
        mx.autograd.set_training(True)
        engine.set_bulk_size(5)
        mx.cpu(3).__enter__()

    def looks(rc):
        state = (mx.autograd.is_recording(), mx.autograd.is_training())
        found.append((*state, engine.set_bulk_size(0), mx.current_context()))

    for _ in range(3):
        engine.push_sync(changes, mutate_vars=[v])
        engine.push_sync(looks, mutate_vars=[v])
    engine.wait_for_var(v)
    assert found == [(False, False, 0, mx.cpu(0))] * 3


def test_a_callback_leaves_the_bulk_of_its_caller_alone():
    class Op(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            sizes.append(engine.set_bulk_size(3))
            self.assign(out_data[0], req[0], in_data[0])

    class Property(mx.operator.CustomOpProp):
        def create_operator(self, *args):
            return Op()

    sizes = []
    mx.operator.register("sets_the_bulk_size")(Property)
    with engine.bulk(7):
        mx.nd.Custom(mx.nd.ones(2), op_type="sets_the_bulk_size").wait_to_read()
        assert engine.set_bulk_size(7) == 7
    assert sizes == [0]


def test_the_hook_is_told_of_short_operations():
    events, ended, v = [], threading.Event(), engine.new_variable()

    def hook(event, id, name, ctx, time_ns):
        events.append((event, name))
        if (event, name) == ("finished", "last"):
            ended.set()

    x = mx.nd.ones(3)
    engine.set_hook(hook)
    try:
        y = x + 1
        y *= 3
        mx.nd.dot(x, y).wait_to_read()
        engine.push_sync(lambda rc: None, mutate_vars=[v], name="last")
        engine.wait_for_var(v)
        assert ended.wait(30)
    finally:
        engine.set_hook(None)
    told = [name for event, name in events if event == "finished"]
    assert told == ["_plus_scalar", "_mul_scalar", "dot", "last"]


RAISES = """
    import rsnet as mx
    from rsnet import engine
    SET
    x, v = mx.nd.ones(3), engine.new_variable()
    def bad(rc): raise KeyError("bad")
    for push in (
        lambda: mx.nd.take(x, mx.nd.array([9]), mode="raise"),
        lambda: engine.push_sync(bad, mutate_vars=[v]),
        lambda: mx.nd.take(x, mx.nd.array([9, 9, 9]), mode="raise", out=x),
        lambda: x + 1,
    ):
        try:
            push()
            print("returned")
        except (IndexError, KeyError) as error:
            print(type(error).__name__)
    mx.nd.waitall()
    engine.push_sync(lambda rc: print("runs"), mutate_vars=[v])
    try:
        x.asnumpy()
    except IndexError:
        print("still not computed")
    x[:] = 1
    print(x.asnumpy().tolist())
    """


@pytest.mark.parametrize("by", ["call", "environment"])
def test_pushes_of_the_naive_engine_raise_if_they_are_asked_to(by):
    setting = {"RSNET_RAISE_IN_PUSH": "1"} if by == "environment" else {}
    code = RAISES.replace(
        "SET", "assert engine.set_raise_in_push(True) is False" if by == "call" else ""
    )
    assert printed(code, MXNET_ENGINE_TYPE="NaiveEngine", **setting).split("\n") == [
        "MXIndexError",
        "KeyError",
        "MXIndexError",
        "MXIndexError",
        "runs",
        "still not computed",
        "[1.0, 1.0, 1.0]",
    ]


def test_only_the_naive_engine_can_raise_in_the_push():
    with pytest.raises(ValueError, match="inside their pushes: expected MXNET_ENGINE_TYPE=Naive"):
        engine.set_raise_in_push(True)


def test_the_naive_engines_wait_for_a_token_has_a_limit():
    code = """
        from rsnet import engine
        engine.set_wait_timeout(0.2)
        kept, v = [], engine.new_variable()
        try:
            engine.push_async(lambda rc, done: kept.append(done), mutate_vars=[v], name="never")
        except Exception as error:
            print(error)
        """
    told = printed(code, MXNET_ENGINE_TYPE="NaiveEngine")
    assert told.startswith("never: the operation was not completed within 0.2 s")
    assert "<string>:6" in told

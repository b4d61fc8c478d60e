"""rsnet.engine in processes of their own: environment, the naive engine, fork, exit, Ctrl-C."""

import importlib.util
import os
import textwrap
import time

import pytest
from processes import printed, run

pytestmark = pytest.mark.process


def test_the_environment_says_how_many_threads():
    def threads(asked):
        code = "from rsnet import engine; print(engine.num_threads())"
        return int(printed(code, OMP_NUM_THREADS=asked))

    usable = threads("")
    assert 1 <= usable <= len(os.sched_getaffinity(0))
    assert threads("1") == threads(" 1,4") == 1
    assert threads("100000") == threads("no") == threads("0") == usable


def test_engine_type_by_environment():
    code = """
        from rsnet import engine
        v, log = engine.new_variable(), []
        engine.push_sync(lambda rc: log.append(1), mutate_vars=[v])
        print(log)
        """
    assert run(code, MXNET_ENGINE_TYPE="NaiveEngine").stdout.strip() == "[1]"
    assert run(code, MXNET_ENGINE_TYPE="ThreadedEngine").returncode == 0
    wrong = run(code, MXNET_ENGINE_TYPE="Fast")
    assert wrong.returncode != 0 and "invalid MXNET_ENGINE_TYPE 'Fast'" in wrong.stderr


def test_the_naive_engine_names_the_line_of_a_push():
    code = """
        import sys
        from rsnet import engine
        def broken(rc, done=None):
            raise KeyError("inside")
        def push(how):
            v = engine.new_variable()
            how(broken, mutate_vars=[v])
            try:
                engine.wait_for_var(v)
            except KeyError as error:
                print([n for n in error.__notes__ if "broken" in n and "<string>:8" in n] != [])
        push(engine.push_sync)
        push(engine.push_async)
        """
    # (The first line of the text is empty.)
    assert printed(code, MXNET_ENGINE_TYPE="NaiveEngine").split() == ["True", "True"]


def test_the_naive_engine_calls_the_hook():
    code = """
        import threading
        from rsnet import engine
        v, seen, told = engine.new_variable(), [], threading.Event()
        def hook(event, id, name, ctx, time_ns):
            seen.append(event)
            if event == "finished":
                told.set()
        engine.set_hook(hook)
        engine.push_sync(lambda rc: None, mutate_vars=[v], name="seen")
        told.wait(20)
        engine.set_hook(None)
        engine.push_sync(lambda rc: None, mutate_vars=[v], name="unseen")
        print(seen)
        """
    told = printed(code, MXNET_ENGINE_TYPE="NaiveEngine")
    assert told == "['queued', 'started', 'finished']"


def test_fork_gives_the_child_a_fresh_engine():
    done = run(
        """
        import os, threading
        from rsnet import engine
        v, busy = engine.new_variable(), engine.new_variable()
        gate = threading.Event()
        engine.push_sync(lambda rc: None, mutate_vars=[v])
        engine.wait_for_var(v)
        engine.push_sync(lambda rc: gate.wait(), mutate_vars=[busy])
        pid = os.fork()
        if pid == 0:
            log = []
            engine.push_sync(lambda rc: log.append(1), mutate_vars=[v])
            engine.wait_for_var(v)
            try:
                engine.wait_for_var(busy)
            except Exception as e:
                log.append("fork" in str(e))
            os._exit(0 if log == [1, True] else 1)
        gate.set()
        status = os.waitpid(pid, 0)[1]
        engine.wait_for_var(busy)
        print(os.waitstatus_to_exitcode(status))
        """
    )
    assert done.stdout.strip() == "0", done.stderr


def test_fork_from_a_callback_while_others_push():
    done = run(
        """
        import os, threading
        from rsnet import engine
        stop = threading.Event()
        def pusher():
            v = engine.new_variable()
            while not stop.is_set():
                engine.push_sync(lambda rc: None, mutate_vars=[v])
                engine.wait_for_var(v)
        threads = [threading.Thread(target=pusher) for _ in range(8)]
        [t.start() for t in threads]
        codes = []
        def forker(rc):
            pid = os.fork()
            if pid == 0:
                v = engine.new_variable()
                engine.push_sync(lambda rc: None, mutate_vars=[v])
                engine.wait_for_var(v)
                os._exit(0)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        for _ in range(10):
            engine.push_sync(forker)
            engine.push_sync(None)
        while len(codes) < 10:
            pass
        stop.set()
        [t.join() for t in threads]
        print(codes)
        """
    )
    assert done.stdout.strip() == str([0] * 10), done.stderr


def test_exit_with_work_pending():
    """The end is bounded: what has not started is skipped, and what never ends is left behind."""
    done = run(
        """
        import threading, time
        from rsnet import engine
        v = engine.new_variable()
        engine.push_sync(lambda rc: threading.Event().wait(), mutate_vars=[v])
        for _ in range(1000):
            engine.push_sync(lambda rc: None, mutate_vars=[v])
        print(time.monotonic())
        """
    )
    seconds = time.monotonic() - float(done.stdout)  # one clock for all processes
    assert (done.returncode, seconds < 20) == (0, True), (seconds, done.stderr)


def interrupted(waits, after="", **env):
    """Runs `waits`, which does not return, and sends it Ctrl-C. Gives the seconds from the signal
    to the
    exception, as the program itself sees them, and the lines that `after` prints."""
    head = """
        import os, signal, threading, time
        import rsnet as mx
        from rsnet import engine
        signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
        v, gate, sent = engine.new_variable(), threading.Event(), []
        def send():
            time.sleep(0.3)  # into the wait
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=send).start()
        """
    program = [textwrap.dedent(head), "try:", textwrap.indent(textwrap.dedent(waits), "    ")]
    caught = ["except KeyboardInterrupt:", "    print(time.monotonic() - sent[0])"]
    lines = printed("\n".join([*program, *caught, textwrap.dedent(after)]), **env).splitlines()
    return float(lines[0]), lines[1:]


def test_ctrl_c_ends_a_wait():
    for wait in ["engine.wait_for_var(v)", "engine.wait_for_all()", "engine.stop()"]:
        waits = f"engine.push_sync(lambda rc: gate.wait(), mutate_vars=[v])\n{wait}"
        after = "gate.set(); engine.wait_for_var(v); print('done')"
        seconds, told = interrupted(waits, after)
        assert told == ["done"]
        assert seconds < 2  # 0.2 where nobody else needs the cores


def test_ctrl_c_ends_the_naive_engines_wait_for_a_token():
    waits = """
        kept = []
        engine.push_async(lambda rc, done: kept.append(done), mutate_vars=[v], name="asks")
        """
    after = """
        kept[0]()  # too late
        try:
            engine.wait_for_var(v)
        except mx.MXNetError as error:
            print("asks" in str(error), "interrupted" in str(error))
        """
    seconds, told = interrupted(waits, after, MXNET_ENGINE_TYPE="NaiveEngine")
    assert told == ["True True"]
    assert seconds < 2


LEFT_BEHIND = {
    "a function": "engine.push_sync(poll)",
    "an asynchronous one": "engine.push_async(lambda rc, done: poll())",
    "a bulk": "with engine.bulk(4): [engine.push_sync(lambda rc: poll()) for _ in range(3)]",
    "a hook": "engine.set_hook(poll); engine.push_sync(None)",
    "an operator": "threading.Thread(target=operator, daemon=True).start()",
    "array programs": "for _ in range(3): threading.Thread(target=arrays, daemon=True).start()",
}


@pytest.mark.parametrize("what", LEFT_BEHIND)
def test_what_comes_back_to_an_ended_interpreter_does_not_abort_it(what):
    """Python ends such a thread by unwinding its stack, which must not reach Rust."""
    done = run(
        f"""
import threading, time
from rsnet import autograd, engine, nd, op

def poll(*_):
    for _ in range(2000):
        time.sleep(.002)

@op.op("polls")
def polls(x):
    poll()
    return x

def operator():
    nd.polls(nd.ones((2,))).asnumpy()

def arrays():
    x = nd.ones((8, 8))
    x.attach_grad()
    while True:
        with autograd.record():
            y = (x[1:3, [0, 2]] * 2).sum()
        y.backward()
        x.grad.asnumpy()
        nd.ones((4,))[1:3] = 5

{LEFT_BEHIND[what]}
time.sleep(.3)
raise SystemExit(3)
"""
    )
    assert done.returncode == 3, done.stderr


def test_a_sub_interpreter_is_refused_and_the_main_one_unharmed():
    names = ["_interpreters", "_xxsubinterpreters"]  # the latter before Python 3.13
    name = next((name for name in names if importlib.util.find_spec(name)), None)
    if name is None:
        pytest.skip("this Python makes no sub-interpreters from Python")
    code = f"""
        import {name} as interpreters
        inner = [
            "import sys",
            "try:",
            "    import rsnet",
            "except ImportError as error:",
            "    print(error, 'numpy' in sys.modules, flush=True)",
        ]
        interpreters.run_string(interpreters.create(), "\\n".join(inner))
        import rsnet as mx
        print(mx.nd.ones((2,)).asnumpy().tolist(), flush=True)
        interpreters.run_string(interpreters.create(), "\\n".join(inner))
        """
    refused = "rsnet cannot be used in a sub-interpreter: import it in the main interpreter False"
    assert printed(code).splitlines() == [refused, "[1.0, 1.0]", refused]


@pytest.mark.parametrize("async_", [False, True])
def test_a_function_that_an_exit_skips_is_not_an_error(async_):
    push = "push_async(lambda rc, done: done()" if async_ else "push_sync(lambda rc: None"
    done = run(f"import rsnet as mx\nfor _ in range(50): mx.engine.{push})")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("ends", ["", "e.backward(o)\n", "raise SystemExit(0)\n"])
def test_operators_that_an_exit_skips_are_not_errors(ends):
    done = run(
        f"""
import time
import rsnet as mx

class Sleeps(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        time.sleep(.05)
        self.assign(out_data[0], req[0], in_data[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        time.sleep(.05)
        self.assign(in_grad[0], req[0], out_grad[0])

@mx.operator.register("sleeps")
class SleepsProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Sleeps()

x = mx.sym.var("x")
net = mx.sym.Group([mx.sym.Custom(x, op_type="sleeps") for _ in range(4)])
e = net.simple_bind(mx.cpu(), x=(10,))
e.forward(is_train=True)
o = [mx.nd.ones((10,))] * 4
{ends}"""
    )
    assert (done.returncode, done.stderr) == (0, "")

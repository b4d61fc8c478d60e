"""The profiler: what is recorded, on which threads, by which names; files, statistics, forks and
exits.
"""

import json
import threading

import numpy as np
import pytest
from traces import ONLY, names, spans

import rsnet as mx
from rsnet import autograd, engine, profiler


def test_operators_that_run_inline_queued_or_as_copies_appear(record):
    stop = record(**ONLY)
    a = mx.nd.ones((2, 3))
    b = a + a
    c = mx.nd.ones((300, 300))
    d = mx.nd.dot(c, c)
    b[:] = 7
    d.wait_to_read()
    events = stop()
    assert sorted(names(events)) == ["_full", "_full", "_full", "dot", "elemwise_add"]
    assert b.asnumpy().tolist() == [[7.0] * 3] * 2


def test_nodes_of_a_graph_appear_with_their_names_and_gradients_with_theirs(record):
    x = mx.sym.Variable("x")
    net = mx.sym.sum(mx.sym.square(mx.sym.FullyConnected(x, num_hidden=3, name="fc"), name="sq"))
    exe = net.simple_bind(mx.cpu(), x=(2, 4))
    stop = record(**ONLY)
    exe.forward(is_train=True)
    exe.backward([mx.nd.ones((1,))])
    found = [(name, node) for name, node, *_ in spans(stop())]
    assert ("FullyConnected", "fc") in found and ("square", "sq") in found
    assert any(name == "_backward_FullyConnected" for name, _ in found)


def test_gradients_on_the_tape_appear(record):
    x = mx.nd.array([1.0, 2.0])
    x.attach_grad()
    stop = record(**ONLY)
    with autograd.record():
        y = mx.nd.Activation(x, act_type="tanh")
    y.backward()
    found = names(stop())
    assert found.index("Activation") < found.index("_backward_Activation")


def test_operators_of_users_appear_by_their_own_names_on_the_threads_that_ran_them(record):
    threads = []

    class Twice(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            threads.append(threading.get_native_id())
            self.assign(out_data[0], req[0], in_data[0] * 2)

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            self.assign(in_grad[0], req[0], out_grad[0] * 2)

    @mx.operator.register("profiled_twice")
    class TwiceProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Twice()

    @mx.op.op("profiled_halves")
    def halves(x):
        return x / 2

    x = mx.nd.ones((2,))
    x.attach_grad()
    stop = record(**ONLY)
    with autograd.record():
        y = mx.nd.Custom(x, op_type="profiled_twice")
    y.backward()
    z = mx.nd.profiled_halves(y)
    exe = mx.sym.Custom(mx.sym.Variable("x"), op_type="profiled_twice", name="node").bind(
        mx.cpu(), {"x": z}
    )
    exe.forward()
    found = spans(stop())
    seen = [(name, node) for name, node, *_ in found]
    assert ("profiled_twice", "") in seen and ("profiled_twice", "node") in seen
    assert "profiled_halves" in [s[0] for s in seen]
    assert any("backward" in name and "profiled_twice" in name for name, _ in seen)
    assert {s[2] for s in found if s[0] == "profiled_twice"} == set(threads)


def test_what_a_python_operator_calls_is_nested_in_it(record):
    class Outer(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            out_data[0][:] = in_data[0] + in_data[0]

    @mx.operator.register("profiled_outer")
    class OuterProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Outer()

    x = mx.nd.ones((2,))
    stop = record(**ONLY)
    mx.nd.Custom(x, op_type="profiled_outer").wait_to_read()
    found = {s[0]: s for s in spans(stop())}
    outer, inner = found["profiled_outer"], found["elemwise_add"]
    assert outer[2] == inner[2] and outer[3] <= inner[3] <= inner[4] <= outer[4]


def test_functions_of_the_engine_appear_on_their_threads_or_as_intervals(record):
    ready_made = engine.new_operator(lambda rc: None, [], [], name="ready made")
    stop = record(**ONLY)
    threads, tokens, v = [], [], engine.new_variable()
    engine.push_sync(
        lambda rc: threads.append(threading.get_native_id()), None, None, [v], name="f"
    )
    engine.push(ready_made)
    engine.push_async(lambda rc, done: tokens.append(done) or done(), None, [v], name="later")
    engine.wait_for_all()
    events = stop()
    found = {s[0]: s for s in spans(events)}
    assert found["f"][2] == threads[0] and "ready made" in found
    begin, end = (e for e in events if e["name"] == "later")
    assert (begin["ph"], end["ph"]) == ("b", "e") and begin["id"] == end["id"]
    assert begin["ts"] <= end["ts"]


def test_the_hook_of_a_program_is_served_beside_it(record):
    stop, events = record(**ONLY), []
    engine.set_hook(lambda event, id, name, ctx, time_ns: events.append((name, event)))
    v = engine.new_variable()
    engine.push_sync(lambda rc: None, mutate_vars=[v], name="both")
    engine.wait_for_var(v)
    engine.set_hook(None)
    assert "both" in names(stop())
    until = threading.Event()
    while ("both", "finished") not in events:
        until.wait(0.001)


def test_modes_choose_what_is_recorded(record):
    exe = mx.sym.square(mx.sym.Variable("x"), name="node").bind(mx.cpu(), {"x": mx.nd.ones((2,))})

    def recorded(**options):
        off = {f"profile_{m}": False for m in ("symbolic", "imperative", "api", "memory")}
        stop = record(**off | options)
        exe.forward()
        y = mx.nd.sin(mx.nd.ones((2,)))
        del y
        events = stop()
        kinds = {(e.get("cat"), e["name"]) for e in events if e["ph"] in "BC"}
        return kinds

    assert recorded() == set()
    assert recorded(profile_symbolic=True) == {("operator", "square")}
    assert recorded(profile_imperative=True) == {("operator", "sin"), ("operator", "_full")}
    assert recorded(profile_memory=True) == {("Device Storage", "Memory: cpu/0")}
    calls = recorded(profile_api=True)
    assert {("api", "forward"), ("api", "sin"), ("api", "waitall")} <= calls
    assert {category for category, _ in calls} == {"api"}
    assert {c for c, _ in recorded(profile_all=True)} == {"operator", "Device Storage", "api"}


def test_memory_is_counted_to_the_byte_of_the_pool(record):
    from rsnet import _core

    before = _core.memory_usage()[0]
    stop = record(profile_api=False)
    arrays = [mx.nd.ones((1000,)) for _ in range(3)]
    after = _core.memory_usage()[0]
    events = [e for e in stop() if e["ph"] == "C"]
    values = [e["args"]["Memory: cpu/0"] for e in events]
    assert values[-1] == after >= before + 12000 and values == sorted(values)
    assert len(arrays) == 3


def test_a_scope_sums_what_is_taken_in_it(record):
    stop = record(profile_api=False, aggregate_stats=True)
    kept = [mx.nd.ones((256,))]
    with profiler.scope("net"):
        kept.append(mx.nd.ones((256,)))
        with profiler.scope("first:") as name:
            kept.append(mx.nd.ones((256,)))
            big = mx.nd.ones((512, 512))
            kept.append(mx.nd.dot(big, big))
        with profiler.scope("own", append_mode=False):
            pass
    mx.nd.waitall()
    assert name == "net:first:"
    events = [e for e in stop() if e["ph"] == "C"]
    last = {e["name"]: e["args"][e["name"]] for e in events}
    assert last["net:Memory: cpu/0"] == 1024
    assert last["net:first:Memory: cpu/0"] == 1024 + 2 * 512 * 512 * 4
    memory = json.loads(profiler.dumps(format="json"))["Memory"]["Device Storage"]
    assert memory["net:Memory: cpu/0"]["Total"] == 1.024


def test_eight_threads_lose_nothing_and_the_statistics_are_those_of_the_trace(record):
    stop = record(aggregate_stats=True)

    def work():
        x = mx.nd.ones((4,))
        for _ in range(500):
            x = x + x
        x.wait_to_read()

    threads = [threading.Thread(target=work) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    events = stop()
    found = spans(events)
    assert names(events).count("elemwise_add") == 4000
    assert len({s[2] for s in found}) >= 8
    times = json.loads(profiler.dumps(format="json"))["Time"]
    for category in ("operator", "api"):
        of = spans(events, category)
        assert set(times[category]) == {s[0] for s in of}
        for name, figures in times[category].items():
            durations = np.array([s[4] - s[3] for s in of if s[0] == name]) / 1000
            assert figures["Count"] == len(durations)
            assert figures["Total"] == pytest.approx(durations.sum(), abs=1e-3)
            assert figures["Min"] == pytest.approx(durations.min(), abs=2e-6)
            assert figures["Max"] == pytest.approx(durations.max(), abs=2e-6)
            assert figures["Avg"] == pytest.approx(figures["Total"] / figures["Count"])


def test_the_table_has_a_row_for_every_name_in_the_order_asked_for(record):
    record(**ONLY, aggregate_stats=True)
    for _ in range(3):
        x = mx.nd.ones((2,))
    mx.nd.square(x)
    mx.nd.waitall()
    rows = profiler.dumps(sort_by="count").splitlines()[8:]
    assert [r.split()[:2] for r in rows] == [["_full", "3"], ["square", "1"]]
    rows = profiler.dumps(sort_by="count", ascending=True, reset=True).splitlines()[8:]
    assert [r.split()[0] for r in rows] == ["square", "_full"]
    assert "operator" not in profiler.dumps()
    with pytest.raises(ValueError, match="invalid sort_by 'size': expected one of: total"):
        profiler.dumps(sort_by="size")
    with pytest.raises(ValueError, match="invalid format 'xml': expected one of: table, json"):
        profiler.dumps(format="xml")
    profiler.set_config(continuous_dump=False, aggregate_stats=False)
    with pytest.raises(ValueError, match="aggregate_stats=False was set, expected True"):
        profiler.dumps()


def test_an_operator_that_fails_is_recorded_and_one_that_is_skipped_is_not(record):
    class Broken(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            raise ArithmeticError("no result")

    @mx.operator.register("profiled_broken")
    class BrokenProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Broken()

    stop = record(**ONLY)
    y = mx.nd.square(mx.nd.Custom(mx.nd.ones((2,)), op_type="profiled_broken"))
    with pytest.raises(ArithmeticError):
        y.wait_to_read()
    found = names(stop())
    assert "profiled_broken" in found and "square" not in found


def test_marks_of_the_program(record):
    stop = record(**ONLY)
    domain = profiler.Domain("mine")
    assert (str(domain), str(domain.new_task("t")), domain.new_frame("f").name) == (
        "mine",
        "t",
        "f",
    )
    task, counter = domain.new_task('a "quoted" \n name'), domain.new_counter("c", 5)
    with task, domain.new_frame("frame"), profiler.Event("event"):
        counter += 3
        counter -= 1
        counter.increment()
        counter.decrement(4)
    counter.set_value(-7)
    for scope in ("global", "process", "thread", "task", "marker"):
        domain.new_marker(scope).mark(scope)
    profiler.pause()
    counter.set_value(99)
    profiler.resume()
    events = stop()
    pairs = {e["id"]: e for e in events if e["ph"] == "b"}
    ends = {e["id"]: e for e in events if e["ph"] == "e"}
    assert {(e["cat"], e["name"]) for e in pairs.values()} == {
        ("mine", 'a "quoted" \n name'),
        ("mine", "frame"),
        ("event", "event"),
    }
    assert pairs.keys() == ends.keys() and all(pairs[i]["ts"] <= ends[i]["ts"] for i in pairs)
    values = [e["args"]["c"] for e in events if e["ph"] == "C"]
    assert values == [5, 8, 7, 8, 4, -7] and counter.value == 99
    marks = {e["name"]: e["s"] for e in events if e["ph"] == "i"}
    assert marks == {"global": "g", "process": "p", "thread": "t", "task": "p", "marker": "p"}
    shown = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert shown == {"mine", "event"}


def test_a_task_may_end_on_another_thread_and_is_forgotten_if_it_began_while_off(record):
    task = profiler.Task(profiler.Domain("d"), "before")
    task.start()
    stop = record(**ONLY)
    task.stop()
    across = profiler.Task(profiler.Domain("d"), "across")
    across.start()
    thread = threading.Thread(target=across.stop)
    thread.start()
    thread.join()
    assert [e["name"] for e in stop() if e["ph"] == "b"] == ["across"]


def test_misuse_is_told():
    domain = profiler.Domain("d")
    task = domain.new_task("t")
    with pytest.raises(RuntimeError, match=r"invalid stop of Task\('t'\)"):
        task.stop()
    with task, pytest.raises(RuntimeError, match=r"invalid start of Task\('t'\)"):
        task.start()
    with pytest.raises(TypeError, match="invalid domain 'd': expected a profiler.Domain"):
        profiler.Task("d", "t")
    with pytest.raises(TypeError, match="invalid name 3: expected a str"):
        domain.new_marker(3)
    counter = domain.new_counter("c")
    with pytest.raises(TypeError, match="invalid value 1.5: expected an integer"):
        counter += 1.5
    with pytest.raises(OverflowError):
        counter.set_value(2**63)
    assert counter.value == 0
    with pytest.raises(ValueError, match="invalid scope 'everywhere': expected one of: global"):
        domain.new_marker("m").mark("everywhere")
    with pytest.raises(ValueError, match="invalid state 'on': expected 'run' or 'stop'"):
        profiler.set_state("on")
    with pytest.raises(ValueError, match="expected 'worker', the only process"):
        profiler.set_state("run", profile_process="server")
    with pytest.raises(ValueError, match="invalid profile_process 'me': expected 'worker'"):
        profiler.pause("me")
    with pytest.raises(ValueError, match="invalid mode 'imperative'"):
        profiler.profiler_set_config("imperative")
    assert profiler.state() == "stop"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"file": "x"}, TypeError),
        ({"filename": 3}, TypeError),
        ({"filename": ""}, TypeError),
        ({"profile_all": "yes"}, TypeError),
        ({"aggregate_stats": None}, TypeError),
        ({"dump_period": 0}, ValueError),
        ({"dump_period": float("nan")}, ValueError),
        ({"dump_period": "1"}, TypeError),
        ({"profile_process": "server"}, ValueError),
    ],
)
def test_bad_options_are_refused(options, error):
    with pytest.raises(error, match=next(iter(options))):
        profiler.set_config(**options)


def test_statistics_are_there_without_being_asked_for(record):
    stop = record(profile_api=False)
    mx.nd.square(mx.nd.ones((2,)))
    stop()
    assert "square" in profiler.dumps(reset=True)

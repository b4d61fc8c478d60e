"""The cost of the engine from Python: nanoseconds per operation, waiting included.

    python benches/python/engine.py

Prints ``case=NAME ns=X``, medians over runs. The targets are 150 ns for the push of a ready native
no-op and 600 ns for a Python function pushed and waited for.
"""

import statistics
import time

from rsnet import engine

RUNS, CALLS = 15, 10_000


def timed(run):
    """Median nanoseconds per call of `run(CALLS)`."""
    run(CALLS)
    times = []
    for _ in range(RUNS):
        start = time.perf_counter_ns()
        run(CALLS)
        times.append((time.perf_counter_ns() - start) / CALLS)
    return statistics.median(times)


def empty_loop(n):
    """What the loops of the cases cost themselves."""
    for _ in range(n):
        pass


def native_no_op(n):
    """Ready operations without a function, run inside their push."""
    v = [engine.new_variable()]
    for _ in range(n):
        engine.push_sync(None, None, [], v)
    engine.wait_for_all()
    assert v[0].version == n


def native_ready_made(n):
    """The same, made once and pushed many times."""
    v = engine.new_variable()
    op = engine.new_operator(None, [], [v])
    for _ in range(n):
        engine.push(op)
    engine.wait_for_all()
    assert v.version == n


def functions(n):
    """Python functions that share nothing."""
    done = []

    def function(run):
        done.append(run)

    for _ in range(n):
        engine.push_sync(function)
    engine.wait_for_all()
    assert len(done) == n


def functions_of_one_variable(n):
    """Python functions that run one after the other, in the order of their pushes."""
    v, done = [engine.new_variable()], []
    for i in range(n):
        engine.push_sync(lambda rc, i=i: done.append(i), None, [], v)
    engine.wait_for_all()
    assert done == list(range(n))


def functions_ready_made(n):
    """One Python function pushed many times as a ready-made operation."""
    v, done = engine.new_variable(), []
    op = engine.new_operator(lambda run: done.append(run), [], [v])
    for _ in range(n):
        engine.push(op)
    engine.wait_for_all()
    assert len(done) == n


def functions_in_bulks(n):
    """Functions of one variable in bulks of 100."""
    v, done = [engine.new_variable()], []
    with engine.bulk(100):
        for i in range(n):
            engine.push_sync(lambda rc, i=i: done.append(i), None, [], v)
    engine.wait_for_all()
    assert done == list(range(n)) and v[0].version == n / 100


def push_and_wait(n):
    """A native no-op, waited for at once."""
    v = engine.new_variable()
    for _ in range(n):
        engine.push_sync(None, None, [], [v])
        engine.wait_for_var(v)


def main():
    cases = [
        empty_loop,
        native_no_op,
        native_ready_made,
        functions,
        functions_of_one_variable,
        functions_ready_made,
        functions_in_bulks,
        push_and_wait,
    ]
    for case in cases:
        print(f"case={case.__name__} ns={timed(case):.0f}")


if __name__ == "__main__":
    main()

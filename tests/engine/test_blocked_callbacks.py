"""Python functions that block hold up no others, in every round and not only in the first."""

import threading
import time

import pytest

from rsnet import engine

# Threads without work end after three seconds, so a stall lasts that long.
SOON = 2.0


def run_round(n, work):
    """Pushes `n` independent functions that call `work(i)`, and waits for them."""
    ended = threading.Semaphore(0)

    def one(i):
        work(i)
        ended.release()

    for i in range(n):
        engine.push_sync(lambda rc, i=i: one(i))
    for _ in range(n):
        assert ended.acquire(timeout=SOON), "a function was held up"


@pytest.mark.parametrize("n", [2, 3, 8, 16])
def test_a_function_runs_beside_blocked_ones_in_every_round(n):
    for _ in range(6):
        gates = [threading.Event() for _ in range(n)]
        ran = threading.Event()
        for gate in gates:
            engine.push_sync(lambda rc, gate=gate: gate.wait(20))
        engine.push_sync(lambda rc, ran=ran: ran.set())
        try:
            assert ran.wait(SOON)
        finally:
            for gate in gates:
                gate.set()
        engine.wait_for_all()


@pytest.mark.parametrize("idle", [0, 0.002, 0.02])
def test_functions_meet_at_a_barrier_in_every_round(idle):
    for n in [2, 3, 4, 8, 16, 5, 2, 16]:
        barrier = threading.Barrier(n)
        run_round(n, lambda i, b=barrier: b.wait(SOON))
        engine.wait_for_all()
        time.sleep(idle)


@pytest.mark.slow
def test_functions_meet_after_the_threads_have_ended():
    for pause in [3.2, 0, 0, 0]:
        barrier = threading.Barrier(4)
        run_round(4, lambda i, b=barrier: b.wait(SOON))
        time.sleep(pause)


def test_readers_of_a_variable_meet_in_every_round():
    v = engine.new_variable()
    for _ in range(10):
        barrier, met = threading.Barrier(5), []
        engine.push_sync(lambda rc: None, mutate_vars=[v])
        for _ in range(5):
            meet = lambda rc, b=barrier, met=met: met.append(b.wait(SOON))  # noqa: E731
            engine.push_sync(meet, const_vars=[v])
        engine.push_sync(lambda rc, met=met: met.append("written"), mutate_vars=[v])
        engine.wait_for_var(v)
        assert sorted(met[:5]) == [0, 1, 2, 3, 4] and met[5] == "written"


def test_urgent_functions_overtake_behind_blocked_ones():
    for _ in range(5):
        gate, held, order = threading.Event(), threading.Event(), []
        lock, v = threading.Lock(), engine.new_variable()

        def note(name, order=order, lock=lock):
            with lock:
                order.append(name)

        def hold(rc, gate=gate, held=held):
            held.set()
            gate.wait(20)

        # All become ready at one moment, when `hold` ends.
        engine.push_sync(hold, mutate_vars=[v])
        assert held.wait(SOON)
        for priority in [0, -1, 5, 0, 9]:
            engine.push_sync(lambda rc, p=priority: note(p), const_vars=[v], priority=priority)
        gate.set()
        engine.wait_for_all()
        assert sorted(order) == [-1, 0, 0, 5, 9]


def test_functions_pushed_from_functions_run_beside_their_pushers():
    for _ in range(5):
        inner, outer = threading.Event(), threading.Semaphore(0)

        def pusher(rc, inner=inner, outer=outer):
            engine.push_sync(lambda rc: inner.set())
            if inner.wait(SOON):
                outer.release()

        for _ in range(4):
            engine.push_sync(pusher)
        for _ in range(4):
            assert outer.acquire(timeout=2 * SOON)
        engine.wait_for_all()

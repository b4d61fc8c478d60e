"""Threads that work ahead: they end with their pool, and a program need not wait for them."""

import gc
import threading
import weakref

import pytest
from processes import printed

from rsnet._daemon_threads import DaemonThreads


def test_results_errors_and_calls_that_were_cancelled():
    threads = DaemonThreads(1, "test")
    go_on = threading.Event()
    first = threads.submit(go_on.wait, 60)
    second = threads.submit(list, "ab")
    third = threads.submit(divmod, 1, 0)
    last = threads.submit(list, "c")
    assert second.cancel()
    go_on.set()
    assert first.result() and last.result() == ["c"]
    with pytest.raises(ZeroDivisionError):
        third.result()


def test_threads_end_with_their_pool_and_keep_nothing():
    class Kept:
        pass

    kept = Kept()
    threads = DaemonThreads(2, "test-end")
    barrier = threading.Barrier(3)
    futures = [threads.submit(barrier.wait, 60) for _ in range(2)]
    barrier.wait(60)
    assert [future.result() < 3 for future in futures] == [True, True]
    assert threads.submit(id, kept).result() == id(kept)
    running = [t for t in threading.enumerate() if t.name.startswith("test-end")]
    assert len(running) == 2 and all(t.daemon for t in running)
    there = weakref.ref(kept)
    del kept
    for _ in range(2):  # the thread that had it goes on to another call
        threads.submit(int).result()
    del threads, futures
    gc.collect()
    for thread in running:
        thread.join(60)
        assert not thread.is_alive()
    assert there() is None


@pytest.mark.process
@pytest.mark.parametrize("kind", ["prefetching", "loader"])
def test_a_program_ends_while_a_batch_is_made_ahead(kind):
    assert printed(f"""
        import threading
        import numpy as np
        import rsnet as mx

        class Stuck(mx.io.NDArrayIter):
            calls = 0

            def next(self):
                self.calls += 1
                if self.calls > 1:
                    threading.Event().wait()
                return super().next()

        class StuckSet(list):
            def __getitem__(self, i):
                return i if i < 4 else threading.Event().wait()

        if "{kind}" == "loader":
            data = StuckSet(range(40))
            batches = iter(mx.gluon.data.DataLoader(data, 4, num_workers=1, thread_pool=True))
        else:
            batches = mx.io.PrefetchingIter(Stuck(np.arange(40), batch_size=4))
        next(batches)
        print("end", flush=True)
    """) == "end"  # fmt: skip

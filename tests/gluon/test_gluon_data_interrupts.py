"""Loaders of batches after Ctrl-C, after a fork, and when their process ends or is killed."""

import multiprocessing.connection
import os
import signal

import numpy as np
import pytest
from processes import printed, run

from rsnet import gluon

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the workers are forked"),
]


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError, ValueError])
@pytest.mark.parametrize("method", ["recv", "send"])
def test_a_loader_goes_on_after_an_interrupt_within_a_message(monkeypatch, method, error):
    """A signal may come when a part of a message has gone over a pipe; its handler raises."""
    loader = gluon.data.DataLoader(np.arange(40.0), 4, num_workers=2)

    def cut(pipe, *message):
        if method == "recv":
            os.read(pipe.fileno(), 3)
        else:
            os.write(pipe.fileno(), b"\0\0\0")
        raise error

    batches = iter(loader)
    assert next(batches).asnumpy().tolist() == [0, 1, 2, 3]
    monkeypatch.setattr(multiprocessing.connection.Connection, method, cut)
    with pytest.raises(error):
        for _ in range(40):
            next(batches)
    monkeypatch.undo()
    rows = [row for batch in loader for row in batch.asnumpy().tolist()]
    assert rows == list(range(40))
    assert len(multiprocessing.active_children()) == 2


def test_an_interrupt_while_a_loader_is_closed_is_not_lost():
    assert printed("""
        import multiprocessing, os, signal, time
        import multiprocessing.process
        import numpy as np
        from rsnet import gluon

        signal.signal(signal.SIGINT, signal.default_int_handler)
        own = multiprocessing.process.BaseProcess.join

        def join(self, timeout=None):
            os.kill(os.getpid(), signal.SIGINT)
            own(self, timeout)

        loader = gluon.data.DataLoader(np.arange(8), 4, num_workers=2)
        list(loader)
        multiprocessing.process.BaseProcess.join = join
        try:
            del loader  # a finalizer closes it
            time.sleep(60)
            print("lost")
        except KeyboardInterrupt:
            multiprocessing.process.BaseProcess.join = own
            print("interrupted", len(multiprocessing.active_children()))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    """) == "interrupted 0"  # fmt: skip


def test_a_child_loads_by_threads_of_its_own():
    assert printed("""
        import os, signal
        import numpy as np
        from rsnet import gluon

        loader = gluon.data.DataLoader(np.arange(40), 4, num_workers=2, thread_pool=True)
        assert len(list(loader)) == 10
        child = os.fork()
        if not child:
            signal.alarm(60)
            os._exit(len(list(loader)))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(list(loader)))
    """) == "10 10"  # fmt: skip


def test_workers_leave_when_their_process_is_killed():
    """Another process has inherited its side of the pipes, which stays open; the output of the
    program ends with the workers.
    """
    done = run("""
        import os, signal
        import numpy as np
        from rsnet import gluon
        from rsnet.gluon.data import _workers

        _workers._PARENT_CHECK_S = 0.05
        read, write = os.pipe()
        loader = gluon.data.DataLoader(np.arange(8), 4, num_workers=2)
        print(len(list(loader)), flush=True)
        if not os.fork():
            for file in (1, 2, write):
                os.close(file)
            signal.alarm(100)
            os.read(read, 1)  # until the workers have ended
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "2\n")


def test_workers_end_with_their_loader_whatever_was_inherited():
    """Workers have the handlers of their process, and those of a later loader the pipes of an
    earlier one.
    """
    assert printed("""
        import multiprocessing, signal
        import numpy as np
        from rsnet import gluon

        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.alarm(100)
        early, late = (gluon.data.DataLoader(np.arange(8), 4, num_workers=2) for _ in range(2))
        assert len(list(early)) == len(list(late)) == 2
        workers = [worker.process for worker in early._workers._workers]
        for worker in workers:
            worker.join = lambda timeout=None, join=worker.join: join()  # no limit
        del early
        print([worker.exitcode for worker in workers])
        stubborn = late._workers._workers[0].process
        stubborn.terminate()
        stubborn.join()
        print(stubborn.exitcode)
    """) == "[0, 0]\n-15"  # fmt: skip


@pytest.mark.parametrize("fault", ["kill(getpid(), SIGSTOP)", "signal(SIGTERM, SIG_IGN)"])
def test_workers_that_do_not_end_when_told_to_are_killed(fault):
    assert printed(f"""
        import multiprocessing, time
        from os import getpid, kill
        from signal import SIG_IGN, SIGSTOP, SIGTERM, alarm, signal
        from rsnet import gluon
        from rsnet.gluon.data import _workers

        class Stubborn:
            def __len__(self):
                return 2

            def __getitem__(self, index):
                {fault}
                time.sleep(100)

        alarm(100)
        _workers._TERMINATION_S = 0.05
        loader = gluon.data.DataLoader(Stubborn(), 2, num_workers=1, timeout=0.5)
        try:
            list(loader)
        except multiprocessing.TimeoutError:
            del loader
        print(len(multiprocessing.active_children()))
    """) == "0"  # fmt: skip


def test_a_child_does_not_take_the_batches_of_its_parent():
    loader = gluon.data.DataLoader(np.arange(12.0), 2, num_workers=2)
    batches = iter(loader)
    assert next(batches).asnumpy().tolist() == [0, 1]
    child = os.fork()
    if child == 0:
        try:
            next(batches)
            os._exit(1)
        except RuntimeError as error:
            os._exit(0 if "made before a fork" in str(error) else 2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [row for batch in batches for row in batch.asnumpy().tolist()] == list(range(2, 12))

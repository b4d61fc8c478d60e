"""Worker processes that load batches.

A worker is forked where the system can fork, so that data sets may hold anything. It has a pipe of
its own, over which it is sent lists of sample numbers and the name of a block of shared memory,
into which it puts the arrays of the batch. The parent waits for answers and for the ends of
processes at once, so the death of a worker is noticed, whatever the cause. As the parent names the
blocks, it can also free those of workers that ended before they answered.
"""

from __future__ import annotations

import _thread
import contextlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import pickle
import secrets
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker, shared_memory
from multiprocessing.reduction import ForkingPickler
from types import FrameType
from typing import Any

import numpy as np

from ... import ndarray as nd
from ... import random
from ..._exceptions import add_note
from ...base import shown
from ...ndarray import NDArray

_ALIGNMENT = 64

_PARENT_CHECK_S = 1.0  # how often an idle worker looks whether its parent is still there
_TERMINATION_S = 1.0  # how long a worker may take to end once it is told to


class RemoteTraceback(Exception):
    """What a worker was doing when it raised, as text; the cause of its exception."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


def load_batch(dataset: Any, batchify: Callable[..., Any], indices: Any) -> Any:
    """The batch of some samples. What the data set or `batchify` raises gets a note of them."""
    samples = []
    for index in indices:
        try:
            samples.append(dataset[index])
        except Exception as error:
            add_note(error, f"DataLoader: raised by sample {shown(index)} of the data set")
            raise
    try:
        return batchify(samples)
    except Exception as error:
        add_note(error, f"DataLoader: raised as samples {shown(indices)} were made a batch")
        raise


# ---- batches in shared memory ------------------------------------------------------------------


def _mapped(batch: Any, change: Callable[[Any], Any]) -> Any:
    """The batch with what `change` makes of all in it but lists, tuples and dicts."""
    if isinstance(batch, list):
        return [_mapped(part, change) for part in batch]
    if isinstance(batch, tuple):
        parts = (_mapped(part, change) for part in batch)
        return type(batch)._make(parts) if hasattr(batch, "_make") else tuple(parts)
    if isinstance(batch, dict):
        return {key: _mapped(part, change) for key, part in batch.items()}
    return change(batch)


def _strip(batch: Any, arrays: list[np.ndarray]) -> Any:
    """The batch with a place instead of each array, which goes to `arrays`."""

    def placed(part: Any) -> Any:
        array = part.asnumpy() if isinstance(part, NDArray) else part
        if not isinstance(array, np.ndarray) or array.dtype == object:
            return part
        arrays.append(np.ascontiguousarray(array).reshape(array.shape))
        return _Place(len(arrays) - 1)

    return _mapped(batch, placed)


class _Place:
    """Stands for an array."""

    def __init__(self, index: int) -> None:
        self.index = index


def _fill(batch: Any, arrays: list[Any]) -> Any:
    """The batch with its arrays."""
    return _mapped(batch, lambda part: arrays[part.index] if isinstance(part, _Place) else part)


def _share(batch: Any, name: str) -> tuple[Any, list[Any], str | None]:
    """The batch without its arrays, where they lie in a block of this name, and the name; None if
    there is no block, as they have no elements.
    """
    arrays: list[np.ndarray] = []
    shell = _strip(batch, arrays)
    facts, size = [], 0
    for array in arrays:
        size = -(-size // _ALIGNMENT) * _ALIGNMENT
        facts.append((size, array.shape, array.dtype.str))
        size += array.nbytes
    if not size:
        return shell, facts, None
    block = shared_memory.SharedMemory(name, create=True, size=size)
    for (offset, shape, dtype), array in zip(facts, arrays):
        np.ndarray(shape, dtype, block.buf, offset)[...] = array
    block.close()
    return shell, facts, name


def _take(shell: Any, facts: list[Any], name: str | None) -> Any:
    """The batch that `_share` put into a block, which is freed."""
    if name is None:
        empty = [nd.array(np.empty(shape, dtype), dtype=dtype) for _, shape, dtype in facts]
        return _fill(shell, empty)
    block = shared_memory.SharedMemory(name=name)
    try:
        arrays = []
        for offset, shape, dtype in facts:
            view = np.ndarray(shape, dtype, block.buf, offset)
            arrays.append(nd.array(view, dtype=view.dtype))
            del view
    finally:
        block.close()
        block.unlink()
    return _fill(shell, arrays)


def _free(name: str | None) -> None:
    """Frees a block whose batch is no longer wanted, if there is such a block."""
    if name is None:
        return
    try:
        block = shared_memory.SharedMemory(name=name)
    except FileNotFoundError:
        return
    block.close()
    block.unlink()


# ---- the worker --------------------------------------------------------------------------------


def _portable(error: Exception) -> Exception:
    """The exception, or one of its text if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        portable = RuntimeError(f"{type(error).__name__}: {error}")
        for note in getattr(error, "__notes__", ()):
            add_note(portable, note)
        return portable
    return error


def _requests(pipe: Any) -> Iterator[Any]:
    """What the parent asks for, until it hangs up or ends.

    Its end is not always the end of the pipe: processes that it forked later have its side too.
    """
    parent = multiprocessing.parent_process()
    while True:
        try:
            while not pipe.poll(_PARENT_CHECK_S):
                if parent is None or os.getppid() != parent.pid:
                    return
            request = pipe.recv()
        except (EOFError, OSError):
            return
        yield request


def _hang_up(pipe: Any) -> None:
    """Ends a pipe for the worker at its other side, whoever else has inherited this side."""
    with (
        contextlib.suppress(OSError),
        socket.fromfd(pipe.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as side,
    ):
        side.shutdown(socket.SHUT_RDWR)
    pipe.close()


def _answer(key: Any, batch: Any, indices: Any, name: str) -> Any:
    """The message that a batch is ready, as bytes for a pipe."""
    try:
        return ForkingPickler.dumps((key, None, _share(batch, name)))
    except Exception as error:
        _free(name)
        add_note(error, f"DataLoader: raised as the batch of samples {shown(indices)} was sent")
        raise


def _work(pipe: Any, dataset: Any, batchify: Callable[..., Any], seed: int) -> None:
    """Loads the batches that it is asked for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # and means it, whatever handler was inherited
    np.random.seed(seed)
    random.seed(seed)
    import random as python_random

    python_random.seed(seed)
    for key, indices, name in _requests(pipe):
        try:
            message = _answer(key, load_batch(dataset, batchify, indices), indices, name)
        except Exception as error:
            text = traceback.format_exc()
            message = ForkingPickler.dumps((key, (_portable(error), text), None))
        try:
            pipe.send_bytes(message)
        except (BrokenPipeError, ConnectionResetError):
            return


class Worker:
    """One process, and the batches that it was asked for and has not answered yet."""

    def __init__(self, process: Any, pipe: Any) -> None:
        self.process = process
        self.pipe = pipe
        self.asked: dict[Any, str] = {}  # and the names of their blocks


class Workers:
    """Processes that load batches of a data set.

    Parameters
    ----------
    count : int
    dataset : Dataset
    batchify : callable
        Makes a batch of a list of samples.
    """

    def __init__(self, count: int, dataset: Any, batchify: Callable[..., Any]) -> None:
        forks = "fork" in multiprocessing.get_all_start_methods() and sys.platform != "darwin"
        context: Any = multiprocessing.get_context("fork" if forks else "spawn")
        # What is pending at a fork would be an error in the workers.
        nd.waitall()
        # Blocks made in workers are registered with this process's tracker.
        resource_tracker.ensure_running()
        seed = int(np.random.randint(1 << 31))
        self._workers: list[Worker] = []
        self._answers: dict[Any, Any] = {}
        self._unwanted: set[Any] = set()
        self._prefix = f"rsnet_{secrets.token_hex(6)}"
        self._numbers = itertools.count()  # no generator: an interrupt inside would be its end
        self._owner = os.getpid()
        # Iterators on several threads share the pipes; an iterator may end inside of a call.
        self._lock = threading.RLock()
        for i in range(count):
            mine, theirs = context.Pipe()
            args = (theirs, dataset, batchify, (seed + i) % (1 << 31))
            process = context.Process(target=_work, args=args, daemon=True)
            with warnings.catch_warnings():
                # Python warns of forks in a process with threads; rsnet's own are ready for it.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
            self._workers.append(Worker(process, mine))
        self.close = weakref.finalize(self, _close, self._workers, self._answers, self._owner)

    def ask(self, key: Any, indices: Any) -> None:
        """Asks the worker with the least to do for a batch."""
        self._check_owner()
        with self._lock:
            self._check_alive()
            worker = min(self._workers, key=lambda w: len(w.asked))
            name = worker.asked[key] = f"{self._prefix}_{next(self._numbers)}"
            try:
                with self._whole_message():
                    worker.pipe.send((key, indices, name))
            except (BrokenPipeError, ConnectionResetError):
                self._died(worker)

    def _check_owner(self) -> None:
        if self._owner != os.getpid():
            raise RuntimeError(
                "DataLoader: invalid iterator, made before a fork, whose batches belong to process "
                f"{self._owner}: expected a new one, iter(loader), in this process"
            )

    def _check_alive(self) -> None:
        if not self.close.alive:
            raise RuntimeError(
                "DataLoader: expected a batch, but the workers were ended after an error in "
                "another iteration"
            )

    @contextlib.contextmanager
    def _whole_message(self) -> Iterator[None]:
        """Ends the workers where Ctrl-C, or what the handler of another signal raises, cuts a
        message over a pipe in two: no message can be sent over that pipe any more.
        """
        try:
            yield
        except BaseException as error:
            if isinstance(error, TimeoutError) or not isinstance(error, (OSError, EOFError)):
                self.close()
            raise

    def forget(self, keys: Any) -> None:
        """Frees batches that will not be taken."""
        with self._lock:
            for key in keys:
                answer = self._answers.pop(key, None)
                if answer is None:
                    self._unwanted.add(key)
                elif answer[1] is not None:
                    _free(answer[1][2])

    def take(self, key: Any, timeout: float) -> Any:
        """Waits for a batch. After an exception it is still to be forgotten.

        Raises
        ------
        multiprocessing.TimeoutError
            It took longer.
        RuntimeError
            The worker died, or this is another process, a fork.
        Exception
            What the data set or the function for batches raised in the worker.
        """
        self._check_owner()
        while True:
            with self._lock:
                if key in self._answers:
                    return self._answer(key)
                self._check_alive()
                self._read(key, timeout)

    def _answer(self, key: Any) -> Any:
        failure, shared = self._answers[key]
        if failure is not None:
            error, text = failure
            raise error from RemoteTraceback(text)
        batch = _take(*shared)
        del self._answers[key]
        return batch

    def _read(self, key: Any, timeout: float) -> None:
        pipes = {worker.pipe: worker for worker in self._workers}
        ends = {worker.process.sentinel: worker for worker in self._workers}
        ready = multiprocessing.connection.wait([*pipes, *ends], timeout)
        if not ready:
            who = next((w for w in self._workers if key in w.asked), None)
            pid = "" if who is None else f" (process {who.process.pid})"
            raise multiprocessing.TimeoutError(
                f"DataLoader: expected a batch within {timeout} seconds, but a worker{pid} did not "
                "return one; the data set may be slow (give a larger timeout) or blocked"
            )
        read = [pipes[pipe] for pipe in ready if pipe in pipes]
        for worker in read:
            try:
                with self._whole_message():
                    answered, failure, shared = worker.pipe.recv()
            except TimeoutError:  # not the pipe's
                raise
            except (EOFError, OSError):
                self._died(worker)
            del worker.asked[answered]
            if failure is not None:
                add_note(failure[0], f"DataLoader: in {self._named(worker)}")
            if answered in self._unwanted:
                self._unwanted.discard(answered)
                _free(None if shared is None else shared[2])
            else:
                self._answers[answered] = (failure, shared)
        for end in ready:
            # What it sent before it ended was read above.
            if end in ends and ends[end] not in read and not ends[end].pipe.poll():
                self._died(ends[end])

    def _died(self, worker: Worker) -> None:
        worker.process.join(5)
        code = worker.process.exitcode
        why = f"exit code {code}"
        if code is not None and code < 0:
            why = f"signal {_signal_name(-code)}"
            why += {"SIGKILL": " (out of memory?)", "SIGBUS": " (no space left in /dev/shm?)"}.get(
                _signal_name(-code), ""
            )
        busy = f" while it loaded batch {next(iter(worker.asked))[1]}" if worker.asked else ""
        self.close()
        raise RuntimeError(
            f"DataLoader: expected a batch, but {self._named(worker)} died with {why}{busy}"
        )

    def _named(self, worker: Worker) -> str:
        return f"worker {self._workers.index(worker)} (process {worker.process.pid})"

    @property
    def is_alive(self) -> bool:
        """Can it still be asked, in this process?"""
        return self.close.alive and self._owner == os.getpid()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


@contextlib.contextmanager
def _interrupts_later() -> Iterator[None]:
    """Keeps Ctrl-C until afterwards: Python would drop its exception in a finalizer, and what is
    not closed then would stay.
    """
    main, handler = threading.main_thread(), signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not main or not callable(handler):
        yield
        return
    came: list[bool] = []
    signal.signal(signal.SIGINT, lambda *_: came.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            call = sys._getframe(2)  # of the function that closes
            threading.Thread(target=_interrupt_after, args=(main, call), daemon=True).start()


def _interrupt_after(thread: threading.Thread, call: FrameType) -> None:
    """Ctrl-C, once the main thread has returned from a call and from the finalizer around it."""

    def is_running() -> bool:
        frame = sys._current_frames().get(thread.ident or 0)
        while frame is not None and frame is not call and frame.f_code is not _FINALIZER:
            frame = frame.f_back
        return frame is not None

    while is_running():
        time.sleep(0.001)
    if thread.ident is not None and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(thread.ident, signal.SIGINT)  # ends a call that blocks, too
    else:
        _thread.interrupt_main()


_FINALIZER = weakref.finalize.__call__.__code__


def _close(workers: list[Worker], answers: dict[Any, Any], owner: int) -> None:
    """Ends the processes and frees what they answered."""
    if os.getpid() != owner:
        return  # a fork's copy
    with _interrupts_later():
        for worker in workers:
            _hang_up(worker.pipe)
        for _, shared in answers.values():
            if shared is not None:
                _free(shared[2])
        answers.clear()
        for worker in workers:
            worker.process.join(0.5 if not worker.asked else 0.05)
            if worker.process.is_alive():
                worker.process.terminate()
                worker.process.join(_TERMINATION_S)
            if worker.process.is_alive():  # it is stopped, or ignores that
                worker.process.kill()
                worker.process.join()
            for name in worker.asked.values():  # it may have made the block: its answer is unread
                _free(name)

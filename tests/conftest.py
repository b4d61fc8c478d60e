"""Makes the tests' own modules importable and every run repeatable."""

import contextlib
import faulthandler
import gc
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

import rsnet as mx

sys.path.insert(0, str(Path(__file__).parent / "support"))
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import operators  # noqa: F401  (lists what is registered before tests add to it)

# A shell that starts the tests in the background lets them, and all that they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the first call of an example pays for imports and thread pools.
settings.register_profile("rsnet", deadline=None, derandomize=True)
settings.register_profile(
    "fuzz", deadline=None, derandomize=False, max_examples=int(os.environ.get("FUZZ_CASES", "1000"))
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "rsnet"))


# Seconds after which a hang shows the stacks of all threads and ends the process, for tests and for
# those with the marker `slow`; much, as machines are busy. The option of pytest starts and joins a
# thread for every test, which costs more than most tests here: this one is set again by the first
# test of every half minute, and where another limit holds. `make fuzz` makes long tests of short
# ones.
FUZZING = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
LIMIT, LIMIT_OF_SLOW = (3600, 3600) if FUZZING else (300, 1200)
_limit = {"set_at": float("-inf"), "seconds": 0, "stderr": 2}


def pytest_configure():
    _limit["stderr"] = os.dup(sys.__stderr__.fileno())  # that of the terminal, captured later


def pytest_exception_interact():
    _limit["set_at"] = float("-inf")  # pytest takes the limit away, lest it ends a debugger


def pytest_unconfigure():
    faulthandler.cancel_dump_traceback_later()


def _limit_time(item):
    now, seconds = time.monotonic(), LIMIT_OF_SLOW if item.get_closest_marker("slow") else LIMIT
    if now - _limit["set_at"] > 30 or _limit["seconds"] != seconds:
        faulthandler.dump_traceback_later(seconds, exit=True, file=_limit["stderr"])
        _limit.update(set_at=now, seconds=seconds)


def pytest_collection_finish():
    """Thousands of collected tests would make every `gc.collect()` of a test slow."""
    gc.freeze()


# `make test-fast` leaves out what starts processes: a test that does so has the marker.
_running: list[pytest.Item] = []


def _refuse_processes(event, _):
    if event in ("subprocess.Popen", "os.fork", "os.posix_spawn") and _running:
        item = _running[-1]
        if item.get_closest_marker("process") is None:
            pytest.fail(f"{item.nodeid} starts a process: mark it with pytest.mark.process")


sys.addaudithook(_refuse_processes)


# Hooks rather than fixtures: they cost a tenth of them, and there are many small tests.
def pytest_runtest_setup(item):
    """The same random numbers for a test whichever others run."""
    _running[:] = [item]
    _limit_time(item)
    np.random.seed(0)
    mx.random.seed(0)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    with contextlib.suppress(Exception):
        mx.nd.waitall()  # what failed in one test is not reported in the next
    _running.clear()
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()  # the reports, for the reason above

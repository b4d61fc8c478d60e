"""The tests of `tests/cuda`, in a process with the emulated CUDA driver."""

import os
import shutil
import subprocess
import sys

import emulated_driver
import pytest
from places import ROOT, SUPPORT

QUIET = ["-p", "no:cacheprovider"]


def check(*arguments, **variables):
    """Runs tests in a process with the emulated driver and these variables."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", *QUIET, *arguments],
        cwd=ROOT,
        env={**os.environ, **emulated_driver.environment(), **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the emulated driver is for Linux")
@pytest.mark.skipif(not shutil.which("g++"), reason="the emulated driver needs g++")
def test_a_third_of_the_cases_on_the_emulated_driver():
    """All of them take minutes: `make test-cuda`."""
    check("tests/cuda", RSNET_EVERY_CASE="3")


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the emulated driver is for Linux")
@pytest.mark.skipif(not shutil.which("g++"), reason="the emulated driver needs g++")
def test_products_without_cublas():
    check("tests/cuda/test_products.py", RSNET_LIBCUBLAS="")


def run_every_kernel(**variables):
    """Launches every kernel, and compares results with the host's; the number of these."""
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "every_kernel.py")],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert "runtime error" not in done.stderr
    return int(done.stdout)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the emulated driver is for Linux")
@pytest.mark.skipif(not shutil.which("g++"), reason="the emulated driver needs g++")
@pytest.mark.parametrize("order", ["0", "1", "7"])
def test_no_kernel_depends_on_the_order_of_blocks_and_threads(order):
    environment = emulated_driver.environment()
    variables = {**environment, "RSNET_LIBCUBLAS": "", "RSNET_EMULATED_ORDER": order}
    assert run_every_kernel(**variables) >= 150


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the emulated driver is for Linux")
@pytest.mark.skipif(not shutil.which("g++"), reason="the emulated driver needs g++")
def test_no_kernel_touches_what_is_not_its_own():
    """Under the sanitizers of addresses and of undefined behaviour."""
    assert run_every_kernel(**emulated_driver.environment(sanitized=True)) >= 150

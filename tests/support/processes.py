"""Programs in processes of their own, so that a hang or a crash is the failure of one test."""

import os
import subprocess
import sys
import textwrap

from places import SUPPORT

LIMIT_S = 120


def run(code, timeout=LIMIT_S, **env):
    """Runs a program, which may import the modules beside this one.

    Returns the completed process with what it printed; a hang raises `TimeoutExpired`.
    """
    paths = [str(SUPPORT), env.pop("PYTHONPATH", os.environ.get("PYTHONPATH", ""))]
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **env, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )


def printed(code, timeout=LIMIT_S, **env):
    """What a program printed, without blank space around; it must end well."""
    done = run(code, timeout, **env)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "panicked" not in done.stderr, done.stderr
    return done.stdout.strip()

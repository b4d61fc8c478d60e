"""What a test changes around itself: environment variables, standard error, repetition."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from .. import ndarray as nd


@contextlib.contextmanager
def environment(*args: Any) -> Iterator[None]:
    """Sets environment variables for a block: `environment(name, value)` or a dict; None unsets.

    Waits for all work before it restores them.
    """
    changes = args[0] if len(args) == 1 else {args[0]: args[1]}
    before = {k: os.environ.get(k) for k in changes}

    def apply(values: dict[str, str | None]) -> None:
        for key, value in values.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value

    apply(changes)
    try:
        yield
    finally:
        nd.waitall()
        apply(before)


@contextlib.contextmanager
def discard_stderr() -> Iterator[None]:
    """Silences file descriptor 2 for a block."""
    kept = os.dup(2)
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def retry(n: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: runs a test up to `n` times while it fails with AssertionError."""
    if n < 1:
        raise ValueError(f"n is {n}, expected at least 1")

    def deco(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> Any:
            for left in range(n - 1, -1, -1):
                try:
                    return test(*args, **kwargs)
                except AssertionError:
                    if not left:
                        raise
                    nd.waitall()

        return run

    return deco

"""`Monitor`: statistics of the arrays that an executor computes, at regular steps.

Rows have MXNet's names. One rule differs: the gradients of a node with several inputs are named
after the inputs (`fc1_backward_weight`), where MXNet 1.9 counts them (`fc1_backward_output1`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

from . import ndarray
from ._numbers import integer
from .ndarray import NDArray

__all__ = ["Monitor"]


def _size_of_elements(x: NDArray) -> NDArray:
    """|x|₂ / √n."""
    size: NDArray = ndarray.norm(x) / (x.size**0.5)
    return size


class Monitor:
    """Collects a statistic of outputs, arguments and auxiliary states of executors.

    Parameters
    ----------
    interval : int
        Steps from one collection to the next.
    stat_func : callable, optional
        Maps an NDArray to an NDArray or a list of them; default `norm(x) / sqrt(n)`.
    pattern : str
        Regular expression; a name must match it from its start.
    sort : bool
        Whether to sort the results by name.
    monitor_all : bool
        Whether to collect inputs of operators too.

    Examples
    --------
    >>> import rsnet as mx
    >>> exe = (mx.sym.Variable("x") * 2).simple_bind(mx.cpu(), x=(2,))
    >>> monitor = mx.monitor.Monitor(1, pattern=".*output")
    >>> monitor.install(exe)
    >>> monitor.tic()
    >>> _ = exe.forward()
    >>> [name for _, name, _ in monitor.toc()]
    ['_mulscalar0_output']
    """

    def __init__(
        self,
        interval: int,
        stat_func: Callable[[NDArray], Any] | None = None,
        pattern: str = ".*",
        sort: bool = False,
        monitor_all: bool = False,
    ) -> None:
        self.stat_func = stat_func or _size_of_elements
        self.interval = integer("interval", interval, least=1)
        self.activated = False
        self.queue: list[tuple[int, str, Any]] = []
        self.step = 0
        self.exes: list[Any] = []
        self.re_prog = re.compile(pattern)
        self.sort = sort
        self.monitor_all = monitor_all

    def stat_helper(self, name: str, array: NDArray) -> None:
        """What executors call with each entry."""
        if self.activated and self.re_prog.match(name):
            self.queue.append((self.step, name, self.stat_func(array)))

    def install(self, exe: Any) -> None:
        """Watches an executor."""
        exe.set_monitor_callback(self.stat_helper, self.monitor_all)
        self.exes.append(exe)

    def tic(self) -> None:
        """Begins a step; every `interval`-th step is collected."""
        if self.step % self.interval == 0:
            for exe in self.exes:
                for array in exe.arg_arrays:
                    array.wait_to_read()
            self.queue = []
            self.activated = True
        self.step += 1

    def toc(self) -> list[tuple[int, str, str]]:
        """Ends the step.

        Returns
        -------
        list of (int, str, str)
            Step, name and statistic of each collected array.
        """
        if not self.activated:
            return []
        for exe in self.exes:
            for name, array in (*exe.arg_dict.items(), *exe.aux_dict.items()):
                if self.re_prog.match(name):
                    self.queue.append((self.step, name, self.stat_func(array)))
        self.activated = False
        if self.sort:
            self.queue.sort(key=lambda item: item[1])
        found = [(step, name, _text(value)) for step, name, value in self.queue]
        self.queue = []
        return found

    def toc_print(self) -> None:
        """Ends the step and logs what was collected."""
        for step, name, text in self.toc():
            logging.info("Batch: %7d %-30s %s", step, name, text)


def _text(value: Any) -> str:
    values = value if isinstance(value, list) else [value]
    texts = []
    for item in values:
        if not isinstance(item, NDArray):
            raise TypeError(
                f"stat_func returned a {type(item).__name__}, expected an NDArray or a list of them"
            )
        texts.append(str(item.asscalar() if item.shape == (1,) else item.asnumpy()))
    return "".join(text + "\t" for text in texts)

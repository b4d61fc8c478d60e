"""The dependency engine, for any Python function.

Operations are functions with the variables they read and write. Two operations that share a
variable which
one of them writes run in the order of their pushes; reads of one variable run side by side;
everything else is unordered. A push returns at once; errors surface at a wait.

Examples
--------
Two steps for each of three files; the files side by side, the steps of one file in order:

>>> from rsnet import engine
>>> log = {name: [] for name in "abc"}
>>> for name in log:
...     file = engine.new_variable()
...     engine.push_sync(lambda rc, n=name: log[n].append("read"), mutate_vars=[file])
...     engine.push_sync(lambda rc, n=name: log[n].append("compress"), mutate_vars=[file])
>>> engine.wait_for_all()
>>> log
{'a': ['read', 'compress'], 'b': ['read', 'compress'], 'c': ['read', 'compress']}
"""

from __future__ import annotations

import atexit
from contextlib import contextmanager

from . import _core

_engine = _core.engine
OnComplete = _engine.OnComplete
Operator = _engine.Operator
RunContext = _engine.RunContext
Variable = _engine.Variable
delete_operator = _engine.delete_operator
delete_variable = _engine.delete_variable
new_operator = _engine.new_operator
new_variable = _engine.new_variable
num_threads = _engine.num_threads
push = _engine.push
push_async = _engine.push_async
push_sync = _engine.push_sync
set_bulk_size = _engine.set_bulk_size
set_hook = _engine.set_hook
set_num_threads = _engine.set_num_threads
set_wait_timeout = _engine.set_wait_timeout
start = _engine.start
stop = _engine.stop
wait_for_all = _engine.wait_for_all
wait_for_var = _engine.wait_for_var

__all__ = [
    "OnComplete",
    "Operator",
    "RunContext",
    "Variable",
    "bulk",
    "delete_operator",
    "delete_variable",
    "new_operator",
    "new_variable",
    "num_threads",
    "push",
    "push_async",
    "push_sync",
    "set_bulk_size",
    "set_hook",
    "set_num_threads",
    "set_wait_timeout",
    "start",
    "stop",
    "wait_for_all",
    "wait_for_var",
]

atexit.register(_engine._shutdown)


@contextmanager
def bulk(size):
    """Gathers the functions that this thread pushes in a ``with`` block, up to `size` into one operation.

    Only plain pushes are gathered: ``push_sync`` without a priority or property. They are pushed when
    `size` are there, at the end of the block, and before anything of this thread that could notice: another
    kind of push, another device, a deletion, a wait, a read. The functions run in order. If one fails the
    rest of its operation is skipped, and every variable that the operation writes carries the error.

    Parameters
    ----------
    size : int
        How many functions become one operation; 0 and 1: none are gathered.

    Examples
    --------
    A thousand lines are counted in ten operations:

    >>> from rsnet import engine
    >>> total, lines = [], engine.new_variable()
    >>> with engine.bulk(100):
    ...     for number in range(1000):
    ...         engine.push_sync(lambda rc, n=number: total.append(n), mutate_vars=[lines])
    >>> engine.wait_for_var(lines)
    >>> len(total), lines.version
    (1000, 10)
    """
    before = set_bulk_size(size)
    try:
        yield
    finally:
        set_bulk_size(before)

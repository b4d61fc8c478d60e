"""The dependency engine, for any Python function.

Operations are functions with the variables they read and write. Two operations that share a
variable which one of them writes run in the order of their pushes; reads of one variable run side
by side; everything else is unordered. A push returns at once; errors surface at a wait. A program
that ends does not wait: functions that have not started by then are skipped. Call `wait_for_all` at
its end if they matter.

Examples
--------
A pipeline over files: each is read, then counted and searched side by side, and a report waits for
all of them. A variable stands for whatever the functions share, here for the text of a file and for
the report:

>>> import os, tempfile
>>> from rsnet import engine
>>> folder = tempfile.mkdtemp()
>>> names = [os.path.join(folder, name) for name in ("a.txt", "b.txt")]
>>> for name in names:
...     with open(name, "w") as file:
...         _ = file.write("tea and cake, tea and jam")
>>> text, words, teas, parts = {}, {}, {}, []
>>> def read(name):
...     with open(name) as file:
...         text[name] = file.read()
>>> for name in names:
...     content, count, found = (engine.new_variable() for _ in range(3))
...     engine.push_sync(lambda rc, n=name: read(n), mutate_vars=[content])
...     engine.push_sync(
...         lambda rc, n=name: words.update({n: len(text[n].split())}), None, [content], [count]
...     )
...     engine.push_sync(
...         lambda rc, n=name: teas.update({n: text[n].count("tea")}), None, [content], [found]
...     )
...     parts += [count, found]
>>> report, lines = engine.new_variable(), []
>>> engine.push_sync(
...     lambda rc: lines.append((sum(words.values()), sum(teas.values()))), None, parts, [report]
... )
>>> engine.wait_for_var(report)
>>> lines
[(12, 4)]

An operation that fails stops those that read what it was to write, and the wait raises its
exception:

>>> missing, count = engine.new_variable(), engine.new_variable()
>>> engine.push_sync(lambda rc: read("no such file"), mutate_vars=[missing])
>>> engine.push_sync(lambda rc: lines.append("never"), None, [missing], [count])
>>> try:
...     engine.wait_for_var(count)
... except FileNotFoundError as error:
...     print(error.filename)
no such file
>>> lines
[(12, 4)]
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterator
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
set_raise_in_push = _engine.set_raise_in_push
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
    "set_raise_in_push",
    "set_wait_timeout",
    "start",
    "stop",
    "wait_for_all",
    "wait_for_var",
]


@atexit.register
def _at_exit() -> None:
    """Ends the engine, and prints what nobody else would learn of."""
    try:
        running = _engine._shutdown()
    except Exception as error:
        import traceback  # for errors only: it would add to the time of importing rsnet

        print("rsnet: an error that no wait has raised:", file=sys.stderr)
        raised_at = error.__traceback__ and error.__traceback__.tb_next  # without this function
        traceback.print_exception(type(error), error, raised_at)
    else:
        if running:
            names = ", ".join(running)
            print(f"rsnet: still running at exit, and abandoned: {names}", file=sys.stderr)


@contextmanager
def bulk(size: int) -> Iterator[None]:
    """Gathers the functions that this thread pushes in a ``with`` block, up to `size` into one
    operation.

    Only plain pushes are gathered: ``push_sync`` without a priority or property. They are pushed
    when `size` are there, at the end of the block, and before anything of this thread that could
    notice: another kind of push, another device, a deletion, a wait, a read. What other threads do
    pushes nothing: their ``wait_for_all`` does not cover what is still gathered. The functions run
    in order. If one fails the rest of its operation is skipped, and every variable that the
    operation writes carries the error.

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

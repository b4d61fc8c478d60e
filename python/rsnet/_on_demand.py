"""Imports on the first use of a name, which a fork does not cut in two.

A child that is forked while another thread imports a module inherits that module's lock, and waits
for it for ever. So a fork waits until no thread imports on demand, and such an import waits until a
fork is over.
"""

from __future__ import annotations

import os
import threading
from importlib import import_module
from types import ModuleType

#: A fork waits no longer than this: an import may be waiting for what the forking thread holds.
_LONGEST_WAIT_S = 10.0


class _Imports:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: list[int] = []
        self._forking = False

    def run(self, name: str) -> ModuleType:
        thread = threading.get_ident()
        with self._changed:
            if thread not in self._running:
                self._changed.wait_for(lambda: not self._forking, _LONGEST_WAIT_S)
            self._running.append(thread)
        try:
            return import_module(name)
        finally:
            with self._changed:
                self._running.remove(thread)
                self._changed.notify_all()

    def before_fork(self) -> None:
        own = {threading.get_ident()}
        with self._changed:
            self._changed.wait_for(lambda: own.issuperset(self._running), _LONGEST_WAIT_S)
            self._forking = True

    def in_parent(self) -> None:
        with self._changed:
            self._forking = False
            self._changed.notify_all()

    def in_child(self) -> None:
        """Other threads, and the lock that one of them may hold, are gone."""
        self._changed = threading.Condition()
        self._running = [t for t in self._running if t == threading.get_ident()]
        self._forking = False


_imports = _Imports()

#: Gives one element, to the thread that registers the handlers.
_first = iter((True,))
_forks_are_watched = False


def _watch_forks() -> None:
    """Lets forks wait for imports on demand, from the first one on."""
    global _forks_are_watched
    if _forks_are_watched:
        return
    # Both register handlers of forks in pairs, and are imported now for two reasons. Python takes
    # the list of those to run before a fork when it begins, and the list of those to run after it
    # when it ends: if these modules were imported while a fork waits for an import on demand, half
    # of a pair would run, and release a lock that is not held. And what is registered later runs
    # earlier before a fork: so the wait for imports ends before the locks of these modules are
    # taken, which others want while they are imported.
    import concurrent.futures.thread  # noqa: F401
    import logging  # noqa: F401

    if next(_first, False):
        os.register_at_fork(
            before=_imports.before_fork,
            after_in_parent=_imports.in_parent,
            after_in_child=_imports.in_child,
        )
        _forks_are_watched = True


def import_on_demand(name: str) -> ModuleType:
    """The module of this name, as :func:`importlib.import_module` gives it."""
    _watch_forks()
    return _imports.run(name)

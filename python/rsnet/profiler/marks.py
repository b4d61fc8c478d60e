"""What a program records of its own: tasks, frames, events, counters, markers; see the package."""

from __future__ import annotations

from typing import Any

from .. import _core
from .._numbers import integer

_profiler = _core.profiler


def _text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"invalid {what} {value!r}: expected a str")
    return value


class _Named:
    """Has a name, by which it is shown."""

    def __init__(self, name: str) -> None:
        self.name = _text("name", name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class Domain(_Named):
    """A name under which tasks, frames, counters and markers are shown together.

    Parameters
    ----------
    name : str

    Examples
    --------
    >>> import rsnet as mx
    >>> domain = mx.profiler.Domain("loading")
    >>> str(domain), domain.new_task("read").name
    ('loading', 'read')
    """

    def new_task(self, name: str) -> Task:
        """A `Task` of this domain."""
        return Task(self, name)

    def new_frame(self, name: str) -> Frame:
        """A `Frame` of this domain."""
        return Frame(self, name)

    def new_counter(self, name: str, value: int | None = None) -> Counter:
        """A `Counter` of this domain."""
        return Counter(self, name, value)

    def new_marker(self, name: str) -> Marker:
        """A `Marker` of this domain."""
        return Marker(self, name)


class _InDomain(_Named):
    """Belongs to a domain."""

    def __init__(self, domain: Domain, name: str) -> None:
        if not isinstance(domain, Domain):
            raise TypeError(f"invalid domain {domain!r}: expected a profiler.Domain")
        super().__init__(name)
        self.domain = domain


class _Interval(_Named):
    """From `start` to `stop`, on any threads; recorded if the profiler runs at the start."""

    _category = "event"
    _begun: Any = None
    _is_started = False

    def start(self) -> None:
        """Begins it; a RuntimeError if it has begun."""
        if self._is_started:
            raise RuntimeError(f"invalid start of {self!r}, which runs: expected stop() before")
        self._is_started, self._begun = True, _profiler.begin()

    def stop(self) -> None:
        """Ends it; a RuntimeError if it has not begun."""
        if not self._is_started:
            raise RuntimeError(
                f"invalid stop of {self!r}, which does not run: expected start() before"
            )
        begun, self._begun, self._is_started = self._begun, None, False
        if begun is not None:
            _profiler.end(begun, self._category, self.name)

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


class Task(_InDomain, _Interval):
    """Something of the program's own that takes time: a ``with`` block, or from `start` to `stop`.

    Parameters
    ----------
    domain : Domain
    name : str

    Examples
    --------
    >>> import rsnet as mx
    >>> task = mx.profiler.Task(mx.profiler.Domain("loading"), "read")
    >>> with task:
    ...     text = "tea"
    >>> task.start()
    >>> task.stop()
    """

    def __init__(self, domain: Domain, name: str) -> None:
        super().__init__(domain, name)
        self._category = domain.name


class Frame(Task):
    """A part of something that is repeated, such as a step of training. Otherwise as `Task`.

    Parameters
    ----------
    domain : Domain
    name : str

    Examples
    --------
    >>> import rsnet as mx
    >>> frame = mx.profiler.Domain("training").new_frame("step")
    >>> for batch in range(3):
    ...     with frame:
    ...         pass
    """


class Event(_Interval):
    """Something that takes time and belongs to no domain. Otherwise as `Task`.

    Parameters
    ----------
    name : str

    Examples
    --------
    >>> import rsnet as mx
    >>> with mx.profiler.Event("warming up"):
    ...     pass
    """


class Counter(_InDomain):
    """A number that changes as the program goes on. It counts also while nothing is recorded.

    Parameters
    ----------
    domain : Domain
    name : str
    value : int, optional
        Where it begins; 0 if it is not given.

    Examples
    --------
    >>> import rsnet as mx
    >>> waiting = mx.profiler.Counter(mx.profiler.Domain("loading"), "files waiting", 10)
    >>> waiting += 5
    >>> waiting.decrement()
    >>> waiting.value
    14
    """

    def __init__(self, domain: Domain, name: str, value: int | None = None) -> None:
        super().__init__(domain, name)
        self._count = _profiler.Count()
        if value is not None:
            self.set_value(value)

    def __repr__(self) -> str:
        return f"Counter({self.name!r}, {self.value})"

    @property
    def value(self) -> int:
        """What it has counted to."""
        return int(self._count.value)

    def _change(self, value: int, relative: bool, sign: int = 1) -> None:
        number = sign * integer("value", value)
        self._count.change(self.domain.name, self.name, number, relative)

    def set_value(self, value: int) -> None:
        """Sets it."""
        self._change(value, relative=False)

    def increment(self, delta: int = 1) -> None:
        """Adds `delta`."""
        self._change(delta, relative=True)

    def decrement(self, delta: int = 1) -> None:
        """Takes `delta` off."""
        self._change(delta, relative=True, sign=-1)

    def __iadd__(self, delta: int) -> Counter:
        self.increment(delta)
        return self

    def __isub__(self, delta: int) -> Counter:
        self.decrement(delta)
        return self


class Marker(_InDomain):
    """A moment of the program's own.

    Parameters
    ----------
    domain : Domain
    name : str

    Examples
    --------
    >>> import rsnet as mx
    >>> marker = mx.profiler.Domain("training").new_marker("best model so far")
    >>> marker.mark("thread")
    """

    def mark(self, scope: str = "process") -> None:
        """Now. `scope` says what it concerns: 'global', 'process', 'thread', 'task' or 'marker'."""
        _profiler.mark(self.domain.name, self.name, scope)

"""Notes on exceptions; those that the core keeps, without the frames of the program that they
came through.

A frame holds its variables, and by ``f_back`` those of its callers. An array whose operation failed
carries the exception; were the frames kept with it, the variable that holds the array would hold
itself, where no garbage collector sees it.
"""

from __future__ import annotations

import functools
import threading
import types
from typing import Any


def _raise() -> None:
    raise StopAsyncIteration


@functools.lru_cache(maxsize=512)
def _frame_named(filename: str, name: str, qualname: str, module: str) -> types.FrameType:
    """A frame that has ended, with these names, no variables and no caller."""
    named: dict[str, Any] = {"co_filename": filename, "co_name": name}
    if hasattr(_raise.__code__, "co_qualname"):
        named["co_qualname"] = qualname
    function = types.FunctionType(_raise.__code__.replace(**named), {"__name__": module})
    frames = []

    def run() -> None:
        try:
            function()
        except StopAsyncIteration as raised:
            assert raised.__traceback__ is not None and raised.__traceback__.tb_next is not None
            frames.append(raised.__traceback__.tb_next.tb_frame)

    # On a thread of its own, so that it has no callers of this one.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    return frames[0]


def _frame_like(frame: types.FrameType) -> types.FrameType:
    code, module = frame.f_code, frame.f_globals.get("__name__")
    qualname = getattr(code, "co_qualname", code.co_name)
    return _frame_named(code.co_filename, code.co_name, qualname, str(module))


def _bare(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """The same places, without the frames."""
    places = []
    while traceback is not None:
        places.append((traceback.tb_frame, traceback.tb_lineno))
        traceback = traceback.tb_next
    bare = None
    for frame, line in reversed(places):
        bare = types.TracebackType(bare, _frame_like(frame), -1, line)
    return bare


def detach(exception: BaseException) -> None:
    """Takes the frames out of the tracebacks of an exception and of what led to it."""
    todo: list[BaseException | None] = [exception]
    seen = set()
    while todo:
        e = todo.pop()
        if e is None or id(e) in seen:
            continue
        seen.add(id(e))
        e.__traceback__ = _bare(e.__traceback__)
        todo += [e.__cause__, e.__context__, *getattr(e, "exceptions", ())]


def add_note(error: BaseException, text: str) -> None:
    """Adds a note to an exception, also where Python (3.10) has none of its own."""
    if hasattr(error, "add_note"):
        error.add_note(text)
    else:
        vars(error).setdefault("__notes__", []).append(text)


def is_of_a_signal(exception: BaseException) -> bool:
    """Did a signal handler raise it, on this thread? (Handlers run on the main one.)"""
    import signal  # as `copy` below: not needed before something has failed

    if threading.current_thread() is not threading.main_thread():
        return False
    if isinstance(exception, KeyboardInterrupt) and not exception.args:
        return True  # as Python's own handler raises it
    handlers = {
        getattr(getattr(handler, "__func__", handler), "__code__", None)
        for handler in map(signal.getsignal, signal.valid_signals())
    }
    traceback = exception.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in handlers:
            return True
        traceback = traceback.tb_next
    return False


def twin(exception: BaseException) -> BaseException:
    """Another exception of the same type, arguments, attributes and places; the same one where
    there can be no copy.

    The one that is raised gets the frames it passes through, so another one is kept.
    """
    import copy

    kind = type(exception)
    try:
        if kind.__module__ == "builtins":
            made = copy.copy(exception)
        else:
            made = kind.__new__(kind, *exception.args)  # its __init__ may do anything
            made.args = exception.args
            made.__dict__.update(exception.__dict__)
    except Exception:
        return exception
    if type(made) is not kind or str(made) != str(exception):
        return exception
    made.__traceback__ = exception.__traceback__
    made.__cause__, made.__context__ = exception.__cause__, exception.__context__
    made.__suppress_context__ = exception.__suppress_context__
    return made

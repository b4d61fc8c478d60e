"""Loggers whose lines begin with level, time and place: ``[I 0714 10:30:12 1234 main:7] text``."""

from __future__ import annotations

import logging
import sys
import warnings
from logging import CRITICAL, DEBUG, ERROR, INFO, NOTSET, WARNING

from ._terminal import is_terminal

__all__ = ["CRITICAL", "DEBUG", "ERROR", "INFO", "NOTSET", "WARNING", "getLogger", "get_logger"]

_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[31m"}


class _Lines(logging.Formatter):
    """The head of a line in the colour of its level, on terminals."""

    def __init__(self, coloured: bool) -> None:
        super().__init__(datefmt="%m%d %H:%M:%S")
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        time = self.formatTime(record, self.datefmt)
        head = f"[{record.levelname[0]} {time} {record.process} {record.module}:{record.lineno}]"
        if self._coloured:
            head = f"{_COLOURS.get(record.levelno, chr(27) + '[32m')}{head}\x1b[0m"
        text = f"{head} {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def getLogger(
    name: str | None = None,
    filename: str | None = None,
    filemode: str | None = None,
    level: int = WARNING,
) -> logging.Logger:
    """The logger `name`, with one handler of this module's format.

    Parameters
    ----------
    name : str, optional
        The root logger, without a handler of its own, if None.
    filename : str, optional
        Lines go to this file instead of standard error.
    filemode : str, optional
        How the file is opened, "a" if None.
    level : int
        Lines below it are not written.

    Examples
    --------
    >>> getLogger("training", level=INFO).getEffectiveLevel() == INFO
    True
    """
    logger = logging.getLogger(name)
    if name is None or any(isinstance(h.formatter, _Lines) for h in logger.handlers):
        return logger
    handler: logging.Handler
    if filename:
        handler = logging.FileHandler(filename, filemode or "a")
    else:
        handler = logging.StreamHandler()
    handler.setFormatter(_Lines(coloured=not filename and is_terminal(sys.stderr)))
    logger.addHandler(handler)
    logger.setLevel(level)
    return logger


def get_logger(
    name: str | None = None,
    filename: str | None = None,
    filemode: str | None = None,
    level: int = WARNING,
) -> logging.Logger:
    """The older name of `getLogger`, deprecated."""
    warnings.warn("get_logger is deprecated: use getLogger", DeprecationWarning, stacklevel=2)
    return getLogger(name, filename, filemode, level)

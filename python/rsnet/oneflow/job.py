"""Jobs: functions whose annotated NumPy arguments are checked, run on NDArrays."""

from __future__ import annotations

import functools
import inspect
import threading
import typing as t
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import autograd
from .. import ndarray as nd
from ..base import MXNetError
from . import config
from . import typing as flow_typing
from .builder import unique_names
from .training import Trainer

_running = threading.local()


class Job:
    """One run of a job function."""

    def __init__(self, function: GlobalFunction) -> None:
        self.function = function
        self.loss: Any = None
        self.optimizer: Any = None
        self.watched: list[tuple[Any, Callable[[Any], None]]] = []
        #: What ``minimize`` updates, by name.
        self.variables: dict[str, Any] = {}

    def train(self, name: str, variable: Any) -> None:
        """Makes an array one of the variables of a train job, with a gradient of this run."""
        known = any(variable is v for v in self.variables.values())
        if self.function.type == "train" and not known:
            variable.attach_grad()
            self.variables[name] = variable

    def minimize(self, loss: Any, optimizer: Any) -> None:
        """What is differentiated at the end of the job, and by what."""
        if self.loss is not None:
            raise MXNetError(
                f"train job '{self.function.name}': expected one call of minimize, got two"
            )
        if self.function.type != "train":
            raise MXNetError(f"minimize: invalid job '{self.function.name}': expected a train job")
        self.loss, self.optimizer = loss, optimizer


def current(what: str) -> Job:
    """The job this thread runs."""
    job: Job | None = getattr(_running, "job", None)
    if job is None:
        raise MXNetError(f"{what}: expected a call inside of a job function")
    return job


class GlobalFunction:
    """A job function with its placeholders."""

    def __init__(self, function: Callable[..., Any], type: str) -> None:
        self.name = function.__name__
        self.type = type
        self._function = function
        self._signature = inspect.signature(function)
        hints = {k: p.annotation for k, p in self._signature.parameters.items()}
        returns = self._signature.return_annotation
        if any(isinstance(h, str) for h in (*hints.values(), returns)):
            hints = t.get_type_hints(function)
            returns = hints.pop("return", None)
        self._returns = None if returns is inspect.Signature.empty else returns
        self._placeholders = hints
        self._trainer = Trainer()
        for key, parameter in self._signature.parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise MXNetError(
                    f"job '{self.name}': invalid argument *{key}: expected one by name"
                )
            if not isinstance(hints.get(key), flow_typing.Placeholder):
                raise MXNetError(
                    f"job '{self.name}': argument '{key}': expected an annotation such as "
                    "typing.Numpy.Placeholder((2, 3))"
                )
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = self._signature.bind(*args, **kwargs)
        arrays = {k: self._checked(k, v) for k, v in bound.arguments.items()}
        config.start_session()
        job = Job(self)
        before = getattr(_running, "job", None)
        _running.job = job
        try:
            with unique_names(f"job '{self.name}'"):
                result = self._run(job, arrays)
        finally:
            _running.job = before
        return self._given_back(result)

    def _run(self, job: Job, arrays: dict[str, Any]) -> Any:
        if self.type != "train":
            with autograd.predict_mode():
                return self._function(**arrays)
        for array in arrays.values():
            if np.issubdtype(array.dtype, np.floating):
                array.attach_grad()
        for name, array in self._captured():
            array.grad[:] = 0
            job.variables[name] = array
        with autograd.record():
            result = self._function(**arrays)
        if job.loss is None:
            raise MXNetError(
                f"train job '{self.name}': expected a call of minimize(loss), got none"
            )
        job.loss.backward()
        for array, handler in job.watched:
            handler(array.grad.asnumpy())
        self._trainer.update(job.optimizer, job.variables)
        return result

    def _captured(self) -> list[tuple[str, Any]]:
        """The arrays with gradients that the function refers to, by the names it has for them."""
        found = inspect.getclosurevars(self._function)
        named = {**found.globals, **found.nonlocals}
        arrays = [(name, x) for name, x in named.items() if isinstance(x, nd.NDArray)]
        return [(f"{name} of {self.name}", x) for name, x in arrays if x.grad is not None]

    def _checked(self, key: str, value: Any) -> Any:
        placeholder = self._placeholders[key]
        if placeholder.many and isinstance(value, (list, tuple)):
            value = value[0] if len(value) == 1 else value
        value = np.asarray(value)
        if value.dtype != placeholder.dtype:
            raise MXNetError(
                f"job '{self.name}': invalid dtype of argument '{key}' {value.dtype}: "
                f"expected {placeholder.dtype}"
            )
        exact = value.shape == placeholder.shape
        below = len(value.shape) == len(placeholder.shape) and all(
            a <= b for a, b in zip(value.shape, placeholder.shape)
        )
        if not (below if placeholder.many else exact):
            raise MXNetError(
                f"job '{self.name}': invalid shape of argument '{key}' {value.shape}: "
                f"expected {placeholder.shape}"
            )
        return nd.array(value, dtype=value.dtype)

    def _given_back(self, result: Any) -> Any:
        if isinstance(self._returns, flow_typing.Callback):
            return lambda handler: handler(_to_numpy(result))
        if self._returns is None:
            return Future(result)
        return _to_numpy(result)


class Future:
    """The result of a job without a return annotation."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def get(self) -> Any:
        return _to_numpy(self._result)


def _to_numpy(result: Any) -> Any:
    if isinstance(result, (list, tuple)):
        return type(result)(_to_numpy(r) for r in result)
    if isinstance(result, dict):
        return {k: _to_numpy(v) for k, v in result.items()}
    return result.asnumpy() if isinstance(result, nd.NDArray) else result


def global_function(
    type: Any = "predict",
    function_config: Any = None,
) -> Any:
    """Decorator of jobs, ``@global_function(type="train")``; also without a call."""
    if callable(type):
        return GlobalFunction(type, "predict")
    if type not in ("predict", "train"):
        raise MXNetError(f"global_function: invalid type {type!r}: expected one of: predict, train")
    return lambda function: GlobalFunction(function, type)


def watch_diff(blob: Any, handler: Callable[[Any], None]) -> None:
    """Calls ``handler`` with the gradient of ``blob`` after the backward pass, before the update.

    ``blob`` is an argument or variable of the job.
    """
    job = current("watch_diff")
    if getattr(blob, "grad", None) is None:
        raise MXNetError(
            "watch_diff: invalid blob: expected an argument or variable of a train job, which has "
            "a gradient"
        )
    job.watched.append((blob, handler))

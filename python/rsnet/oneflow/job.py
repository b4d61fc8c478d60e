"""Jobs: functions whose annotated NumPy arguments are checked, run on NDArrays."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import autograd, optimizer
from .. import ndarray as nd
from .._operators.checks import fail, invalid
from . import config, typing

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
        self._names: set[str] = set()

    def take_name(self, name: str) -> None:
        """Gives an operator its name, which no other of this run may have."""
        if name in self._names:
            new = f"one that is new in job '{self.function.name}'"
            raise invalid("user_op_builder", "name", name, new)
        self._names.add(name)

    def train(self, name: str, variable: Any) -> None:
        """Makes an array one of the variables of a train job, with a gradient of this run."""
        known = any(variable is v for v in self.variables.values())
        if self.function.type == "train" and not known:
            variable.attach_grad()
            self.variables[name] = variable

    def minimize(self, loss: Any, optimizer: Any) -> None:
        """What is differentiated at the end of the job, and by what."""
        if self.loss is not None:
            where = f"train job '{self.function.name}'"
            raise fail(where, "expected one call of minimize, got two")
        if self.function.type != "train":
            raise invalid("minimize", "job", self.function.name, "a train job")
        self.loss, self.optimizer = loss, optimizer


def running() -> Job | None:
    """The job that this thread runs, if any."""
    return getattr(_running, "job", None)


def current(what: str) -> Job:
    """The job that this thread runs."""
    job = running()
    if job is None:
        raise fail(what, "expected a call inside of a job function")
    return job


class Trainer:
    """What the runs of one train job share: how many there were, and the momentum of variables."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps = 0
        self._updater: Any = None

    def update(self, how: Any, variables: dict[str, Any]) -> None:
        """One step of every variable, by its gradient; ``how`` is an ``oneflow.optimizer.SGD``."""
        with self._lock:
            if self._updater is None or self._updater.optimizer.momentum != how.momentum:
                self._updater = optimizer.Updater(optimizer.SGD(momentum=how.momentum))
            self._updater.optimizer.set_learning_rate(how.scheduler.rate(self._steps))
            for name, variable in variables.items():
                self._updater(name, variable.grad, variable)
            self._steps += 1


class GlobalFunction:
    """A job function with its placeholders."""

    def __init__(self, function: Callable[..., Any], type: str) -> None:
        self.name = function.__name__
        self.type = type
        self._function = function
        self._signature = inspect.signature(function, eval_str=True)
        self._trainer = Trainer()
        for key, parameter in self._signature.parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise self._error(f"invalid argument *{key}: expected one by name")
            if not isinstance(parameter.annotation, typing.Placeholder):
                form = "typing.Numpy.Placeholder((2, 3))"
                raise self._error(f"argument '{key}': expected an annotation such as {form}")
        functools.update_wrapper(self, function)

    def _error(self, message: str) -> Exception:
        return fail(f"job '{self.name}'", message)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = self._signature.bind(*args, **kwargs)
        arrays = {k: self._checked(k, v) for k, v in bound.arguments.items()}
        config.start_session()
        before = running()
        job = _running.job = Job(self)
        try:
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
            raise fail(f"train job '{self.name}'", "expected a call of minimize(loss), got none")
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
        expected = self._signature.parameters[key].annotation
        if expected.many and isinstance(value, (list, tuple)):
            value = value[0] if len(value) == 1 else value
        value = np.asarray(value)
        for what, given, wanted, fits in (
            ("dtype", value.dtype, expected.dtype, value.dtype == expected.dtype),
            ("shape", value.shape, expected.shape, expected.fits(value.shape)),
        ):
            if not fits:
                raise self._error(f"invalid {what} of argument '{key}' {given}: expected {wanted}")
        return nd.array(value, dtype=value.dtype)

    def _given_back(self, result: Any) -> Any:
        returns = self._signature.return_annotation
        if isinstance(returns, typing.Callback):
            return lambda handler: handler(_to_numpy(result))
        if returns is None or returns is self._signature.empty:
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


def global_function(type: Any = "predict", function_config: Any = None) -> Any:
    """Decorator of jobs, ``@global_function(type="train")``; also without a call."""
    if callable(type):
        return GlobalFunction(type, "predict")
    if type not in ("predict", "train"):
        raise invalid("global_function", "type", type, "one of: predict, train")
    return lambda function: GlobalFunction(function, type)


def watch_diff(blob: Any, handler: Callable[[Any], None]) -> None:
    """Calls ``handler`` with the gradient of ``blob`` after the backward pass, before the update.

    ``blob`` is an argument or variable of the job.
    """
    job = current("watch_diff")
    if getattr(blob, "grad", None) is None:
        one = "an argument or variable of a train job, which has a gradient"
        raise fail("watch_diff", f"invalid blob: expected {one}")
    job.watched.append((blob, handler))

"""``user_op_builder``: OneFlow's way of calling a user operator, on NDArrays and on symbols."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from .. import ndarray, symbol
from .._operators.checks import fail
from .._operators.user.builder import OperatorBuilder
from .._operators.user.conf import Conf

_scope = threading.local()


@contextlib.contextmanager
def unique_names(where: str) -> Iterator[None]:
    """A scope in which no two operators of this thread may have one name."""
    before = getattr(_scope, "names", None)
    _scope.names = (where, set())
    try:
        yield
    finally:
        _scope.names = before


def _take_name(name: str) -> None:
    scope = getattr(_scope, "names", None)
    if scope is not None:
        where, names = scope
        if name in names:
            raise fail("user_op_builder", f"{where} has an operator '{name}' already")
        names.add(name)


class UserOp:
    """A built operator: ``conf`` is its description as plain data."""

    def __init__(
        self, name: str, conf: Conf, inputs: dict[str, list[Any]], outputs: list[str]
    ) -> None:
        self.name = name
        self._conf = conf
        self._inputs = inputs
        self._order = outputs
        self._blobs: dict[str, list[Any]] | None = None

    @property
    def conf(self) -> dict[str, Any]:
        """op_type_name, input, output and attr; can be written as JSON."""
        d, counts = self._conf.definition, self._conf.counts
        return {
            "name": self.name,
            "op_type_name": d.name,
            "input": {
                a: [getattr(b, "name", None) or f"{a}_{i}" for i, b in enumerate(blobs)]
                for a, blobs in self._inputs.items()
            },
            "output": {
                a.name: [f"{self.name}/{a.name}_{i}" for i in range(counts[a.name])]
                for a in d.outputs
            },
            "attr": {
                k: list(v) if isinstance(v, tuple) else v for k, v in self._conf.attrs.items()
            },
        }

    def InferAndTryRun(self) -> UserOp:
        """Runs the operator on NDArrays, or composes it on symbols."""
        d = self._conf.definition
        flat = [b for arg in d.inputs for b in self._inputs.get(arg.name, ())]
        lazy = any(isinstance(b, symbol.Symbol) for b in flat)
        params = d.call_params(self._conf)
        module = symbol if lazy else ndarray
        function = getattr(module, d.registered, None) or getattr(module._internal, d.registered)
        if lazy:
            params["name"] = self.name
        if d._variable:
            params["num_args"] = len(flat)
        result = function(*flat, **params)
        results = list(result) if len(self._conf.facts.outputs) > 1 else [result]
        self._blobs = {}
        for arg in d.outputs:
            start, n = self._conf.starts[arg.name], self._conf.counts[arg.name]
            self._blobs[arg.name] = results[start : start + n]
        return self

    def _made(self) -> dict[str, list[Any]]:
        if self._blobs is None:
            self.InferAndTryRun()
        assert self._blobs is not None
        return self._blobs

    def RemoteBlobDict(self) -> dict[str, list[Any]]:
        """The outputs by argument."""
        return dict(self._made())

    def RemoteBlobList(self) -> tuple[Any, ...]:
        """The outputs in the order of the ``Output`` calls."""
        blobs = self._made()
        for arg in blobs:
            if blobs[arg] and arg not in self._order:
                raise ValueError(f"{self.name}: output '{arg}' was not declared by Output()")
        return tuple(b for arg in self._order for b in blobs[arg])

    def SoleOutputBlob(self) -> Any:
        """The only output."""
        blobs = self.RemoteBlobList()
        if len(blobs) != 1:
            raise fail(self.name, f"SoleOutputBlob of an operator with {len(blobs)} outputs")
        return blobs[0]


class UserOpBuilder(OperatorBuilder):
    """Describes the call of a user operator; within a job every name may be used once.

    ``user_op_builder("y").Op("myrelu").Input("in", [x]).Output("out").Build().InferAndTryRun()
    .SoleOutputBlob()``
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise fail("user_op_builder", f"the name is {name!r}, expected a text")
        super().__init__(name)

    def Input(self, arg: str, blobs: Sequence[Any]) -> UserOpBuilder:
        """Binds the arrays of an input argument; a second call replaces."""
        super().Input(arg, blobs)
        for blob in blobs:
            if not isinstance(blob, (ndarray.NDArray, symbol.Symbol)):
                raise fail(
                    self._chosen("Input").name,
                    f"Input('{arg}') has {blob!r}, expected NDArrays or symbols",
                )
        return self

    def Build(self) -> UserOp:
        """Completes defaults and checks everything."""
        _, conf, _, _ = self._checked()
        _take_name(self._name)
        return UserOp(self._name, conf, self._inputs, list(self._outputs))


user_op_builder = UserOpBuilder

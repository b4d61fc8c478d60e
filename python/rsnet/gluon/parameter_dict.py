"""`ParameterDict`: the parameters of a block by name, under a prefix."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any

import numpy as np

from .. import initializer
from .. import ndarray as nd
from .._checkpoint import without_marks
from .._numbers import whole_numbers
from ..context import Context
from ._loading import load_all
from .constant import Constant
from .parameter import Parameter, contexts_of
from .utils import indented

__all__ = ["ParameterDict", "load_arrays"]

_NAMING = "(A parameter's name begins with the prefixes of its block and of the blocks around it.)"


def brief(names: Iterable[str], limit: int = 7) -> str:
    """Names for a message, the middle left out if there are many."""
    shown = [f"'{name}'" for name in names]
    if len(shown) > limit:
        half = limit // 2
        shown = [*shown[:half], "...", *shown[-half:]]
    return ", ".join(shown)


def load_arrays(filename: str) -> dict[str, Any]:
    """The arrays of a parameter file by name, without the marks ``arg:`` and ``aux:``.

    Raises
    ------
    ValueError
        The file has arrays without names.
    """
    return without_marks(_named_arrays(filename))


def _named_arrays(filename: str) -> dict[str, Any]:
    loaded = nd.load(os.fspath(filename))
    if not isinstance(loaded, dict):
        if not loaded:
            return {}
        raise ValueError(
            f"invalid parameter file '{filename}': {len(loaded)} arrays without names, expected "
            "names"
        )
    return loaded


class ParameterDict:
    """Parameters by name. `get` makes those that are not there.

    Parameters
    ----------
    prefix : str
        Beginning of the names of all parameters made by `get`.
    shared : ParameterDict, optional
        Where `get` looks before it makes a parameter.

    Examples
    --------
    >>> from rsnet import gluon
    >>> params = gluon.ParameterDict("net_")
    >>> params.get("weight", shape=(2, 3))
    Parameter net_weight (shape=(2, 3), dtype=<class 'numpy.float32'>)
    """

    def __init__(self, prefix: str = "", shared: ParameterDict | None = None) -> None:
        self._prefix = prefix
        self._params: OrderedDict[str, Parameter] = OrderedDict()
        self._shared = shared

    def __repr__(self) -> str:
        name = f"{self._prefix} " if self._prefix else ""
        inside = "\n".join(indented(f"  {p!r}", 2) for p in self.values())
        return f"{name}(\n{inside}\n)"

    def __getitem__(self, key: str) -> Parameter:
        return self._params[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._params)

    def __len__(self) -> int:
        return len(self._params)

    def __contains__(self, key: object) -> bool:
        return key in self._params

    def items(self) -> ItemsView[str, Parameter]:
        """Names and parameters."""
        return self._params.items()

    def keys(self) -> KeysView[str]:
        """Names."""
        return self._params.keys()

    def values(self) -> ValuesView[Parameter]:
        """Parameters."""
        return self._params.values()

    @property
    def prefix(self) -> str:
        """Beginning of the names of all parameters made by `get`."""
        return self._prefix

    def _find(self, name: str) -> Parameter | None:
        if name not in self._params and self._shared is not None and name in self._shared._params:
            self._params[name] = self._shared._params[name]
        return self._params.get(name)

    def get(self, name: str, **kwargs: Any) -> Parameter:
        """The parameter `prefix + name`, made by `Parameter(prefix + name, **kwargs)` if need be.

        Raises
        ------
        AssertionError
            It is there with other properties than those asked for.
        """
        name = self.prefix + name
        param = self._find(name)
        if param is None:
            param = self._params[name] = Parameter(name, **kwargs)
            return param
        for key, wanted in kwargs.items():
            have = getattr(param, key, None)
            if have is None:
                setattr(param, key, wanted)
            elif key == "shape":
                _merge_shape(param, wanted)
            elif not _agree(key, wanted, have):
                raise AssertionError(f"Parameter '{name}' has {key} {have!r}, expected {wanted!r}")
        return param

    def get_constant(self, name: str, value: Any = None) -> Parameter:
        """The constant `prefix + name`, made from `value` if need be.

        Raises
        ------
        KeyError
            It is not there, and no value is given.
        AssertionError
            The name is that of a Parameter, or of a constant with another value.
        """
        name = self.prefix + name
        param = self._find(name)
        if param is None:
            if value is None:
                raise KeyError(f"there is no constant '{name}': expected a value to make it of")
            param = self._params[name] = Constant(name, value)
        elif value is not None:
            if not isinstance(param, Constant):
                raise AssertionError(
                    f"get_constant: invalid name '{name}' of a Parameter: expected that of a "
                    "constant"
                )
            given = value.asnumpy() if isinstance(value, nd.NDArray) else np.asarray(value)
            if given.shape != param.shape or not (given == param.value.asnumpy()).all():
                raise AssertionError(
                    f"get_constant: invalid value of '{name}': expected the one that is there"
                )
        return param

    def update(self, other: ParameterDict) -> None:
        """Adds all parameters of `other`.

        Raises
        ------
        AssertionError
            Another parameter of a name is there already.
        """
        for name, param in other.items():
            if self._params.setdefault(name, param) is not param:
                raise AssertionError(
                    f"update: invalid Parameter '{name}': expected the one that is there, or "
                    "another name"
                )

    def initialize(
        self,
        init: Any = None,
        ctx: Any = None,
        verbose: bool = False,
        force_reinit: bool = False,
    ) -> None:
        """Initialises all parameters, see `Parameter.initialize`; `init` (`Uniform()` if None) is
        for those that have no initializer of their own.
        """
        init = initializer.Uniform() if init is None else initializer.create(init)
        if verbose:
            init.set_verbosity(verbose=verbose)
        for param in self.values():
            param.initialize(None, ctx, init, force_reinit=force_reinit)

    def zero_grad(self) -> None:
        """Fills all gradients with 0."""
        for param in self.values():
            param.zero_grad()

    def reset_ctx(self, ctx: Any) -> None:
        """Moves all parameters to other devices, or none if one cannot be moved."""
        contexts = contexts_of(ctx)
        for move in [param._prepared_move(contexts) for param in self.values()]:
            move()

    def list_ctx(self) -> list[Context]:
        """The devices of the parameters."""
        found = {ctx: None for param in self.values() for ctx in param.list_ctx()}
        return list(found)

    def setattr(self, name: str, value: Any) -> None:
        """Sets an attribute of all parameters, such as ``params.setattr("grad_req", "null")``."""
        for param in self.values():
            setattr(param, name, value)

    def save(self, filename: str, strip_prefix: str = "") -> None:
        """Writes the parameters to a file, without `strip_prefix` in their names.

        Raises
        ------
        ValueError
            A name does not begin with it.
        """
        found = {}
        for param in self.values():
            if not param.name.startswith(strip_prefix):
                raise ValueError(
                    f"Parameter '{param.name}': expected a name that begins with the strip_prefix "
                    f"'{strip_prefix}'; shared parameters and children made outside of name_scope "
                    f"have other prefixes. {_NAMING}"
                )
            found[param.name[len(strip_prefix) :]] = param._reduce()
        nd.save(os.fspath(filename), found)

    def load(
        self,
        filename: str,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Reads parameters from a file.

        Parameters
        ----------
        filename : str
        ctx : Context or list of Context, optional
            Devices; where the parameters are if None.
        allow_missing : bool
            May parameters be missing in the file?
        ignore_extra : bool
            May the file have others?
        restore_prefix : str
            Put before the names in the file.
        cast_dtype : bool
            Convert where dtypes differ?
        dtype_source : str
            'current': to the parameter's dtype; 'saved': the parameter takes the file's.

        Raises
        ------
        AssertionError
            A parameter is missing in the file, or has another shape or dtype there.
        ValueError
            The file has a parameter that is not here.
        """
        self.load_dict(
            _named_arrays(filename),
            ctx,
            allow_missing,
            ignore_extra,
            restore_prefix,
            filename,
            cast_dtype,
            dtype_source,
        )

    def load_dict(
        self,
        param_dict: Mapping[str, Any],
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        filename: str | None = None,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Takes parameters from arrays by name; the arguments are those of `load`.

        `filename` is what errors name.
        """
        where = f"file '{filename}'" if filename else "param_dict"
        for name in self.keys():
            if not name.startswith(restore_prefix):
                raise AssertionError(
                    f"Parameter '{name}': expected a name that begins with the restore_prefix "
                    f"'{restore_prefix}'. {_NAMING}"
                )
        arrays = without_marks(param_dict)
        loaded = {restore_prefix + name: a for name, a in arrays.items()}
        skip = len(restore_prefix)
        if not allow_missing:
            for name in self.keys():
                if name not in loaded:
                    raise AssertionError(
                        f"Parameter '{name[skip:]}' is missing in {where}: expected all of the "
                        f"network's, got {brief(loaded)}: do both have one prefix? {_NAMING}"
                    )
        for name in loaded:
            if name not in self._params and not ignore_extra:
                raise ValueError(
                    f"invalid Parameter '{name[skip:]}' of {where}: expected one of "
                    f"{brief(self.keys())}: do both networks have one prefix? ignore_extra=True "
                    f"accepts this. {_NAMING}"
                )
        values = [(self[name], array) for name, array in loaded.items() if name in self._params]
        load_all(values, ctx, cast_dtype, dtype_source)


def _merge_shape(param: Parameter, wanted: Any) -> None:
    """Fills in what either shape leaves open."""
    have = param.shape or ()
    if wanted is None:
        return
    wanted = whole_numbers(wanted, f"shape of Parameter '{param.name}'")
    if len(wanted) != len(have):
        raise AssertionError(f"Parameter '{param.name}' has shape {have}, expected {wanted}")
    merged = []
    for a, b in zip(wanted, have):
        if a not in (0, -1, b) and b not in (0, -1):
            raise AssertionError(f"Parameter '{param.name}' has shape {have}, expected {wanted}")
        merged.append(b if a in (0, -1) else a)
    param._shape = tuple(merged)


def _agree(key: str, wanted: Any, have: Any) -> bool:
    if wanted is None:
        return True
    if key == "dtype":
        return np.dtype(wanted) == np.dtype(have)
    if key == "init" and not (isinstance(wanted, str) and isinstance(have, str)):
        return initializer.create(wanted) == initializer.create(have)
    return bool(wanted == have)

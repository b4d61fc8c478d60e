"""The record of an operator registered by attributes: ``register``, ``get``, ``Entry``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import registry
from .attribute_table import KERNELS, check_attribute, check_kernels, documented
from .attrs import Attrs, OperatorRecord, kVarg
from .checks import argument_name, fail, free_name, function_name, invalid
from .definition import checked_views
from .translation import Translation


@documented
class Entry(OperatorRecord):
    """The record of one operator. Every method returns the record, so calls can be chained."""

    def __repr__(self) -> str:
        return f"<operator {self.name}: {', '.join(sorted(self.attributes))}>"

    # Filling in --------------------------------------------------------------------------------

    def describe(self, doc: str) -> Entry:
        """Sets the documentation."""
        return self._set(doc=doc)

    def set_num_inputs(self, n: int | Callable[[Attrs], int]) -> Entry:
        """Number of inputs, a function of the parameters, or ``op.kVarg``: any number.

        The number in a call is then the parameter that `set_key_var_num_args` names, which callers
        need not pass: it defaults to the number of arrays of the call.

        >>> from rsnet import nd, op
        >>> _ = (op.register("doc_total").set_num_inputs(op.kVarg)
        ...      .set_key_var_num_args("num_args").set_attr_parser(dict)
        ...      .set_attr("FInferShape", op.ElemwiseShape(-1, 1))
        ...      .set_attr("FCompute<cpu>", lambda attrs, ctx, inputs, req, outputs:
        ...                op.assign(outputs[0], req[0], sum(inputs))))
        >>> nd.doc_total(nd.array([1, 2]), nd.array([3, 4]), nd.array([5, 6])).asnumpy().tolist()
        [9.0, 12.0]
        """
        if not (n == kVarg or callable(n)):
            n = self.number("number of inputs", n, 0)
        return self._set(num_inputs=n)

    def set_num_outputs(self, n: int | Callable[[Attrs], int]) -> Entry:
        """Number of outputs, at least one, or a function of the parameters."""
        return self._set(num_outputs=n if callable(n) else self.number("number of outputs", n, 1))

    def set_attr_parser(self, parser: Any) -> Entry:
        """A Parameter subclass, or a function of the dict of texts whose result is
        ``attrs.parsed``.
        """
        if not callable(parser):
            raise invalid(self.name, "parser", parser, "a Parameter class or a function", TypeError)
        return self._set(param=parser)

    def set_attr(
        self, name: str, value: Any, plevel: int = 10, *, views: str | None = None
    ) -> Entry:
        """Sets an attribute.

        Names that start with ``F`` are those of functions that rsnet calls, in the table below; any
        other name may be used as a marker, to be read with :meth:`attr`. A higher ``plevel``
        overrides a lower one. ``views="numpy"`` passes NumPy views to an FCompute function
        instead of NDArrays, ``views="cupy"`` arrays of CuPy on a device and NumPy views on the
        host.

        {attributes}

        Raises
        ------
        rsnet.MXNetError
            The name is unknown or not supported, or the attribute is set at the same level already.
        TypeError
            The attribute must be a function.
        """
        if isinstance(name, str) and name == "key_var_num_args":
            return self.set_key_var_num_args(value)
        check_attribute(self.name, name, value)
        known = self.attributes.get(name)
        if known is not None and known[0] == plevel:
            what = f"plevel {plevel} of attribute {name}, which is registered with it already"
            raise fail(self.name, f"invalid {what}: expected a higher one")
        if known is not None and known[0] > plevel:
            return self
        return self.put_attr(name, value, plevel, views)

    def put_attr(self, name: str, value: Any, plevel: int = 10, views: str | None = None) -> Entry:
        """Sets an attribute, or replaces it."""
        checked = checked_views(self.name, self.views if views is None else views)
        check_kernels(self.name, {**self.attributes, name: None})
        return self._set(
            attributes={**self.attributes, name: (plevel, value)},
            kernel_views={**self.kernel_views, name: checked},
        )

    def set_key_var_num_args(self, name: str) -> Entry:
        """Names the parameter that counts the inputs of an operator with any number of them; see
        :meth:`set_num_inputs`.
        """
        return self._set(key_var_num_args=argument_name(f"{self.name}: set_key_var_num_args", name))

    def add_argument(self, name: str, type: str, description: str) -> Entry:
        """Documents an input."""
        return self._set(arguments=[*self.arguments, (name, type, description)])

    def add_arguments(self, fields: Sequence[tuple[str, str, str]]) -> Entry:
        """Documents parameters, as (name, type, description).

        Those of a :class:`rsnet.Parameter` are documented by the class itself, so that
        ``SomeParam.fields()`` adds nothing; those of a parser function are known from here only.
        """
        docs = {name: (kind, doc) for name, kind, doc in fields}
        return self._set(param_docs=self.param_docs | docs)

    def add_alias(self, name: str) -> Entry:
        """Another name of the operator; an error if an operator has it, or it cannot be that of a
        function.
        """
        return self._set(aliases=[*self.aliases, free_name(f"{self.name}: add_alias", name)])

    def include(self, group: Entry | str) -> Entry:
        """Takes over the attributes of another record that this one does not set."""
        if isinstance(group, str):
            group = get(group)
        attributes = {**group.attributes, **self.attributes}
        check_kernels(self.name, attributes)
        return self._set(
            attributes=attributes,
            kernel_views={**group.kernel_views, **self.kernel_views},
            param=group.param if self.param is None else self.param,
        )

    # Translation -------------------------------------------------------------------------------

    def _set(self, **fields: Any) -> Entry:
        """Changes fields and, once the operator can be used, hands it to the core again; all is as
        before if it is refused.
        """
        if self.superseded:
            last = "that of the last registration"
            raise fail(self.name, f"invalid record, an old one: expected {last}")
        before = vars(self).copy()
        vars(self).update(fields)
        if any(name in KERNELS for name in self.attributes):
            try:
                Translation(self).definition().install(replace=self.installed)
            except Exception:
                vars(self).update(before)
                raise
            self.installed = True
        return self


# Records --------------------------------------------------------------------------------------


def register(name: str, *, views: str | None = None) -> Entry:
    """The record of operator ``name``: a new one, or the one that is registered already.

    Its attributes are set by :meth:`Entry.set_attr`, whose documentation lists them: FInferShape,
    FInferType, FCompute<cpu>, FGradient and others. An operator with a way to compute (FCompute or
    FStatefulCompute) is ``nd.<name>`` and ``sym.<name>``.

    With ``views="numpy"`` the FCompute functions set from now on get NumPy views of the operands
    instead of NDArrays, with ``views="cupy"`` arrays of CuPy on a device and NumPy views on the
    host, unless their ``set_attr`` says otherwise.

    >>> from rsnet import nd, op
    >>> _ = (op.register("doc_add_one", views="numpy")
    ...      .set_attr("FInferShape", op.ElemwiseShape(1, 1))
    ...      .set_attr("FCompute<cpu>", lambda attrs, ctx, inputs, req, outputs:
    ...                op.assign(outputs[0], req[0], inputs[0] + 1)))
    >>> nd.doc_add_one(nd.array([1, 2])).asnumpy().tolist()
    [2.0, 3.0]
    """
    function_name("register", name)
    entry = registry.entries.get(name)
    if entry is None:
        entry = registry.entries[name] = new_entry(name)
    if views is not None:
        entry.views = checked_views(name, views)
    return entry


def new_entry(name: str) -> Entry:
    free_name("register", name)
    if registry.version(name) is not None:
        how = "already registered, and not by attributes: it cannot be changed here"
        raise fail(f"operator '{name}'", how)
    return Entry(name)


def get(name: str) -> Entry:
    """The record of a registered operator; KeyError if there is none."""
    if name not in registry.entries:
        raise KeyError(f"invalid operator '{name}': expected one that op.register has made")
    entry: Entry = registry.entries[name]
    return entry

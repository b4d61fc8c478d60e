"""Loops and conditions as symbols: `foreach`, `while_loop` and `cond` of ``sym.contrib``.

Each calls the functions of the program once, on variables, and cuts what they composed out of the
graph: it becomes the subgraph of one node. What was composed elsewhere is an input of the node. The
attribute ``__subgraph_name__`` tells the one from the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .. import name as names
from .._trees import check_functions, flat, like, listed, pair, step_limit
from ..attribute import AttrScope
from ..base import shown
from .register import create, function
from .symbol import Group, Symbol, Variable

__all__ = ["cond", "foreach", "while_loop"]

_MARK = "__subgraph_name__"


class _Part(NamedTuple):
    """A subgraph: for each of its inputs the number of the loop variable that it is, or the symbol
    outside that it reads.
    """

    body: Symbol
    inputs: list[int | Symbol]


class _Scope(AttrScope):
    """Marks what is composed inside as part of the subgraph `name`."""

    def __init__(self, hint: str) -> None:
        self.name = names.current().get(None, hint)
        super().__init__(**{_MARK: self.name})

    def __enter__(self) -> _Scope:
        super().__enter__()
        return self

    def variables(self, like: Sequence[Symbol], what: str) -> list[Symbol]:
        """Fresh variables."""
        return [Variable(f"{self.name}_{what}{i}") for i in range(len(like))]

    def cut(self, outputs: list[Symbol], variables: Sequence[Symbol]) -> _Part:
        """What was composed inside, with `outputs`, which are nodes of the subgraph."""
        body, numbers, outside = Group(outputs)._handle.cut(
            _MARK, self.name, [variable._handle for variable in variables]
        )
        pairs = zip(numbers, outside, strict=True)
        return _Part(Symbol(body), [Symbol(o) if number is None else number for number, o in pairs])

    def inside(self, symbol: Symbol) -> Symbol:
        """`symbol`, or its identity if it is not a node of the subgraph."""
        is_node = symbol._handle.children() is not None
        if is_node and symbol.attr(_MARK) == self.name:
            return symbol
        identity: Symbol = function("identity")(symbol)
        return identity


def _outputs(tree: Any, what: str) -> list[Symbol]:
    """The symbols of a nested list, each with one output."""
    found = flat(tree, Symbol, what)
    for symbol in found:
        if len(symbol) != 1:
            raise ValueError(
                f"invalid {what} '{symbol.name}' with {len(symbol)} outputs: expected one output; "
                "choose by index, or list(symbol)"
            )
    return found


def _places(places: Sequence[int]) -> str:
    return f"[{', '.join(map(str, places))}]"


def _place(inputs: list[Symbol], symbol: Symbol) -> int:
    """The place of a symbol among the inputs of a node, to which it is added if need be."""
    for at, known in enumerate(inputs):
        if known._handle.is_same(symbol._handle):
            return at
    inputs.append(symbol)
    return len(inputs) - 1


def _node(op: str, inputs: list[Symbol], bodies: list[Symbol], **params: Any) -> Symbol:
    params["num_args"] = len(inputs) + len(bodies)
    return create(op, op, inputs, {}, params, bodies=bodies)


def foreach(
    body: Callable[[Any, Any], tuple[Any, Any]], data: Any, init_states: Any, name: str = "foreach"
) -> tuple[Any, Any]:
    """A loop over the slices of `data` along axis 0, which hands states from step to step.

    Parameters
    ----------
    body : callable
        ``body(slices, states) -> (outputs, states)``; each is a symbol or a nested list of symbols.
        It is called once. Symbols from outside that it uses are inputs of the loop.
    data : Symbol or nested list of Symbol
        Symbols of one extent along axis 0, at least 1; slices of a vector have the shape (1,).
    init_states : Symbol or nested list of Symbol
        States of the first step.
    name : str
        The beginning of the subgraph's name.

    Returns
    -------
    tuple
        The outputs of all steps, stacked along axis 0, and the states of the last.

    Raises
    ------
    ValueError
        The body does not use some of `data`, returns another number of states than it takes, no
        output at all, or no pair.

    Examples
    --------
    >>> import rsnet as mx
    >>> step = lambda x, total: (total + x, total + x)
    >>> sums, total = mx.sym.contrib.foreach(step, mx.sym.var("x"), mx.sym.var("start"))
    >>> values = {"x": mx.nd.array([1, 2, 3]), "start": mx.nd.array([0])}
    >>> sums.eval(**values)[0].asnumpy().ravel().tolist()
    [1.0, 3.0, 6.0]
    """
    check_functions(body=body)
    sequences, states = _outputs(data, "data"), _outputs(init_states, "init_states")
    with _Scope(name) as scope:
        slices = scope.variables(sequences, "data")
        before = scope.variables(states, "state")
        step = body(like(data, list(slices)), like(init_states, list(before)))
        made, new = pair(step, "(outputs, states)")
        outputs, after = _outputs(made, "output"), _outputs(new, "state")
        if len(after) != len(states):
            raise ValueError(f"invalid number of new states {len(after)}: expected {len(states)}")
        heads = [scope.inside(head) for head in outputs + after]
        heads = _all_read(heads, before, len(outputs))
        part = scope.cut(heads, [*slices, *before])
    used = {i for i in part.inputs if isinstance(i, int)}
    for i, symbol in enumerate(sequences):
        if i not in used:
            raise ValueError(f"invalid data '{symbol.name}': expected a body that uses it")
    inputs = [*sequences, *states]
    places: dict[int, int] = {}
    for at, of in enumerate(part.inputs):
        if isinstance(of, int):
            places[of] = at
        else:
            inputs.append(of)
    loop = range(len(sequences) + len(states))
    found = _node(
        "_foreach",
        inputs,
        [part.body],
        num_outputs=len(heads),
        num_out_data=len(outputs),
        in_state_locs=_places([places[i] for i in loop[len(sequences) :]]),
        in_data_locs=_places([places[i] for i in loop[: len(sequences)]]),
        remain_locs=_places([at for at, of in enumerate(part.inputs) if not isinstance(of, int)]),
    )
    results = list(found)
    return like(made, results[: len(outputs)]), like(new, results[len(outputs) :])


def _all_read(heads: list[Symbol], variables: list[Symbol], first: int) -> list[Symbol]:
    """The heads, of which those of loop variables that nothing reads follow their shape."""
    read = set(Group(heads).list_inputs()) if heads else set()
    attach = function("_identity_with_attr_like_rhs")
    new = [
        head if variable.name in read else attach(head, variable)
        for head, variable in zip(heads[first:], variables, strict=True)
    ]
    return heads[:first] + new


def while_loop(
    cond: Callable[..., Symbol],
    func: Callable[..., tuple[Any, Any]],
    loop_vars: Any,
    max_iterations: int | None = None,
    name: str = "while_loop",
) -> tuple[Any, Any]:
    """A loop ``outputs, loop_vars = func(*loop_vars)`` while ``cond(*loop_vars)`` is not zero.

    Parameters
    ----------
    cond : callable
        Takes the loop variables; returns a symbol of one element. It is called once, as `func`.
    func : callable
        Takes the loop variables; returns outputs (None for none), and as many new loop variables.
    loop_vars : Symbol or list of Symbol
        The first loop variables, at least one.
    max_iterations : int
        Greatest number of steps, at least 1; required.
    name : str
        The beginning of the subgraphs' names.

    Returns
    -------
    tuple
        The outputs of all steps, stacked along axis 0 and filled up with zeros to `max_iterations`
        rows, and the last loop variables.

    Raises
    ------
    ValueError
        `max_iterations` is no number of 1 or more, there are no loop variables, their number
        changes, or `func` returns no pair.

    Examples
    --------
    >>> import rsnet as mx
    >>> i = mx.sym.var("i")
    >>> twice = lambda i: (i * 2, i + 1)
    >>> out, last = mx.sym.contrib.while_loop(lambda i: i < 3, twice, i, max_iterations=4)
    >>> out.eval(i=mx.nd.array([1]))[0].asnumpy().ravel().tolist()
    [2.0, 4.0, 0.0, 0.0]
    """
    check_functions(cond=cond, func=func)
    limit = step_limit(max_iterations, 1)
    several = isinstance(loop_vars, (list, tuple))
    states = listed(loop_vars)
    first = _outputs(states, "loop_vars")
    if not first:
        raise ValueError("invalid loop_vars []: expected at least one symbol")
    with _Scope(f"{name}_cond") as scope:
        before = scope.variables(first, "var")
        answer = _outputs(cond(*like(states, list(before))), "condition")
        if len(answer) != 1:
            raise ValueError(f"invalid condition of {len(answer)} symbols: expected one")
        condition = scope.cut([scope.inside(answer[0])], before)
    with _Scope(f"{name}_func") as scope:
        before = scope.variables(first, "var")
        made, new = pair(func(*like(states, list(before))), "(outputs, loop_vars)")
        made, new = [] if made is None else made, listed(new)
        outputs, after = _outputs(made, "output"), _outputs(new, "loop variable")
        if len(after) != len(first):
            raise ValueError(
                f"invalid number of new loop variables {len(after)}: expected {len(first)}"
            )
        heads = [scope.inside(head) for head in outputs + after]
        part = scope.cut(_all_read(heads, before, len(outputs)), before)
    rest: list[Symbol] = []

    def place(of: int | Symbol) -> int:
        return of if isinstance(of, int) else len(first) + _place(rest, of)

    numbers = [of if isinstance(of, int) else None for of in part.inputs]
    cond_places = [place(of) for of in condition.inputs]
    func_places = [place(of) for of in part.inputs]
    found = _node(
        "_while_loop",
        first + rest,
        [condition.body, part.body],
        num_outputs=len(heads),
        num_out_data=len(outputs),
        max_iterations=limit,
        cond_input_locs=_places(cond_places),
        func_input_locs=_places(func_places),
        func_var_locs=_places([numbers.index(i) for i in range(len(first))]),
    )
    results = list(found)
    last = like(states, results[len(outputs) :])
    return like(made, results[: len(outputs)]), last if several else last[0]


def cond(
    pred: Symbol | Callable[[], Symbol],
    then_func: Callable[[], Any],
    else_func: Callable[[], Any],
    name: str = "cond",
) -> Any:
    """What ``then_func()`` returns if `pred`, of one element, is not zero, else what
    ``else_func()`` does. Only the chosen one is computed.

    Raises
    ------
    ValueError
        The functions return different numbers of symbols.

    Examples
    --------
    >>> import rsnet as mx
    >>> x = mx.sym.var("x")
    >>> size = mx.sym.contrib.cond(x < 0, lambda: -x, lambda: x)
    >>> float(size.eval(x=mx.nd.array([-2]))[0].asscalar())
    2.0
    """
    check_functions(then_func=then_func, else_func=else_func)
    if not isinstance(pred, Symbol) and not callable(pred):
        raise TypeError(f"invalid pred {shown(pred)}: expected a Symbol or a function")
    with _Scope(f"{name}_pred") as scope:
        answer = _outputs(pred if isinstance(pred, Symbol) else pred(), "condition")
        if len(answer) != 1:
            raise ValueError(f"invalid condition of {len(answer)} symbols: expected one")
        parts = [scope.cut([scope.inside(answer[0])], [])]
    trees = []
    for branch, hint in ((then_func, "then"), (else_func, "else")):
        with _Scope(f"{name}_{hint}") as scope:
            trees.append(branch())
            heads = [scope.inside(head) for head in _outputs(trees[-1], "output")]
            if not heads:
                raise ValueError(f"invalid output of the function '{hint}': expected a symbol")
            parts.append(scope.cut(heads, []))
    counts = [len(part.body) for part in parts[1:]]
    if counts[0] != counts[1]:
        raise ValueError(
            f"invalid numbers of outputs {counts[0]} and {counts[1]}: expected the same of both "
            "functions"
        )
    inputs: list[Symbol] = []
    places = [
        _places([_place(inputs, of) for of in part.inputs if isinstance(of, Symbol)])
        for part in parts
    ]
    found = _node(
        "_cond",
        inputs,
        [part.body for part in parts],
        num_outputs=counts[0],
        cond_input_locs=places[0],
        then_input_locs=places[1],
        else_input_locs=places[2],
    )
    return like(trees[0], list(found))

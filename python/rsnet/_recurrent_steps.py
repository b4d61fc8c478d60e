"""Steps of recurrent cells, over arrays or symbols (`F`), after the products with their weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["gru_step", "lstm_step"]


def lstm_step(
    F: Any, gates: Sequence[Any], memory: Any, activate: Callable[..., Any], name: str
) -> tuple[Any, list[Any]]:
    """Output and following states of an LSTM, from its four gates before their activations.

    `activate(x, name=...)` is tanh, or what a cell has instead; nodes are named after `name`.
    """
    i = F.Activation(gates[0], act_type="sigmoid", name=f"{name}i")
    f = F.Activation(gates[1], act_type="sigmoid", name=f"{name}f")
    g = activate(gates[2], name=f"{name}c")
    o = F.Activation(gates[3], act_type="sigmoid", name=f"{name}o")
    memory = F.elemwise_add(f * memory, i * g, name=f"{name}state")
    output = F.elemwise_mul(o, activate(memory), name=f"{name}out")
    return output, [output, memory]


def gru_step(
    F: Any,
    of_input: Sequence[Any],
    of_state: Sequence[Any],
    state: Any,
    activate: Callable[..., Any],
    name: str,
) -> tuple[Any, list[Any]]:
    """Output and following states of a gated recurrent unit, from the three products of the input
    and those of the state; the rest is as for `lstm_step`.
    """
    r = F.Activation(of_input[0] + of_state[0], act_type="sigmoid", name=f"{name}r_act")
    z = F.Activation(of_input[1] + of_state[1], act_type="sigmoid", name=f"{name}z_act")
    n = activate(of_input[2] + r * of_state[2], name=f"{name}h_act")
    output = F.elemwise_add((1.0 - z) * n, z * state, name=f"{name}out")
    return output, [output]

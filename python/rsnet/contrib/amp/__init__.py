"""Automatic mixed precision: products of matrices in float16, sums and losses in float32.

`init` changes how the graphs of hybridized Gluon blocks are made; `init_trainer` and `scale_loss`
keep gradients in the range of float16. `convert_symbol`, `convert_model` and `convert_hybrid_block`
change trained networks. `lists` names the operators.

Source: Micikevicius et al., Mixed precision training, arXiv:1710.03740.
"""

from __future__ import annotations

from ..._mxnet_names import module_getattr
from . import lists, loss_scaler
from .convert import Conditions, convert_hybrid_block, convert_model, convert_symbol
from .training import init, init_trainer, scale_loss, unscale

__all__ = [
    "convert_hybrid_block",
    "convert_model",
    "convert_symbol",
    "init",
    "init_trainer",
    "list_conditional_fp32_ops",
    "list_fp32_ops",
    "list_loss_output_functions",
    "list_lp16_ops",
    "list_widest_type_cast",
    "lists",
    "loss_scaler",
    "scale_loss",
    "unscale",
]


def list_lp16_ops(target_dtype: str = "float16") -> list[str]:
    """Operators that run in half precision."""
    return list(lists.FP16_FUNCS)


def list_fp32_ops(target_dtype: str = "float16") -> list[str]:
    """Operators that run in float32."""
    return list(lists.FP32_FUNCS)


def list_conditional_fp32_ops(target_dtype: str = "float16") -> Conditions:
    """Operators that run in float32 where a parameter has one of some values."""
    return list(lists.CONDITIONAL_FP32_FUNCS)


def list_widest_type_cast(target_dtype: str = "float16") -> list[str]:
    """Operators that get all inputs in the widest of their dtypes."""
    return list(lists.WIDEST_TYPE_CASTS)


def list_loss_output_functions(target_dtype: str = "float16") -> list[str]:
    """Losses that are outputs of a network."""
    return list(lists.LOSS_OUTPUT_FUNCTIONS)


__getattr__ = module_getattr(__name__)

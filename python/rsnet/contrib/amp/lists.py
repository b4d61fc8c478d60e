"""In which precision operators run, by their names in graphs.

float16 has 11 significant bits and ends at 65504: products of matrices gain speed and accumulate
in float32, so they may have it. What sums many numbers, grows fast or divides by small numbers
keeps float32. Operators on several arrays get the widest dtype among them. All others compute in
whatever their inputs are.
"""

from __future__ import annotations

__all__ = ["CONDITIONAL_FP32_FUNCS", "FP16_FUNCS", "FP32_FUNCS", "LOSS_OUTPUT_FUNCTIONS",
           "WIDEST_TYPE_CASTS"]  # fmt: skip

#: Run in half precision.
FP16_FUNCS = ["Convolution", "Deconvolution", "FullyConnected", "RNN"]

#: Losses that are outputs of a network.
LOSS_OUTPUT_FUNCTIONS = [
    "SoftmaxOutput", "LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput",
    "SVMOutput",
]  # fmt: skip

#: Run in float32.
FP32_FUNCS = [
    *LOSS_OUTPUT_FUNCTIONS, "MakeLoss", "make_loss", "CTCLoss", "softmax_cross_entropy",
    # Exponentials, powers, and quotients by small numbers.
    "exp", "expm1", "log", "log10", "log2", "log1p", "sinh", "cosh", "tan", "arccosh", "arctanh",
    "_power", "broadcast_power", "_power_scalar", "_rpower_scalar", "_hypot", "broadcast_hypot",
    "_hypot_scalar", "square", "cbrt", "rsqrt", "rcbrt", "reciprocal", "_rdiv_scalar", "gamma",
    "gammaln", "erfinv", "smooth_l1",
    # Sums of many numbers.
    "sum", "nansum", "prod", "nanprod", "mean", "norm", "cumsum", "moments",
    "softmax", "log_softmax", "softmin", "SoftmaxActivation", "LayerNorm",
    "InstanceNorm", "GroupNorm", "L2Normalization", "LRN", "Custom",
]  # fmt: skip

#: Run in float32 where a parameter has one of these values.
CONDITIONAL_FP32_FUNCS = [
    ("Activation", "act_type", ["softrelu"]),
    ("LeakyReLU", "act_type", ["elu", "selu", "gelu"]),
]

_ARITHMETIC = ["add", "sub", "mul", "div"]
_COMPARISON = ["equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal",
               "logical_and", "logical_or", "logical_xor"]  # fmt: skip

#: Get all inputs in the widest of their dtypes.
WIDEST_TYPE_CASTS = [
    *(f"{kind}_{name}" for kind in ("elemwise", "broadcast") for name in _ARITHMETIC),
    *(f"{kind}_{name}" for kind in ("", "broadcast") for name in _COMPARISON),
    *(f"{kind}_{name}" for kind in ("", "broadcast") for name in ("mod", "maximum", "minimum")),
    "_grad_add", "add_n", "Concat", "stack", "where", "dot",
    "batch_dot", "_linalg_gemm", "_linalg_gemm2", "Correlation", "_contrib_box_iou",
    "_contrib_ROIAlign", "_contrib_PSROIPooling", "_contrib_Proposal", "_contrib_MultiProposal",
    *(f"_contrib_interleaved_matmul_{name}"
      for name in ("selfatt_qk", "selfatt_valatt", "encdec_qk", "encdec_valatt")),
]  # fmt: skip

"""NumPy oracles of the operators on 8-bit integers; see `reference.py`."""

import numpy as np
from reference import REFERENCES, reference

LEVELS = {"int8": 127, "uint8": 255, "int32": 2**31 - 1}


def unit(q, low, high):
    """The real number that 1 of the dtype of `q` stands for."""
    return np.maximum(np.abs(low), np.abs(high))[0] / LEVELS[np.dtype(q).name]


def real(q, low, high):
    return q.astype("float64") * unit(q.dtype, low, high)


def quantise(x, low, high, dtype):
    """The nearest integers, and the range that they say."""
    low, high = (np.atleast_1d(np.float64(v)) for v in (low, high))
    step = unit(dtype, low, high)
    most = LEVELS[dtype]
    q = np.rint(x / step) if step else np.zeros_like(x)
    q = np.clip(q, 0 if dtype == "uint8" else -most, most)
    if dtype == "int8":
        high = np.maximum(np.abs(low), np.abs(high))
        low = -high
    return q.astype(dtype), low, high


def chosen(out_type, low):
    if out_type == "auto":
        return "uint8" if low is not None and low >= 0 else "int8"
    return out_type


@reference("_contrib_quantize")
def quantize(x, low, high, out_type="uint8"):
    return quantise(x, low, high, out_type)


@reference("_contrib_quantize_v2")
def quantize_v2(x, out_type="int8", min_calib_range=None, max_calib_range=None):
    low, high = (
        (x.min(), x.max()) if min_calib_range is None else (min_calib_range, max_calib_range)
    )
    return quantise(x, low, high, chosen(out_type, min_calib_range))


@reference("_contrib_dequantize")
def dequantize(q, low, high):
    return real(q, low, high)


@reference("_contrib_requantize")
def requantize(q, low, high, **params):
    return quantize_v2(real(q, low, high), **params)


@reference("_contrib_quantized_act")
def act(q, low, high, act_type):
    return np.maximum(q, 0), low, high


@reference("_contrib_quantized_flatten")
def flatten(q, low, high):
    return q.reshape(len(q), -1), low, high


@reference("_contrib_quantized_pooling")
def pooling(q, low, high, **params):
    y = REFERENCES["Pooling"](q.astype("float64"), **params)
    return np.rint(y).astype(q.dtype), low, high


@reference("_contrib_quantized_concat")
def concat(a, b, a_low, a_high, b_low, b_high, num_args, dim):
    dtype = "int8" if "int8" in (a.dtype, b.dtype) else "uint8"
    low, high = np.minimum(a_low, b_low), np.maximum(a_high, b_high)
    values = [real(a, a_low, a_high), real(b, b_low, b_high)]
    return quantise(np.concatenate(values, dim), low, high, dtype)[0], low, high


def combined(value, dtype, low, high):
    if low is None:
        return None
    return quantise(value, low, high, dtype)[0], np.array([low]), np.array([high])


@reference("_contrib_quantized_elemwise_add")
def add(a, b, a_low, a_high, b_low, b_high, min_calib_range=None, max_calib_range=None):
    value = real(a, a_low, a_high) + real(b, b_low, b_high)
    if min_calib_range is not None:
        return combined(value, "int8", min_calib_range, max_calib_range)
    most = (np.maximum(-a_low, a_high) + np.maximum(-b_low, b_high)).astype("float32")
    most = most.astype("float64")
    return quantise(value, -most, most, "int32")[0], -most, most


@reference("_contrib_quantized_elemwise_mul")
def mul(a, b, a_low, a_high, b_low, b_high, enable_float_output=False, min_calib_range=None,
        max_calib_range=None):  # fmt: skip
    value = real(a, a_low, a_high) * real(b, b_low, b_high)
    if enable_float_output:
        return value
    if min_calib_range is not None:
        return combined(value, "int8", min_calib_range, max_calib_range)
    most = LEVELS["int32"] * unit(a.dtype, a_low, a_high) * unit(b.dtype, b_low, b_high)
    return a.astype("int32") * b.astype("int32"), np.array([-most]), np.array([most])


def layer(op, operands, lows, highs, params):
    """Sums of integers in int32, with the bias in their unit."""
    units = [unit(q.dtype, low, high) for q, low, high in zip(operands, lows, highs, strict=True)]
    step = units[0] * units[1]
    wide = [q.astype("float64") for q in operands]
    if len(wide) > 2:
        wide[2] = np.rint(wide[2] * units[2] / step)
    most = np.array([step * LEVELS["int32"]])
    return np.rint(REFERENCES[op](*wide, **params)).astype("int32"), -most, most


@reference("_contrib_quantized_fully_connected")
def fully_connected(*inputs, **params):
    n = len(inputs) // 3
    return layer("FullyConnected", inputs[:n], inputs[n::2], inputs[n + 1 :: 2], params)


@reference("_contrib_quantized_conv")
def conv(*inputs, **params):
    n = len(inputs) // 3
    return layer("Convolution", inputs[:n], inputs[n::2], inputs[n + 1 :: 2], params)


@reference("_contrib_quantized_embedding")
def embedding(ids, weight, low, high, input_dim, output_dim):
    return weight[ids.astype(int)], low, high


@reference("_contrib_quantized_batch_norm")
def batch_norm(q, gamma, beta, mean, var, low, high, min_calib_range, max_calib_range, fix_gamma):
    of = [
        v.reshape(1, -1, 1) for v in (np.ones_like(gamma) if fix_gamma else gamma, beta, mean, var)
    ]
    y = (real(q, low, high) - of[2]) * of[0] / np.sqrt(of[3] + 1e-3) + of[1]
    outs = combined(y, "int8", min_calib_range, max_calib_range)
    return (*outs, mean, var)

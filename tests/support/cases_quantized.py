"""Cases of the operators on 8-bit integers; see `cases.py`."""

from cases import In, case


def ints(*shape, dtype="int8"):
    low = 0 if dtype == "uint8" else -127
    return In(shape, low, 256 if dtype == "uint8" else 128, "index", dtype)


def ranges(count):
    """Ranges for a number of arrays: least and greatest number of each."""
    pairs = [(In((1,), -3, -0.1, dtype="float32"), In((1,), 0.1, 3, dtype="float32"))] * count
    return [end for pair in pairs for end in pair]


def quantized(op, *inputs, **params):
    case(op, *inputs, **params, grad="none", dtypes=("float32",))


BYTES = ("int8", "uint8")
for shape in [(2, 3), (1,), (3, 1, 5)]:
    for out_type in BYTES:
        quantized("_contrib_quantize", shape, *ranges(1), out_type=out_type)
    for out_type in (*BYTES, "auto"):
        quantized("_contrib_quantize_v2", shape, out_type=out_type)
        quantized("_contrib_quantize_v2", In(shape, 0, 3), out_type=out_type,
                  min_calib_range=0.0, max_calib_range=2.0)  # fmt: skip
    wide = In(shape, -(10**9), 10**9, "index", "int32")
    quantized("_contrib_requantize", wide, *ranges(1))
    quantized("_contrib_requantize", wide, *ranges(1), out_type="auto", min_calib_range=0.0,
              max_calib_range=0.5)  # fmt: skip
    quantized("_contrib_dequantize", wide, *ranges(1))
    for dtype in BYTES:
        quantized("_contrib_dequantize", ints(*shape, dtype=dtype), *ranges(1))
        quantized("_contrib_quantized_act", ints(*shape, dtype=dtype), *ranges(1), act_type="relu")
        quantized("_contrib_quantized_flatten", ints(*shape, dtype=dtype), *ranges(1))
        both = (ints(*shape, dtype=dtype), ints(*shape), *ranges(2))
        for op in ("_contrib_quantized_elemwise_add", "_contrib_quantized_elemwise_mul"):
            quantized(op, *both)
            quantized(op, *both, min_calib_range=-2.0, max_calib_range=1.0)
        quantized("_contrib_quantized_elemwise_mul", *both, enable_float_output=True)
for dtype in BYTES:
    for pool_type in ("max", "avg"):
        quantized("_contrib_quantized_pooling", ints(2, 3, 5, 4, dtype=dtype), *ranges(1),
                  kernel=(3, 2), stride=(2, 1), pad=(1, 0), pool_type=pool_type)  # fmt: skip
    quantized("_contrib_quantized_concat", ints(2, 3, dtype=dtype), ints(2, 1, dtype="uint8"),
              *ranges(2), num_args=2, dim=1)  # fmt: skip
    for rows, width, hidden in [(1, 1, 1), (5, 37, 9)]:
        data = ints(rows, width, dtype=dtype)
        quantized("_contrib_quantized_fully_connected", data, ints(hidden, width), ints(hidden),
                  *ranges(3), num_hidden=hidden)  # fmt: skip
        quantized("_contrib_quantized_fully_connected", data, ints(hidden, width), *ranges(2),
                  num_hidden=hidden, no_bias=True)  # fmt: skip
    window = dict(kernel=(3, 2), stride=(2, 1), pad=(1, 1), num_filter=4)
    quantized("_contrib_quantized_conv", ints(2, 4, 6, 5, dtype=dtype), ints(4, 4, 3, 2), ints(4),
              *ranges(3), **window)  # fmt: skip
    quantized("_contrib_quantized_conv", ints(2, 4, 6, 5, dtype=dtype), ints(4, 2, 3, 2),
              *ranges(2), **window, num_group=2, no_bias=True)  # fmt: skip
quantized("_contrib_quantized_embedding", In((2, 3), 0, 5, "index", "float32"), ints(5, 4),
          *ranges(1), input_dim=5, output_dim=4)  # fmt: skip
channels = In((3,), 0.5, 2, dtype="float32")
for fix_gamma, dtype in ((True, "int8"), (False, "int8"), (False, "uint8")):
    case("_contrib_quantized_batch_norm", ints(2, 3, 4, dtype=dtype), *[channels] * 4, *ranges(1),
         min_calib_range=-2.0, max_calib_range=3.0, fix_gamma=fix_gamma, grad="none",
         dtypes=("float32",), mutates=(3, 4))  # fmt: skip

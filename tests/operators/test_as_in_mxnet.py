"""Every operator case beside MXNet 1.9.1, forward and backward, in each of its dtypes.

    make compare MXNET_PYTHON=/path/to/python [CASES_SEED=7]

Skipped unless `MXNET_PYTHON` names a Python that has MXNet. What differs on purpose, or where MXNet
fails, is declared in `DECLARED`; a declaration that is no longer needed is an error, too. Dtypes
that MXNet refuses, beside one that it takes, are not counted.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[1] / "support" / "results.py"
PYTHON = os.environ.get("MXNET_PYTHON")

# By operator, or by case, either with a dtype or without: why MXNet gives something else.
DECLARED = {
    "BatchNorm_v1": "MXNet's function takes no auxiliary states by position",
    "IdentityAttachKLSparseReg": "MXNet's function takes no auxiliary states by position",
    "LeakyReLU-2": "MXNet's gradient of selu is scale * (y + alpha), though y has the scale "
    "already",
    "Pooling-8": "MXNet's float32 gradient is not that of its average: it divides by whole windows",
    "Pooling_v1-1": "MXNet's average divides by the window with what lies beyond the data",
    "SequenceLast": "MXNet's gradient without lengths frees memory twice, which ends the process",
    "SoftmaxOutput-8": "MXNet with out_grad multiplies by the output in place of its gradient",
    "_CrossDeviceCopy": "MXNet's function takes no array",
    "_adamw_update-2": "MXNet leaves the output unwritten where nothing changes",
    "_adamw_update-3": "MXNet leaves the output unwritten where nothing changes",
    "_contrib_ModulatedDeformableConvolution": "MXNet has its gradient on the GPU only",
    "_contrib_MultiBoxTarget-3": "MXNet ignores minimum_negative_samples",
    "_contrib_RROIAlign": "MXNet has no gradient",
    "_contrib_allclose": "MXNet gives an array without axes",
    "_contrib_bipartite_matching-2": "MXNet matches topk + 1 pairs",
    "_contrib_calibrate_entropy": "the divergences differ by 0.0014, the thresholds agree",
    "_contrib_count_sketch": "MXNet has it on the GPU only",
    "_contrib_dequantize": "MXNet refuses int32, and oneDNN has half a step more",
    "_contrib_fft": "MXNet has it on the GPU only",
    "_contrib_group_adagrad_update": "MXNet has it for sparse gradients only",
    "_contrib_ifft": "MXNet has it on the GPU only",
    "_contrib_quantize_asym": "MXNet ends the process",
    "_contrib_quantize_v2": "oneDNN has half a step more",
    "_contrib_quantized_act": "MXNet's output for uint8 is int8 of the same bits",
    "_contrib_quantized_batch_norm": "MXNet ignores fix_gamma, and rounds half a step elsewhere",
    "_contrib_quantized_conv": "oneDNN takes uint8 data without groups, and its output has "
    "another range",
    "_contrib_quantized_elemwise_add": "oneDNN counts 127.5 steps, ours are exact",
    "_contrib_quantized_elemwise_mul": "MXNet does not infer its shapes in a call",
    "_contrib_quantized_fully_connected": "oneDNN counts 127.5 steps in the bias",
    "_contrib_quantized_pooling": "oneDNN fails in training mode: it finds no workspace",
    "_grad_add": "MXNet has no gradient",
    "_histogram": "MXNet has no gradient",
    "_image_adjust_lighting-1": "MXNet writes nothing for images of one channel",
    "_image_flip_left_right": "MXNet leaves the middle column unwritten, and does not flip the "
    "gradient",
    "_image_flip_top_bottom": "MXNet does not flip the gradient, and takes one image of 1 or 3 "
    "channels",
    "_image_normalize-2": "MXNet refuses the default mean for these channels",
    "_image_to_tensor": "MXNet has no gradient",
    "_mp_adamw_update-2": "MXNet leaves the output unwritten where nothing changes",
    "_mp_adamw_update-3": "MXNet leaves the output unwritten where nothing changes",
    "_np_atleast_1d": "MXNet's gradient is 0",
    "_np_atleast_2d": "MXNet's gradient is 0",
    "_np_atleast_3d": "MXNet's gradient is 0",
    "_np_cumsum-3": "MXNet refuses negative axes",
    "_npi_average-1": "MXNet's gradient lacks that of the returned weights",
    "_npi_average-2": "MXNet's gradient lacks that of the returned weights",
    "_npi_boolean_mask_assign_scalar": "MXNet wants the output to be the data",
    "_npi_boolean_mask_assign_tensor": "MXNet wants the output to be the data",
    "_npi_concatenate-0": "MXNet's function does not read dim",
    "_npi_concatenate-1": "MXNet's function takes no text as an axis",
    "_npi_copysign_scalar": "MXNet's gradient fails: it has an input too few",
    "_npi_delete-4": "MXNet wants start and stop to be given",
    "_npi_einsum-14": "MXNet's gradient is not summed over axes of extent 1 that are repeated",
    "_npi_einsum-8": "MXNet's gradient is not summed over axes of extent 1 that are repeated",
    "_npi_flip-1": "MXNet refuses negative axes",
    "_npi_flip-2": "MXNet wants axes",
    "_npi_insert_scalar-0": "MXNet fails with a number as value",
    "_npi_insert_slice-0": "MXNet fails with a number as value",
    "_npi_insert_slice-2": "MXNet wants start and stop to be given",
    "_npi_insert_slice-3": "MXNet wants start and stop to be given",
    "_npi_insert_tensor-0": "MXNet fails with a number as value",
    "_npi_matmul-6": "MXNet's gradient is not summed over axes of extent 1 that are repeated",
    "_npi_norm": "MXNet's gradient of sums and singular values ignores that of the output, and it "
    "knows no high matrices and no orders of infinity of vectors",
    "_npi_ones-1": "MXNet infers no shape in a call",
    "_npi_ones-2": "MXNet infers no shape in a call",
    "_npi_pad": "MXNet has gradients of constant margins only, and takes no arrays of one axis",
    "_npi_percentile-6": "MXNet takes percentiles of at most one axis",
    "_npi_rarctan2_scalar": "MXNet's gradient is that of the other operand",
    "_npi_rcopysign_scalar": "MXNet's gradient fails: it has an input too few",
    "_npi_rot90-1": "MXNet's gradient turns by the same angle, not back",
    "_npi_rot90-3": "MXNet's gradient turns by the same angle, not back",
    "_npi_rot90-4": "MXNet's gradient turns by the same angle, not back",
    "_npi_solve-1": "MXNet takes no vectors",
    "_npi_std": "MXNet's gradient is 0",
    "_npi_true_divide-10": "MXNet has no division of these dtypes",
    "_npi_true_divide-9": "MXNet has no division of these dtypes",
    "_npi_var": "MXNet's gradient is 0",
    "_npi_where_lscalar": "MXNet's gradient is that where the number stands",
    "_npi_where_rscalar-0": "MXNet's gradient is that where the number stands",
    "_npi_zeros-1": "MXNet infers no shape in a call",
    "_npi_zeros-2": "MXNet infers no shape in a call",
    "_npx_reshape-5": "MXNet refuses -6 with reverse",
    "_scatter_set_nd": "MXNet wants the output to be the first input",
    "_zeros_without_dtype": "MXNet's function wants a dtype",
    "amp_cast": "MXNet cannot cast to float64",
    "amp_multicast": "MXNet fails with float64",
    "argmax_channel": "MXNet has no gradient",
    "batch_take": "MXNet has no gradient",
    "khatri_rao": "MXNet has no gradient",
    "sort-0": "MXNet's gradient does not read axis=None",
}
NARROW = "MXNet's positions are of the data's dtype, which does not hold them all"
DECLARED |= {
    f"{op}/{d}": NARROW for op in ("argmax", "argmin") for d in ("float16", "int8", "uint8")
}
DECLARED["argmax_channel/float16"] = NARROW
WHOLE = "MXNet's gradient of whole numbers is 0"
DECLARED |= {f"broadcast_mod/{d}": WHOLE for d in ("int32", "int64", "int8", "uint8")}
DECLARED |= {f"_npi_polyval/{d}": WHOLE for d in ("int32", "int64")}
DECLARED["_contrib_arange_like/float16"] = "MXNet's steps are whole numbers in float16"
# Where MXNet calculates in float16; the numbers of a case decide whether that is seen.
ROUNDED = {"Correlation/float16", "_random_pdf_generalized_negative_binomial/float16"}
MISSING = ("has no attribute",)  # rsnet's own operators


def results(python, package, folder):
    path = folder / f"{package}.npz"
    command = [python, "-W", "ignore", str(SCRIPT), package, str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=900)
    with np.load(path) as stored:
        return dict(stored)


def names_of(case):
    """What a case is declared by: `op-1/int8` by itself, `op/int8`, `op-1` or `op`."""
    plain, _, dtype = case.partition("/")
    op = plain.rpartition("-")[0]
    return {case, plain, op, f"{op}/{dtype}"}


def declared(case):
    return not names_of(case).isdisjoint(ROUNDED.union(DECLARED))


def differences(ours, theirs):
    """Text by case: what differs, `None` where nothing does."""
    found = {}
    for key in sorted(set(ours) | set(theirs)):
        case, _, what = key.partition(" ")
        found.setdefault(case, None)
        mine, other = ours.get(key), theirs.get(key)
        if mine is None or other is None:
            text = "" if mine is None else str(mine)
            text = text if other is None else str(other)
            if "/" in case and other is not None:  # refused by MXNet, in a dtype of several
                continue
            if what == "error" and not any(m in text for m in MISSING):
                found[case] = f"{what} of {'rsnet' if other is None else 'MXNet'}: {text}"
        elif what != "error" and mine.shape != other.shape:
            found[case] = f"{what}: shapes {mine.shape} and {other.shape}"
        elif what != "error" and mine.dtype != other.dtype:
            found[case] = f"{what}: dtypes {mine.dtype} and {other.dtype}"
        elif what != "error":
            wide = mine.astype("float64"), other.astype("float64")
            half = case.endswith("/float16") or mine.dtype == np.float16
            rtol, atol = (3e-2, 3e-2) if half else (2e-3, 2e-4)
            if not np.allclose(*wide, rtol=rtol, atol=atol, equal_nan=True):
                found[case] = f"{what}: differs by up to {np.abs(wide[0] - wide[1]).max():.3g}"
    return found


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(not PYTHON, reason="MXNET_PYTHON names no Python with MXNet")
def test_every_case_agrees_with_mxnet(tmp_path):
    found = differences(
        results(sys.executable, "rsnet", tmp_path), results(PYTHON, "mxnet", tmp_path)
    )
    wrong = {c: text for c, text in found.items() if text and not declared(c)}
    assert not wrong, "\n".join(f"{c} {text}" for c, text in wrong.items())
    assert len(found) > 500
    unneeded = [d for d in DECLARED if not any(t and d in names_of(c) for c, t in found.items())]
    assert not unneeded, f"these agree: {unneeded}"


def test_declared_operators_are_on_the_page_of_differences():
    page = (Path(__file__).parents[2] / "docs" / "differences.md").read_text()
    named = set(re.findall("`(\\w+)`", page.partition("## Single operators")[2]))
    missing = {re.sub("(-[0-9]+)?(/.*)?$", "", case) for case in DECLARED} - named
    assert not missing, "each has a line there that says what differs"


def test_differences_are_found():
    one = {"a-0 output 0": np.ones(2), "b-0 output 0": np.ones(2), "c-0 output 0": np.ones(2)}
    two = {"a-0 output 0": np.ones(2), "b-0 output 0": np.zeros(2), "c-0 error": np.array("no")}
    found = differences(one, two)
    assert found["a-0"] is None and "differs by up to 1" in found["b-0"]
    assert found["c-0"] == "error of MXNet: no"


def test_dtypes_that_mxnet_refuses_are_not_counted():
    one = {"a-0 output 0": np.ones(2), "a-0/int8 output 0": np.ones(2, "int8")}
    refused, own = {"a-0/int8 error": np.array("no")}, {"a-0/int8 error": np.array("ours")}
    assert differences(one, one | refused)["a-0/int8"] is None
    assert differences(one | own, one)["a-0/int8"] == "error of rsnet: ours"
    assert "dtypes" in differences(one, one | {"a-0 output 0": np.ones(2, "int8")})["a-0"]
    assert not declared("argmax-0") and declared("argmax-0/int8")

"""What MXNet 1.9.1 gives otherwise in cases of operators, and why: by operator and, where that is
not in all of its cases, by what those have in common. docs/differences.md has the same lines.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cases import Case


@dataclass(frozen=True)
class Difference:
    """A difference in those cases of `operators` that have the dtype, the parameters, and `when`.

    Attributes
    ----------
    seldom : bool
        Whether the numbers of a case decide if the difference is seen.
    """

    operators: tuple[str, ...]
    why: str
    params: dict[str, Any]
    when: Callable[[Case], bool] | None = None
    dtypes: tuple[str, ...] = ()
    seldom: bool = False

    def covers(self, case, dtype):
        if case.op not in self.operators or (self.dtypes and dtype not in self.dtypes):
            return False
        if any(case.params.get(name) != value for name, value in self.params.items()):
            return False
        return self.when is None or self.when(case)


DIFFERENCES: list[Difference] = []


def differs(operators, why, when=None, dtypes="", seldom=False, **params):
    """Adds a difference. Operators and dtypes are words; keywords are parameters of the cases."""
    names = tuple(operators.split())
    DIFFERENCES.append(Difference(names, why, params, when, tuple(dtypes.split()), seldom))


def given(*names):
    """Cases that have one of these parameters at least."""
    return lambda case: any(name in case.params for name in names)


def absent(*names):
    return lambda case: not given(*names)(case)


def begins_with(dtype):
    """Cases whose first input has this dtype."""
    return lambda case: case.inputs[0].dtype == dtype


def has_negative_axis(case):
    axes = case.params.get("axis", ())
    return any(axis < 0 for axis in (axes if isinstance(axes, tuple) else (axes,)))


# Gradients
differs(
    "CTCLoss",
    "MXNet's gradient for a label that is the blank is not that of its loss",
    when=lambda case: case.inputs[1].high == case.inputs[0].shape[2],
    blank_label="last",
)
differs("_contrib_hawkesll", "MXNet's gradients leave out the state, as input and as output")
differs(
    "LeakyReLU",
    "MXNet's gradient of selu is scale * (y + alpha), though y has the scale already",
    act_type="selu",
)
differs(
    "Pooling",
    "MXNet's float32 gradient is not that of its average: it divides by whole windows",
    pool_type="avg",
    pooling_convention="full",
)
differs(
    "SequenceLast", "MXNet's gradient without lengths frees memory twice, which ends the process"
)
differs("SoftmaxOutput", "MXNet with out_grad multiplies by the output in place of its gradient",
        out_grad=True)  # fmt: skip
differs("_contrib_ModulatedDeformableConvolution", "MXNet has its gradient on the GPU only")
differs("_contrib_RROIAlign _grad_add _histogram _image_to_tensor argmax_channel batch_take "
        "khatri_rao", "MXNet has no gradient")  # fmt: skip
differs("_np_atleast_1d _np_atleast_2d _np_atleast_3d _npi_std _npi_var", "MXNet's gradient is 0")
differs("_npi_average", "MXNet's gradient lacks that of the returned weights", returned=True)
differs("_npi_copysign_scalar _npi_rcopysign_scalar",
        "MXNet's gradient fails: it has an input too few")  # fmt: skip
differs("_npi_einsum", "MXNet's gradient is not summed over axes of extent 1 that are repeated",
        when=lambda case: any(1 in spec.shape for spec in case.inputs))  # fmt: skip
differs("_npi_matmul", "MXNet's gradient is not summed over axes of extent 1 that are repeated",
        when=lambda case: 1 in case.inputs[0].shape[:-2])  # fmt: skip
differs("_npi_norm", "MXNet's gradient of sums and singular values ignores that of the output, and "
        "it knows no high matrices and no orders of infinity of vectors")  # fmt: skip
differs("_npi_rarctan2_scalar", "MXNet's gradient is that of the other operand")
differs("_npi_rot90", "MXNet's gradient turns by the same angle, not back",
        when=lambda case: case.params["k"] % 2)  # fmt: skip
differs("_npi_where_lscalar _npi_where_rscalar",
        "MXNet's gradient is that where the number stands")  # fmt: skip
differs("broadcast_mod", "MXNet's gradient of whole numbers is 0", dtypes="int32 int64 int8 uint8")
differs("_npi_polyval", "MXNet's gradient of whole numbers is 0", dtypes="int32 int64")
differs("sort", "MXNet's gradient fails where the axis is not given", when=absent("axis"))

# 8-bit integers
differs("_contrib_dequantize", "MXNet refuses int32", when=begins_with("int32"))
differs("_contrib_dequantize", "oneDNN has half a step more", when=begins_with("int8"))
differs("_contrib_quantize_asym", "MXNet ends the process without a range",
        when=absent("min_calib_range"))  # fmt: skip
differs("_contrib_quantize_v2", "oneDNN has half a step more")
differs("_contrib_quantized_act", "MXNet's output for uint8 is int8 of the same bits",
        when=begins_with("uint8"))  # fmt: skip
differs("_contrib_quantized_batch_norm",
        "MXNet ignores fix_gamma, and rounds half a step elsewhere")  # fmt: skip
differs("_contrib_quantized_conv",
        "oneDNN takes uint8 data without groups, and its output has another range")  # fmt: skip
differs("_contrib_quantized_elemwise_add", "oneDNN counts 127.5 steps, ours are exact")
differs("_contrib_quantized_elemwise_mul", "MXNet does not infer its shapes in a call")
differs("_contrib_quantized_fully_connected", "oneDNN counts 127.5 steps in the bias",
        when=absent("no_bias"))  # fmt: skip
differs("_contrib_quantized_fully_connected", "oneDNN's sums of two products end at 16 bits on "
        "machines without an instruction for wider ones", no_bias=True, seldom=True)  # fmt: skip
differs("_contrib_quantized_pooling", "oneDNN fails in training mode: it finds no workspace",
        pool_type="max")  # fmt: skip

# Values
differs("mean", "MXNet's sums of 8-bit integers wrap", dtypes="uint8 int8")
differs("SoftmaxActivation", "MXNet's float32 softmax of an instance is one of its last axis",
        when=lambda case: len(case.inputs[0].shape) > 2, mode=None, dtypes="float32")  # fmt: skip
differs("_contrib_BilinearResize2D",
        "MXNet takes the first pixel for an extent of 1, not the middle",
        when=lambda case: 1 in (case.params["height"], case.params["width"]),
        align_corners=False)  # fmt: skip
differs("GridGenerator", "MXNet divides by 0 for a target extent of 1",
        when=lambda case: 1 in case.params.get("target_shape", ()))  # fmt: skip
differs("Pooling", "MXNet's maximum of an empty window is the lowest finite number",
        pool_type="max", stride=(3, 3))  # fmt: skip
differs("signsgd_update", "MXNet does not clip gradients to 0", clip_gradient=0.0)
differs("_arange", "MXNet's steps are whole numbers in float16", dtype="float16")
differs("Pooling_v1", "MXNet's average divides by the window with what lies beyond the data",
        pool_type="avg")  # fmt: skip
differs("_adamw_update _mp_adamw_update", "MXNet leaves the output unwritten where nothing changes",
        when=lambda case: case.inputs[-1].kind == "index")  # fmt: skip
differs("_contrib_MultiBoxTarget", "MXNet ignores minimum_negative_samples",
        when=given("minimum_negative_samples"))  # fmt: skip
differs("_contrib_allclose", "MXNet gives an array without axes")
differs("_contrib_bipartite_matching", "MXNet matches topk + 1 pairs", when=given("topk"))
differs("_contrib_calibrate_entropy", "the divergences differ by 0.0014, the thresholds agree")
differs("_image_adjust_lighting", "MXNet writes nothing for images of one channel",
        when=lambda case: case.inputs[0].shape[-1] == 1)  # fmt: skip
differs("_image_flip_left_right",
        "MXNet leaves the middle column unwritten, and does not flip the gradient")  # fmt: skip
differs("_image_flip_top_bottom",
        "MXNet does not flip the gradient, and takes one image of 1 or 3 channels")  # fmt: skip
differs("argmax argmin", "MXNet's positions are of the data's dtype, which does not hold them all",
        dtypes="float16 int8 uint8")  # fmt: skip
differs("argmax_channel", "MXNet's positions are of the data's dtype, which does not hold them all",
        dtypes="float16")  # fmt: skip
differs("_contrib_arange_like", "MXNet's steps are whole numbers in float16", dtypes="float16")
differs("Correlation _random_pdf_generalized_negative_binomial", "MXNet calculates in float16",
        dtypes="float16", seldom=True)  # fmt: skip

# What MXNet, or its function in Python, does not take
differs("BatchNorm_v1 IdentityAttachKLSparseReg",
        "MXNet's function takes no auxiliary states by position")  # fmt: skip
differs("_CrossDeviceCopy", "MXNet's function takes no array")
differs("_contrib_count_sketch _contrib_fft _contrib_ifft", "MXNet has it on the GPU only")
differs("_contrib_group_adagrad_update", "MXNet has it for sparse gradients only")
differs("_image_normalize", "MXNet refuses the default mean for these channels",
        when=absent("mean"))  # fmt: skip
differs("_np_cumsum _npi_flip", "MXNet refuses negative axes", when=has_negative_axis)
differs("_npi_boolean_mask_assign_scalar _npi_boolean_mask_assign_tensor",
        "MXNet wants the output to be the data")  # fmt: skip
differs("_npi_concatenate", "MXNet's function joins along axis 0 unless it is given axis",
        when=absent("axis", "dim"))  # fmt: skip
differs("_npi_concatenate", "MXNet's function does not know dim", when=given("dim"))
differs("_npi_delete _npi_insert_slice", "MXNet wants start and stop to be given",
        when=lambda case: "start" in case.params and "stop" not in case.params)  # fmt: skip
differs("_npi_flip", "MXNet wants axes", when=absent("axis"))
differs("_npi_insert_scalar _npi_insert_slice _npi_insert_tensor",
        "MXNet fails with a number as value", when=given("val"))  # fmt: skip
differs("_npi_ones _npi_zeros", "MXNet infers no shape in a call",
        when=lambda case: not all(case.params["shape"] or [0]))  # fmt: skip
differs("_npi_pad", "MXNet has gradients of constant margins only, and takes no arrays of one axis",
        when=lambda case: case.params.get("mode", "constant") != "constant")  # fmt: skip
differs("_npi_percentile", "MXNet takes percentiles of at most one axis",
        when=lambda case: len(case.inputs[-1].shape) > 1 and len(case.inputs) > 1)  # fmt: skip
differs("_npi_solve", "MXNet takes no vectors", when=lambda case: len(case.inputs[1].shape) == 1)
differs("_npi_true_divide", "MXNet has no division of these dtypes",
        when=lambda case: case.inputs[0].dtype in ("float64", "int32"))  # fmt: skip
differs("_npx_reshape", "MXNet refuses -6 with reverse",
        when=lambda case: -6 in case.params["newshape"], reverse=True)  # fmt: skip
differs("_scatter_set_nd", "MXNet wants the output to be the first input")
differs("_zeros_without_dtype", "MXNet's function wants a dtype")
differs("amp_cast", "MXNet cannot cast to float64", dtype="float64")
differs("amp_cast", "oneDNN rounds float32 to integers, MXNet cuts float16", dtype="int32")
differs("amp_multicast", "MXNet fails with float64")

"""Cases of the operators of computer vision; see `cases.py`."""

from dataclasses import dataclass

import numpy as np
from cases import FLOATS, In, case

REAL = FLOATS[:2]  # choices by comparison differ where float16 rounds scores to equal numbers


def boxes(*lead):
    """Corners in which most boxes overlap some others."""
    return In((*lead, 4), 0, 1)


for form in ("corner", "center"):
    case("_contrib_box_iou", boxes(3), boxes(2, 4), format=form, grad="zero")
    case("_contrib_box_decode", (2, 5, 4), In((1, 5, 4), 0.2, 1), std0=0.1, std1=0.2, std2=0.3,
         std3=0.4, format=form, clip=0.1, grad="zero")  # fmt: skip
case("_contrib_box_decode", (1, 1, 4), In((1, 1, 4), 0.2, 1), grad="zero")
case("_contrib_box_encode", In((2, 5), 0, 1), In((2, 5), 0, 3, "index"), In((2, 5, 4), 0.1, 1),
     In((2, 3, 4), 0.1, 1), In((4,), -0.1, 0.1), In((4,), 0.1, 0.2), grad="none",
     dtypes=REAL)  # fmt: skip
for params in (
    {},
    {"overlap_thresh": 0.1, "valid_thresh": 0.2},
    {"overlap_thresh": 0.1, "topk": 3, "in_format": "center", "out_format": "corner"},
    {"overlap_thresh": 0.2, "coord_start": 1, "score_index": 0, "out_format": "center"},
):
    case("_contrib_box_nms", In((2, 9, 6), 0, 1, "distinct"), dtypes=REAL, grad="none", **params)
for force in (False, True):
    case("_contrib_box_nms", In((12, 6), 0, 2, "index"), id_index=0, background_id=1, score_index=5,
         coord_start=1, force_suppress=force, dtypes=REAL, grad="none")  # fmt: skip
case("_contrib_box_nms", In((2, 9, 6), 0, 2, "distinct"), id_index=0, overlap_thresh=0.1,
     score_index=5, coord_start=1, grad="none")  # fmt: skip
for params in ({}, {"is_ascend": True}, {"topk": 2}):
    case("_contrib_bipartite_matching", In((2, 4, 3), kind="distinct"), threshold=0.1, grad="zero",
         dtypes=REAL, **params)  # fmt: skip
for params in (
    {},
    {"sizes": (0.5, 0.25), "ratios": (1.0, 2.0, 0.5)},
    {"sizes": (0.9,), "clip": True, "steps": (0.4, 0.3), "offsets": (0.1, 0.2)},
):
    case("_contrib_MultiBoxPrior", (1, 3, 2, 3), grad="zero", **params)
anchors = In((1, 6, 4), 0, 1)
for params in (
    {},
    {"overlap_threshold": 0.1, "variances": (1.0, 1.0, 1.0, 1.0)},
    {"negative_mining_ratio": 1.0, "ignore_label": -5.0},
    {"negative_mining_ratio": 1.0, "negative_mining_thresh": 0.3, "minimum_negative_samples": 3},
):
    case("_contrib_MultiBoxTarget", anchors, In((2, 3, 5), 0, 1), (2, 4, 6), grad="none",
         dtypes=REAL, **params)  # fmt: skip
case("_contrib_MultiBoxTarget", anchors, In((1, 2, 5), -1, 0, "index"), (1, 4, 6), grad="none",
     dtypes=REAL)  # fmt: skip
for params in (
    {},
    {"clip": False, "threshold": 0.6},
    {"force_suppress": True, "nms_threshold": 0.1},
    {"nms_topk": 2, "variances": (1.0, 1.0, 1.0, 1.0)},
    {"nms_threshold": -1.0},
):
    case("_contrib_MultiBoxDetection", In((2, 3, 6), 0, 1, "distinct"), (2, 24), anchors,
         grad="zero", dtypes=REAL, **params)  # fmt: skip

for params in (
    {"height": 5, "width": 7},
    {"height": 2, "width": 3, "align_corners": False},
    {"height": 1, "width": 1},
    {"height": 1, "width": 2, "align_corners": False},
    {"scale_height": 1.5, "scale_width": 0.5},
    {"mode": "odd_scale", "scale_height": 2.0, "scale_width": 2.0},
    {"mode": "to_even_up"},
    {"mode": "to_odd_down"},
):
    case("_contrib_BilinearResize2D", (2, 2, 3, 4), **params)
case("_contrib_BilinearResize2D", (1, 2, 3, 4), (1, 1, 5, 6), mode="like", wrt=(0,))
for size in ((), (2,), (2, 3), (5, 6)):
    case("_contrib_AdaptiveAvgPooling2D", (2, 2, 3, 4), output_size=size)
case("BilinearSampler", (2, 3, 4, 5), In((2, 2, 3, 3), -1.3, 1.3))
case("BilinearSampler", (1, 1, 1, 1), In((1, 2, 1, 1), -0.5, 0.5))
case("GridGenerator", (2, 6), transform_type="affine", target_shape=(3, 4))
case("GridGenerator", (2, 6), transform_type="affine", target_shape=(1, 3))
case("GridGenerator", (2, 2, 3, 4), transform_type="warp")
case("SpatialTransformer", (2, 3, 4, 5), In((2, 6), -0.7, 0.7), target_shape=(3, 2),
     transform_type="affine", sampler_type="bilinear")  # fmt: skip
pair = ((2, 3, 5, 6), (2, 3, 5, 6))
case("Correlation", *pair)
case("Correlation", *pair, kernel_size=3, pad_size=2, stride1=2)
case("Correlation", *pair, max_displacement=3, stride2=2, pad_size=3, is_multiply=False)
case("Correlation", *pair, max_displacement=0)

images, grouped = (2, 4, 4, 5), (2, 8, 3, 4)


@dataclass(frozen=True)
class Regions(In):
    """Rows that begin with the number of one of two images; the rest is uniform."""

    def draw(self, rng, dtype):
        rows = rng.uniform(self.low, self.high, self.shape)
        if rows.shape[1] == 5:  # corners, the upper left one first
            rows[:, 1:] = np.sort(rows[:, 1:].reshape(-1, 2, 2), 1).reshape(-1, 4)
        rows[:, 0] = rng.randint(0, 2, len(rows))
        return rows.astype(dtype)


@dataclass(frozen=True)
class Sizes(In):
    """Rows of height, width and scale."""

    def draw(self, rng, dtype):
        return np.tile([48, 60, 1], (self.shape[0], 1)).astype(dtype)


for params in (
    {},
    {"sample_ratio": 2, "spatial_scale": 0.5},
    {"aligned": True, "sample_ratio": 1},
    {"position_sensitive": True},
):
    case("_contrib_ROIAlign", images, Regions((4, 5), 0, 7, "index"),
         **{"pooled_size": (2, 2), "spatial_scale": 1.0, "dtypes": REAL, **params})  # fmt: skip
for ratio in (-1, 2):
    case("_contrib_RROIAlign", images, Regions((4, 6), 0, 5, "index"), pooled_size=(2, 3),
         spatial_scale=0.8, sampling_ratio=ratio, dtypes=REAL)  # fmt: skip
pooling = {"spatial_scale": 0.5, "output_dim": 2, "pooled_size": 2, "dtypes": REAL}
corners = Regions((4, 5), 0, 8, "index")
case("_contrib_PSROIPooling", grouped, corners, **pooling)
case("_contrib_PSROIPooling", grouped, corners, **{**pooling, "pooled_size": 3}, group_size=2)
trans = (4, 4, 2, 2)
case("_contrib_DeformablePSROIPooling", grouped, corners, **pooling, group_size=2, no_trans=True,
     sample_per_part=3)  # fmt: skip
case("_contrib_DeformablePSROIPooling", grouped, corners, trans, **pooling, group_size=2,
     trans_std=0.1, sample_per_part=2)  # fmt: skip
case("_contrib_DeformablePSROIPooling", grouped, corners, (4, 2, 1, 1), **pooling, group_size=2,
     trans_std=0.1, part_size=1)  # fmt: skip

name = "DeformableConvolution"
kernel = {"kernel": (2, 2), "num_filter": 2}
shifted = In((1, 8, 4, 2), -1.5, 1.5)
case(f"_contrib_{name}", (1, 2, 3, 3), shifted, (2, 2, 2, 2), (2,), **kernel, pad=(1, 0))
case(f"_contrib_{name}", (2, 2, 3, 3), In((2, 16, 1, 1), -1, 1), (2, 1, 2, 2), **kernel,
     stride=(2, 2), num_group=2, num_deformable_group=2, no_bias=True)  # fmt: skip
case(f"_contrib_Modulated{name}", (1, 2, 3, 3), shifted, In((1, 4, 4, 2), 0, 1), (2, 2, 2, 2), (2,),
     **kernel, pad=(1, 0))  # fmt: skip
case(f"_contrib_Modulated{name}", (1, 2, 3, 3), In((1, 16, 1, 1), -1, 1), In((1, 8, 1, 1), 0, 1),
     (2, 1, 2, 2), **kernel, dilate=(2, 2), num_group=2, num_deformable_group=2,
     no_bias=True)  # fmt: skip

network = (
    In((1, 24, 3, 4), 0, 1, "distinct"),
    In((1, 48, 3, 4), -0.5, 0.5),
    Sizes((1, 3), kind="index"),
)
top = {"rpn_pre_nms_top_n": 60, "rpn_post_nms_top_n": 8, "grad": "zero", "dtypes": REAL}
for params in (
    {},
    {"threshold": 0.4, "rpn_min_size": 2, "output_score": True},
    {"iou_loss": True, "scales": (1.0, 2.0, 4.0), "ratios": (0.5, 1.0, 1.5, 2.0)},
):
    case("_contrib_Proposal", *network, **top, **params)
two = (
    In((2, 24, 3, 4), 0, 1, "distinct"),
    In((2, 48, 3, 4), -0.5, 0.5),
    Sizes((2, 3), kind="index"),
)
case("_contrib_MultiProposal", *two, **top, rpn_min_size=2)

case("im2col", (2, 3, 4, 5), kernel=(2, 3))
case("im2col", (2, 2, 5, 5), kernel=(2, 2), stride=(2, 1), dilate=(1, 2), pad=(1, 0))
case("col2im", (2, 12, 6), kernel=(2, 2), output_size=(3, 4))
case("col2im", (1, 8, 9), kernel=(2, 2), output_size=(5, 5), stride=(2, 2), pad=(1, 1),
     dilate=(1, 1), dtypes=REAL)  # fmt: skip
stats = (In((3,), 0.5, 1.5), (3,), In((3,), -0.2, 0.2), In((3,), 0.5, 1.5))
case("_contrib_SyncBatchNorm", (4, 3, 2, 2), *stats, key="bn", fix_gamma=False, wrt=(0, 1, 2),
     dtypes=REAL)  # fmt: skip
case(
    "_contrib_BatchNormWithReLU", (4, 3, 2, 2), *stats, fix_gamma=False, wrt=(0, 1, 2), dtypes=REAL
)

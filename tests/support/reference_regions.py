"""NumPy oracles of operators on regions and of deformable convolutions; see `reference.py`."""

import itertools

import numpy as np
from reference import reference
from reference_vision import iou


def bilinear(plane, y, x):
    """Planes (..., H, W) at a place, or at the nearest one inside of them."""
    h, w = plane.shape[-2:]
    y, x = min(max(y, 0), h - 1), min(max(x, 0), w - 1)
    y0, x0 = min(int(y), h - 1), min(int(x), w - 1)
    y1, x1 = min(y0 + 1, h - 1), min(x0 + 1, w - 1)
    fy, fx = y - y0, x - x0
    top = plane[..., y0, x0] * (1 - fx) + plane[..., y0, x1] * fx
    return top * (1 - fy) + (plane[..., y1, x0] * (1 - fx) + plane[..., y1, x1] * fx) * fy


def align(x, pooled_size, ratio, frame):
    """Averages of samples of one region; its frame is image, extents and the map to places."""
    h, w = x.shape[2:]
    n, m = pooled_size
    image, (width, height), place = frame
    out = np.zeros((x.shape[1], n, m))
    if image < 0:
        return out
    ny, nx = (ratio, ratio) if ratio > 0 else (int(np.ceil(height / n)), int(np.ceil(width / m)))
    for i, j, ky, kx in np.ndindex(n, m, ny, nx):
        px, py = place((j + (kx + 0.5) / nx) * width / m, (i + (ky + 0.5) / ny) * height / n)
        if -1 <= px <= w and -1 <= py <= h:
            out[:, i, j] += bilinear(x[image], py, px) / (ny * nx)
    return out


@reference("_contrib_ROIAlign")
def roi_align(
    x, rois, pooled_size=None, spatial_scale=1.0, sample_ratio=-1, position_sensitive=False,
    aligned=False,
):  # fmt: skip
    out = []
    for r in rois:
        x1, y1, x2, y2 = r[1:] * spatial_scale - (0.5 if aligned else 0)
        least = -np.inf if aligned else 1
        size = max(x2 - x1, least), max(y2 - y1, least)
        place = lambda u, v, x1=x1, y1=y1: (x1 + u, y1 + v)  # noqa: E731
        out.append(align(x, pooled_size, sample_ratio, (int(r[0]), size, place)))
    out = np.array(out)
    if not position_sensitive:
        return out
    n, m = pooled_size
    i, j = np.ogrid[:n, :m]
    return out.reshape(len(rois), -1, n, m, n, m)[:, :, i, j, i, j]


@reference("_contrib_RROIAlign")
def rotated_roi_align(x, rois, pooled_size=None, spatial_scale=1.0, sampling_ratio=-1):
    out = []
    for image, cx, cy, w, h, degrees in rois:
        cx, cy = cx * spatial_scale, cy * spatial_scale
        size = max(w * spatial_scale, 1), max(h * spatial_scale, 1)
        turn = np.exp(-1j * np.deg2rad(degrees))

        def place(u, v, cx=cx, cy=cy, size=size, turn=turn):
            z = (u - size[0] / 2 + 1j * (v - size[1] / 2)) * turn
            return cx + z.real, cy + z.imag

        out.append(align(x, pooled_size, sampling_ratio, (int(image), size, place)))
    return np.array(out)


def half_up(v):
    """Rounded, halves away from zero."""
    return np.sign(v) * np.floor(np.abs(v) + 0.5)


def position_sensitive(x, groups, pooled, output_dim):
    """(N, output_dim, pooled, pooled, H, W): the plane that each bin reads."""
    g = np.arange(pooled) * groups // pooled
    planes = x.reshape(len(x), output_dim, groups, groups, *x.shape[2:])
    return planes[:, :, g][:, :, :, g]


@reference("_contrib_PSROIPooling")
def ps_roi_pooling(x, rois, spatial_scale=1.0, output_dim=1, pooled_size=1, group_size=0):
    p = pooled_size
    planes = position_sensitive(x, group_size or p, p, output_dim)
    out = np.zeros((len(rois), output_dim, p, p))
    for r, roi in enumerate(rois):
        first = half_up(roi[1:3]) * spatial_scale
        step = np.maximum((half_up(roi[3:5]) + 1) * spatial_scale - first, 0.1) / p
        edge = lambda k, axis: first[axis] + k * step[axis]  # noqa: E731, B023
        for i, j in np.ndindex(p, p):
            ends = [(np.floor(edge(k, a)), np.ceil(edge(k + 1, a))) for k, a in ((i, 1), (j, 0))]
            rows, columns = (
                slice(*(int(np.clip(v, 0, n)) for v in e))
                for e, n in zip(ends, x.shape[2:], strict=True)
            )
            part = planes[int(roi[0]), :, i, j, rows, columns]
            out[r, :, i, j] = part.mean((1, 2)) if part[0].size else 0
    return out


@reference("_contrib_DeformablePSROIPooling")
def deformable_ps_roi_pooling(
    x, rois, trans=None, spatial_scale=1.0, output_dim=1, group_size=1, pooled_size=1, part_size=0,
    sample_per_part=1, trans_std=0.0, no_trans=False,
):  # fmt: skip
    p, parts, (h, w) = pooled_size, part_size or pooled_size, x.shape[2:]
    planes = position_sensitive(x, group_size, p, output_dim)
    classes = 1 if no_trans else trans.shape[1] // 2
    out = np.zeros((len(rois), output_dim, p, p))
    for (r, roi), k, i, j in itertools.product(enumerate(rois), range(classes), range(p), range(p)):
        first = half_up(roi[1:3]) * spatial_scale - 0.5
        size = np.maximum((half_up(roi[3:5]) + 1) * spatial_scale - 0.5 - first, 0.1)
        if not no_trans:
            at = trans[r, 2 * k : 2 * k + 2, i * parts // p, j * parts // p]
            first = first + at * trans_std * size
        own = slice(k * output_dim // classes, (k + 1) * output_dim // classes)
        step = size / p / sample_per_part
        values = []
        for ky, kx in np.ndindex(sample_per_part, sample_per_part):
            px = first[0] + (j * sample_per_part + kx) * step[0]
            py = first[1] + (i * sample_per_part + ky) * step[1]
            if -0.5 <= px <= w - 0.5 and -0.5 <= py <= h - 0.5:
                values.append(bilinear(planes[int(roi[0]), own, i, j], py, px))
        out[r, own, i, j] = np.mean(values, 0) if values else 0
    return out


def deformed(x, offset, mask, weight, bias, read, p):
    """A convolution whose filters read at moved places by `read`."""
    kernel, groups, shared = p["kernel"], p.get("num_group", 1), p.get("num_deformable_group", 1)
    stride, dilate, pad = (
        p.get(k) or d for k, d in (("stride", (1, 1)), ("dilate", (1, 1)), ("pad", (0, 0)))
    )
    n, c = x.shape[:2]
    out = np.zeros((n, len(weight), *offset.shape[2:]))
    taps = np.prod(kernel)
    for b, i, j, t in np.ndindex(n, *offset.shape[2:], int(taps)):
        at = np.array(divmod(t, kernel[1])) * dilate + np.array([i, j]) * stride - pad
        value = np.zeros(c)
        for g in range(shared):
            k = g * taps + t
            own = slice(g * c // shared, (g + 1) * c // shared)
            value[own] = read(x[b, own], *(at + offset[b, 2 * k : 2 * k + 2, i, j]))
            if mask is not None:
                value[own] *= mask[b, k, i, j]
        w = weight.reshape(groups, -1, c // groups, taps)[..., t]
        out[b, :, i, j] += np.einsum("gfc,gc->gf", w, value.reshape(groups, -1)).ravel()
    return out if bias is None else out + bias.reshape(-1, 1, 1)


@reference("_contrib_DeformableConvolution")
def deformable_convolution(x, offset, weight, bias=None, **p):
    def read(plane, y, x):
        h, w = plane.shape[1:]
        return bilinear(plane, y, x) if 0 <= y < h and 0 <= x < w else 0

    return deformed(x, offset, None, weight, bias, read, p)


@reference("_contrib_ModulatedDeformableConvolution")
def modulated_deformable_convolution(x, offset, mask, weight, bias=None, **p):
    def read(plane, y, x):
        h, w = plane.shape[1:]
        if not (-1 < y < h and -1 < x < w):
            return 0
        return bilinear(np.pad(plane, [(0, 0), (1, 1), (1, 1)]), y + 1, x + 1)

    return deformed(x, offset, mask, weight, bias, read, p)


@reference("_contrib_Proposal", "_contrib_MultiProposal")
def proposal(
    prob, pred, info, rpn_pre_nms_top_n=6000, rpn_post_nms_top_n=300, threshold=0.7,
    rpn_min_size=16, scales=(4, 8, 16, 32), ratios=(0.5, 1, 2), feature_stride=16,
    output_score=False, iou_loss=False,
):  # fmt: skip
    rows, row_scores = [], []
    count, side = len(scales) * len(ratios), feature_stride
    for image in range(len(prob)):
        boxes, scores = [], []
        height, width, scale = info[image]
        for i, j, a in np.ndindex(*prob.shape[2:], count):
            ratio, s = ratios[a // len(scales)], scales[a % len(scales)]
            w = np.floor(np.sqrt(np.floor(side * side / ratio)) + 0.5)
            size = np.array([w * s, np.floor(w * ratio + 0.5) * s])
            middle = np.array([j, i]) * side + (side - 1) / 2
            d, score = pred[image, 4 * a : 4 * a + 4, i, j], prob[image, count + a, i, j]
            low, high = middle - (size - 1) / 2, middle + (size - 1) / 2
            if iou_loss:
                low, high = low + d[:2], high + d[2:]
            else:
                middle, reach = middle + d[:2] * size, (np.exp(d[2:]) * size - 1) / 2
                low, high = middle - reach, middle + reach
            edge = np.array([width, height]) - 1
            low, high = low.clip(0, edge), high.clip(0, edge)
            if i >= height // side or j >= width // side:
                score = -1
            if (high - low + 1 < rpn_min_size * scale).any():
                half = rpn_min_size * scale / 2
                low, high, score = low - half, high + half, -1
            boxes.append([*low, *high])
            scores.append(score)
        kept, order = [], np.argsort(-np.array(scores), kind="stable")
        ends = np.array([0, 0, 1, 1])  # a box is one wider than its corners say
        for at in order[:rpn_pre_nms_top_n]:
            box = np.array(boxes[at]) + ends
            if all(iou(np.array(boxes[k]) + ends, box) <= threshold for k in kept):
                kept.append(at)
        for i in range(rpn_post_nms_top_n):
            at = kept[:rpn_post_nms_top_n][i % min(len(kept), rpn_post_nms_top_n)]
            rows.append([image, *boxes[at]])
            row_scores.append([scores[at]])
    return (np.array(rows), np.array(row_scores)) if output_score else np.array(rows)

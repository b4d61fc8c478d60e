"""Functions on one image."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _core
from .._numbers import check_number
from ..base import MXNetError, file_error, shown
from ..ndarray import NDArray, array
from ..ndarray._register import call


def imdecode(buf: Any, flag: int = 1, to_rgb: bool = True, out: NDArray | None = None) -> NDArray:
    """Decodes the bytes of a JPEG, PNG, BMP, PNM, TIFF or WebP file.

    Parameters
    ----------
    buf : bytes, bytearray, memoryview, numpy.ndarray or NDArray
        The bytes of the file (arrays: of dtype uint8).
    flag : {1, 0}
        1 for three channels, 0 for one, the lightness.
    to_rgb : bool
        Three channels in the order red, green, blue; blue, green, red if False.
    out : NDArray, optional
        Takes the image, of whose shape it must be.

    Returns
    -------
    NDArray
        The image (H, W, C), uint8. An orientation that the file asks for is not applied.

    Raises
    ------
    ValueError
        The bytes are not an image, or only a part of one.

    Notes
    -----
    A JPEG decodes to the values of libjpeg-turbo.

    Examples
    --------
    >>> import rsnet as mx
    >>> data = mx.recordio.encode_image(mx.nd.zeros((2, 3, 3), dtype="uint8"), ".png", 3)
    >>> mx.image.imdecode(data).shape
    (2, 3, 3)
    """
    if flag not in (0, 1):
        raise ValueError(f"invalid flag {flag}: expected 0 (grey) or 1 (colour)")
    image = _core.decode_image(_as_bytes(buf), int(flag), bool(to_rgb))
    if out is None:
        return image
    out[:] = image
    return out


def _as_bytes(buf: Any) -> np.ndarray:
    """The buffer as an array of bytes."""
    if isinstance(buf, NDArray):
        buf = buf.asnumpy()
    if isinstance(buf, str):
        raise TypeError(
            "imdecode: invalid buf, a str: expected the bytes of a file (imread takes a path)"
        )
    if isinstance(buf, np.ndarray):
        if buf.dtype != np.uint8:
            raise ValueError(f"invalid dtype {buf.dtype} of buf: expected uint8")
        return np.ascontiguousarray(buf).reshape(-1)
    try:
        return np.frombuffer(buf, np.uint8)
    except TypeError:
        expected = "the bytes of a file"
        raise TypeError(f"imdecode: invalid buf {shown(buf)}: expected {expected}") from None


def imread(
    filename: Any, flag: int = 1, to_rgb: bool = True, out: NDArray | None = None
) -> NDArray:
    """Reads and decodes an image file; see `imdecode`.

    Raises
    ------
    MXNetError
        The file cannot be read, or is not an image; the message names it.
    """
    try:
        with open(filename, "rb") as file:
            data = file.read()
    except OSError as error:
        raise file_error("cannot read", filename, error) from error
    try:
        return imdecode(data, flag, to_rgb, out)
    except MXNetError as error:
        raise type(error)(f"{filename}: {error}") from error


def imresize(src: NDArray, w: int, h: int, interp: int = 1, out: NDArray | None = None) -> NDArray:
    """Resizes an image to `w` columns and `h` rows.

    Parameters
    ----------
    src : NDArray
        The image (H, W, C): uint8, float16, float32 or float64.
    w, h : int
    interp : {0, 1, 2, 3, 4}
        0 nearest pixel, 1 linear, 2 cubic, 3 area, 4 Lanczos, in OpenCV's conventions.

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.image.imresize(mx.nd.ones((4, 6, 3), dtype="uint8"), 3, 2).shape
    (2, 3, 3)
    """
    numbers = {"w": w, "h": h, "interp": interp}
    for name, value in numbers.items():
        check_number(name, value, "imresize: ")
    return call("_cvimresize", src, **{name: int(n) for name, n in numbers.items()}, out=out)


def copyMakeBorder(src: NDArray, *args: Any, **kwargs: Any) -> NDArray:
    """Puts pixels around an image: ``copyMakeBorder(src, top, bot, left, right, type=0, value=0)``.

    `type` is 0 for a constant, `value`, 1 for the pixels of the edge, 2 for the mirror image, 3 for
    the opposite side, 4 for the mirror image without the edge.
    """
    return call("_cvcopyMakeBorder", src, *args, **kwargs)


def choose_interp(interp: int, sizes: Sequence[int] = ()) -> int:
    """The interpolation of a number: 9 chooses by sizes (old h, old w, new h, new w), 10 at random.

    With 9 an image that grows takes 2 (cubic), one that shrinks 3 (area), any other 1.
    """
    if interp == 9:
        if not sizes:
            return 2
        old_h, old_w, new_h, new_w = sizes
        if new_h > old_h and new_w > old_w:
            return 2
        return 3 if new_h < old_h and new_w < old_w else 1
    if interp == 10:
        return random.randint(0, 4)
    if interp not in range(5):
        raise ValueError(f"invalid interp {interp}: expected 0 to 4, 9 (by size) or 10 (random)")
    return interp


def scale_down(src_size: Sequence[int], size: Sequence[int]) -> tuple[int, int]:
    """Scales the (width, height) of a crop down to fit into an image of (width, height).

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.image.scale_down((640, 480), (720, 120))
    (640, 106)
    """
    try:
        w, h = float(size[0]), float(size[1])
    except (TypeError, ValueError, IndexError):
        raise TypeError(f"invalid size {shown(size)}: expected (width, height)") from None
    sw, sh = src_size
    if sh < h:
        w, h = w * sh / h, sh
    if sw < w:
        w, h = sw, h * sw / w
    return int(w), int(h)


def resize_short(src: NDArray, size: int, interp: int = 2) -> NDArray:
    """Resizes the shorter edge to `size`; the ratio of the edges stays."""
    check_number("size", size, "resize_short: ")
    h, w, _ = src.shape
    if h > w:
        new_h, new_w = size * h // w, size
    else:
        new_h, new_w = size, size * w // h
    return imresize(src, new_w, new_h, choose_interp(interp, (h, w, new_h, new_w)))


def fixed_crop(
    src: NDArray,
    x0: int,
    y0: int,
    w: int,
    h: int,
    size: Sequence[int] | None = None,
    interp: int = 2,
) -> NDArray:
    """The part of `w` columns and `h` rows from (x0, y0), resized to `size` (width, height).

    Raises
    ------
    ValueError
        The part is empty or leaves the image.
    """
    height, width = src.shape[:2]
    if w < 1 or h < 1 or x0 < 0 or y0 < 0 or x0 + w > width or y0 + h > height:
        raise ValueError(
            f"invalid crop of {w} by {h} pixels from ({x0}, {y0}): expected a part of the image of "
            f"{width} by {height} pixels"
        )
    part = src[y0 : y0 + h, x0 : x0 + w]
    if size is not None and (w, h) != tuple(size):
        part = imresize(part, size[0], size[1], choose_interp(interp, (h, w, size[1], size[0])))
    return part


_Crop = tuple[NDArray, tuple[int, int, int, int]]


def random_crop(src: NDArray, size: Sequence[int], interp: int = 2) -> _Crop:
    """A part anywhere in the image of `size` (width, height), scaled down where it does not fit.

    Returns
    -------
    (NDArray, (x0, y0, width, height))
        The part, resized to `size`, and where it was.
    """
    h, w = src.shape[:2]
    new_w, new_h = scale_down((w, h), size)
    x0, y0 = random.randint(0, w - new_w), random.randint(0, h - new_h)
    return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)


def center_crop(src: NDArray, size: Sequence[int], interp: int = 2) -> _Crop:
    """The middle of the image; otherwise as `random_crop`.

    Examples
    --------
    >>> import rsnet as mx
    >>> part, place = mx.image.center_crop(mx.nd.zeros((5, 7, 3), dtype="uint8"), (3, 3))
    >>> part.shape, place
    ((3, 3, 3), (2, 1, 3, 3))
    """
    h, w = src.shape[:2]
    new_w, new_h = scale_down((w, h), size)
    x0, y0 = int((w - new_w) / 2), int((h - new_h) / 2)
    return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)


def random_size_crop(
    src: NDArray,
    size: Sequence[int],
    area: float | Sequence[float],
    ratio: Sequence[float],
    interp: int = 2,
    **kwargs: Any,
) -> _Crop:
    """A part of random area and ratio, resized to `size`; `center_crop` if none of ten fits.

    Parameters
    ----------
    src : NDArray
    size : (int, int)
        (width, height)
    area : float or (float, float)
        Smallest (and largest, by default 1) share of the image.
    ratio : (float, float)
        Smallest and largest ratio of width and height.
    interp : int
    """
    if "min_area" in kwargs:
        area = kwargs.pop("min_area")
    if kwargs:
        raise TypeError(f"random_size_crop got unexpected arguments {sorted(kwargs)}")
    low, high = (area, 1.0) if isinstance(area, (int, float)) else area
    h, w = src.shape[:2]
    for _ in range(10):
        target = random.uniform(low, high) * h * w
        new_ratio = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
        new_w = round(math.sqrt(target * new_ratio))
        new_h = round(math.sqrt(target / new_ratio))
        if 0 < new_w <= w and 0 < new_h <= h:
            x0, y0 = random.randint(0, w - new_w), random.randint(0, h - new_h)
            return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)
    return center_crop(src, size, interp)


def color_normalize(src: NDArray, mean: Any, std: Any = None) -> NDArray:
    """``(src - mean) / std``; neither is applied where it is None."""
    if mean is not None:
        src = src - _operand("mean", mean)
    return src if std is None else src / _operand("std", std)


def _operand(name: str, value: Any) -> Any:
    if isinstance(value, (np.ndarray, list, tuple)):
        return array(value)
    if not isinstance(value, NDArray):
        check_number(name, value, "color_normalize: ")
    return value


def imrotate(
    src: NDArray, rotation_degrees: Any, zoom_in: bool = False, zoom_out: bool = False
) -> NDArray:
    """Rotates images (C, H, W) or (N, C, H, W) of dtype float32 about their middle.

    Parameters
    ----------
    src : NDArray
    rotation_degrees : float, or NDArray of N
        Positive is counterclockwise.
    zoom_in : bool
        Enlarge so that no place is empty.
    zoom_out : bool
        Shrink so that all of the image remains.

    Returns
    -------
    NDArray
        The rotated images; places outside of the original are 0.

    Raises
    ------
    ValueError
        `zoom_in` and `zoom_out`, or another number of degrees than of images.
    TypeError
        Another dtype or shape.
    """
    if zoom_in and zoom_out:
        raise ValueError("imrotate: invalid zoom_in and zoom_out, both True: expected one at most")
    if src.dtype is not np.float32:
        raise TypeError(f"invalid dtype {np.dtype(src.dtype).name} of src: expected float32")
    if src.ndim not in (3, 4):
        raise TypeError(f"invalid shape {src.shape} of src: expected 3 or 4 axes")
    images = src.asnumpy() if src.ndim == 4 else src.asnumpy()[None]
    if isinstance(rotation_degrees, (int, float, np.number)):
        degrees = np.full(len(images), rotation_degrees, "float32")
    else:
        degrees = np.asarray(
            rotation_degrees.asnumpy()
            if isinstance(rotation_degrees, NDArray)
            else rotation_degrees,
            dtype="float32",
        )
        if src.ndim == 3 or degrees.shape != (len(images),):
            raise ValueError(
                f"invalid rotation_degrees of shape {degrees.shape}: expected a number, or one "
                f"for each of {len(images)} images (N, C, H, W)"
            )
    turned = [_rotated(image, d, zoom_in, zoom_out) for image, d in zip(images, degrees)]
    return array(np.stack(turned) if src.ndim == 4 else turned[0], dtype="float32")


def _rotated(image: np.ndarray, degrees: float, zoom_in: bool, zoom_out: bool) -> np.ndarray:
    """An image (C, H, W), rotated by linear interpolation."""
    _, h, w = image.shape
    angle = math.radians(float(degrees))
    # Coordinates from the middle, in units of the half of an edge.
    half_w, half_h = (w - 1) / 2, (h - 1) / 2
    x, y = np.meshgrid(np.arange(w) - half_w, np.arange(h) - half_h)
    c, s = math.cos(angle), math.sin(angle)
    from_x, from_y = x * c - y * s, x * s + y * c
    if zoom_in or zoom_out:
        scale = _zoom(w, h, angle, zoom_in)
        from_x, from_y = from_x * scale, from_y * scale
    return _sample(image, from_x + half_w, from_y + half_h)


def _zoom(w: int, h: int, angle: float, zoom_in: bool) -> float:
    """How far apart the sampled places are."""
    c, s = abs(math.cos(angle)), abs(math.sin(angle))
    wide, tall = (w * c + h * s) / w, (w * s + h * c) / h
    return 1 / max(wide, tall) if zoom_in else max(wide, tall)


def _sample(image: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The image at places between its pixels; 0 outside."""
    _, h, w = image.shape
    x0, y0 = np.floor(x).astype(int), np.floor(y).astype(int)
    out = np.zeros((image.shape[0], *x.shape))
    for dy in (0, 1):
        for dx in (0, 1):
            xi, yi = x0 + dx, y0 + dy
            weight = (1 - np.abs(x - xi)) * (1 - np.abs(y - yi))
            inside = (xi >= 0) & (xi < w) & (yi >= 0) & (yi < h)
            out += np.where(inside, weight, 0) * image[:, yi.clip(0, h - 1), xi.clip(0, w - 1)]
    return out


def random_rotate(
    src: NDArray, angle_limits: Sequence[float], zoom_in: bool = False, zoom_out: bool = False
) -> NDArray:
    """`imrotate` by angles drawn from (low, high), one for each image."""
    low, high = angle_limits
    if src.ndim == 3:
        degrees: Any = float(np.random.uniform(low, high))
    else:
        degrees = array(np.random.uniform(low, high, size=len(src)), dtype="float32")
    return imrotate(src, degrees, zoom_in=zoom_in, zoom_out=zoom_out)

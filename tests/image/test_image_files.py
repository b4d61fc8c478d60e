"""Decoding and encoding of image files, beside Pillow."""

import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from images import decoded, encoded, picture
from PIL import Image

import rsnet as mx

KINDS = [
    ("png", {}, 0),
    ("bmp", {}, 0),
    ("tiff", {}, 0),
    ("webp", {"lossless": True}, 0),
    ("ppm", {}, 0),
    ("jpeg", {"quality": 95, "subsampling": 0}, 1),
    ("jpeg", {"quality": 90, "subsampling": 0, "progressive": True}, 1),
]


@pytest.mark.parametrize(("kind", "options", "near"), KINDS)
def test_files_decode_as_by_pillow(kind, options, near):
    data = encoded(picture(41, 53), kind, **options)
    got = mx.image.imdecode(data)
    assert got.dtype is np.uint8
    difference = np.abs(got.asnumpy().astype(int) - decoded(data))
    assert difference.max() <= near


@pytest.mark.parametrize("size", [(1, 1), (7, 5), (16, 16), (33, 47), (64, 50), (131, 97)])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
def test_jpegs_decode_as_by_libjpeg_turbo(size, subsampling, progressive):
    """Colours that are stored in half the resolution are interpolated in the same way."""
    for quality in (30, 75, 95):
        options = {"quality": quality, "subsampling": subsampling, "progressive": progressive}
        data = encoded(picture(*size), "jpeg", **options)
        difference = mx.image.imdecode(data).asnumpy().astype(int) - decoded(data)
        assert np.abs(difference).max() <= 1
        assert np.abs(difference).mean() < 0.02
        grey = encoded(picture(*size)[..., :1], "jpeg", quality=quality)
        np.testing.assert_array_equal(mx.image.imdecode(grey).asnumpy(), decoded(grey))


@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_grey_and_order_of_colours(kind):
    image = picture(20, 30)
    data = encoded(image, kind)
    rgb = mx.image.imdecode(data).asnumpy()
    np.testing.assert_array_equal(mx.image.imdecode(data, to_rgb=False).asnumpy(), rgb[..., ::-1])
    grey = mx.image.imdecode(data, flag=0).asnumpy()
    assert grey.shape == (20, 30, 1)
    luma = rgb @ np.array([0.299, 0.587, 0.114])
    # The lightness of a JPEG is stored; the colours are rounded from it.
    assert np.abs(grey[..., 0] - luma).mean() <= 1
    if kind == "png":  # read off MXNet 1.9.1
        colours = np.array([[[50, 100, 200], [0, 255, 0], [7, 7, 7], [3, 2, 1], [255, 0, 0]]])
        shades = mx.image.imdecode(encoded(colours.astype("uint8"), kind), flag=0)
        assert shades.asnumpy().ravel().tolist() == [96, 149, 7, 2, 76]
    one = encoded(image[..., :1], kind)
    np.testing.assert_array_equal(
        mx.image.imdecode(one).asnumpy(), np.repeat(mx.image.imdecode(one, flag=0).asnumpy(), 3, 2)
    )


def test_other_kinds_of_png_become_8_bit_rgb():
    image = picture(12, 9)
    rgba = np.dstack([image, np.full(image.shape[:2], 77, "uint8")])
    np.testing.assert_array_equal(mx.image.imdecode(encoded(rgba)).asnumpy(), image)
    out = io.BytesIO()
    Image.fromarray(image).quantize(32).save(out, "png")
    np.testing.assert_array_equal(
        mx.image.imdecode(out.getvalue()).asnumpy(), decoded(out.getvalue())
    )
    wide = io.BytesIO()
    Image.fromarray(image[..., 0].astype("uint16") * 257).save(wide, "png")
    np.testing.assert_array_equal(
        mx.image.imdecode(wide.getvalue(), flag=0).asnumpy()[..., 0], image[..., 0]
    )


def test_cmyk_jpegs_decode():
    out = io.BytesIO()
    Image.fromarray(picture(24, 24)).convert("CMYK").save(out, "jpeg", quality=95)
    # Pillow has 0 for no ink, the file 255.
    inks = 255 - np.asarray(Image.open(out)).astype(int)
    black = inks[..., 3:]
    want = black - ((255 - inks[..., :3]) * black >> 8)
    np.testing.assert_array_equal(mx.image.imdecode(out.getvalue()).asnumpy(), want)
    grey = mx.image.imdecode(out.getvalue(), flag=0).asnumpy()
    assert np.abs(grey[..., 0] - want @ [0.299, 0.587, 0.114]).max() <= 1


@pytest.mark.parametrize("component", range(4))
@pytest.mark.parametrize("factors", [0x00, 0x12, 0x21, 0x22, 0x31, 0x44])
def test_sampling_factors_that_do_not_fit_are_refused(component, factors):
    out = io.BytesIO()
    Image.fromarray(picture(24, 24)).convert("CMYK").save(out, "jpeg")
    data = bytearray(out.getvalue())
    data[data.index(b"\xff\xc0") + 11 + 3 * component] = factors
    with pytest.raises(mx.MXNetError, match="^invalid image"):
        mx.image.imdecode(bytes(data))


def test_an_orientation_is_not_applied():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(picture(10, 20), "jpeg", exif=exif)
    assert mx.image.imdecode(data).shape == (10, 20, 3)


def test_buffers_of_every_kind(tmp_path):
    data = encoded(picture(5, 6))
    want = mx.image.imdecode(data).asnumpy()
    for buffer in (bytearray(data), memoryview(data), np.frombuffer(data, "uint8")):
        np.testing.assert_array_equal(mx.image.imdecode(buffer).asnumpy(), want)
    array = mx.nd.array(np.frombuffer(data, "uint8"), dtype="uint8")
    np.testing.assert_array_equal(mx.image.imdecode(array).asnumpy(), want)
    out = mx.nd.zeros((5, 6, 3), dtype="uint8")
    assert mx.image.imdecode(data, out=out) is out
    np.testing.assert_array_equal(out.asnumpy(), want)
    path = tmp_path / "a.png"
    path.write_bytes(data)
    np.testing.assert_array_equal(mx.image.imread(str(path)).asnumpy(), want)


def test_the_old_function_puts_channels_first():
    data = encoded(picture(5, 6))
    want = picture(5, 6).transpose(2, 0, 1).astype("float32")
    np.testing.assert_array_equal(mx.nd.imdecode(data).asnumpy(), want)
    out = mx.nd.zeros((2, 3, 2, 3))
    mean = mx.nd.ones((3, 2, 3))
    assert mx.nd.imdecode(data, clip_rect=(1, 2, 4, 4), out=out, index=1, mean=mean) is out
    np.testing.assert_array_equal(out.asnumpy()[1], want[:, 2:4, 1:4] - 1)
    assert mx.nd.imdecode(data, channels=1).shape == (1, 5, 6)
    with pytest.raises(ValueError, match="clip_rect"):
        mx.nd.imdecode(data, clip_rect=(0, 0, 9, 9))


def test_a_decoded_image_is_an_array_like_any_other():
    image = mx.image.imdecode(encoded(picture(5, 6)))
    image[:] = 7
    assert (image + 1).asnumpy().max() == 8


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "0 bytes"),
        (b"xxxx", "JPEG, PNG"),
        (b"\xff\xd8\xff\xe0", "JPEG"),
        (encoded(picture(30, 30), "jpeg")[:-30], "cut short"),
        (encoded(picture(30, 30))[:-40], "image"),
    ],
)
def test_bytes_that_are_no_image_are_refused(data, says):
    with pytest.raises(ValueError, match=says):
        mx.image.imdecode(data)


def test_bad_arguments_are_refused(tmp_path):
    data = encoded(picture(5, 6))
    with pytest.raises(ValueError, match="flag 7: expected 0"):
        mx.image.imdecode(data, flag=7)
    with pytest.raises(TypeError, match="imread takes a path"):
        mx.image.imdecode("abc")
    with pytest.raises(ValueError, match="dtype float32 of buf"):
        mx.image.imdecode(np.zeros(4, "float32"))
    with pytest.raises(mx.MXNetError, match="nosuch.png"):
        mx.image.imread(str(tmp_path / "nosuch.png"))
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no image")
    with pytest.raises(mx.MXNetError, match="bad.png"):
        mx.image.imread(str(bad))


@pytest.mark.parametrize("kind", [".jpg", ".png"])
@pytest.mark.parametrize("channels", [1, 3])
def test_encoding_and_back(kind, channels):
    image = picture(33, 46, channels=channels)
    data = mx.recordio.encode_image(image, kind, 9 if kind == ".png" else 95)
    back = decoded(data, "L" if channels == 1 else "RGB").astype(int)
    assert np.abs(back - image).mean() < (1e-9 if kind == ".png" else 8)


def test_packed_images_and_back():
    image = picture(20, 24)
    header = mx.recordio.IRHeader(0, [1.0, 2.0], 9, 0)
    payload = mx.recordio.pack_img(header, image, quality=3, img_fmt=".png")
    got, back = mx.recordio.unpack_img(payload)
    np.testing.assert_array_equal(back, image)
    assert got.label.tolist() == [1.0, 2.0] and got.id == 9
    # The file itself has the colours in the right order: what is packed is blue, green, red.
    np.testing.assert_array_equal(decoded(mx.recordio.unpack(payload)[1]), image[..., ::-1])
    assert mx.recordio.unpack_img(payload, iscolor=0)[1].shape == (20, 24)
    grey = mx.recordio.pack_img(header, image[..., 0], quality=3, img_fmt=".png")
    assert mx.recordio.unpack_img(grey)[1].shape == (20, 24)
    assert mx.recordio.unpack_img(grey, iscolor=1)[1].shape == (20, 24, 3)


@pytest.mark.parametrize(
    ("image", "kind", "quality", "says"),
    [
        (np.zeros((2, 2, 3), "uint8"), ".gif", 95, "img_fmt"),
        (np.zeros((2, 2, 3), "uint8"), ".jpg", 0, "quality"),
        (np.zeros((2, 2, 3), "uint8"), ".png", 95, "0 to 9"),
        (np.zeros((2, 2, 2), "uint8"), ".jpg", 95, "channels"),
        (np.zeros((2, 2, 3), "float32"), ".jpg", 95, "uint8"),
        (np.zeros((2,), "uint8"), ".jpg", 95, "height, width"),
        (np.zeros((0, 2, 3), "uint8"), ".jpg", 95, "encode|image"),
    ],
)
def test_what_cannot_be_encoded_is_refused(image, kind, quality, says):
    with pytest.raises((ValueError, mx.MXNetError), match=says):
        mx.recordio.encode_image(image, kind, quality)


FILES = [encoded(picture(24, 31), kind, **options) for kind, options, _ in KINDS]


@settings(
    max_examples=max(150, settings.default.max_examples), suppress_health_check=list(HealthCheck)
)
@given(
    st.sampled_from(FILES),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=12),
    st.integers(0, 400),
    st.integers(0, 1),
)
def test_images_from_strangers(data, changes, cut, flag):
    bad = bytearray(data)
    for at, byte in changes:
        bad[at % len(bad)] = byte
    try:
        image = mx.image.imdecode(bytes(bad[: len(bad) - cut]), flag=flag)
    except mx.MXNetError as error:
        assert str(error)
    else:
        assert image.shape[2] == (3 if flag else 1)
        image.wait_to_read()


def test_images_without_loss_are_packed_with_the_default_quality():
    img = np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype="uint8")
    payload = mx.recordio.pack_img(mx.recordio.IRHeader(0, 1.0, 2, 0), img, img_fmt=".png")
    _, found = mx.recordio.unpack_img(payload)
    np.testing.assert_array_equal(found, img)

"""Operators on images that draw random numbers, and bad arguments of the others."""

import numpy as np
import pytest
from images import picture

import rsnet as mx

LUMA = np.array([0.299, 0.587, 0.114])


def image(dtype="float32"):
    return mx.nd.array(picture(9, 7), dtype=dtype)


def test_flips_happen_half_of_the_time():
    mx.random.seed(3)
    x = image()
    for name, axis in [("random_flip_left_right", 1), ("random_flip_top_bottom", 0)]:
        flipped = 0
        for _ in range(100):
            y = getattr(mx.nd.image, name)(x).asnumpy()
            is_flipped = bool((y == np.flip(x.asnumpy(), axis)).all())
            assert is_flipped or (y == x.asnumpy()).all()
            flipped += is_flipped
        assert 30 < flipped < 70


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8"])
@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 1.7])
def test_colours_by_a_factor_match_numpy(dtype, factor):
    x = image(dtype)
    wide = x.asnumpy().astype("float64")
    want = {
        "random_brightness": factor * wide,
        "random_contrast": factor * wide + (1 - factor) * (wide @ LUMA).mean(),
        "random_saturation": factor * wide + (1 - factor) * (wide @ LUMA)[..., None],
    }
    for name, expected in want.items():
        got = getattr(mx.nd.image, name)(x, factor, factor).asnumpy()
        if dtype == "uint8":
            expected = np.trunc(np.clip(expected, 0, 255) + 1e-9)
        atol = {"uint8": 1, "float16": 1.0}.get(dtype, 1e-3)
        np.testing.assert_allclose(got.astype("float64"), expected, rtol=1e-3, atol=atol)


def test_factors_are_drawn_from_the_range():
    mx.random.seed(0)
    x = mx.nd.ones((1, 1, 3))
    drawn = [
        float(mx.nd.image.random_brightness(x, 0.5, 2.0).asnumpy()[0, 0, 0]) for _ in range(200)
    ]
    assert 0.5 <= min(drawn) < 0.6 and 1.9 < max(drawn) < 2.0
    spread = [mx.nd.image.random_lighting(x, alpha_std=0.1).asnumpy()[0, 0, 0] for _ in range(300)]
    want = 0.1 * np.hypot(np.hypot(55.46 * 0.5675, 4.794 * 0.7192), 1.148 * 0.4009)
    assert np.std(spread) == pytest.approx(want, rel=0.2)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float32"])
def test_exact_results_are_not_cut_to_one_less(dtype):
    def bright(value, factor):
        pixel = mx.nd.array([[[value] * 3]], dtype=dtype)
        return mx.nd.image.random_brightness(pixel, factor, factor).asnumpy()[0, 0, 0]

    assert [bright(v, 1.3) for v in (10, 50, 100)] == [13, 65, 130]
    assert [bright(v, 1.1) for v in range(0, 200, 10)] == list(range(0, 220, 11))
    plane = mx.nd.full((3, 1, 1), 23, dtype=dtype)
    normal = mx.nd.image.normalize(plane, mean=0.4, std=0.2).asnumpy()
    assert (normal == 113).all()
    plane = mx.nd.full((3, 1, 1), 4, dtype=dtype)
    assert (mx.nd.image.normalize(plane, mean=0.1, std=0.3).asnumpy() == 13).all()


def test_great_whole_numbers_keep_their_digits():
    pixel = mx.nd.array([[[2**24 + 1] * 3]], dtype="int32")
    assert (mx.nd.image.random_brightness(pixel, 1, 1).asnumpy() == 2**24 + 1).all()


def test_hue_keeps_lightness_and_saturation():
    x = image()
    y = mx.nd.image.random_hue(x, 0.3, 0.3).asnumpy()
    np.testing.assert_allclose(y.max(2), x.asnumpy().max(2), atol=1e-3)
    np.testing.assert_allclose(y.min(2), x.asnumpy().min(2), atol=1e-3)
    third = mx.nd.image.random_hue(x, 1 / 3, 1 / 3).asnumpy()
    np.testing.assert_allclose(third, x.asnumpy()[..., [2, 0, 1]], atol=1e-2)


def test_jitter_by_nothing_changes_nothing():
    x = image("uint8")
    y = mx.nd.image.random_color_jitter(x, 0, 0, 0, 0).asnumpy()
    np.testing.assert_array_equal(y, x.asnumpy())
    z = mx.nd.image.random_color_jitter(x, 0.3, 0.3, 0.3, 0.3).asnumpy()
    assert z.shape == x.shape and (z != x.asnumpy()).any()


def test_seeds_repeat_what_was_drawn():
    x = image()

    def draw():
        mx.random.seed(5)
        return mx.nd.image.random_color_jitter(x, 0.5, 0.5, 0.5, 0.5).asnumpy()

    np.testing.assert_array_equal(draw(), draw())


@pytest.mark.parametrize(
    ("name", "shape", "params", "says"),
    [
        ("random_brightness", (2, 2, 2), (1, 1), "1 or 3 channels"),
        ("random_hue", (1, 2, 2, 3), (1, 1), "height, width, channels"),
        ("random_contrast", (2, 2, 3), (-1, 1), "min_factor"),
        ("adjust_lighting", (2, 2, 3), ((1, 2),), "alpha"),
        ("resize", (2, 2, 3), (0,), "size"),
        ("resize", (2, 2, 3), ((1, 2, 3),), "size"),
        ("resize", (2, 2), (2,), "height, width"),
        ("resize", (2, 2, 3), (2, False, 7), "interp"),
        ("crop", (4, 4, 3), (3, 0, 2, 2), "at least 5"),
        ("crop", (4, 4, 3), (-1, 0, 2, 2), "x"),
        ("crop", (4, 4, 3), (0, 0, 0, 2), "width"),
        ("normalize", (2, 4, 4), (), "1 or 3 channels"),
        ("normalize", (3, 4, 4), ((1, 2),), "mean"),
        ("to_tensor", (3, 4), (), "height, width"),
        ("flip_left_right", (3,), (), "height, width"),
    ],
)
def test_bad_arguments_are_refused(name, shape, params, says):
    with pytest.raises(mx.MXNetError, match=says):
        getattr(mx.nd.image, name)(mx.nd.ones(shape), *params).wait_to_read()


def test_symbols_of_images():
    x = mx.sym.Variable("x")
    y = mx.sym.image.normalize(mx.sym.image.to_tensor(x), mean=0.5, std=0.25)
    exe = y.bind(mx.cpu(), {"x": image("uint8")})
    want = (picture(9, 7).transpose(2, 0, 1) / 255 - 0.5) / 0.25
    np.testing.assert_allclose(exe.forward()[0].asnumpy(), want, rtol=1e-4, atol=1e-5)

"""Parameter structs: types, defaults, ranges, parsing of texts, and the texts of errors."""

import enum
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rsnet
from rsnet import MXNetError


class ConvolutionParam(rsnet.Parameter):
    kernel: rsnet.Shape = rsnet.field(doc="Kernel size (h, w).")
    stride: rsnet.Shape = rsnet.field((1, 1), doc="Steps.")
    num_filter: rsnet.uint32 = rsnet.field(doc="Number of filters.", ge=1, le=100000)
    layout: Literal["NCHW", "NHWC"] | None = rsnet.field(None, doc="Layout.")
    no_bias: bool = rsnet.field(False, doc="Leave the bias out.")


class Mode(enum.Enum):
    FAST = "fast"
    SAFE = "safe"


class Every(rsnet.Parameter):
    flag: bool = True
    small: rsnet.int32 = 1
    count: rsnet.uint32 = 2
    wide: rsnet.int64 = 3
    ratio: float = 0.5
    exact: rsnet.double = 0.25
    text: str = "t"
    shape: rsnet.Shape = (1, 2)
    axes: rsnet.OptionalTuple = (None, 1)
    scales: rsnet.FloatTuple = (1.5,)
    kind: Literal["a", "b"] = "a"
    maybe: int | None = None
    mode: Mode = Mode.FAST
    dtype: rsnet.DType = "float32"


def test_values_defaults_and_texts():
    p = ConvolutionParam(kernel="(3,3)", num_filter="8")
    assert (p.kernel, p.stride, p.num_filter, p.layout, p.no_bias) == (
        (3, 3), (1, 1), 8, None, False,
    )  # fmt: skip
    q = ConvolutionParam(kernel=[3, 3], num_filter=8, layout="NHWC", no_bias="True")
    assert q.layout == "NHWC" and q.no_bias is True
    assert ConvolutionParam.parse(q.as_strings()) == q
    assert p != q


def test_every_type_goes_through_text_and_back():
    p = Every()
    assert p.mode is Mode.FAST and p.axes == (None, 1) and p.scales == (1.5,)
    q = Every(flag="false", small="-4", wide=str(2**40), ratio="2.5f", axes="(None, 3)",
              kind="b", maybe="7", mode=Mode.SAFE, dtype=np.float16, shape=5)  # fmt: skip
    assert (q.flag, q.small, q.wide, q.ratio, q.maybe) == (False, -4, 2**40, 2.5, 7)
    assert q.mode is Mode.SAFE and q.dtype == "float16" and q.shape == (5,)
    assert Every.parse(q.as_strings()) == q


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ({"num_filter": 8}, "missing parameter 'kernel': expected Shape(tuple)"),
        ({"kernel": (3, 3)}, "missing parameter 'num_filter': expected int (non-negative)"),
        ({"kernel": (3, 3), "num_filter": 0}, "invalid num_filter '0': expected 1 to 100000"),
        ({"kernel": (3, 3), "num_filter": "many"}, "invalid num_filter 'many': expected int"),
        ({"kernel": "3,3", "num_filter": 1}, "invalid kernel '3,3': expected Shape(tuple)"),
        (
            {"kernel": (1,), "num_filter": 1, "layout": "CHWN"},
            "expected one of: NCHW, NHWC or None",
        ),
        (
            {"kernel": (1,), "num_filter": 1, "no_bias": "yes"},
            "invalid no_bias 'yes': expected boolean",
        ),
        (
            {"kernel": (1,), "num_filter": 1, "colour": 1},
            "unknown parameter 'colour': expected one of: ",
        ),
    ],
)
def test_refusals(given_, says):
    with pytest.raises(MXNetError) as caught:
        ConvolutionParam(**given_)
    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["1x", "", "0x10", "1e400"])
def test_floats_that_are_none(text):
    with pytest.raises(MXNetError, match="ratio"):
        Every(ratio=text)


def test_defaults_are_checked_at_declaration():
    with pytest.raises(MXNetError, match="invalid .*: expected .* to "):

        class Bad(rsnet.Parameter):
            p: int = rsnet.field(7, ge=0, le=5)

    with pytest.raises(
        TypeError, match="type .*dict.* of a parameter: expected bool, int, .* int64, "
    ):

        class Worse(rsnet.Parameter):
            p: dict = rsnet.field(doc="no such kind")


def test_fields_and_documentation():
    info = {name: (kind, doc) for name, kind, doc in ConvolutionParam.fields()}
    assert info["kernel"] == ("Shape(tuple), required", "Kernel size (h, w).")
    assert info["stride"][0] == "Shape(tuple), optional, default=[1,1]"
    assert info["num_filter"][0] == "int (non-negative), required"
    assert info["layout"][0] == "{None, 'NCHW', 'NHWC'},optional, default=None"
    assert info["no_bias"][0] == "boolean, optional, default=0"
    assert "Kernel size (h, w)." in ConvolutionParam.__doc__


def test_a_struct_can_extend_another():
    class More(ConvolutionParam):
        groups: rsnet.uint32 = rsnet.field(1, doc="Groups.")

    p = More(kernel=(1,), num_filter=2)
    assert p.groups == 1 and p.kernel == (1,)


@given(st.lists(st.integers(-(2**62), 2**62)), st.booleans())
def test_shapes_survive_text(dims, brackets):
    text = str(dims) if brackets else str(tuple(dims))
    assert Every(shape=text).shape == tuple(dims)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_survive_text(x):
    assert Every(exact=repr(x)).exact == x


def test_a_field_without_a_type_is_refused():
    says = r"Untyped: invalid field 'factor': expected a type, as in factor: float = field\(...\)"
    with pytest.raises(TypeError, match=says):

        class Untyped(rsnet.Parameter):
            factor = rsnet.field(2.0)

    with pytest.raises(TypeError, match="Hidden: invalid field '_k': .* no leading underscore"):

        class Hidden(rsnet.Parameter):
            _k: int = rsnet.field(1)


def test_a_default_may_be_replaced_without_repeating_the_type():
    class Later(Every):
        small = rsnet.field(8, ge=0)

    assert Later().small == 8
    with pytest.raises(MXNetError, match="small"):
        Later(small=-1)

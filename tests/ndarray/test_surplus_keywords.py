"""Misspelt keywords of functions that make arrays are errors."""

import pytest

from rsnet import nd


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (nd.zeros, ((2,),)),
        (nd.ones, ((2,),)),
        (nd.zeros_like, (nd.ones((2,)),)),
        (nd.ones_like, (nd.ones((2,)),)),
        (nd.random.uniform, (0, 1, (2,))),
        (nd.random.normal, (0, 1, (2,))),
        (nd.random.randn, (2,)),
        (nd.random.randint, (0, 2, (2,))),
        (nd.random.gamma, (1, 1, (2,))),
        (nd.random.exponential, (1, (2,))),
        (nd.random.poisson, (1, (2,))),
        (nd.random.negative_binomial, (1, 0.5, (2,))),
        (nd.random.generalized_negative_binomial, (1, 0.5, (2,))),
        (nd.random.multinomial, (nd.array([0.5, 0.5]),)),
        (nd.random.shuffle, (nd.ones((2,)),)),
        (nd.ones((2, 3)).transpose, ()),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_unknown_keywords_are_refused_with_those_that_there_are(function, arguments):
    function(*arguments)
    with pytest.raises(TypeError, match=r"got an unexpected keyword 'bogus' \(there are "):
        function(*arguments, bogus=1)


def test_transpose_does_not_ignore_axis():
    x = nd.ones((2, 3, 4))
    with pytest.raises(TypeError, match="'axis' .there are axes"):
        x.transpose(axis=(0, 2, 1))
    assert x.transpose(axes=(0, 2, 1)).shape == (2, 4, 3)


def test_every_function_takes_a_name():
    assert nd.zeros((2,), name="zeros").shape == nd.random.normal(shape=(2,), name="n").shape


def test_copies_in_shape_take_what_tells_of_the_array_they_are_like():
    x = nd.array([1, 2], dtype="int32")
    for function, expected in ((nd.zeros_like, [0, 0]), (nd.ones_like, [1, 1])):
        y = function(x, ctx=x.context, dtype="float64")
        assert y.dtype == x.dtype and y.asnumpy().tolist() == expected

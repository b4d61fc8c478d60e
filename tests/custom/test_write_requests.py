"""Write requests look like MXNet's strings to programs that print or compare them."""

import pytest

from rsnet._operators.requests import OpReq


@pytest.mark.parametrize("name", ["null", "write", "inplace", "add"])
def test_a_request_prints_and_compares_as_its_text(name):
    request = OpReq(name)
    assert request == name and str(request) == name
    assert str([request]) == str([name])

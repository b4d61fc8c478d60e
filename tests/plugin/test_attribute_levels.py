"""`set_attr(name, value, plevel)` in C++: of two values that of the higher level counts."""

import pytest
from plugins import compiled_text

import rsnet as mx
from rsnet import nd

pytestmark = pytest.mark.process

SOURCE = """
#include <rsnet/mxnet.h>
namespace mxnet { namespace op {
template <int value>
void Fill(const nnvm::NodeAttrs&, const OpContext&, const std::vector<TBlob>&,
          const std::vector<OpReqType>&, const std::vector<TBlob>& out) {
  out[0].dptr<float>()[0] = value;
}
#define OPERATOR(NAME)                                                            \\
  NNVM_REGISTER_OP(NAME)                                                          \\
      .set_attr<nnvm::FInferShape>("FInferShape", ElemwiseShape<1, 1>)            \\
      .set_attr<nnvm::FInferType>("FInferType", ElemwiseType<1, 1>)
OPERATOR_LINES
} }
"""

GOOD = """
OPERATOR(of_one_level).set_attr<FCompute>("FCompute<cpu>", Fill<1>);
OPERATOR(raised).set_attr<FCompute>("FCompute<cpu>", Fill<1>)
    .set_attr<FCompute>("FCompute<cpu>", Fill<2>, 11);
OPERATOR(not_lowered).set_attr<FCompute>("FCompute<cpu>", Fill<3>)
    .set_attr<FCompute>("FCompute<cpu>", Fill<4>, 9);
NNVM_REGISTER_OP(not_lowered).set_attr<FCompute>("FCompute<cpu>", Fill<5>, 8);
NNVM_REGISTER_OP_GROUP(strong).set_attr<FCompute>("FCompute<cpu>", Fill<6>, 12);
NNVM_REGISTER_OP_GROUP(weak).set_attr<FCompute>("FCompute<cpu>", Fill<7>);
OPERATOR(of_a_group).include("weak");
OPERATOR(of_the_stronger_group).include("weak").include("strong");
OPERATOR(over_its_group).set_attr<FCompute>("FCompute<cpu>", Fill<8>).include("weak");
OPERATOR(under_its_group).set_attr<FCompute>("FCompute<cpu>", Fill<9>).include("strong");
"""

#: What each operator of the text above fills in.
VALUES = {
    "of_one_level": 1, "raised": 2, "not_lowered": 3, "of_a_group": 7,
    "of_the_stronger_group": 6, "over_its_group": 8, "under_its_group": 6,
}  # fmt: skip


def library(lines):
    return compiled_text(SOURCE.replace("OPERATOR_LINES", lines))


def test_the_higher_level_counts():
    assert set(mx.load_library(library(GOOD))) == set(VALUES)
    for name, value in VALUES.items():
        assert getattr(nd, name)(nd.ones(1)).asscalar() == value, name


#: A second value of an attribute, at the first one's level where the environment says so.
TWICE = """
static int LevelIn(const std::string& place) {
  return std::getenv("RSNET_TEST_TWICE_IN") == place ? 10 : 11;
}
NNVM_REGISTER_OP_GROUP(twice).set_attr<FCompute>("FCompute<cpu>", Fill<1>)
    .set_attr<FCompute>("FCompute<cpu>", Fill<2>, LevelIn("group"));
OPERATOR(set_twice).include("twice").set_attr<FCompute>("FCompute<cpu>", Fill<1>)
    .set_attr<FCompute>("FCompute<cpu>", Fill<2>, LevelIn("operator"));
"""


@pytest.mark.parametrize("place", ["operator", "group"])
def test_two_values_of_one_level_are_an_error(place, monkeypatch):
    monkeypatch.setenv("RSNET_TEST_TWICE_IN", place)
    says = "'set_twice': invalid plevel 10 of attribute 'FCompute<cpu>', which is set with it alrea"
    with pytest.raises(mx.MXNetError, match=says):
        mx.load_library(library(TWICE))
    assert not hasattr(nd, "set_twice")

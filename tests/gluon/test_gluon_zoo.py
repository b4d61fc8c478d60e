"""Networks that are ready made have MXNet's parameters, and compute its scores."""

import gluon_zoo
import numpy as np
import pytest

import rsnet as mx
from rsnet import nd
from rsnet.gluon import model_zoo
from rsnet.gluon.model_zoo import vision

# Of MXNet 1.9.1: what `gluon_zoo.facts` returns.
FACTS = {
    "alexnet": [32, "52ba30c6e59a"],
    "densenet121": [1212, "0de388ef3528"],
    "densenet161": [1612, "f293b01f0b30"],
    "inceptionv3": [944, "0ba778262e82"],
    "mobilenet0.5": [274, "2ebb52555fb9"],
    "mobilenet1.0": [274, "f42260bc25df"],
    "mobilenetv2_0.75": [532, "9051f7452469"],
    "mobilenetv2_1.0": [532, "611159b09add"],
    "resnet18_v1": [204, "27f0a49697d9"],
    "resnet50_v1": [598, "e9ec9b9ad15b"],
    "resnet34_v2": [356, "c36e1a0e3a13"],
    "resnet101_v2": [1028, "f274bea29c99"],
    "squeezenet1.0": [104, "a68d458e7d97"],
    "squeezenet1.1": [104, "f5bef818dec3"],
    "vgg11": [44, "3587b13bbb6c"],
    "vgg16_bn": [168, "85726237808a"],
}
# Of MXNet 1.9.1: the scores that `gluon_zoo` asks for.
SCORES = {
    "mobilenet0.25": [0.140777, 1.03479, 0.176519, -0.124702, 0.973209],
    "mobilenetv2_0.25": [-0.666337, -0.57276, -0.505772, 0.789739, -0.105784],
    "resnet18_v1": [-7.12156, -7.02239, -0.289904, -1.67077, 0.768223],
    "resnet18_v2": [2.05261, 10.53, 3.6549, 1.21075, -3.65893],
    "squeezenet1.1": [0.424494, 0, 2.63924, 1.80101, 0],
}


@pytest.mark.parametrize("name", gluon_zoo.NAMES)
def test_parameters_are_those_of_mxnet(name):
    assert gluon_zoo.facts(mx, name) == FACTS[name]


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybrid"])
@pytest.mark.parametrize("name", list(gluon_zoo.RUN))
def test_scores_are_those_of_mxnet(name, hybrid):
    np.testing.assert_allclose(
        gluon_zoo.scores(mx, name, hybrid), SCORES[name], rtol=1e-4, atol=1e-5
    )


def test_weights_come_from_local_files(tmp_path):
    net = vision.mobilenet0_25(classes=3)
    net.initialize()
    x = nd.ones((1, 3, 32, 32))
    expected = net(x).asnumpy()
    with pytest.raises(
        FileNotFoundError, match="weights of 'mobilenet0.25': expected.*nothing from a"
    ):
        vision.get_model("mobilenet0.25", classes=3, pretrained=True, root=str(tmp_path))
    net.save_parameters(tmp_path / "mobilenet0.25-9f83e440.params")
    other = vision.get_model("mobilenet0.25", classes=3, pretrained=True, root=str(tmp_path))
    np.testing.assert_array_equal(other(x).asnumpy(), expected)
    with pytest.raises(AssertionError, match="dense0_weight.*shape incompatible"):
        vision.get_model("mobilenet0.25", classes=4, pretrained=True, root=str(tmp_path))
    model_zoo.model_store.purge(str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_unknown_networks_are_refused():
    with pytest.raises(ValueError, match="invalid model 'foo': expected one of: "):
        vision.get_model("foo")
    with pytest.raises(AssertionError, match="invalid num_layers 20: expected one of: 18, "):
        vision.get_resnet(1, 20)
    with pytest.raises(AssertionError, match="invalid version 3: expected 1 or 2"):
        vision.get_resnet(3, 18)
    with pytest.raises(ValueError, match="invalid num_layers 12"):
        vision.get_vgg(12)
    with pytest.raises(AssertionError, match="invalid version '2'"):
        vision.SqueezeNet("2")


def test_small_images_have_a_network_of_their_own():
    net = vision.get_resnet(1, 18, thumbnail=True, classes=4)
    net.initialize()
    net.hybridize()
    assert net(nd.ones((1, 3, 16, 16))).shape == (1, 4)

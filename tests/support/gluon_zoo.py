"""Networks of the model zoo with fixed weights, for rsnet and MXNet alike.

Run as a program with the name of the package to import: prints facts about each network as JSON.
"""

import hashlib
import importlib
import json
import sys

import numpy as np

NAMES = [
    "alexnet",
    "densenet121",
    "densenet161",
    "inceptionv3",
    "mobilenet0.5",
    "mobilenet1.0",
    "mobilenetv2_0.75",
    "mobilenetv2_1.0",
    "resnet18_v1",
    "resnet50_v1",
    "resnet34_v2",
    "resnet101_v2",
    "squeezenet1.0",
    "squeezenet1.1",
    "vgg11",
    "vgg16_bn",
]
# Small enough to be run in a test, and the shapes of their inputs.
RUN = {
    "mobilenet0.25": (2, 3, 32, 32),
    "mobilenetv2_0.25": (2, 3, 32, 32),
    "resnet18_v1": (1, 3, 32, 32),
    "resnet18_v2": (1, 3, 32, 32),
    "squeezenet1.1": (1, 3, 224, 224),
}


def facts(mx, name):
    """How many names of parameters there are, and a digest of them, with shapes and requests."""
    net = mx.gluon.model_zoo.vision.get_model(name)
    params = net.collect_params()
    rows = [
        f"{key[len(net.prefix) :]} {tuple(map(int, p.shape))} {p.grad_req}"
        for key, p in params.items()
    ]
    rows += sorted(net._collect_params_with_prefix())
    return [len(rows), hashlib.sha1("\n".join(rows).encode()).hexdigest()[:12]]


def scores(mx, name, hybrid=False):
    """The first scores of a network whose weights depend on their order and shapes alone."""
    net = mx.gluon.model_zoo.vision.get_model(name, classes=5)
    shape = RUN[name]
    x = mx.nd.array(np.random.RandomState(1).rand(*shape))
    net.initialize()
    net(x)
    rng = np.random.RandomState(0)
    for param in net.collect_params().values():
        if param.name.endswith("weight"):
            fan = np.prod(param.shape[1:])
            value = rng.randn(*param.shape) * np.sqrt(2 / fan)
        else:
            value = rng.rand(*param.shape) * 0.5 + (0 if param.name.endswith("bias") else 0.5)
        param.set_data(mx.nd.array(value))
    if hybrid:
        net.hybridize()
    return [float(v) for v in net(x).asnumpy()[0]]


def main(package):
    mx = importlib.import_module(package)
    found = {name: facts(mx, name) for name in NAMES}
    print(json.dumps([found, {name: scores(mx, name) for name in RUN}]))


if __name__ == "__main__":
    main(sys.argv[1])

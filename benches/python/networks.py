"""Networks as users write them in the symbolic interface and in PyTorch, and their cases."""

from harness import bound, case, module_step, rand


class Residual:
    """A residual network of pre-activated units (He et al., Identity Mappings, 2016).

    With `bottleneck`, units are 1x1, 3x3, 1x1, and images are those of ImageNet.
    """

    def __init__(self, units, filters, classes, bottleneck):
        self.units, self.filters = units, filters
        self.classes, self.bottleneck = classes, bottleneck

    def each_unit(self):
        """Channels in and out, stride, and whether the shortcut is a convolution, of each unit."""
        channels = self.filters[0]
        for stage, (count, filters) in enumerate(zip(self.units, self.filters[1:])):
            for unit in range(count):
                yield channels, filters, 2 if stage and not unit else 1, not unit
                channels = filters

    def mx(self, sym):
        counter = iter(range(1000))

        def norm(x):
            x = sym.BatchNorm(x, fix_gamma=False, eps=2e-5, name=f"bn{next(counter)}")
            return sym.Activation(x, act_type="relu")

        def conv(x, filters, kernel, stride=1):
            return sym.Convolution(
                x,
                num_filter=filters,
                kernel=(kernel, kernel),
                stride=(stride, stride),
                pad=(kernel // 2, kernel // 2),
                no_bias=True,
                name=f"conv{next(counter)}",
            )

        h = sym.Variable("data")
        if self.bottleneck:
            h = norm(conv(h, self.filters[0], 7, 2))
            h = sym.Pooling(h, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max")
        else:
            h = conv(h, self.filters[0], 3)
        for _, filters, stride, projects in self.each_unit():
            first = norm(h)
            if self.bottleneck:
                y = norm(conv(first, filters // 4, 1))
                y = conv(norm(conv(y, filters // 4, 3, stride)), filters, 1)
            else:
                y = conv(norm(conv(first, filters, 3, stride)), filters, 3)
            h = y + (conv(first, filters, 1, stride) if projects else h)
        h = sym.Pooling(norm(h), global_pool=True, kernel=(7, 7), pool_type="avg")
        h = sym.FullyConnected(sym.Flatten(h), num_hidden=self.classes)
        return sym.SoftmaxOutput(h, name="softmax")

    def torch(self, lib):
        nn, bottleneck = lib.nn, self.bottleneck

        def conv(channels, filters, kernel, stride=1):
            return nn.Conv2d(channels, filters, kernel, stride, kernel // 2, bias=False)

        def norm(channels):
            return nn.BatchNorm2d(channels), nn.ReLU()

        class Unit(nn.Module):
            def __init__(self, channels, filters, stride, projects):
                super().__init__()
                inner = filters // 4
                self.first = nn.Sequential(*norm(channels))
                if bottleneck:
                    body = conv(channels, inner, 1), *norm(inner), conv(inner, inner, 3, stride)
                    body = *body, *norm(inner), conv(inner, filters, 1)
                else:
                    body = conv(channels, filters, 3, stride), *norm(filters)
                    body = *body, conv(filters, filters, 3)
                self.body = nn.Sequential(*body)
                self.short = conv(channels, filters, 1, stride) if projects else None

            def forward(self, x):
                first = self.first(x)
                return self.body(first) + (self.short(first) if self.short else x)

        start = self.filters[0]
        stem = [conv(3, start, 3)]
        if bottleneck:
            stem = [conv(3, start, 7, 2), *norm(start), nn.MaxPool2d(3, 2, 1)]
        last = self.filters[-1]
        tail = [*norm(last), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, self.classes)]
        return nn.Sequential(*stem, *(Unit(*unit) for unit in self.each_unit()), *tail)


RESNET20 = Residual((3, 3, 3), (16, 16, 32, 64), 10, bottleneck=False)
RESNET50 = Residual((3, 4, 6, 3), (64, 256, 512, 1024, 2048), 1000, bottleneck=True)


def mx_lenet(sym):
    h = sym.Variable("data")
    for filters in (20, 50):
        h = sym.Activation(sym.Convolution(h, kernel=(5, 5), num_filter=filters), act_type="tanh")
        h = sym.Pooling(h, pool_type="max", kernel=(2, 2), stride=(2, 2))
    h = sym.Activation(sym.FullyConnected(sym.Flatten(h), num_hidden=500), act_type="tanh")
    return sym.SoftmaxOutput(sym.FullyConnected(h, num_hidden=10), name="softmax")


def torch_lenet(lib):
    nn, modules = lib.nn, []
    for channels, filters in ((1, 20), (20, 50)):
        modules += [nn.Conv2d(channels, filters, 5), nn.Tanh(), nn.MaxPool2d(2)]
    return nn.Sequential(*modules, nn.Flatten(), nn.Linear(800, 500), nn.Tanh(), nn.Linear(500, 10))


def mx_mlp(sym):
    h = sym.Variable("data")
    for width in (128, 64):
        h = sym.Activation(sym.FullyConnected(h, num_hidden=width), act_type="relu")
    return sym.SoftmaxOutput(sym.FullyConnected(h, num_hidden=10), name="softmax")


def torch_mlp(lib):
    nn = lib.nn
    inner = (nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
    return nn.Sequential(*inner, nn.Linear(64, 10))


def mx_step(lib, rng, net, shape, classes):
    """A step of training: forward, backward, update with momentum."""
    label = rng.randint(0, classes, shape[0]).astype("float32")
    given = ("data", "softmax_label")
    names = [n for n in net.list_arguments() if n not in given]
    requests = {n: "null" if n in given else "write" for n in net.list_arguments()}
    exe = net.simple_bind(ctx=lib.cpu(), grad_req=requests, data=shape)
    for name, array in exe.arg_dict.items():
        values = label if name == "softmax_label" else rand(rng, *array.shape) * 0.05
        array[:] = lib.nd.array(values)
    sgd = lib.optimizer.SGD(learning_rate=0.01, momentum=0.9, rescale_grad=1 / shape[0])
    update = lib.optimizer.get_updater(sgd)

    def run():
        exe.forward(is_train=True)
        exe.backward()
        for i, name in enumerate(names):
            update(i, exe.grad_dict[name], exe.arg_dict[name])
        lib.nd.waitall()

    return run


def torch_step(lib, rng, net, shape, classes):
    """The same for a module."""
    x = lib.from_numpy(rand(rng, *shape))
    label = lib.from_numpy(rng.randint(0, classes, shape[0]).astype("int64"))
    sgd = lib.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def run():
        sgd.zero_grad()
        lib.nn.functional.cross_entropy(net(x), label).backward()
        sgd.step()

    return run


def infer_torch(lib, rng, net, shape):
    net, x = net.eval(), lib.from_numpy(rand(rng, *shape))

    def run():
        with lib.inference_mode():
            net(x)

    return run


def recurrent():
    """An LSTM of one layer over 32 steps of 32 samples."""
    steps, batch, inputs, units = 32, 32, 128, 256
    count = 4 * units * (inputs + units + 2)
    state = (1, batch, units)

    def mx(lib, rng):
        data, *rest = (lib.sym.Variable(n) for n in ("data", "weights", "h", "c"))
        net = lib.sym.RNN(data, *rest, state_size=units, num_layers=1, mode="lstm")
        shapes = {"data": (steps, batch, inputs), "weights": (count,), "h": state, "c": state}
        return bound(lib, rng, net, True, **shapes)

    def torch(lib, rng):
        class First(lib.nn.LSTM):
            def forward(self, x):
                return super().forward(x)[0]

        x = lib.from_numpy(rand(rng, steps, batch, inputs))
        return module_step(lib, First(inputs, units), x)

    case("net/lstm_T32_B32_H256_train", mx, torch)


def executors():
    """A graph of a thousand operators on sixteen elements."""

    def graph(x, train):
        for _ in range(1000):
            x = x * 1.0001 if train else x + 1
        return x

    def torch(lib, rng, train):
        x = lib.from_numpy(rand(rng, 4, 4)).requires_grad_(train)
        one = lib.ones_like(x)

        def infer():
            with lib.inference_mode():
                graph(x, train)

        def step():
            x.grad = None
            graph(x, train).backward(one)

        return step if train else infer

    for train, name in ((False, "infer"), (True, "train")):
        case(
            f"exec/1000_tiny_ops_{name}",
            lambda lib, rng, train=train: bound(
                lib, rng, graph(lib.sym.Variable("data"), train), train, data=(4, 4)
            ),
            lambda lib, rng, train=train: torch(lib, rng, train),
        )


def custom_mx(lib, rng):
    """An operator that the user writes in Python, with its gradient."""

    class Sigmoid(lib.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], 1 / (1 + lib.nd.exp(-in_data[0])))

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            y = out_data[0]
            self.assign(in_grad[0], req[0], out_grad[0] * y * (1 - y))

    @lib.operator.register("bench_sigmoid")
    class SigmoidProp(lib.operator.CustomOpProp):
        def create_operator(self, ctx, in_shapes, in_dtypes):
            return Sigmoid()

    net = lib.sym.Custom(lib.sym.Variable("data"), op_type="bench_sigmoid")
    step = bound(lib, rng, net, True, data=(4, 4))

    def run():
        for _ in range(100):
            step()

    return run


def custom_torch(lib, rng):
    class Sigmoid(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = 1 / (1 + lib.exp(-x))
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, gradient):
            (y,) = ctx.saved_tensors
            return gradient * y * (1 - y)

    x = lib.from_numpy(rand(rng, 4, 4)).requires_grad_()
    one = lib.ones_like(x)

    def run():
        for _ in range(100):
            x.grad = None
            Sigmoid.apply(x).backward(one)

    return run


def networks():
    for name, mx, torch, shape, classes in (
        ("mlp_b64", mx_mlp, torch_mlp, (64, 784), 10),
        ("lenet_b64", mx_lenet, torch_lenet, (64, 1, 28, 28), 10),
        ("resnet20_b32", RESNET20.mx, RESNET20.torch, (32, 3, 32, 32), 10),
        ("resnet50_b4", RESNET50.mx, RESNET50.torch, (4, 3, 224, 224), 1000),
    ):
        args = (shape, classes)
        case(
            f"net/{name}_train",
            lambda lib, rng, mx=mx, args=args: mx_step(lib, rng, mx(lib.sym), *args),
            lambda lib, rng, torch=torch, args=args: torch_step(lib, rng, torch(lib), *args),
        )
    image = (1, 3, 224, 224)
    case(
        "net/resnet50_b1_infer",
        lambda lib, rng: bound(lib, rng, RESNET50.mx(lib.sym), False, data=image),
        lambda lib, rng: infer_torch(lib, rng, RESNET50.torch(lib), image),
    )
    recurrent()
    executors()
    case("custom/sigmoid_4x4_fwdbwd (x100)", custom_mx, custom_torch)

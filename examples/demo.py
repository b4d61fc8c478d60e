"""Trains LeNet on real digits, saves it, and checks the saved model in a new process.

    python examples/demo.py [--epochs 15] [--out demo_output]

The last line is `test accuracy 0.xxxx`, printed by the new process.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from lenet import digits, lenet

import rsnet as mx

BATCH = 50
INPUTS = ("data", "softmax_label")


def accuracy(exe, images, labels):
    """Share of the images that `exe` classifies correctly; the last batch is padded."""
    metric = mx.metric.Accuracy()
    for batch in mx.io.NDArrayIter(images, labels, BATCH):
        exe.forward(is_train=False, data=batch.data[0])
        kept = BATCH - batch.pad
        metric.update([batch.label[0][:kept]], [exe.outputs[0][:kept]])
    return metric.get()[1]


def shifted(images):
    """The images shifted by up to two pixels in each direction: data augmentation."""
    across, down = np.random.randint(-2, 3, 2)
    return mx.nd.array(np.roll(images.asnumpy(), (down, across), (2, 3)))


def train(net, images, labels, epochs):
    """An executor with trained parameters."""
    batches = mx.io.NDArrayIter(images, labels, BATCH, shuffle=True, last_batch_handle="discard")
    steps = len(images) // BATCH
    reqs = {n: "null" if n in INPUTS else "write" for n in net.list_arguments()}
    exe = net.simple_bind(ctx=mx.cpu(), grad_req=reqs, data=(BATCH, 1, 28, 28))
    names = [n for n in net.list_arguments() if n not in INPUTS]
    init = mx.init.Xavier(magnitude=2.5)
    for name in names:
        init(mx.init.InitDesc(name), exe.arg_dict[name])
    rate = 0.01
    sgd = mx.optimizer.SGD(
        learning_rate=rate,
        momentum=0.9,
        wd=1e-4,
        rescale_grad=1 / BATCH,
        lr_scheduler=mx.lr_scheduler.CosineScheduler(epochs * steps, base_lr=rate, final_lr=1e-3),
        param_idx2name=dict(enumerate(names)),
    )
    updater = mx.optimizer.get_updater(sgd)
    bar = mx.callback.ProgressBar(total=epochs * steps, length=60)
    metric = mx.metric.Accuracy()
    done = 0
    for epoch in range(epochs):
        metric.reset()
        for batch in batches:
            data, label = shifted(batch.data[0]), batch.label[0]
            exe.forward(is_train=True, data=data, softmax_label=label)
            exe.backward()
            for i, name in enumerate(names):
                updater(i, exe.grad_dict[name], exe.arg_dict[name])
            metric.update(batch.label, exe.outputs)
            done += 1
            bar(mx.callback.BatchEndParam(epoch, done, metric, None))
        batches.reset()
    mx.nd.waitall()
    print(f"last epoch: train accuracy {metric.get()[1]:.4f}")
    return exe


def check(prefix, epoch):
    """Test accuracy of a saved model, computed from its two files alone."""
    net, arg_params, aux_params = mx.model.load_checkpoint(prefix, epoch)
    exe = net.simple_bind(ctx=mx.cpu(), grad_req="null", data=(BATCH, 1, 28, 28))
    exe.copy_params_from(arg_params, aux_params)
    _, _, images, labels = digits()
    return accuracy(exe, images, labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--out", default="demo_output", help="folder for the saved model")
    parser.add_argument("--check", action="store_true", help="only test the saved model")
    args = parser.parse_args()
    prefix = str(Path(args.out) / "lenet")
    if args.check:
        print(f"test accuracy {check(prefix, args.epochs):.4f}")
        return
    Path(args.out).mkdir(parents=True, exist_ok=True)
    mx.random.seed(1)
    np.random.seed(1)
    images, labels, test_images, test_labels = digits()
    print(f"{len(images)} digits to learn from, {len(test_images)} to test")
    net = lenet()
    start = time.perf_counter()
    exe = train(net, images, labels, args.epochs)
    print(f"trained {args.epochs} epochs in {time.perf_counter() - start:.1f} s")
    found = accuracy(exe, test_images, test_labels)
    print(f"accuracy on the test images: {found:.4f}")
    params = {k: v for k, v in exe.arg_dict.items() if k not in INPUTS}
    mx.model.save_checkpoint(prefix, args.epochs, net, params, exe.aux_dict)
    print(f"saved {prefix}-symbol.json and {prefix}-{args.epochs:04d}.params; loading them again")
    again = subprocess.run(
        [sys.executable, __file__, "--check", "--epochs", str(args.epochs), "--out", args.out],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    if again.split()[-1] != f"{found:.4f}":
        raise SystemExit(f"the saved model behaves differently: {again.strip()}")
    print(again, end="")


if __name__ == "__main__":
    main()

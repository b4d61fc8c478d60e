"""Images a second of `ImageRecordIter`, beside MXNet's.

    python benches/python/images.py [--peer PYTHON] [--threads N] [--count N]

Where other programs keep the machine busy, the processor time of an image says more than the rate.

`--peer` is an interpreter with MXNet 1.9. Both read one record file of JPEGs of 300 by 280 pixels
(with colours of half resolution, as cameras write), and make batches of 224 by 224: a random part,
mirrored at random, normalised. The peers take turns, five times; the table has the medians. Before
it is timed, the middle of the first images is compared with what was packed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

READ = """
import importlib, json, sys, time
mx = importlib.import_module(sys.argv[1])
path, threads, count = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
it = mx.io.ImageRecordIter(
    path_imgrec=path, data_shape=(3, 224, 224), batch_size=64, rand_crop=True, rand_mirror=True,
    mean_r=123.68, mean_g=116.28, mean_b=103.53, preprocess_threads=threads, prefetch_buffer=4,
    verbose=False, round_batch=True,
)
seen = 0
def batches():
    while True:
        it.reset()
        yield from it
source = batches()
for _ in range(4):
    next(source).data[0].wait_to_read()
start, used = time.perf_counter(), time.process_time()
while seen < count:
    batch = next(source)
    batch.data[0].wait_to_read()
    seen += batch.data[0].shape[0]
passed, used = time.perf_counter() - start, time.process_time() - used
print(json.dumps([seen / passed, 1000 * used / seen]))
"""


def picture(seed):
    """A smooth image with noise, which compresses like a photograph."""
    rng = np.random.RandomState(seed)
    coarse = rng.rand(20, 20, 3) * 255
    rows, columns = np.linspace(0, 18.99, 280), np.linspace(0, 18.99, 300)
    y, x = rows.astype(int), columns.astype(int)
    fy, fx = (rows - y)[:, None, None], (columns - x)[None, :, None]
    top = coarse[y][:, x] * (1 - fx) + coarse[y][:, x + 1] * fx
    low = coarse[y + 1][:, x] * (1 - fx) + coarse[y + 1][:, x + 1] * fx
    smooth = top * (1 - fy) + low * fy
    return np.clip(smooth + rng.normal(size=smooth.shape) * 8, 0, 255).astype("uint8")


def write(path, count=256):
    import rsnet as mx

    with mx.recordio.MXIndexedRecordIO(path[:-3] + "idx", path, "w") as file:
        for i in range(count):
            header = mx.recordio.IRHeader(0, float(i % 10), i, 0)
            file.write_idx(i, mx.recordio.pack_img(header, picture(i), quality=90))
    it = mx.io.ImageRecordIter(path_imgrec=path, data_shape=(3, 224, 224), batch_size=4)
    want = picture(0)[28:252, 38:262, ::-1].transpose(2, 0, 1)
    error = np.abs(it.next().data[0].asnumpy()[0] - want).mean()
    assert error < 8, f"the images read differ from those packed by {error} on average"


def rate(python, module, path, threads, count):
    command = [python, "-W", "ignore", "-c", READ, module, path, str(threads), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--count", type=int, default=2048)
    args = parser.parse_args()
    sides = {"rsnet": (sys.executable, "rsnet")}
    if args.peer:
        sides["MXNet"] = (args.peer, "mxnet")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.rec")
        write(path)
        rates = {name: [] for name in sides}
        for _ in range(5):
            for name, (python, module) in sides.items():
                rates[name].append(rate(python, module, path, args.threads, args.count))
                time.sleep(0.2)
    medians = {name: statistics.median(r for r, _ in values) for name, values in rates.items()}
    for name, values in rates.items():
        low, high = min(values)[0], max(values)[0]
        work = statistics.median(w for _, w in values)
        print(
            f"{name:6} {medians[name]:7.0f} images/s (from {low:.0f} to {high:.0f}), "
            f"{work:.2f} ms of processor an image, {args.threads} threads asked for"
        )
    if args.peer:
        print(f"ratio  {medians['rsnet'] / medians['MXNet']:7.2f}")


if __name__ == "__main__":
    main()

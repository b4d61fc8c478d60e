"""Images and record files for the tests of images; Pillow is the oracle of files."""

import io

import numpy as np
from PIL import Image

from rsnet import recordio


def picture(height, width, seed=0, channels=3):
    """A smooth image with a little noise, as photographs are."""
    rng = np.random.RandomState(seed)
    coarse = rng.rand(height // 16 + 2, width // 16 + 2, 3) * 255
    smooth = Image.fromarray(coarse.astype("uint8")).resize((width, height), Image.BICUBIC)
    noisy = np.asarray(smooth) + rng.normal(size=(height, width, 3)) * 4
    return np.clip(noisy, 0, 255).astype("uint8")[..., :channels]


def encoded(image, kind="png", **options):
    """The bytes of an image file, by Pillow."""
    out = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(out, kind, **options)
    return out.getvalue()


def decoded(data, mode="RGB"):
    """The image of a file, by Pillow."""
    image = np.asarray(Image.open(io.BytesIO(data)).convert(mode))
    return image[..., None] if image.ndim == 2 else image


def records(path, images, labels=None, kind="png", **options):
    """A record file of images, and its index; the ids are the numbers."""
    labels = range(len(images)) if labels is None else labels
    idx = str(path).removesuffix(".rec") + ".idx"
    with recordio.MXIndexedRecordIO(idx, str(path), "w") as file:
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            data = image if isinstance(image, bytes) else encoded(image, kind, **options)
            label = label if np.ndim(label) else float(label)
            file.write_idx(i, recordio.pack(recordio.IRHeader(0, label, i, 0), data))
    return str(path)

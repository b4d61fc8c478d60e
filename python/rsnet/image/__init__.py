"""Images: decoding, resizing, crops, augmentation, and batches of images from files.

Images are arrays (H, W, C) of dtype uint8 in the order red, green, blue, unless stated otherwise.
`imdecode` and its kin work on one image; an `Augmenter` is an object that changes one, `ImageIter`
makes batches of images from record files, list files or lists. `ImageDetIter` and the augmenters
whose names begin with ``Det`` treat the boxes of objects too. `rsnet.io.ImageRecordIter` is faster:
it decodes on threads of its own.

Random choices are made by Python's `random` and NumPy, which programs seed.
"""

from .._mxnet_names import module_getattr
from .augmenters import (
    Augmenter,
    BrightnessJitterAug,
    CastAug,
    CenterCropAug,
    ColorJitterAug,
    ColorNormalizeAug,
    ContrastJitterAug,
    CreateAugmenter,
    ForceResizeAug,
    HorizontalFlipAug,
    HueJitterAug,
    LightingAug,
    RandomCropAug,
    RandomGrayAug,
    RandomOrderAug,
    RandomSizedCropAug,
    ResizeAug,
    SaturationJitterAug,
    SequentialAug,
)
from .detection import (
    CreateDetAugmenter,
    CreateMultiRandCropAugmenter,
    DetAugmenter,
    DetBorrowAug,
    DetHorizontalFlipAug,
    DetRandomCropAug,
    DetRandomPadAug,
    DetRandomSelectAug,
)
from .detection_iterator import ImageDetIter
from .functions import (
    center_crop,
    color_normalize,
    copyMakeBorder,
    fixed_crop,
    imdecode,
    imread,
    imresize,
    imrotate,
    random_crop,
    random_rotate,
    random_size_crop,
    resize_short,
    scale_down,
)
from .iterator import ImageIter

__all__ = [
    "imread",
    "imdecode",
    "imresize",
    "copyMakeBorder",
    "scale_down",
    "resize_short",
    "fixed_crop",
    "random_crop",
    "center_crop",
    "random_size_crop",
    "color_normalize",
    "imrotate",
    "random_rotate",
    "Augmenter",
    "SequentialAug",
    "RandomOrderAug",
    "ResizeAug",
    "ForceResizeAug",
    "RandomCropAug",
    "RandomSizedCropAug",
    "CenterCropAug",
    "BrightnessJitterAug",
    "ContrastJitterAug",
    "SaturationJitterAug",
    "HueJitterAug",
    "ColorJitterAug",
    "LightingAug",
    "ColorNormalizeAug",
    "RandomGrayAug",
    "HorizontalFlipAug",
    "CastAug",
    "CreateAugmenter",
    "ImageIter",
    "DetAugmenter",
    "DetBorrowAug",
    "DetRandomSelectAug",
    "DetHorizontalFlipAug",
    "DetRandomCropAug",
    "DetRandomPadAug",
    "CreateMultiRandCropAugmenter",
    "CreateDetAugmenter",
    "ImageDetIter",
]

for _name in __all__:  # pickles and representations name this module
    globals()[_name].__module__ = __name__
del _name

__getattr__ = module_getattr(__name__)

"""Cases of the operators on images; see `cases.py`."""

from cases import ALL, FLOATS, In, case

PIXELS = (*FLOATS, "uint8")

for shape in [(4, 5, 3), (2, 4, 5, 1), (1, 1, 2)]:
    case("_image_flip_left_right", shape, dtypes=ALL)
    case("_image_flip_top_bottom", shape, dtypes=ALL)
    case("_image_to_tensor", In(shape, 0, 255), dtypes=("float32", "uint8", "int32"))
case("_image_flip_left_right", (0, 3, 1), grad="none")
case("_image_to_tensor", (2, 0, 3, 1), dtypes=("float32",), grad="none")
case("_image_crop", (4, 5, 3), x=1, y=2, width=3, height=2, dtypes=ALL)
case("_image_crop", (2, 4, 5, 1), x=0, y=0, width=5, height=1, dtypes=ALL)
case("_image_normalize", (3, 2, 4), mean=(1.0, 2.0, 3.0), std=(1.0, 2.0, 4.0), dtypes=PIXELS[:3])
case("_image_normalize", (2, 1, 2, 4), mean=(0.5,), std=(0.25,), dtypes=FLOATS)
case("_image_normalize", (2, 3, 2, 4), dtypes=FLOATS)
bytes_ = In((5, 7, 3), 0, 255)
for interp in range(5):
    for size in [(3, 2), (7, 9), (14, 5), (7, 5), (1, 1), (10, 2)]:
        case("_image_resize", bytes_, size=size, interp=interp, grad="none", dtypes=FLOATS[:1])
case("_image_resize", (2, 4, 6, 1), size=(3, 2), interp=1, grad="none")
case("_image_resize", (4, 6, 2), size=(5,), grad="none")
case("_image_resize", (4, 6, 2), size=(2,), keep_ratio=True, grad="none")
case("_cvimresize", (4, 6, 3), w=3, h=2, grad="none")
case("_cvimresize", (4, 6, 4), w=9, h=3, interp=2, grad="none")
for kind in range(5):
    case("_cvcopyMakeBorder", (3, 2, 3), top=1, bot=4, left=3, right=0, type=kind, value=7.0,
         grad="none", dtypes=PIXELS)  # fmt: skip
case("_cvcopyMakeBorder", (3, 2, 3), top=1, bot=0, left=0, right=1, values=(1.0, 2.0, 3.0),
     grad="none")  # fmt: skip
case("_image_adjust_lighting", (2, 3, 3), alpha=(0.1, 0.2, -0.3), grad="none")
case("_image_adjust_lighting", (2, 3, 1), alpha=(0.1, 0.2, -0.3), grad="none")

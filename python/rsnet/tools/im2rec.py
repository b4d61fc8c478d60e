"""Makes list files of image folders, and record files of lists: ``python -m rsnet.tools.im2rec``.

With ``--list`` it walks through a folder and writes ``PREFIX.lst``, lines of id, label and path;
with ``--recursive`` every folder is a class. Without, it reads every ``PREFIX*.lst`` and writes the
record file and index of each. The options are those of MXNet's tool.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from .. import image, recordio
from ..base import MXNetError
from ..image.list_files import read_list

_Line = tuple[int, str, list[float]]


def list_image(root: str, recursive: bool, exts: Sequence[str]) -> Iterator[tuple[int, str, int]]:
    """(id, path below `root`, label) of every image file; recursively, labels number folders."""
    number = 0
    if not recursive:
        for name in sorted(os.listdir(root)):
            if os.path.isfile(os.path.join(root, name)) and _has_suffix(name, exts):
                yield number, name, 0
                number += 1
        return
    classes: dict[str, int] = {}
    for folder, folders, names in os.walk(root, followlinks=True):
        folders.sort()
        for name in sorted(names):
            if not _has_suffix(name, exts):
                continue
            label = classes.setdefault(folder, len(classes))
            yield number, os.path.relpath(os.path.join(folder, name), root), label
            number += 1
    for folder, label in sorted(classes.items(), key=lambda item: item[1]):
        print(os.path.relpath(folder, root), label)


def _has_suffix(name: str, exts: Sequence[str]) -> bool:
    return os.path.splitext(name)[1].lower() in exts


def write_list(path: str, lines: Sequence[tuple[int, str, float]]) -> None:
    """Writes a list file."""
    with open(path, "w", encoding="utf-8") as file:
        for number, name, label in lines:
            file.write(f"{number}\t{label:f}\t{name}\n")


def make_list(args: argparse.Namespace) -> None:
    """Writes the list files of a folder: one, or one for training, test and validation of each
    chunk.
    """  # fmt: skip
    lines = list(list_image(args.root, args.recursive, [e.lower() for e in args.exts]))
    if not lines:
        raise SystemExit(f"invalid root '{args.root}': expected files of {args.exts}")
    if args.shuffle:
        random.Random(100).shuffle(lines)
    size = (len(lines) + args.chunks - 1) // args.chunks
    for i in range(args.chunks):
        chunk = lines[i * size : (i + 1) * size]
        name = args.prefix + (f"_{i}" if args.chunks > 1 else "")
        train, test = int(len(chunk) * args.train_ratio), int(len(chunk) * args.test_ratio)
        if args.train_ratio == 1.0:
            write_list(f"{name}.lst", chunk)
            continue
        if args.test_ratio:
            write_list(f"{name}_test.lst", chunk[:test])
        if args.train_ratio + args.test_ratio < 1.0:
            write_list(f"{name}_val.lst", chunk[test + train :])
        write_list(f"{name}_train.lst", chunk[test : test + train])


def encode(args: argparse.Namespace, line: _Line) -> bytes:
    """The payload of one image.

    Raises
    ------
    MXNetError
        The file cannot be read, or is not an image.
    """
    number, name, labels = line
    path = os.path.join(args.root, name)
    header = recordio.IRHeader(0, labels if len(labels) > 1 else labels[0], number, 0)
    if args.pass_through:
        try:
            with open(path, "rb") as file:
                return recordio.pack(header, file.read())
        except OSError as error:
            raise MXNetError(f"cannot read {path!r}: {error}") from error
    picture = image.imread(path, flag=0 if args.color == 0 else 1)
    if args.center_crop:
        side = min(picture.shape[:2])
        picture = image.center_crop(picture, (side, side))[0]
    if args.resize and min(picture.shape[:2]) != args.resize:
        picture = image.resize_short(picture, args.resize, 1)
    return recordio.pack(header, recordio.encode_image(picture, args.encoding, args.quality))


def make_record(args: argparse.Namespace, path: str) -> int:
    """Writes the record file and index of a list; returns how many images were left out."""
    stem = os.path.splitext(path)[0]
    lines = [(i, name, labels.tolist()) for _, (i, labels, name) in read_list(path)]
    if not args.pack_label and any(len(labels) > 1 for _, _, labels in lines):
        lines = [(i, name, labels[:1]) for i, name, labels in lines]
    missed = 0
    rec = recordio.MXIndexedRecordIO(f"{stem}.idx", f"{stem}.rec", "w")
    with rec, ThreadPoolExecutor(max(args.num_thread, 1)) as pool:
        waiting: deque[tuple[_Line, Future[bytes]]] = deque()
        left = iter(lines)
        done = 0
        while True:
            # A bounded number under way: a list may be longer than memory.
            while len(waiting) < 4 * max(args.num_thread, 1) and (line := next(left, None)):
                waiting.append((line, pool.submit(encode, args, line)))
            if not waiting:
                break
            line, future = waiting.popleft()
            try:
                rec.write_idx(line[0], future.result())
            except MXNetError as error:
                missed += 1
                print(f"left out {line[1]}: {error}", file=sys.stderr)
            done += 1
            if done % 1000 == 0:
                print(f"{done} of {len(lines)}")
    print(f"{stem}.rec: {len(lines) - missed} images" + (f", {missed} left out" if missed else ""))
    return missed


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; those of MXNet's tool."""
    parser = argparse.ArgumentParser(
        prog="python -m rsnet.tools.im2rec",
        description="Create an image list or make a record file from image lists.",
    )
    parser.add_argument("prefix", help="prefix of the list and record files, or a folder of lists")
    parser.add_argument("root", help="folder of the images")
    lists = parser.add_argument_group("Options for creating image lists")
    lists.add_argument("--list", action="store_true", help="make lists, not records")
    lists.add_argument("--exts", nargs="+", default=[".jpeg", ".jpg", ".png"], help="suffixes")
    lists.add_argument("--chunks", type=int, default=1, help="number of parts")
    lists.add_argument("--train-ratio", type=float, default=1.0, help="share for training")
    lists.add_argument("--test-ratio", type=float, default=0, help="share for tests")
    lists.add_argument("--recursive", action="store_true", help="every folder is a class")
    lists.add_argument("--no-shuffle", dest="shuffle", action="store_false", help="keep the order")
    records = parser.add_argument_group("Options for creating database")
    records.add_argument("--pass-through", action="store_true", help="pack files as they are")
    records.add_argument("--resize", type=int, default=0, help="size of the shorter edge")
    records.add_argument("--center-crop", action="store_true", help="keep the middle square")
    records.add_argument("--quality", type=int, default=95, help="JPEG 1 to 100, PNG 0 to 9")
    records.add_argument("--num-thread", type=int, default=1, help="threads")
    records.add_argument("--color", type=int, default=1, choices=[-1, 0, 1], help="0 is grey")
    records.add_argument("--encoding", default=".jpg", choices=[".jpg", ".png"], help="format")
    records.add_argument("--pack-label", action="store_true", help="pack all labels of a line")
    args = parser.parse_args(argv)
    if not os.path.isdir(args.root):
        parser.error(f"invalid root '{args.root}': expected a folder")
    if args.chunks < 1:
        parser.error(f"invalid --chunks {args.chunks}: expected at least 1")
    if args.encoding == ".png" and args.quality > 9:
        args.quality = 9
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program; returns 1 if an image was left out.

    Raises
    ------
    SystemExit
        There is no list, or one cannot be read; the message names file and line.
    """
    args: Any = parse_args(argv)
    if args.list:
        make_list(args)
        return 0
    is_folder = os.path.isdir(args.prefix)
    folder = args.prefix if is_folder else os.path.dirname(os.path.abspath(args.prefix))
    start = "" if is_folder else os.path.basename(args.prefix)
    names = [n for n in sorted(os.listdir(folder)) if n.startswith(start) and n.endswith(".lst")]
    if not names:
        raise SystemExit(f"no file {args.prefix}*.lst: expected a list, which --list makes")
    try:
        return int(any([make_record(args, os.path.join(folder, name)) for name in names]))
    except MXNetError as error:  # of a list: images are left out one by one
        raise SystemExit(f"im2rec: {error}") from error


if __name__ == "__main__":
    sys.exit(main())

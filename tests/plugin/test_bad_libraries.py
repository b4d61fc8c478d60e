"""Libraries that are wrong in every way: a clear error, nothing registered, and a process that goes
on.
"""

import shutil
import subprocess

import numpy as np
import pytest
from plugins import SOURCES, compiled
from processes import printed, run

import rsnet as mx
from rsnet import nd

pytestmark = pytest.mark.process

#: How a library registers, and what is said of it.
REGISTRATIONS = {
    "FAILS": "no such device",
    "NOTHING": "registered nothing",
    "TWICE": "half_registered: .*registers the operator twice",
    "IGNORES_STATUS": "registers the operator twice",
    "BUILT_IN": "operator 'relu' is already registered",
    "NO_COMPUTE": "expected a function 'compute', got null",
    "NO_INFER": "expected infer, or infer_shape and infer_type",
    "BAD_DEFAULT": "invalid default 'three' of attribute 'n': .*expected int",
    "BAD_CHECK": "the defaults of the attributes are refused: this default will not do",
    "TIE": "two kernels have the condition device == cpu at priority 0",
    "NO_NAME": "invalid operator name: expected a name, got none",
    "NAME_TWICE": "invalid name 'x': expected another one",
    "BAD_SIZE": "begins with its own size",
    "NULL_STRUCT": "begins with its own size",
    "BAD_COUNT": "invalid number of inputs -1",
    "BAD_PROGRAM": "a connective has nothing to connect",
    "BAD_CONDITION": "invalid argument 'z' in the condition of a kernel: expected one of: x, y",
    "ORPHAN_KERNEL": "a kernel for 'nobody', which is no operator",
    "ORPHAN_GRAD": "a gradient for 'nobody', which is no operator",
    "BAD_KIND": "invalid kind 99 of attribute 'n': expected 1 to 19",
    "NO_CHOICES": "invalid choices of attribute 'n': expected one or more, since its kind is "
    "RSNET_E",
    "UNEQUAL_SIZES": "invalid struct_size [0-9]+ of item 1 of .*inputs.*: expected [0-9]+",
    "KEYWORD": "invalid name of an operator 'lambda': expected .* not a Python keyword",
    "ALIAS_TAKEN": "operator 'relu' is already registered",
    "ALIAS_OWN": "two operators have the name 'half_registered'",
    "NO_LIST": "invalid inputs list: expected a description that begins with its own size",
    "GRAD_TWICE": "the library registers a gradient twice",
    "NULL_KERNEL": "invalid kernel: expected a description that begins with its own size",
    "NULL_GRAD": "invalid gradient: expected a description that begins with its own size",
    "HIDDEN_FIRST": "invalid output 'y' after the hidden output 'h': expected hidden outputs last",
    "TWIN_ARRAYS": "invalid name 'x_1': expected another one, since arrays of argument 'x'",
    "TEXT_COUNT": "invalid count_attr 'n': expected .* of a kind of integers",
    "DEEP": "invalid condition of a kernel: it is nested deeper than 1000 times",
    "DUNDER": "invalid name '__name__': expected .* it would hide what Python keeps",
}


@pytest.mark.parametrize("mode", REGISTRATIONS)
def test_registrations(mode):
    library = compiled("registration.c", f"MODE={mode}")
    before = mx._core.operator_names()
    for _ in range(2):
        with pytest.raises(mx.MXNetError, match=f"(?s){REGISTRATIONS[mode]}"):
            mx.load_library(library)
    assert mx._core.operator_names() == before
    assert not hasattr(nd, "half_registered")


def test_a_refused_library_leaves_its_names_free():
    code = """
        import rsnet as mx
        from plugins import compiled
        try:
            mx.load_library(compiled("registration.c", "MODE=FAILS"))
        except mx.MXNetError:
            print(mx.load_library(compiled("registration.c", "MODE=GOOD")))
        print(mx.load_library(compiled("registration.c", "MODE=GOOD", "AGAIN=1")))
        print(mx.nd.half_registered(mx.nd.ones(2)).asnumpy().tolist())
    """
    first, again, values = printed(code).splitlines()
    assert first == "['half_registered']" and values == "[1.0, 1.0]"
    assert again == first  # the macro changed nothing: the same content


def test_a_name_of_another_library_is_taken():
    code = """
        import rsnet as mx
        from plugins import compiled
        print(mx.load_library(compiled("registration.c", "MODE=GOOD")))
        try:
            mx.load_library(compiled("registration.c", "MODE=GOOD", 'OTHER="another one"'))
        except mx.MXNetError as error:
            print("operator 'half_registered' is already registered" in str(error))
        print(mx.nd.half_registered(mx.nd.ones(2)).asnumpy().tolist())
    """
    assert printed(code).splitlines() == ["['half_registered']", "True", "[1.0, 1.0]"]


@pytest.mark.parametrize("mode", ["OLDER_STRUCTS", "NEWER_STRUCTS"])
def test_structs_of_other_sizes_are_read_as_far_as_both_know_them(mode):
    code = f"""
        import rsnet as mx
        from plugins import compiled
        print(mx.load_library(compiled("registration.c", "MODE={mode}")))
        print(mx.nd.half_registered(mx.nd.ones(2)).asnumpy().tolist())
    """
    assert printed(code).splitlines() == ["['half_registered']", "[1.0, 1.0]"]


def test_two_kernels_that_match():
    code = """
        import rsnet as mx
        from plugins import compiled
        mx.load_library(compiled("registration.c", "MODE=AMBIGUOUS"))
        try:
            mx.nd.half_registered(mx.nd.ones(2))
        except mx.MXNetError as error:
            print(error)
    """
    said = printed(code)
    assert "half_registered: several kernels match at the highest priority" in said
    assert "device == cpu [true]" in said and "always [true]" in said


@pytest.mark.parametrize(
    ("abi", "text"),
    [
        ("0x00020000u", "version 2.0 .*a newer version of rsnet is needed"),
        ("0x0001ffffu", "version 1.65535 of the plug-in interface, expected 1.0"),
        ("0u", "version 0.0 .*the number is damaged"),
        ("0xdeadbeefu", "version 57005.48879 .*the number is damaged"),
    ],
)
def test_versions(abi, text):
    with pytest.raises(mx.MXNetError, match=text):
        mx.load_library(compiled("scale.c", f"ABI={abi}"))


def test_files_that_are_no_libraries(tmp_path):
    good = compiled("scale.c")
    with open(good, "rb") as file:
        content = file.read()
    cases = {
        "absent.so": (None, "No such file"),
        "empty.so": (b"", "it is not an ELF file"),
        "text.so": (b"import numpy\n" * 50, "it is not an ELF file"),
        "short.so": (content[: len(content) // 3], "damaged or cut short|cannot|file too short"),
        "header.so": (content[:70], "damaged or cut short"),
        "machine.so": (content[:18] + b"\xf7\x00" + content[20:], "another processor"),
    }
    for name, (bytes_, text) in cases.items():
        file = tmp_path / name
        if bytes_ is not None:
            file.write_bytes(bytes_)
        with pytest.raises(OSError, match=text):
            mx.load_library(file)
    with pytest.raises(OSError, match="cannot load"):
        mx.load_library(tmp_path)  # a folder
    with pytest.raises(TypeError, match="invalid path 3"):
        mx.load_library(3)
    for name, defines, text in [
        ("registration.c", ["MODE=GOOD", "NO_ABI"], "has no symbol rsnet_plugin_abi"),
        ("registration.c", ["MODE=GOOD", "NO_REGISTER"], "has no function rsnet_plugin_register"),
        ("hostile.cpp", ["THROWS_AT_ONCE"], "C\\+\\+ exception: thrown while registering"),
    ]:
        with pytest.raises(mx.MXNetError, match=text):
            mx.load_library(compiled(name, *defines))


def test_damaged_bytes_never_end_the_process(tmp_path):
    """Every header field of an ELF file set to extreme values, in a process of its own."""
    code = f"""
        import rsnet as mx
        from plugins import compiled
        content = open(compiled("scale.c"), "rb").read()
        refused = 0
        for at in range(0, 64 + 56 * 3, 4):
            bad = bytearray(content)
            bad[at:at + 4] = b"\\xff\\xff\\xff\\x7f"
            path = {str(tmp_path)!r} + f"/{{at}}.so"
            open(path, "wb").write(bad[:64 + 56 * 3])
            try:
                mx.load_library(path)
            except mx.MXNetError:
                refused += 1
        print(refused)
    """
    assert int(printed(code)) == (64 + 56 * 3) // 4


#: Operators of `hostile.cpp`, and what a call of each says.
CALLS = {
    "bad_negative": r"invalid shape \(2, -7\) of output 'y': extent -7",
    "bad_many_axes": "invalid shape of output 'y': 1000000 axes, expected 0 to 32",
    "bad_no_dims": "invalid shape of output 'y': 2 axes",
    "bad_huge": "too many elements",
    "bad_unset": "infer left the shape of output 'y' unset",
    "bad_no_output": "invalid number 5 of an array",
    "bad_throws_there": r"C\+\+ exception: thrown in infer",
    "bad_never_knows": "infer has no answer",
    "bad_dtype": r"invalid dtype \(code 2, 13 bits, 1 lanes\) of output 'y'",
    "bad_throws": r"C\+\+ exception: thrown in a kernel",
    "bad_throws_int": "not a std::exception",
    "bad_fails": "failed on purpose",
    "bad_fails_like_memory": "cannot get the lock of the camera",
    "bad_fails_mutely": "the kernel of library '.*' failed with status 77 and without a text",
    "bad_answers_unknown": "answered that more must be known",
    "bad_absurd_temp": "cannot get 4611686018427387904 bytes",
    "bad_tmp_too_large": "cannot get 4611686018427387904 bytes",
    "bad_throws_in_part": r"C\+\+ exception: thrown in part 4",
    "bad_random_unasked": "random numbers were not requested",
}


@pytest.fixture(scope="module")
def hostile():
    return mx.load_library(compiled("hostile.cpp"))


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("size", [3, 20_000])
def test_calls(hostile, name, size):
    with pytest.raises(mx.MXNetError, match=f"(?s){name}.*{CALLS[name]}"):
        getattr(nd, name)(nd.ones(size)).asnumpy()
    y = getattr(mx.sym, name)(mx.sym.var("a"), name="node")
    with pytest.raises(mx.MXNetError, match=f"(?s){CALLS[name]}"):
        y.simple_bind(mx.cpu(), a=(size,), grad_req="null").forward()[0].asnumpy()
    assert nd.ones(2).asnumpy().tolist() == [1, 1]


def test_a_thread_of_the_librarys_own(hostile):
    assert nd.good_own_thread(nd.ones(5)).asnumpy().tolist() == [2] * 5
    assert nd.good_own_thread(nd.ones(9000)).asnumpy().sum() == 18_000


def test_watched_kernels():
    """With `check=True` a call fails that writes where it must not."""
    code = """
        import rsnet as mx
        from plugins import compiled
        mx.load_library(compiled("hostile.cpp", "WRITES_BEYOND"), check=True)
        for name in ("bad_writes_input", "bad_writes_beyond"):
            try:
                getattr(mx.nd, name)(mx.nd.ones(5)).asnumpy()
            except mx.MXNetError as error:
                print(error)
        print(mx.nd.good_own_thread(mx.nd.ones(5)).asnumpy().tolist())
    """
    lines = printed(code).splitlines()
    first, second = (line for line in lines if "the kernel wrote" in line)
    good = lines[-1]
    assert "bad_writes_input: the kernel wrote to its input 'x'" in first
    assert "the kernel wrote after the 20 bytes of its output 'y'" in second
    assert good == "[2.0, 2.0, 2.0, 2.0, 2.0]"


def library_of_gcc(name):
    """The path of a library that comes with g++, None if it has none of that name."""
    command = ["g++", f"-print-file-name={name}"]
    found = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return found if "/" in found else None


def every_case(*flags):
    """A program that tries every hostile registration, call and gradient, compiled with these
    flags, and prints how many were refused.
    """
    return f"""
        import rsnet as mx
        from plugins import compiled
        flags = {flags!r}
        def refused(call, *arguments, **more):
            try:
                call(*arguments, **more)
            except mx.MXNetError:
                return 1
            return 0
        def load(name, *defines):
            return mx.load_library(compiled(name, *defines, cflags=flags, ldflags=flags[:1]))
        def run(name, x, **more):
            x.attach_grad()
            with mx.autograd.record():
                y = getattr(mx.nd, name)(x, **more)
            y.backward()
            x.grad.asnumpy()
        def bind(name):
            node = getattr(mx.sym, name)(mx.sym.var("a") + 1, n=1)
            exe = node.simple_bind(mx.cpu(), a=(3,), grad_req="null")
            exe.forward()[0].asnumpy()
        modes = ["MODE=" + mode for mode in {sorted(REGISTRATIONS)!r}]
        counts = [sum(refused(load, "registration.c", mode) for mode in modes)]
        load("hostile.cpp")
        counts.append(sum(refused(run, name, mx.nd.ones(50)) for name in {sorted(CALLS)!r}))
        odd = [name for name in load("hostile_parts.cpp") if name != "fine_destroyers"]
        counts.append(sum(refused(run, name, mx.nd.ones(3), n=1) for name in odd) - len(odd))
        sum(refused(bind, name) for name in odd)
        bind("fine_destroyers")
        print(*counts, mx.nd.good_own_thread(mx.nd.ones(5)).asnumpy().sum())
    """


EVERY_CASE = [str(len(REGISTRATIONS)), str(len(CALLS)), "0", "10.0"]


@pytest.mark.slow
def test_under_sanitizers():
    """With the address and undefined-behaviour sanitizers."""
    # The preloaded sanitizer looks for libstdc++ when the process starts.
    preloaded = [library_of_gcc(name) for name in ("libasan.so", "libstdc++.so.6")]
    if not all(preloaded):
        pytest.skip("g++ has no address sanitizer here")
    done = run(
        every_case("-fsanitize=address,undefined", "-fno-sanitize=vptr"),
        LD_PRELOAD=" ".join(preloaded),
        ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == EVERY_CASE
    assert "ERROR" not in done.stderr and "runtime error" not in done.stderr


@pytest.mark.skipif(shutil.which("clang++") is None, reason="there is no clang")
def test_by_clang():
    assert printed(every_case(), CC="clang", CXX="clang++").split() == EVERY_CASE


def test_sources_have_a_test_for_every_case():
    text = (SOURCES / "hostile.cpp").read_text()
    assert all(f'"{name}"' in text for name in CALLS)
    assert np.count_nonzero([f'{{"{prefix}' in text for prefix in ("bad_", "good_")]) == 2

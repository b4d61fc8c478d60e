"""Loading again, later, beside others: mended and watched libraries, damaged segments."""

import pytest
from plugins import SOURCES, compiled, compiled_text
from processes import printed

import rsnet as mx
from rsnet import autograd, nd

pytestmark = pytest.mark.process

#: An operator by MXNet's names, in C++: what was refused stays in the process.
MENDED = """
#include <rsnet/mxnet.h>
namespace mxnet { namespace op {
void Run(const nnvm::NodeAttrs&, const OpContext&, const std::vector<TBlob>& in,
         const std::vector<OpReqType>&, const std::vector<TBlob>& out) {
  out[0].dptr<float>()[0] = FACTOR * in[0].dptr<float>()[0];
}
NNVM_REGISTER_OP(NAME).set_attr<nnvm::FInferShape>("FInferShape", ElemwiseShape<1, 1>)
    .set_attr<FCompute>("FCompute<cpu>", Run);
} }
"""


def test_the_interpreter_is_free_while_a_library_loads():
    """A thread in the loader wants the interpreter; others must not hold it and wait for that."""
    code = """
        import threading, time
        import rsnet as mx
        from plugins import compiled
        mx.load_library(compiled("scale.c"))
        slow = compiled("states.c", "SLOW")
        loader = threading.Thread(target=mx.load_library, args=(slow,))
        loader.start()
        while loader.is_alive():
            assert mx._core.library_operator("c_scale") is not None
            time.sleep(0.01)
        print(mx.nd.twice_kept(mx.nd.ones(2)).asnumpy().tolist())
    """
    assert printed(code) == "[2.0, 2.0]"


def test_a_library_is_mended_and_loaded_from_the_same_path(tmp_path):
    made = [
        compiled_text(MENDED.replace("NAME", name).replace("FACTOR", factor))
        for name, factor in [("relu", "1"), ("mended", "3")]
    ]
    code = f"""
        import os, shutil
        import rsnet as mx
        path = {str(tmp_path / "libmended.so")!r}
        for library in {made!r}:
            shutil.copy(library, path + ".new")
            os.replace(path + ".new", path)
            try:
                print(mx.load_library(path))
            except mx.MXNetError as error:
                print("already registered" in str(error))
        print(mx.nd.mended(mx.nd.ones(1)).asscalar())
    """
    assert printed(code).splitlines() == ["True", "['mended']", "3.0"]


def test_watching_may_begin_later():
    code = """
        import rsnet as mx
        from plugins import compiled
        path = compiled("hostile.cpp")
        for check in (False, True):
            mx.load_library(path, check=check)
            try:
                mx.nd.bad_writes_input(mx.nd.ones(5)).asnumpy()
                print("unseen")
            except mx.MXNetError as error:
                print("wrote to its input" in str(error))
    """
    assert printed(code).splitlines() == ["unseen", "True"]


def test_bits_of_the_program_headers(tmp_path):
    """A flipped bit is refused, or does no harm: the process stays."""
    code = f"""
        import rsnet as mx
        from plugins import compiled
        content = open(compiled("scale.c"), "rb").read()
        refused = 0
        for at in range(64, 64 + 56 * int.from_bytes(content[56:58], "little"), 3):
            bad = bytearray(content)
            bad[at] ^= 2
            path = {str(tmp_path)!r} + f"/{{at}}.so"
            open(path, "wb").write(bad)
            try:
                mx.load_library(path)
            except mx.MXNetError:
                refused += 1
        print(refused > 20)
    """
    assert printed(code) == "True"


def test_initialisers_that_fail_are_errors():
    text = """
    #include <rsnet/mxnet.h>
    static const int broken = [] { CHECK(1 > 2) << "no table"; return 1; }();
    """
    with pytest.raises(mx.MXNetError, match="(?s)ended the process that tried.*no table"):
        mx.load_library(compiled_text(text))


#: Declares fields and aliases as the environment says, for example "b ac" for the field b and the
#: alias c of a.
ALIASES = """
    #include <rsnet/mxnet.h>
    namespace mxnet { namespace op {
    struct P : public dmlc::Parameter<P> {
      int a, b;
      DMLC_DECLARE_PARAMETER(P) {
        DMLC_DECLARE_FIELD(a).set_default(1);
        std::istringstream words(std::getenv("RSNET_TEST_ALIASES"));
        for (std::string word; words >> word;) {
          if (word == "b") DMLC_DECLARE_FIELD(b).set_default(2);
          if (word == "ab") DMLC_DECLARE_ALIAS(a, b);
          if (word == "ac") DMLC_DECLARE_ALIAS(a, c);
          if (word == "bc") DMLC_DECLARE_ALIAS(b, c);
          if (word == "cd") DMLC_DECLARE_ALIAS(c, d);
        }
      }
    };
    DMLC_REGISTER_PARAMETER(P);
    void Run(const nnvm::NodeAttrs&, const OpContext&, const std::vector<TBlob>& in,
             const std::vector<OpReqType>&, const std::vector<TBlob>& out) {}
    NNVM_REGISTER_OP(of_two_names).set_attr_parser(ParamParser<P>)
        .set_attr<nnvm::FInferShape>("FInferShape", ElemwiseShape<1, 1>)
        .set_attr<FCompute>("FCompute<cpu>", Run).add_arguments(P::__FIELDS__());
    } }
"""


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ("ab b", "the name b is declared twice"),
        ("b ab", "the name b is declared twice"),
        ("b ac bc", "the name c is declared twice"),
        ("b ac cd", "no such field"),
    ],
)
def test_other_names_of_parameters_are_names_of_one_field(declared, says, monkeypatch):
    monkeypatch.setenv("RSNET_TEST_ALIASES", declared)
    with pytest.raises(mx.MXNetError, match=says):
        mx.load_library(compiled_text(ALIASES))


@pytest.mark.parametrize("status", [0, 3])
def test_initialisers_that_exit_are_errors(status):
    text = f"""
    #include <cstdlib>
    static const int gone = [] {{ std::exit({status}); return 1; }}();
    """
    with pytest.raises(mx.MXNetError, match=f"ended the process that tried.*status {status}"):
        mx.load_library(compiled_text(text))


def test_initialisers_that_do_not_end_are_errors(monkeypatch):
    monkeypatch.setattr("rsnet._operators.library._TRIAL_SECONDS", 0.5)
    text = """
    #include <unistd.h>
    static const int never = [] { for (;;) pause(); return 1; }();
    """
    with pytest.raises(mx.MXNetError, match=r"to end within 0\.5 s"):
        mx.load_library(compiled_text(text))


@pytest.mark.parametrize(
    ("fault", "signal"),
    [("*(volatile int *)8 = 1", 11), ("abort()", 6), ("op.name = (const char *)8", 11)],
    ids=["a wild address", "abort", "a wild address for the host"],
)
def test_registrations_that_crash_are_errors(fault, signal):
    text = f"""
    #include <rsnet/plugin.h>
    #include <stdlib.h>
    extern "C" const uint32_t rsnet_plugin_abi = RSNET_ABI;
    rsnet_status rsnet_plugin_register(const rsnet_host *host, rsnet_registry *registry) {{
      rsnet_op op = {{sizeof op}};
      {fault};
      return host->register_op(registry, &op);
    }}
    """
    with pytest.raises(mx.MXNetError, match=f"ended the process that tried.*signal {signal}"):
        mx.load_library(compiled_text(text))


def test_bits_of_the_table_of_symbols(tmp_path):
    """Damage that is met when a symbol is looked up is refused, or does no harm."""
    code = f"""
        import rsnet as mx
        from plugins import compiled
        content = open(compiled("scale.c"), "rb").read()
        sections = int.from_bytes(content[40:48], "little")
        headers = [content[at : at + 64] for at in range(sections, len(content) - 63, 64)]
        gnu_hash = next(h for h in headers if int.from_bytes(h[4:8], "little") == 0x6FFFFFF6)
        begin, size = (int.from_bytes(gnu_hash[at : at + 8], "little") for at in (24, 32))
        for at in range(begin, begin + min(size, 40), 2):
            bad = bytearray(content)
            bad[at] ^= 0x81
            path = {str(tmp_path)!r} + f"/{{at}}.so"
            open(path, "wb").write(bad)
            try:
                mx.load_library(path)
            except mx.MXNetError:
                pass
        print("alive")
    """
    assert printed(code) == "alive"


def test_forks_while_another_thread_loads():
    """The child has what was loaded before, and may load more."""
    code = """
        import os, signal, threading
        import rsnet as mx
        from plugins import compiled
        scale, slow = compiled("scale.c"), compiled("states.c", "SLOW")
        loader = threading.Thread(target=mx.load_library, args=(slow,))
        loader.start()
        children = []
        while loader.is_alive():
            child = os.fork()
            if child == 0:
                signal.alarm(30)  # ends a child that waits for ever
                mx.load_library(scale)
                os._exit(int(mx.nd.c_scale(mx.nd.ones(2), by=7).asnumpy()[0]))
            children.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(bool(children) and set(children))
    """
    assert printed(code) == "{7}"


def test_a_library_loads_where_processes_are_started_by_fork():
    code = """
        import subprocess
        import rsnet as mx
        from plugins import compiled
        subprocess._USE_VFORK = subprocess._USE_POSIX_SPAWN = False
        print("c_scale" in mx.load_library(compiled("scale.c")))
    """
    assert printed(code) == "True"


def test_a_kernels_state_on_a_backward_operator_alone():
    mx.load_library(compiled("states.c"))
    x = nd.array([1.0, -2.0])
    x.attach_grad()
    with autograd.record():
        y = nd.twice_kept(x)
    y.backward()
    assert y.asnumpy().tolist() == [2, -4] and x.grad.asnumpy().tolist() == [2, 2]


def test_kinds_of_errors_do_not_come_from_texts():
    mx.load_library(compiled("hostile.cpp"))
    with pytest.raises(ValueError, match="the lock of the camera"):
        nd.bad_fails_like_memory(nd.ones(2)).asnumpy()
    with pytest.raises(MemoryError):
        nd.bad_tmp_too_large(nd.ones(2)).asnumpy()


def test_a_child_that_is_forked_while_a_name_is_imported(tmp_path):
    """The first use of a name imports its module: a fork waits for that."""
    (tmp_path / "slow_module.py").write_text(
        "import __main__, time\n__main__.started.set()\ntime.sleep(0.5)\nvalue = 7\n"
    )
    code = f"""
        import os, signal, threading
        import rsnet as mx
        mx.__path__.append({str(tmp_path)!r})
        mx._ON_DEMAND["slow_module"] = "slow_module"
        started = threading.Event()
        thread = threading.Thread(target=lambda: mx.slow_module)
        thread.start()
        started.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(30)  # ends a child that waits for ever
            os._exit(mx.slow_module.value)
        thread.join()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), mx.slow_module.value)
    """
    assert printed(code) == "7 7"


def test_a_fork_does_not_take_what_an_import_on_demand_waits_for(tmp_path):
    (tmp_path / "logs.py").write_text(
        "import __main__, logging, time\n__main__.started.set()\ntime.sleep(0.5)\n"
        "logger = logging.getLogger('of a module that is imported late')\n"
    )
    code = f"""
        import os, threading
        import rsnet as mx
        from rsnet import _on_demand
        import logging
        _on_demand._LONGEST_WAIT_S = 1e6
        mx.__path__.append({str(tmp_path)!r})
        mx._ON_DEMAND["logs"] = "logs"
        started = threading.Event()
        thread = threading.Thread(target=lambda: mx.logs)
        thread.start()
        started.wait()
        child = os.fork()
        if child == 0:
            os._exit(mx.logs.logger is not None)
        thread.join()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert printed(code) == "1"


def test_a_fork_beside_imports_runs_handlers_in_pairs(tmp_path):
    """A handler that is registered while a fork waits for imports would run after it alone."""
    (tmp_path / "registers.py").write_text(
        "import __main__, time\n__main__.started.set()\ntime.sleep(0.5)\n"
        "import concurrent.futures.thread, logging\n"
    )
    code = f"""
        import os, sys, threading
        import rsnet as mx
        mx.__path__.append({str(tmp_path)!r})
        mx._ON_DEMAND["registers"] = "registers"
        problems = []
        sys.unraisablehook = lambda problem: problems.append(problem.exc_value)
        started = threading.Event()
        thread = threading.Thread(target=lambda: mx.registers)
        thread.start()
        started.wait()
        child = os.fork()
        if child == 0:
            os._exit(len(problems))
        thread.join()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), problems)
    """
    assert printed(code) == "0 []"


def test_what_is_wrong_with_a_definition_is_not_swallowed(monkeypatch):
    """An operator that the builder cannot have is listed with the reason; any other failure is one
    of `load_library`.
    """
    from rsnet._operators import library

    def broken(name, info):
        raise TypeError("a mistake")

    monkeypatch.setattr(library, "LibraryDefinition", broken)
    text = (SOURCES / "registration.c").read_text().replace("half_registered", "not_swallowed")
    with pytest.raises(TypeError, match="a mistake"):
        mx.load_library(compiled_text(text, "case.c", cflags=["-DMODE=GOOD"]))

"""Every public name of `rsnet.engine` says what it takes and raises, with an example that runs."""

import doctest
import inspect
import re

import pytest
from processes import run

from rsnet import engine


@pytest.mark.parametrize("name", engine.__all__)
def test_every_name_has_documentation_with_an_example(name):
    thing = getattr(engine, name)
    text = inspect.getdoc(thing)
    assert len(text.splitlines()[0]) > 20
    examples = doctest.DocTestParser().get_examples(text)
    assert any(example.want for example in examples) or name == "start"
    if inspect.isbuiltin(thing) and (parameters := inspect.signature(thing).parameters):
        section = re.search(r"Parameters\n-+\n(.*?)(\n[A-Z]\w+\n-+\n|\Z)", text, re.S)
        named = set(re.findall(r"\w+", " ".join(re.findall(r"^\S.*$", section[1], re.M))))
        assert set(parameters) <= named


@pytest.mark.parametrize("name", engine.__all__)
def test_the_example_of_every_name_runs(name):
    test = doctest.DocTestParser().get_doctest(
        inspect.getdoc(getattr(engine, name)), {}, name, None, 0
    )
    report = []
    runner = doctest.DocTestRunner()
    runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)


@pytest.mark.process
def test_the_engine_says_which_it_is_when_asked():
    code = "from rsnet import engine; engine.wait_for_all()"
    told = run(code, MXNET_ENGINE_INFO="1", MXNET_ENGINE_TYPE="NaiveEngine").stderr
    assert told.strip() == "MXNet start using engine: NaiveEngine"
    told = run(code, MXNET_ENGINE_INFO="true", MXNET_ENGINE_TYPE="").stderr
    assert told.strip() == "MXNet start using engine: ThreadedEnginePerDevice"
    assert run(code, MXNET_ENGINE_INFO="0").stderr == ""

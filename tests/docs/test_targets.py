"""The targets of the Makefile that workflows and CONTRIBUTING.md name exist."""

import re

import pytest
from places import ROOT

TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_targets_that_exist(workflow):
    text = workflow.read_text()
    named = set(re.findall(r"run: make ([a-z0-9-]+)", text))
    for listed in re.findall(r"target: \[(.*)\]", text):
        named |= set(listed.split(", "))
    assert named and not named - TARGETS


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_job_of_a_workflow_has_a_time_limit(workflow):
    jobs = re.split(r"^  [\w-]+:\n", workflow.read_text().split("\njobs:\n")[1], flags=re.M)[1:]
    assert jobs and all(re.search(r"^    timeout-minutes: \d+$", job, re.M) for job in jobs)


def test_the_guide_for_contributors_names_targets_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"`make ([a-z0-9-]+)", text))
    assert len(named) > 10 and not named - TARGETS

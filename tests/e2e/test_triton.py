"""The same requests as a real Triton got: its responses stand in
tests/golden/triton, with the differences and their reasons."""
import json
import sys

import pytest

from conftest import REPO, start

GOLDEN = REPO / "tests" / "golden" / "triton"
sys.path.insert(0, str(GOLDEN))
import corpus  # noqa: E402
import differences  # noqa: E402
from replay import replay  # noqa: E402
from repository import write_repository  # noqa: E402


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_repository(root, "onnx")
    with start("--model-repository", root, "--model-control-mode", "explicit",
               "--load-model", "*") as server:
        yield replay("127.0.0.1", server.http_port, corpus.CASES)


def test_responses_are_tritons_but_for_the_listed_differences(ours):
    theirs = json.loads((GOLDEN / "answers.json").read_text())
    assert set(theirs) == {case.name for case in corpus.CASES}
    unlisted = {name: (theirs[name], ours[name]) for name in theirs
                if ours[name] != theirs[name] and
                differences.reason(name, theirs[name], ours[name]) is None}
    assert not unlisted


def test_every_listed_difference_is_one(ours):
    theirs = json.loads((GOLDEN / "answers.json").read_text())
    for why, covers in differences.RULES:
        cases = [name for name in theirs if ours[name] != theirs[name] and
                 differences.reason(name, theirs[name], ours[name]) == why]
        assert cases, why
        if not callable(covers):
            assert set(cases) == covers, why


def test_nothing_is_a_fault_of_the_server(ours):
    assert not {name: answer for name, answer in ours.items()
                if not isinstance(answer["status"], int) or
                answer["status"] in (500, 501)}

"""The same requests as a real Triton got, over REST and gRPC: its responses
stand in tests/golden/triton, with the differences and their reasons."""
import json
import sys

import pytest

from conftest import REPO, start

GOLDEN = REPO / "tests" / "golden" / "triton"
sys.path.insert(0, str(GOLDEN))
import corpus  # noqa: E402
import corpus_grpc  # noqa: E402
import differences  # noqa: E402
import replay  # noqa: E402
import replay_grpc  # noqa: E402
from repository import write_repository  # noqa: E402

CASES = {"rest": corpus.CASES, "grpc": corpus_grpc.CALLS}
ANSWERS = {"rest": "answers.json", "grpc": "answers_grpc.json"}
RULES = {"rest": differences.RULES, "grpc": differences.RULES_GRPC}
FAULTS = {"rest": (500, 501), "grpc": ("INTERNAL", "UNKNOWN", "UNIMPLEMENTED")}


@pytest.fixture(scope="module", params=sorted(CASES))
def wire(request, tmp_path_factory):
    """Name of the wire, Triton's responses, ours."""
    root = tmp_path_factory.mktemp("models")
    write_repository(root, "onnx")
    theirs = json.loads((GOLDEN / ANSWERS[request.param]).read_text())
    with start("--model-repository", root, "--model-control-mode", "explicit",
               "--load-model", "*") as server:
        if request.param == "rest":
            ours = replay.replay("127.0.0.1", server.http_port, corpus.CASES)
        else:
            ours = replay_grpc.replay(f"127.0.0.1:{server.grpc_port}",
                                      corpus_grpc.CALLS)
    return request.param, theirs, ours


def test_responses_are_tritons_but_for_the_listed_differences(wire):
    name, theirs, ours = wire
    assert list(theirs) == [case.name for case in CASES[name]]
    unlisted = {
        case: (theirs[case], ours[case]) for case in theirs
        if ours[case] != theirs[case] and
        differences.reason(RULES[name], case, theirs[case],
                           ours[case]) is None}
    assert not unlisted


def test_every_listed_difference_is_one(wire):
    name, theirs, ours = wire
    for why, covers in RULES[name]:
        cases = [case for case in theirs if ours[case] != theirs[case] and
                 differences.reason(RULES[name], case, theirs[case],
                                    ours[case]) == why]
        assert cases, why
        if not callable(covers):
            assert set(cases) == covers, why


def test_nothing_is_a_fault_of_the_server(wire):
    name, _, ours = wire
    assert not {case: answer for case, answer in ours.items()
                if answer["status"] in FAULTS[name] or
                "Disconnected" in str(answer["status"])}

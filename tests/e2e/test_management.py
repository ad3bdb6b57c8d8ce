"""Management, metrics and debug routes on a listener of their own, and the audit
log of what was managed."""
import json
import shutil

import pytest
import tritonclient.grpc as triton
from conftest import REPO, start
from test_keys import call, create

GRAPH = REPO / "tests/data/graph/mlp.onnx"


class Port:
    """As a server, for call()."""

    def __init__(self, number):
        self.url = f"http://127.0.0.1:{number}"


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "models/mlp/1").mkdir(parents=True)
    shutil.copy(GRAPH, tmp_path / "models/mlp/1/model.onnx")
    return tmp_path / "models"


def test_management_has_a_port_of_its_own(repository, tmp_path):
    manager, entry = create("--id", "manager", "--scopes", "manage,metrics")
    user, other = create("--id", "user")
    (tmp_path / "keys.yaml").write_text("keys:\n" + entry + other)
    audit = tmp_path / "audit.jsonl"
    with start("--model-repository", repository, "--model-control-mode",
               "explicit", "--api-keys-file", tmp_path / "keys.yaml",
               "--management-port", 0, "--audit-log-file", audit) as running:
        ready = next(json.loads(line) for line in running.lines
                     if '"ready"' in line)
        inside = Port(ready["management_port"])
        load = "/v2/repository/models/mlp/load"
        # Not on the port of inference, whoever asks; nor by gRPC.
        for path in (load, "/v2/repository/index"):
            status, _, said = call(running, "POST", path, manager, {})
            assert status == 404 and "management_port" in said
        assert call(running, "GET", "/metrics", manager)[0] == 404
        remote = triton.InferenceServerClient(f"127.0.0.1:{running.grpc_port}")
        with pytest.raises(triton.InferenceServerException) as refused:
            remote.load_model("mlp", headers={
                "authorization": f"Bearer {manager}"})
        assert "PERMISSION_DENIED" in refused.value.status()
        assert "management_port" in refused.value.message()
        # Inference is not on that of management.
        assert call(inside, "GET", "/v1/models", user)[0] == 404
        assert call(inside, "GET", "/health")[0] == 200

        assert call(inside, "POST", load, None, {})[0] == 401
        assert call(inside, "POST", load, user, {})[0] == 403
        assert call(inside, "POST", load, manager, {})[0] == 200
        assert call(inside, "POST", "/v2/repository/models/none/load", manager,
                    {})[0] == 404
        assert call(inside, "GET", "/metrics", manager)[0] == 200
        assert call(running, "GET", "/v2/models/mlp/ready", user)[0] == 200

    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    told = [(line["key"], line["action"], line["result"]) for line in lines]
    assert told == [
        ("manager", "grpc/RepositoryModelLoad", "PERMISSION_DENIED"),
        ("", "POST " + load, "401"),
        ("user", "POST " + load, "403"),
        ("manager", "POST " + load, "200"),
        ("manager", "POST /v2/repository/models/none/load", "404")]
    assert all(line["time"].endswith("Z") and line["peer"] and
               line.get("request_id", "x") for line in lines)
    assert lines[0]["model"] == "mlp" and "error" in lines[4]
    assert audit.stat().st_mode & 0o077 == 0


def test_without_that_port_all_is_on_one(repository):
    with start("--model-repository", repository, "--model-control-mode",
               "explicit") as running:
        load = "/v2/repository/models/mlp/load"
        assert call(running, "POST", load, None, {})[0] == 200
        remote = triton.InferenceServerClient(f"127.0.0.1:{running.grpc_port}")
        remote.unload_model("mlp")
        for _ in range(2):
            running.wait_event("audit")
        events = [json.loads(line) for line in running.lines
                  if '"audit"' in line]
        # A line follows its answer, so the second may come first.
        assert {event["action"]: event["result"] for event in events} == {
            "POST " + load: "200", "grpc/RepositoryModelUnload": "OK"}

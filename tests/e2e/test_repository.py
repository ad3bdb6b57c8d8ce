"""A model repository: folders of versions, config.pbtxt, control by polling and
by Triton's clients, and what is wrong with either."""
import json
import shutil
import subprocess
import time

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import BINARY, REPO, start

DATA = REPO / "tests" / "data" / "graph"
CASE = json.loads((DATA / "mlp.json").read_text())[0]


def put(root, version, name="mlp", model="mlp.onnx", file="model.onnx"):
    folder = root / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    # Renamed into place: a poll never sees half a file.
    shutil.copy(DATA / model, folder / "new")
    (folder / "new").rename(folder / file)


def configure(root, text, name="mlp"):
    (root / name / "config.pbtxt").write_text(text)


def http(server):
    return triton_http.InferenceServerClient(f"127.0.0.1:{server.http_port}")


def infer(client, model="mlp", version=""):
    inputs = []
    for name in ("x", "scale"):
        value = np.array(CASE[name], np.float32)
        inputs.append(triton_http.InferInput(name, list(value.shape), "FP32"))
        inputs[-1].set_data_from_numpy(value)
    answer = client.infer(model, inputs, model_version=version)
    np.testing.assert_allclose(answer.as_numpy("logits"), CASE["logits"],
                               rtol=1e-5, atol=1e-6)
    return answer.get_response()["model_version"]


def await_true(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def refused(*flags):
    """What a server that cannot start says."""
    ended = subprocess.run(
        [BINARY, "serve", "--http-port", "0", "--grpc-port", "0",
         *map(str, flags)],
        stderr=subprocess.PIPE, text=True, timeout=60)
    assert ended.returncode != 0
    return ended.stderr


def test_versions_are_served_as_the_policy_says(tmp_path):
    put(tmp_path, 1)
    put(tmp_path, 3)
    put(tmp_path, 10)
    configure(tmp_path, """
        name: "mlp"
        platform: "onnxruntime_onnx"
        version_policy { latest { num_versions: 2 } }
        instance_group [ { count: 1 kind: KIND_CPU } ]
        parameters { key: "threads" value { string_value: "1" } }""")
    shutil.copy(DATA / "mlp.onnx", tmp_path / "plain.onnx")
    with start("--model-repository", tmp_path) as server:
        with http(server) as client:
            assert infer(client) == "10"
            assert infer(client, version="3") == "3"
            with pytest.raises(InferenceServerException, match="version '1'"):
                infer(client, version="1")
            assert infer(client, "plain") == "1"
            assert client.get_model_metadata("mlp")["versions"] == ["3", "10"]
            assert client.is_model_ready("mlp", "3")
            assert not client.is_model_ready("mlp", "1")


def test_polling_follows_the_folder(tmp_path):
    put(tmp_path, 1)
    with start("--model-repository", tmp_path, "--model-control-mode", "poll",
               "--repository-poll-interval", "20ms") as server:
        with http(server) as client:
            assert infer(client) == "1"
            put(tmp_path, 2)
            await_true(lambda: infer(client) == "2")
            # A half-written version leaves the one before serving.
            (tmp_path / "mlp" / "3").mkdir()
            (tmp_path / "mlp" / "3" / "model.onnx").write_bytes(
                (DATA / "mlp.onnx").read_bytes()[:100])
            server.wait_event("model not loaded")
            assert infer(client) == "2"
            shutil.rmtree(tmp_path / "mlp")
            await_true(lambda: not client.is_model_ready("mlp"))
            assert 'model="mlp"' not in server.get("/metrics").decode()


@pytest.mark.parametrize("config, said", [
    ("max_batchsize: 3", "config.pbtxt line 1: unknown field 'max_batchsize'"),
    ("ensemble_scheduling { }", "'ensemble_scheduling' is not supported"),
    ("sequence_batching { }", "'sequence_batching' is not supported"),
    ("response_cache { enable: true }", "'response_cache' is not supported"),
    ('name: "other"', "name is 'other'"),
    ('backend: "python"', "backend is 'python'"),
    ('input [ { name: "x" data_type: TYPE_INT64 } ]',
     "has data_type TYPE_INT64 but the model has TYPE_FP32"),
    ('input [ { name: "nobody" } ]', "input 'nobody'"),
    ("version_policy { specific { versions: [ 7 ] } }", "version 7"),
])
def test_wrong_configurations_are_named_at_start(tmp_path, config, said):
    put(tmp_path, 1)
    configure(tmp_path, config)
    assert said in refused("--model-repository", tmp_path)


def test_wrong_flags_are_named_at_start(tmp_path):
    assert "is no folder" in refused("--model-repository", tmp_path / "none")
    put(tmp_path, 1)
    assert "named as a model, too" in refused("--model-repository", tmp_path,
                                              DATA / "mlp.onnx")
    assert "'other' is not in the repository" in refused(
        "--model-repository", tmp_path, "--model-control-mode", "explicit",
        "--load-model", "other")

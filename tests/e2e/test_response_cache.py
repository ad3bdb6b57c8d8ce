"""Answers that are kept: as config.yaml and config.pbtxt switch it on."""
import json
import shutil

import numpy as np
import pytest
import tritonclient.http as triton_http

from conftest import REPO, start

DATA = REPO / "tests" / "data" / "image"


def put(root, name, file, text):
    folder = root / name / "1"
    folder.mkdir(parents=True)
    shutil.copy(DATA / "classifier.onnx", folder / "model.onnx")
    (root / name / file).write_text(text)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    put(root, "yaml", "config.yaml", "response_cache: {enable: true}\n")
    put(root, "triton", "config.pbtxt", "response_cache { enable: true }\n")
    put(root, "off", "config.yaml", "response_cache: {enable: false}\n")
    with start("--model-repository", root, "--metrics-compat",
               "triton") as running:
        yield running


def statistics(server, name):
    stats = json.loads(server.get(f"/v2/models/{name}/stats"))
    return stats["model_stats"][0]


@pytest.mark.parametrize("name, hits", [("yaml", 2), ("triton", 2), ("off", 0)])
def test_the_same_bytes_are_computed_once(server, name, hits):
    client = triton_http.InferenceServerClient(f"127.0.0.1:{server.http_port}")
    answers = []
    for value in (1, 1, 2, 1):
        pixels = triton_http.InferInput("pixels", [1, 3, 8, 8], "FP32")
        pixels.set_data_from_numpy(np.full((1, 3, 8, 8), value, np.float32))
        answers.append(client.infer(name, [pixels]).as_numpy("logits"))
    assert answers[0].tobytes() == answers[1].tobytes() == answers[3].tobytes()
    assert answers[0].tobytes() != answers[2].tobytes()
    stats = statistics(server, name)
    assert stats["inference_count"] == 4 - hits
    assert stats["inference_stats"]["success"]["count"] == 4
    assert stats["inference_stats"]["cache_hit"]["count"] == hits
    assert stats["inference_stats"]["cache_miss"]["count"] == (2 if hits else 0)
    counted = server.metric("millrace_response_cache_hits_total")
    assert sum(v for k, v in counted.items() if f'"{name}"' in k) == hits
    for kind, count in (("hits", hits), ("misses", 2 if hits else 0)):
        counted = server.metric(f"nv_cache_num_{kind}_per_model")
        assert counted.get(f'{{model="{name}"}}', 0) == count, kind

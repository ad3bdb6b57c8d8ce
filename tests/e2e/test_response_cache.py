"""Answers that are kept: as config.yaml and config.pbtxt switch it on."""
import json
import shutil
import time

import numpy as np
import pytest
import tritonclient.http as triton_http

from conftest import REPO, start
from onnx_bytes import affine

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


def ask(server, model, value, version=""):
    """The first number of y, which is x * version."""
    client = triton_http.InferenceServerClient(f"127.0.0.1:{server.http_port}")
    x = triton_http.InferInput("x", [1, 3], "FP32")
    x.set_data_from_numpy(np.full((1, 3), value, np.float32))
    return client.infer(model, [x], model_version=version).as_numpy("y")[0, 0]


def of_model(server, name, model):
    return sum(value for labels, value in server.metric(name).items()
               if f'model="{model}"' in labels)


def put_version(root, name, version, factor):
    folder = root / name / str(version)
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(affine(factor))


def test_versions_do_not_answer_for_each_other(tmp_path):
    for version in (1, 2):
        put_version(tmp_path, "net", version, version)
    (tmp_path / "net" / "config.yaml").write_text(
        "version_policy: all\nresponse_cache: {enable: true}\n")
    with start("--model-repository", tmp_path, "--model-control-mode",
               "poll", "--repository-poll-interval", "200ms") as server:
        for _ in range(3):
            assert ask(server, "net", 5, "1") == 5
            assert ask(server, "net", 5, "2") == 10
        assert of_model(server, "millrace_response_cache_hits_total", "net") == 4
        both = of_model(server, "millrace_response_cache_bytes", "net")
        # A version that goes takes its answers along.
        shutil.rmtree(tmp_path / "net" / "2")
        until = time.monotonic() + 30
        while of_model(server, "millrace_response_cache_bytes", "net") == both:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert of_model(
            server, "millrace_response_cache_bytes", "net") == both / 2
        # One that comes under the same number computes anew.
        put_version(tmp_path, "net", 2, 7)
        while True:
            try:
                if ask(server, "net", 5, "2") == 35:
                    break
            except triton_http.InferenceServerException:
                pass
            assert time.monotonic() < until + 30
            time.sleep(0.05)


def test_bytes_are_bounded(tmp_path):
    put_version(tmp_path, "net", 1, 1)
    (tmp_path / "net" / "config.yaml").write_text(
        "response_cache: {enable: true}\nresponse_cache_bytes: 64KiB\n")
    with start("--model-repository", tmp_path) as server:
        for value in range(500):
            assert ask(server, "net", value) == value
        used = of_model(server, "millrace_response_cache_bytes", "net")
        evicted = of_model(
            server, "millrace_response_cache_evictions_total", "net")
        assert 32 << 10 < used <= 64 << 10
        assert evicted > 0
        kept = 500 - evicted
        hits = "millrace_response_cache_hits_total"
        assert ask(server, "net", 499) == 499  # the last ones are there
        assert ask(server, "net", 500 - kept) == 500 - kept
        assert of_model(server, hits, "net") == 2
        assert ask(server, "net", 0) == 0  # the first ones are not
        assert of_model(server, hits, "net") == 2

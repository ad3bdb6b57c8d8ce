"""Graphs at reduced precision: what the settings do, what the metadata tells."""
import json
import shutil
import subprocess

import numpy as np
import pytest
import tritonclient.http as triton_http

from conftest import BINARY, REPO, start

DATA = REPO / "tests" / "data" / "graph"


def infer(server, model, x):
    with triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}") as client:
        told = client.get_model_metadata(model)
        made = triton_http.InferInput(told["inputs"][0]["name"],
                                      list(x.shape), "FP32")
        made.set_data_from_numpy(x)
        return client.infer(model, [made]).as_numpy(
            told["outputs"][0]["name"])


def parameters(server, model):
    return json.loads(server.get(f"/v2/models/{model}"))["parameters"]


@pytest.fixture(scope="module")
def images():
    with np.load(DATA / "resnet50.b2.npz") as arrays:
        return next(v for k, v in arrays.items() if k.startswith("in"))


@pytest.fixture(scope="module")
def want(images):
    with start(DATA / "resnet50.pt2") as server:
        assert parameters(server, "resnet50") == {"precision": "f32"}
        return infer(server, "resnet50", images)


def error(got, want):
    return float(np.sqrt(np.mean((got - want) ** 2) / np.mean(want ** 2)))


def logged(server, event):
    """Whether the server said so before it was ready."""
    return any(event in line for line in server.lines)


def test_bf16_where_the_cpu_has_it(images, want):
    with start(DATA / "resnet50.pt2", "--precision", "bf16") as server:
        told = parameters(server, "resnet50")
        got = infer(server, "resnet50", images)
        if "precision_asked" in told and told["precision"] == "f32":
            assert logged(server, "served in f32, which is faster here")
            assert (float(told["precision_asked_ms"])
                    > float(told["precision_f32_ms"]) > 0)
            assert np.array_equal(got, want)
            return
        if told["precision"] == "f32":
            assert logged(server, "this CPU, or the isa asked for, has no "
                          "products of bf16 that are faster than f32's: f32")
            assert np.array_equal(got, want)
            return
        assert told["precision"] == "bf16"
        assert int(told["precision_layers"]) > 10
        assert told["precision_f32_layers"] == ""
        assert 1e-5 < float(told["precision_error"]) < 0.1
        assert 1e-5 < error(got, want) < 0.1


def test_int8_and_the_layers_that_it_costs_too_much(tmp_path, images, want):
    model = tmp_path / "resnet50.pt2"
    shutil.copy(DATA / "resnet50.pt2", model)
    np.savez(tmp_path / "samples.npz", x=images)
    subprocess.run([BINARY, "quantize", model, "--calibration",
                    tmp_path / "samples.npz"], check=True,
                   stdout=subprocess.DEVNULL)
    config = tmp_path / "millrace.yaml"
    config.write_text(f"""
models:
  - path: {model}
    name: all
    precision: int8
    max_precision_error: 100%
  - path: {model}
    name: none
    precision: int8
    precision_samples: {tmp_path}/samples.npz
    max_precision_error: 0
""")
    with start("--config", config) as server:
        told = parameters(server, "all")
        assert told["precision"] == "int8"
        assert told["precision_f32_layers"] == ""
        assert 1e-4 < error(infer(server, "all", images), want) < 0.3
        told = parameters(server, "none")
        assert float(told["precision_error"]) == 0
        assert told["precision_f32_layers"] != ""
        assert np.array_equal(infer(server, "none", images), want)


@pytest.mark.parametrize("flags,said", [
    (["--precision", "int8"], "resnet50.pt2.quant.json"),
    (["--precision", "fp8"], "auto, f32, tf32, f16, bf16, int8"),
    (["--precision", "int8", "--quantization", DATA / "mlp.json"],
     "quantisation file"),
])
def test_a_wish_that_cannot_be_met_ends_the_start(flags, said):
    ended = subprocess.run(
        [BINARY, "serve", "--http-port", "0", "--grpc-port", "-1",
         DATA / "resnet50.pt2", *map(str, flags)],
        capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert said in ended.stdout + ended.stderr

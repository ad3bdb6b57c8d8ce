"""Graphs whose layers oneDNN computes: as asked, as measured, and refused in one
sentence where it is not installed."""
import json
import subprocess

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

from conftest import BINARY, MODEL, REPO, start

DATA = REPO / "tests" / "data" / "graph"
MODULE = BINARY.parent / "libmillrace_onednn.so"

needs_onednn = pytest.mark.skipif(not MODULE.exists(),
                                  reason="built without oneDNN")


def infer(server, model, x, library=triton_http):
    port = server.http_port if library is triton_http else server.grpc_port
    with library.InferenceServerClient(f"127.0.0.1:{port}") as client:
        made = library.InferInput(input_name(server, model), list(x.shape),
                                  "FP32")
        made.set_data_from_numpy(x)
        answer = client.infer(model, [made])
        return answer.as_numpy(metadata(server, model)["outputs"][0]["name"])


def metadata(server, model):
    return json.loads(server.get(f"/v2/models/{model}"))


def input_name(server, model):
    return metadata(server, model)["inputs"][0]["name"]


@pytest.fixture(scope="module")
def images():
    with np.load(DATA / "resnet50.b2.npz") as arrays:
        return next(v for k, v in arrays.items() if k.startswith("in"))


@pytest.fixture(scope="module")
def want(images):
    with start(DATA / "resnet50.pt2") as server:
        assert "graph_backend" not in metadata(server, "resnet50")["parameters"]
        return infer(server, "resnet50", images)


@needs_onednn
def test_onednn_serves_rows_that_do_not_depend_on_each_other(images, want):
    with start(DATA / "resnet50.pt2", "--graph-backend", "onednn") as server:
        told = metadata(server, "resnet50")["parameters"]
        assert told["graph_backend"] == "onednn"
        got = infer(server, "resnet50", images)
        assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()
        # Else our kernels answered.
        assert not np.array_equal(got, want)
        assert np.array_equal(infer(server, "resnet50", images, triton_grpc),
                              got)
        for i in range(len(images)):
            alone = infer(server, "resnet50", images[i:i + 1])
            assert np.array_equal(alone[0], got[i])


@needs_onednn
def test_auto_in_a_models_settings_tells_what_it_measured(tmp_path, images,
                                                          want):
    config = tmp_path / "millrace.yaml"
    config.write_text(f"""
models:
  - path: {DATA}/resnet50.pt2
    graph_backend: auto
""")
    with start("--config", config) as server:
        told = metadata(server, "resnet50")["parameters"]
        assert told["graph_backend"] in ("onednn", "millrace")
        chosen, possible = told["graph_backend_shapes"].split(" of ")
        assert 0 <= int(chosen) <= int(possible)
        assert int(possible) > 5
        assert (float(told["graph_backend_chosen_ms"])
                <= float(told["graph_backend_millrace_ms"]))
        got = infer(server, "resnet50", images)
        assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()
        if told["graph_backend"] == "millrace":
            assert np.array_equal(got, want)


@needs_onednn
def test_run_tells_which_steps_are_onednns():
    shown = subprocess.run(
        [BINARY, "run", DATA / "resnet50.pt2", "--plan", "--graph-backend",
         "onednn"], check=True, capture_output=True, text=True).stdout
    assert "oneDNN f32 convolution" in shown
    assert " calls of " in shown


def inspected(*flags, model=DATA / "resnet50.pt2", code=0):
    done = subprocess.run([BINARY, "inspect", model, *flags],
                          capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def layers(shown):
    """Names of layers and whose kernels compute them."""
    lines = shown.split("\nlayers\n")[1].split("servable")[0].splitlines()
    head = next(i for i, line in enumerate(lines) if "kernels of" in line)
    return {line[:34].strip(): line[35:46].strip()
            for line in lines[head + 1:] if line.strip()}


@needs_onednn
def test_inspect_shows_whose_kernels_compute_each_layer():
    theirs = layers(inspected("--graph-backend", "onednn"))
    assert len(theirs) == 13 and "oneDNN" in theirs.values()
    ours = layers(inspected("--graph-backend", "millrace"))
    assert ours.keys() == theirs.keys()
    assert set(ours.values()) == {"millrace"}
    assert "layers\n" not in inspected()


def test_inspect_refuses_a_backend_that_serving_refuses():
    assert "auto, millrace and onednn are" in inspected(
        "--graph-backend", "tensorrt", code=2)
    assert "is for graphs" in inspected("--graph-backend", "onednn",
                                        model=MODEL, code=2)


def test_without_the_module_it_is_refused_in_one_sentence(monkeypatch):
    monkeypatch.setenv("MILLRACE_ONEDNN_MODULE", "/nowhere/module.so")
    failed = subprocess.run(
        [BINARY, "run", DATA / "resnet50.pt2", "--graph-backend", "onednn"],
        capture_output=True, text=True)
    assert failed.returncode != 0
    assert ("there is no oneDNN module, looked for '/nowhere/module.so'; "
            "install it, or set graph_backend to millrace") in failed.stderr


def test_auto_without_the_module_takes_our_kernels(monkeypatch, images, want):
    monkeypatch.setenv("MILLRACE_ONEDNN_MODULE", "/nowhere/module.so")
    with start(DATA / "resnet50.pt2", "--graph-backend", "auto") as server:
        told = metadata(server, "resnet50")["parameters"]
        assert told["graph_backend"] == "millrace"
        assert np.array_equal(infer(server, "resnet50", images), want)


def test_an_unknown_backend_is_refused():
    failed = subprocess.run(
        [BINARY, "serve", DATA / "resnet50.pt2", "--graph-backend", "tensorrt"],
        capture_output=True, text=True)
    assert failed.returncode != 0
    assert "tensorrt" in failed.stderr and "onednn" in failed.stderr

"""model_warmup and reshape of config.pbtxt, and model_warmup of config.yaml,
as Triton's model_configuration.md has them."""
import json
import subprocess
import sys

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import BINARY, MODEL, start
from onnx_bytes import affine, rows_of_table

ROWS = """max_batch_size: 8
dynamic_batching { }
instance_group [ { count: 2 } ]
model_warmup [ { name: "some rows" batch_size: 2 count: 3
  inputs { key: "ids" value { data_type: TYPE_INT64 dims: [ ]
                              %s } } } ]
"""


def put(root, name, model, config, file="config.pbtxt"):
    folder = root / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model)
    (root / name / file).write_text(config)
    return folder


def put_rows(root, source, ids=()):
    """Rows of a table of four: other ids fail when they are computed."""
    folder = put(root, "rows", rows_of_table(4, 2, "table.bin"), ROWS % source)
    (folder / "table.bin").write_bytes(np.arange(8, dtype=np.float32).tobytes())
    (root / "rows" / "warmup").mkdir()
    for name, value in dict(ids).items():
        (root / "rows" / "warmup" / name).write_bytes(
            np.int64(value).tobytes())


def refused(root, *flags):
    done = subprocess.run(
        [BINARY, "serve", "--http-port", "0", "--grpc-port", "0",
         "--model-repository", root, *flags], stderr=subprocess.PIPE, text=True,
        timeout=60)
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def http(server):
    return triton_http.InferenceServerClient(f"127.0.0.1:{server.http_port}")


def floats(module, name, value):
    value = np.asarray(value, np.float32)
    given = module.InferInput(name, list(value.shape), "FP32")
    given.set_data_from_numpy(value)
    return given


# ---- model_warmup ----

@pytest.mark.parametrize("source", [
    "zero_data: true", "random_data: true", 'input_data_file: "three"'])
def test_samples_are_computed_and_not_counted(tmp_path, source):
    put_rows(tmp_path, source, {"three": 3})
    with start("--model-repository", tmp_path) as server, http(server) as client:
        stats = client.get_inference_statistics("rows")["model_stats"][0]
        assert stats["inference_count"] == stats["execution_count"] == 0
        told = client.get_model_config("rows")["model_warmup"][0]
        assert (told["name"], told["batch_size"], told["count"]) == (
            "some rows", 2, 3)
        assert "have no effect" not in "".join(server.lines)


def test_a_sample_that_fails_fails_the_load(tmp_path):
    put_rows(tmp_path, 'input_data_file: "far"', {"far": 99})
    said = refused(tmp_path)
    assert "model_warmup sample 'some rows': " in said and "99" in said, said


@pytest.mark.parametrize("source, said", [
    ('input_data_file: "none"', "/warmup/none, which cannot be read"),
    ('input_data_file: "../config.pbtxt"', "must name a file within the folder"),
    ("", "has none of zero_data, random_data and input_data_file"),
])
def test_a_sample_that_cannot_be_made_is_named(tmp_path, source, said):
    put_rows(tmp_path, source)
    line = refused(tmp_path)
    assert said in line and "sample 'some rows', input 'ids'" in line, line


def test_a_sample_that_does_not_fit_is_named_and_others_serve(tmp_path):
    put(tmp_path, "wrong", affine(2), """max_batch_size: 8
        model_warmup [ { name: "w" batch_size: 1 inputs { key: "x" value {
          data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } } } ]""")
    put(tmp_path, "right", affine(2), """max_batch_size: 8
        model_warmup [ { name: "w" batch_size: 8 inputs { key: "x" value {
          data_type: TYPE_FP32 dims: [ 3 ] zero_data: true } } } ]""")
    with start("--model-repository", tmp_path,
               "--exit-on-error=false") as server, http(server) as client:
        states = {each["name"]: each for each in
                  client.get_model_repository_index()}
        assert states["right"]["state"] == "READY"
        assert states["wrong"]["state"] == "UNAVAILABLE"
        assert ("model_warmup sample 'w', input 'x' is FP32 [1, 4] with its "
                "batch but the model takes") in states["wrong"]["reason"]


def test_a_yaml_has_it_too(tmp_path):
    sample = ("model_warmup:\n"
              "  - name: w\n"
              "    count: 2\n"
              "    inputs:\n"
              "      x: {data_type: TYPE_FP32, dims: [2, 3], %s: true}\n")
    put(tmp_path, "m", affine(2), sample % "zero_data", "config.yaml")
    with start("--model-repository", tmp_path) as server, http(server) as client:
        told = client.get_model_config("m")["model_warmup"][0]
        assert told["inputs"]["x"]["dims"] == [2, 3]
    (tmp_path / "m" / "config.yaml").write_text(sample % "zeros")
    assert "model_warmup cannot be read" in refused(tmp_path)


def test_a_process_of_ones_own_is_warmed_up(tmp_path):
    folder = tmp_path / "models" / "twice" / "1"
    folder.mkdir(parents=True)
    (folder / "handler.py").write_text("""
import numpy as np
import millrace_handler

class Twice(millrace_handler.Handler):
    inputs, outputs = {"x": ("FP32", [-1])}, {"y": ("FP32", [-1])}

    def handle(self, inputs, context):
        with open("%s", "a") as seen:
            print(list(inputs["x"]), file=seen)
        return {"y": inputs["x"] * 2}

millrace_handler.serve(Twice())
""" % (tmp_path / "seen"))
    (folder.parent / "config.yaml").write_text(json.dumps({
        "external": {"command": [sys.executable, "handler.py"],
                     "startup_timeout": "60s"},
        "model_warmup": [{"name": "w", "count": 2, "inputs": {"x": {
            "data_type": "TYPE_FP32", "dims": [2], "zero_data": True}}}]}))
    with start("--model-repository", tmp_path / "models"):
        assert len((tmp_path / "seen").read_text().splitlines()) == 2


def test_a_language_model_is_warmed_up(tmp_path):
    folder = tmp_path / "text" / "1"
    folder.mkdir(parents=True)
    (folder / "model.gguf").symlink_to(MODEL)
    (folder.parent / "warmup").mkdir()

    def write(name, text):
        (folder.parent / "warmup" / name).write_bytes(
            len(text).to_bytes(4, "little") + text)
    write("prompt", b"Once upon a time")
    write("sampling", b'{"max_tokens": 3}')
    config = """model_warmup [ { name: "w" batch_size: 1
        inputs { key: "text_input" value { data_type: TYPE_STRING dims: [ 1 ]
                                           input_data_file: "prompt" } }
        inputs { key: "sampling_parameters" value { data_type: TYPE_STRING
                           dims: [ 1 ] input_data_file: "sampling" } } } ]"""
    (folder.parent / "config.pbtxt").write_text(config)
    with start("--model-repository", tmp_path) as server, http(server) as client:
        stats = client.get_inference_statistics("text")["model_stats"][0]
        assert stats["inference_count"] == 1
    write("sampling", b'{"temperature": -1}')
    said = refused(tmp_path)
    assert "model_warmup sample 'w': temperature" in said, said


# ---- reshape ----

SQUARE = """max_batch_size: 8
dynamic_batching { }
input [ { name: "x" data_type: TYPE_FP32 dims: [ 2, 2 ]
          reshape { shape: [ 4 ] } } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1, 4, 1 ]
           reshape { shape: [ 4 ] } } ]
"""


@pytest.mark.parametrize("module", [triton_http, triton_grpc],
                         ids=["http", "grpc"])
def test_requests_have_other_shapes_than_the_model(tmp_path, module):
    put(tmp_path, "square", affine(3, 1, size=4), SQUARE)
    put_rows(tmp_path, "zero_data: true")
    (tmp_path / "rows" / "config.pbtxt").write_text("""max_batch_size: 8
        input [ { name: "ids" data_type: TYPE_INT64 dims: [ 1 ]
                  reshape { shape: [ ] } } ]
        model_warmup [ { name: "w" batch_size: 3 inputs { key: "ids" value {
          data_type: TYPE_INT64 dims: [ 1 ] zero_data: true } } } ]""")
    with start("--model-repository", tmp_path) as server:
        port = (server.http_port if module is triton_http else server.grpc_port)
        client = module.InferenceServerClient(f"127.0.0.1:{port}")
        x = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
        answer = client.infer("square", [floats(module, "x", x)])
        np.testing.assert_array_equal(answer.as_numpy("y"),
                                      (x * 3 + 1).reshape(3, 1, 4, 1))
        metadata = client.get_model_metadata("square")
        if module is triton_http:
            assert metadata["inputs"][0]["shape"] == [-1, 2, 2]
            assert metadata["outputs"][0]["shape"] == [-1, 1, 4, 1]
        with pytest.raises(InferenceServerException,
                           match="input 'x' is FP32 .3, 4. but the model"):
            client.infer("square", [floats(module, "x", x.reshape(3, 4))])
        ids = module.InferInput("ids", [3, 1], "INT64")
        ids.set_data_from_numpy(np.array([[2], [0], [3]]))
        answer = client.infer("rows", [ids])
        np.testing.assert_array_equal(answer.as_numpy("y"),
                                      [[4, 5], [0, 1], [6, 7]])


@pytest.mark.parametrize("config, said", [
    (SQUARE.replace("[ 2, 2 ]", "[ 2, 3 ]"),
     "reshape of input 'x' makes [4] of [2, 3], which has other elements"),
    (SQUARE.replace("shape: [ 4 ]", "shape: [ 2, 2 ]"),
     "reshape of input 'x' gives the model [-1, 2, 2], which has [-1, 4]"),
    (SQUARE.replace('"y"', '"z"'),
     "reshape of output 'z' is set, but the model has 'y'"),
])
def test_a_reshape_that_cannot_be_is_named(tmp_path, config, said):
    put(tmp_path, "square", affine(3, 1, size=4), config)
    line = refused(tmp_path)
    assert said in line, line


def test_no_reshape_beside_a_language_model(tmp_path):
    folder = tmp_path / "text" / "1"
    folder.mkdir(parents=True)
    (folder / "model.gguf").symlink_to(MODEL)
    (folder.parent / "config.pbtxt").write_text(
        'input [ { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] '
        'reshape { shape: [ 1, 1 ] } } ]')
    assert "only tensors of graphs (ONNX, .pt2) are reshaped" in refused(
        tmp_path)

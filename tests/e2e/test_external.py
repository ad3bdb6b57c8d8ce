"""External handlers: processes in Python and C++ behind a socket, supervised;
what they break costs their own requests alone."""
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import BINARY, REPO, start

MODELS = REPO / "tests" / "golden" / "triton" / "models"
BASES = REPO / "handlers" / "external"

TWICE = """
import os, sys, time
import numpy as np
import millrace_handler

class Twice(millrace_handler.Handler):
    inputs, outputs = {"x": ("FP32", [-1])}, {"y": ("FP32", [-1])}

    def handle(self, inputs, context):
        x = inputs["x"]
        if x[0] == -1: os._exit(3)
        if x[0] == -2: time.sleep(60)
        if x[0] == -3:
            self.leak = []
            while True:
                self.leak.append(np.ones(1 << 22, np.float64))
                time.sleep(0.01)
        if x[0] == -4: return {"y": np.ones((2, 2), "complex64")}
        if x[0] == -5: raise ValueError("minus five is no number for me")
        if x[0] == -6: context.socket.sendall(b"\\x28\\0\\0\\0" + b"\\xff" * 40)
        if x[0] == -7: time.sleep(0.5)
        return {"y": FACTOR * x}

FACTOR = 2
millrace_handler.serve(Twice())
"""
CALLER = """
import numpy as np
import millrace_handler

class Caller(millrace_handler.Handler):
    inputs, outputs = {"x": ("FP32", [-1])}, {"y": ("FP32", [-1])}

    def handle(self, inputs, context):
        y = context.call("identity", {"INPUT0": inputs["x"].reshape(1, -1)})
        y = context.call("twice", {"x": y["OUTPUT0"].reshape(-1)})["y"]
        if y[0] < 0: context.call("caller", inputs)
        return {"y": y + 1}

millrace_handler.serve(Caller())
"""
ANY = """
import millrace_handler

class Any(millrace_handler.Handler):
    def handle(self, inputs, context):
        return {"y": inputs["x"]}

millrace_handler.serve(Any())
"""
# Text in pictures has this form (handlers/external/examples/ocr): a process finds
# any number of rows, a graph computes them, another process joins them.
FIND = """
import millrace_handler, numpy as np

class Find(millrace_handler.Handler):
    inputs = {"x": ("INT32", [-1])}
    outputs = {"rows": ("INT32", [-1, 16]), "count": ("INT64", [1])}

    def handle(self, inputs, context):
        found = np.array([[x] * 16 for x in inputs["x"] if x > 0], np.int32)
        return {"rows": found.reshape(-1, 16), "count": np.array([len(found)])}

millrace_handler.serve(Find())
"""
JOIN = """
import millrace_handler, numpy as np

class Join(millrace_handler.Handler):
    inputs = {"rows": ("INT32", [-1, 16])}
    outputs = {"text": ("UINT8", [-1])}

    def handle(self, inputs, context):
        text = ",".join(str(row[0]) for row in inputs["rows"])
        return {"text": np.frombuffer(text.encode(), np.uint8)}

millrace_handler.serve(Join())
"""
READ = """
ensemble:
  inputs: [x]
  outputs: [text]
  steps:
    - {model: find, inputs: {x: x}, outputs: {rows: rows, count: count}}
    - model: simple
      inputs: {INPUT0: rows, INPUT1: rows}
      outputs: {OUTPUT0: sums}
      when: count > 0
    - {model: join, inputs: {rows: sums}, outputs: {text: text}}
"""
TORCHSERVE = """
import json

class Service:  # as for TorchServe
    def initialize(self, context):
        self.name = context.manifest["model"]["modelName"]
        self.folder = context.system_properties["model_dir"]

    def preprocess(self, data):
        row = data[0].get("data") or data[0].get("body")
        return row if isinstance(row, dict) else {"text": bytes(row).decode()}

    def inference(self, row):
        return {"model": self.name, "upper": row["text"].upper()}

    def postprocess(self, result):
        return [result]
"""
CPP = """
#include "millrace_handler.h"
int main() {
  millrace::Handler handler;
  handler.inputs = {{"x", "FP32", {-1}, {}}};
  handler.outputs = {{"y", "FP32", {-1}, {}}};
  handler.Serve([](const millrace::Tensors& in, millrace::Context& context) {
    millrace::Tensor y = in.at(0);
    y.name = "y";
    for (float& v : y.Values<float>()) v *= 3;
    if (y.Values<float>()[0] < 0) throw std::runtime_error("negative");
    return millrace::Tensors{y};
  });
}
"""
def put(root, name, files, config):
    folder = root / name / "1"
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / file).write_text(text)
    (root / name / "config.yaml").write_text(config)


def external(root, name, text, **settings):
    lines = {"command": "[python3, handler.py]", "startup_timeout": "60s",
             **settings}
    put(root, name, {"handler.py": text}, "external:\n" + "".join(
        f"  {key}: {value}\n" for key, value in lines.items()))


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A PATH on which python3 has numpy."""
    import sys
    folder = tmp_path_factory.mktemp("bin")
    (folder / "python3").symlink_to(sys.executable)
    return {"PATH": f"{folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(pathlib.Path(np.__file__).parents[1])}


@pytest.fixture(scope="module")
def server(tmp_path_factory, python):
    root = tmp_path_factory.mktemp("repository")
    external(root, "twice", TWICE, response_timeout="10s",
             memory_limit="300MiB")
    external(root, "caller", CALLER)
    external(root, "any", ANY)
    external(root, "upper", TORCHSERVE,
             command="[python3, -m, millrace_torchserve, handler.py]")
    (root / "identity" / "1").mkdir(parents=True)
    shutil.copy(MODELS / "identity.onnx", root / "identity/1/model.onnx")
    with start("--model-repository", root, "--model-control-mode", "poll",
               "--repository-poll-interval", "200ms", env=python) as running:
        running.root = root
        yield running


@pytest.fixture(params=["http", "grpc"])
def triton(request, server):
    module = triton_http if request.param == "http" else triton_grpc
    port = getattr(server, request.param + "_port")
    return module, module.InferenceServerClient(f"127.0.0.1:{port}")


def ask(triton, model, values, **options):
    module, client = triton
    x = module.InferInput("x", [len(values)], "FP32")
    x.set_data_from_numpy(np.asarray(values, np.float32))
    return client.infer(model, [x], **options).as_numpy("y")


def again(triton, model="twice", seconds=30):
    """The handler is there again."""
    end = time.monotonic() + seconds
    while True:
        try:
            return ask(triton, model, [1])
        except InferenceServerException:
            assert time.monotonic() < end
            time.sleep(0.05)


@pytest.mark.parametrize("size", [1, 1000, 5_000_000])
def test_tensors_go_there_and_back(triton, size):
    values = np.arange(1, size + 1, dtype=np.float32)
    np.testing.assert_array_equal(ask(triton, "twice", values), 2 * values)


def test_metadata_tells_what_the_process_said(server):
    told = json.loads(server.get("/v2/models/twice"))
    assert told["platform"] == "millrace_external"
    assert told["inputs"] == [
        {"name": "x", "datatype": "FP32", "shape": [-1]}]
    assert told["outputs"][0]["name"] == "y"


@pytest.mark.parametrize("value, told", [
    (-1, "exited with code 3"),
    (-2, "did not answer within 10000 ms"),
    (-3, "memory_limit is 314572800"),
    (-6, "the handler sent"),
])
def test_what_breaks_costs_its_own_request(triton, server, value, told):
    before = again(triton)
    restarts = sum(server.metric("millrace_external_restarts_total").values())
    with pytest.raises(InferenceServerException) as failed:
        ask(triton, "twice", [value])
    assert told in str(failed.value)
    np.testing.assert_array_equal(again(triton), before)
    assert sum(server.metric(
        "millrace_external_restarts_total").values()) == restarts + 1


WRONG = """
import millrace_handler
import numpy as np

class Wrong(millrace_handler.Handler):
    inputs = {"x": ("FP32", [-1])}
    outputs = {"y": ("FP32", [-1])}

    def handle(self, inputs, context):
        x = inputs["x"]
        return [{"y": x}, {"z": x}, {"y": x.astype("f8")},
                {"y": x.reshape(1, -1)}][int(x[0])]

millrace_handler.serve(Wrong())
"""


def test_an_answer_that_was_not_declared_is_an_error(tmp_path, python):
    external(tmp_path, "wrong", WRONG)
    with start("--model-repository", tmp_path, env=python) as server:
        http = triton_http, triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}")
        for value, told in [(1, "gave 'z', which it did not declare"),
                            (2, "gave 'y' as FP64 [1] but declared FP32"),
                            (3, "gave 'y' as FP32 [1, 1] but declared FP32")]:
            with pytest.raises(InferenceServerException) as failed:
                ask(http, "wrong", [value])
            assert told in str(failed.value)
        assert ask(http, "wrong", [0]).tolist() == [0]


@pytest.mark.parametrize("value, told", [
    (-4, "COMPLEX64"), (-5, "ValueError: minus five is no number for me")])
def test_an_exception_is_the_answer_to_its_request(triton, server, value, told):
    again(triton)
    restarts = server.metric("millrace_external_restarts_total")
    with pytest.raises(InferenceServerException) as failed:
        ask(triton, "twice", [value])
    assert told in str(failed.value)
    assert server.metric("millrace_external_restarts_total") == restarts


def test_a_wrong_input_never_gets_there(triton):
    module, client = triton
    x = module.InferInput("x", [1, 1], "FP32")
    x.set_data_from_numpy(np.ones((1, 1), np.float32))
    with pytest.raises(InferenceServerException) as refused:
        client.infer("twice", [x])
    assert "takes FP32 [-1]" in str(refused.value)


def test_a_deadline_ends_the_request_and_not_the_process(server):
    client = triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    both = triton_grpc, client
    again(both)
    restarts = server.metric("millrace_external_restarts_total")
    with pytest.raises(InferenceServerException) as late:
        ask(both, "twice", [-7], client_timeout=0.1)
    assert "eadline" in str(late.value)
    again(both)
    assert server.metric("millrace_external_restarts_total") == restarts


def test_it_calls_other_models(triton):
    again(triton)
    np.testing.assert_array_equal(ask(triton, "caller", [1, 2]), [3, 5])


def test_processes_and_graphs_are_steps_of_an_ensemble(tmp_path, python):
    external(tmp_path, "find", FIND)
    external(tmp_path, "join", JOIN)
    put(tmp_path, "read", {}, READ)
    put(tmp_path, "simple", {}, "max_batch_size: 8\n")
    shutil.copy(MODELS / "simple.onnx", tmp_path / "simple/1/model.onnx")
    with start("--model-repository", tmp_path, env=python) as server:
        client = triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}")
        for x, text in [([3, -1, 5], "6,10"), ([7], "14"), ([-1, -2], None)]:
            given = triton_http.InferInput("x", [len(x)], "INT32")
            given.set_data_from_numpy(np.array(x, np.int32))
            got = client.infer("read", [given]).as_numpy("text")
            assert (None if got is None else got.tobytes().decode()) == text


def test_many_callers_do_not_wait_for_each_other(server):
    def one(_):
        client = triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}")
        for _ in range(10):
            np.testing.assert_array_equal(
                ask((triton_http, client), "caller", [1, 2]), [3, 5])
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(8)))


def test_a_model_that_calls_itself_is_refused(triton):
    again(triton)
    with pytest.raises(InferenceServerException) as refused:
        ask(triton, "caller", [-10])
    assert "cannot call 'caller', itself" in str(refused.value)
    np.testing.assert_array_equal(ask(triton, "caller", [1, 2]), [3, 5])


def test_handlers_of_torchserve_run(server):
    def post(body, kind):
        request = urllib.request.Request(
            server.url + "/v1/tasks/upper", body, {"Content-Type": kind})
        return json.load(urllib.request.urlopen(request, timeout=30))
    assert post(b"abc", "text/plain") == {"model": "upper", "upper": "ABC"}


def test_a_new_handler_replaces_the_old_one(server, triton):
    again(triton)
    path = server.root / "twice" / "1" / "handler.py"
    path.write_text(TWICE.replace("FACTOR = 2", "FACTOR = 5"))
    end = time.monotonic() + 30
    while again(triton)[0] != 5:
        assert time.monotonic() < end
        time.sleep(0.05)
    path.write_text(TWICE)
    while again(triton)[0] != 2:
        assert time.monotonic() < end + 30
        time.sleep(0.05)


def in_cpp(root, name, text):
    put(root, name, {"main.cc": text}, "external: {command: [./handler]}\n")
    folder = root / name / "1"
    subprocess.run(["g++", "-std=c++17", "-O1", "-I", BASES / "cpp", "-o",
                    folder / "handler", folder / "main.cc"], check=True)


def test_a_handler_in_cpp(tmp_path, python):
    in_cpp(tmp_path, "thrice", CPP)
    with start("--model-repository", tmp_path, env=python) as server:
        both = triton_http, triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}")
        values = np.arange(1, 100_001, dtype=np.float32)
        np.testing.assert_array_equal(ask(both, "thrice", values), 3 * values)
        with pytest.raises(InferenceServerException) as failed:
            ask(both, "thrice", [-1])
        assert "negative" in str(failed.value)


@pytest.mark.parametrize("text, settings, told", [
    ("import sys; sys.exit('no weights here')", {}, "no weights here"),
    ("import time; time.sleep(60)", {"startup_timeout": "300ms"},
     "did not become ready within 300 ms"),
    ("", {"command": "[/no/such/program]"}, "starting '/no/such/program'"),
    ("", {"memory": "1GiB"}, "unknown key 'memory'"),
])
def test_one_that_cannot_start_is_told(tmp_path, python, text, settings, told):
    external(tmp_path, "broken", text, **settings)
    ended = subprocess.run(
        [BINARY, "serve", "--http-port", "0", "--grpc-port", "0",
         "--model-repository", tmp_path], stderr=subprocess.PIPE, text=True,
        timeout=60, env={**os.environ, **python})
    assert ended.returncode != 0
    assert told in " ".join(ended.stderr.split()), ended.stderr

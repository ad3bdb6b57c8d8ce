"""The requests that TorchServe's own regression tests send, with models of ours in
place of the model zoo's: management, workflows, inference, explanations, KServe v1
and v2, https. published.json has them: port, method, path, the status that a real
TorchServe 0.12 gives, and ours where it is another one (server/torchserve/README.md
has the reason)."""
import contextlib
import functools
import http.client
import json
import re
import shutil
import ssl
import subprocess
import sys
import zipfile

import pytest

from certificates import Authority
from model_host import Host
from onnx_bytes import channel_means
from pictures import DATA
from test_torchserve import GOLDEN, archives, torchserve
from test_torchserve_workflows import MODELS, war

PUBLISHED = json.loads((GOLDEN / "published.json").read_text())
PHOTO = (DATA / "photo.jpg").read_bytes()
CLASS = '''
class Digits:
    def initialize(self, context):
        self.context = context

    def handle(self, data, context):
        if context.get_request_header(0, "explain") == "True":
            return [[[0.5, 0.25]] for _ in data]
        return [2 for _ in data]
'''
FUNCTIONS = """
import time


def start(data, context):
    return None if data is None else [bytes(row["body"]) for row in data]


def slow(data, context):
    if data is not None:
        time.sleep(3)
    return data


def told(data, context):
    return None if data is None else [{"kind": "dog"} for _ in data]
"""
INSTANCES = json.dumps({"instances": [{"data": "aGVsbG8=", "target": 0}]})
INPUTS = json.dumps({"id": "x1", "inputs": [
    {"name": "input-0", "shape": [1, 3], "datatype": "FP32",
     "data": [[1, 2, 3]]}]})


def mar(path, kind):
    """kind: the handler's name, or "python"."""
    graph = {"image_classifier": channel_means(224),
             "object_detector": (DATA / "boxes.onnx").read_bytes(),
             "image_segmenter": (DATA / "segmenter.onnx").read_bytes()
             }.get(kind)
    with zipfile.ZipFile(path, "w") as out:
        if graph is not None:
            out.writestr("model.onnx", graph)
        if kind == "python":
            out.writestr("digits.py", CLASS)
        if kind == "lacking":
            out.writestr("digits.py", "import nothing_of_this_name\n")
        if kind == "starving":
            out.writestr("digits.py", CLASS.replace(
                "self.context = context", "raise MemoryError()"))
        out.writestr("MAR-INF/MANIFEST.json", archives.manifest(
            path.stem, "1.0", "onnx",
            serializedFile="model.onnx" if graph else "",
            handler=kind if graph else "digits.py"))


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    far = tmp_path_factory.mktemp("far")
    host = Host()
    for kind in ("lacking", "starving"):
        mar(far / f"{kind}.mar", kind)
    mar(far / "large.mar", "image_classifier")
    node = f"  m1:\n    url: {host.url}/%s.mar\n"
    chain = "dag:\n  start: [m1]\n"
    files = {"handler.py": FUNCTIONS}
    for file, name, spec in (
            ("large_wf", "large", MODELS + node % "large" + chain),
            ("large", "large", MODELS + node % "large" + chain),
            ("breeds", "breeds", MODELS + node % "large" +
             "dag:\n  start: [m1]\n  m1: [told]\n"),
            ("slow", "slow", MODELS.replace("50000", "500") + node % "large" +
             "dag:\n  slow: [m1]\n"),
            ("custom_python_dep", "lacking",
             MODELS + node % "lacking" + chain),
            ("loading-memory-error", "starving",
             MODELS + node % "starving" + chain)):
        war(far, file, spec, name=name, **files)
    host.files = {f"/{path.name}": path.read_bytes() for path in far.iterdir()}
    yield host
    host.close()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("store")
    for name in ("small", "large", "batched", "plain"):
        mar(root / f"{name}.mar", "image_classifier")
    mar(root / "boxes.mar", "object_detector")
    mar(root / "masks.mar", "image_segmenter")
    mar(root / "digits.mar", "python")
    archives.write_store(root, "onnx")
    return root


@contextlib.contextmanager
def serve(store, tmp_path, more="", authority=None):
    """As the regression tests configure it, and how its ports are reached."""
    properties = tmp_path / "config.properties"
    kind = functools.partial(http.client.HTTPConnection, "127.0.0.1")
    if authority is not None:
        certificate, key = authority.sign("server")
        more += "".join(f"{name}_address=https://127.0.0.1:{port}\n"
                        for name, port in (("inference", 8443),
                                           ("management", 8444),
                                           ("metrics", 8445)))
        more += f"private_key_file={key}\ncertificate_file={certificate}\n"
        kind = functools.partial(
            http.client.HTTPSConnection, "localhost",
            context=ssl.create_default_context(cafile=authority.file))
    properties.write_text(
        f"model_store={store}\npython={sys.executable}\n"
        f"disable_token_authorization=true\nenable_model_api=true\n{more}")
    with torchserve("--ts-config", properties, "--ncs",
                    env={"no_proxy": "*"}) as server:
        server.connect = lambda port: kind(server.ports[port], timeout=120)
        yield server


def send(server, port, method, path, body=None):
    connection = server.connect(port)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def replay(server, name, host=None, model="", body=None, last=None):
    """All requests of a collection in their order; `last` stands for the status
    of its predictions. How many were sent, how many got what TorchServe gives."""
    rows, same = PUBLISHED[name], 0
    for port, method, path, theirs, *ours in rows:
        is_prediction = port == "inference" and method == "POST"
        if is_prediction and last is not None:
            theirs = last
        path = path.replace("{host}", host.url if host else "").replace(
            "{model}", model)
        got, text = send(server, port, method, path,
                         body if is_prediction else None)
        assert got == (ours[0] if ours else theirs), (path, got, text)
        same += got == theirs
        if port == "metrics" and method == "GET":
            # TorchServe's tests look for the comma and the decimal.
            assert re.search(r'^Requests2XX\{Level="Host",Hostname="[^"]+",\} '
                             r"\d+\.\d+$", text, re.M), text
        if is_prediction and got == 200:
            assert json.loads(text) is not None
    return len(rows), same


def test_management(store, host, tmp_path):
    with serve(store, tmp_path) as server:
        assert replay(server, "management", host) == (82, 81)
        _, text = send(server, "management", "GET", "/models")
        assert json.loads(text)["models"] == []


def test_workflows(store, host, tmp_path):
    with serve(store, tmp_path) as server:
        assert replay(server, "workflow", host) == (11, 11)
        for name, status in (("large", 200), ("slow", 500), ("breeds", 200)):
            assert replay(server, "workflow_inference", host, name, PHOTO,
                          status) == (3, 3)


# What stands for each kind of the model zoo's archives, and what is sent to it.
ROUNDS = [("small", PHOTO), ("large", PHOTO), ("batched", PHOTO),
          ("boxes", PHOTO), ("masks", PHOTO), ("digits", PHOTO),
          ("digits", b"Some text\n"), ("linear", b"[1, 2, 3]")]


def test_inference(store, tmp_path):
    with serve(store, tmp_path, "default_response_timeout=300\n"
               "metrics_mode=prometheus\n") as server:
        for model, body in ROUNDS:
            assert replay(server, "inference", None, model, body) == (4, 4)


def test_explanations_and_kserve(store, tmp_path):
    with serve(store, tmp_path, "service_envelope=kserve\n") as server:
        assert replay(server, "explanation", None, "digits", PHOTO) == (4, 4)
        assert replay(server, "kserve_v1", None, "digits", INSTANCES) == (5, 5)
        assert replay(server, "kserve_v2", None, "digits", INPUTS) == (5, 5)


def test_https(store, tmp_path):
    authority = Authority(tmp_path / "authority")
    with serve(store, tmp_path, authority=authority) as server:
        assert replay(server, "https", None, "small", PHOTO) == (9, 9)
        for name, body in (("https_kserve_v1", INSTANCES),
                           ("https_kserve_v2", INPUTS)):
            assert replay(server, name, None, "digits", body) == (10, 10)


def test_answers_of_handlers_that_explain(store, tmp_path):
    """Bodies as a real TorchServe with the same handler gave them."""
    with serve(store, tmp_path) as server:
        def ask(path, body=b"abc"):
            status, text = send(server, "inference", "POST", path, body)
            return status, json.loads(text)
        for name in ("digits", "linear"):
            assert send(server, "management", "POST", f"/models?url={name}.mar"
                        "&initial_workers=1")[0] == 200
        assert ask("/predictions/digits") == (200, 2)
        assert ask("/explanations/digits") == (200, [[0.5, 0.25]])
        assert ask("/explanations/digits/1.0") == (200, [[0.5, 0.25]])
        two = json.dumps({"instances": [[1, 2], [3, 4]]})
        assert ask("/v1/models/digits:predict", two) == (
            200, {"predictions": [2, 2]})
        assert ask("/v1/models/digits:explain", two) == (
            200, {"explanations": [[[0.5, 0.25]]] * 2})
        assert ask("/v2/models/digits/explain", INPUTS) == (200, {
            "id": "x1", "model_name": "digits", "model_version": "1.0",
            "outputs": [{"name": "input-0", "datatype": "FP64", "shape": [2],
                         "data": [0.5, 0.25]}]})
        for body in ("{", "[]", '{"instances": 1}', '{"inputs": [1]}'):
            for path in ("/v1/models/digits:predict",
                         "/v1/models/digits:explain",
                         "/v2/models/digits/explain"):
                status, told = ask(path, body)
                assert (status, told["code"]) == (400, 400), told
        # A graph has an input of its own name, and nothing that explains it.
        status, told = ask("/v2/models/linear/infer", INPUTS)
        assert (status, told["outputs"][0]["data"]) == (200, [3, 5, 7])
        for path in ("/explanations/linear", "/v1/models/linear:explain",
                     "/v2/models/linear/explain"):
            status, told = ask(path, INSTANCES)
            assert (status, told["type"]) == (501, "NotImplementedException")


def test_a_handler_that_is_not_there_is_told_when_workers_are_wanted(
        store, tmp_path):
    with serve(store, tmp_path) as server:
        def manage(method, path):
            status, text = send(server, "management", method, path)
            return status, json.loads(text)
        where = "/models?url=digits.mar&handler=unknown"
        assert manage("POST", where + "&initial_workers=1")[0] == 400
        assert manage("GET", "/models/digits")[0] == 404
        assert manage("POST", where)[0] == 200
        for wait in ("true", "false"):
            status, told = manage(
                "PUT", f"/models/digits?min_worker=1&synchronous={wait}")
            assert (status, told["type"]) == (500, "InternalServerException")
            assert "unknown.py" in told["message"]
        _, [described] = manage("GET", "/models/digits")
        assert (described["minWorkers"], described["workers"]) == (0, [])
        assert send(server, "inference", "POST", "/predictions/digits")[0] == 503
        assert manage("DELETE", "/models/digits")[0] == 200


def test_metrics_are_chosen_by_name(store, tmp_path):
    with serve(store, tmp_path) as server:
        _, text = send(server, "metrics", "GET",
                       "/metrics?name%5B%5D=Requests2XX&name[]=absent")
        lines = text.splitlines()
        assert [line.split("{")[0] for line in lines if line[0] != "#"] == [
            "Requests2XX"]
        assert all(" Requests2XX " in line for line in lines if line[0] == "#")
        _, text = send(server, "metrics", "GET", "/metrics")
        assert "MemoryUsed{" in text and "millrace_build_info{" in text
        if shutil.which("promtool"):
            # It parses as Prometheus does; 3 stands for matters of taste.
            done = subprocess.run(["promtool", "check", "metrics"], input=text,
                                  capture_output=True, text=True, timeout=60)
            assert done.returncode in (0, 3), done.stderr

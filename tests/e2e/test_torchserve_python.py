"""Archives of TorchServe whose handler is Python: run in processes of their own
by the interpreter that config.properties names, here that of the tests."""
import json
import re
import shutil
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
import zipfile

import pytest

from conftest import start
from test_torchserve import ask, torchserve, until
from test_torchserve_command_line import PORTS, free_port
from test_torchserve_workflows import MODELS, predict, register, war

CLASS = """
import json
import os

import numpy as np


class Scaler:  # in the shape of TorchServe's BaseHandler
    def initialize(self, context):
        self.context = context
        folder = context.system_properties["model_dir"]
        name = context.manifest["model"]["serializedFile"]
        with open(os.path.join(folder, name)) as weights:
            self.scale = float(weights.read())

    def preprocess(self, data):
        rows = [r.get("data") or r.get("body") for r in data]
        return np.array([r if isinstance(r, list) else json.loads(bytes(r))
                         for r in rows], np.float32)

    def inference(self, rows):
        return self.scale * rows

    def postprocess(self, rows):
        self.context.metrics.add_counter("Rows", len(rows))
        self.context.metrics.add_time("Took", 1.5)
        return rows.tolist()
"""
FUNCTION = """
seen = []


def handle(data, context):
    seen.append(data)
    if data is None:
        return None
    assert seen[0] is None
    return [{"model": context.model_name, "keys": sorted(data[0])}]


def other(data, context):
    if data is not None:
        return [b"other"]


def shaped(data, context):
    if data is None:
        return None
    if context.get_request_header(0, "describe") == "True":
        return [{"labels": ["a", "b"]}]
    said = data[0]["body"]
    context.set_response_status(said.get("status", 200), "as said", 0)
    for name, value in said.get("headers", {}).items():
        context.set_response_header(0, name, value)
    return [{"seen": said}]


def headers(data, context):
    if data is not None:
        return [{name: context.get_request_header(0, name) for name in
                 ("X-Caller", "x-caller", "explain", "authorization", "none")}]
"""
# Its load ends when the server has: handlers are children of it.
SLOW = """
import os
import time


def handle(data, context):
    server = os.getppid()
    while os.getppid() == server:
        time.sleep(0.02)
"""
BROKEN = "raise RuntimeError('no weights here')\n"
FLOW = """
import json
import os
import time


def pre(data, context):
    if data is None:
        return None
    return [json.dumps([v + 1 for v in row["body"]]) for row in data]


def join(data, context):
    if data is None:
        return None
    return [{name: json.loads(bytes(part)) if isinstance(part, (bytes,
             bytearray)) else part for name, part in row.items()}
            for row in data]


def boom(data, context):
    if data is not None:
        raise ValueError("it went wrong")


def attempt(data):  # the request's words, and how often it was tried before
    said = data[0]["body"]
    with open(said["file"], "a+") as file:
        file.write("x")
        file.flush()
        return said, file.tell() - 1


def start(data, context):
    return None if data is None else [json.dumps(row["body"]) for row in data]


def dies(data, context):
    if data is None:
        return None
    said, tries = attempt(data)
    if tries < said["times"]:
        os._exit(3)
    return [{"after": tries}]


def sleeps(data, context):
    if data is None:
        return None
    said, tries = attempt(data)
    if tries < said["times"]:
        time.sleep(said["seconds"])
    return [{"after": tries}]
"""


def mar(store, name, source, version="1.0", handler="handler.py"):
    """As torch-model-archiver 0.12 writes it."""
    with zipfile.ZipFile(store / f"{name}-{version}.mar", "w",
                         zipfile.ZIP_DEFLATED) as out:
        out.writestr("MAR-INF/MANIFEST.json", json.dumps({
            "createdOn": "01/01/2026 00:00:00", "runtime": "python",
            "model": {"modelName": name, "handler": handler,
                      "serializedFile": "scale.pt", "modelVersion": version},
            "archiverVersion": "0.12.0"}, indent=2))
        out.writestr("scale.pt", "3")
        out.writestr("handler.py", source)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("store")
    mar(root, "scaler", CLASS)
    mar(root, "scaler", CLASS.replace("self.scale *", "-self.scale *"), "2.0")
    mar(root, "plain", FUNCTION)
    mar(root, "named", FUNCTION, handler="handler:other")
    mar(root, "headers", FUNCTION, handler="handler:headers")
    mar(root, "shaped", FUNCTION, handler="handler:shaped")
    mar(root, "broken", BROKEN)
    mar(root, "gone", CLASS, handler="absent.py")
    mar(root, "folder", CLASS, handler="../handler.py")
    flow = MODELS + "  scaler:\n    url: scaler-1.0.mar\n"
    war(root, "flow", flow + "dag:\n  pre: [scaler, side]\n"
        "  scaler: [join]\n  side: [join]\n",
        **{"handler.py": FLOW + "\n\nside = pre\n"})
    war(root, "boom", MODELS + "dag:\n  pre: [boom]\n", **{"handler.py": FLOW})
    for name, attempts, timeout_ms in (
            ("dies", 1, 50_000), ("sleeps", 1, 50_000), ("sleeps", 1, 1500),
            ("sleeps", 2, 1500)):
        war(root, f"{name}-{attempts}-{timeout_ms}", MODELS.replace(
            "retry-attempts: 2", f"retry-attempts: {attempts}").replace(
                "50000", str(timeout_ms)) + f"dag:\n  start: [{name}]\n",
            **{"handler.py": FLOW})
    war(root, "nofunction", MODELS + "dag:\n  pre: [absent]\n",
        **{"handler.py": FLOW})
    return root


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="module")
def server(store, scratch, tmp_path_factory):
    properties = tmp_path_factory.mktemp("config") / "config.properties"
    properties.write_text(f"model_store={store}\npython={sys.executable}\n"
                          "enable_model_api=true\nload_models=plain-1.0.mar\n")
    with torchserve("--ts-config", properties,
                    env={"TMPDIR": str(scratch)}) as running:
        yield running


def manage(server, method, path):
    return ask(server, "management", method, path)


def infer(server, path, body=b"[1, 2]", kind="application/json"):
    return ask(server, "inference", "POST", f"/predictions/{path}", body, kind)


def test_a_class_is_registered_asked_scaled_and_unregistered(server):
    status, body = manage(server, "POST",
                          "/models?url=scaler-1.0.mar&initial_workers=1")
    assert (status, body["status"]) == (
        200, 'Model "scaler" Version: 1.0 registered with 1 initial workers')
    assert infer(server, "scaler") == (200, [3.0, 6.0])
    assert infer(server, "scaler", b"[4]", "text/plain") == (200, [12.0])
    status, _ = manage(server, "PUT",
                       "/models/scaler?min_worker=2&synchronous=true")
    assert status == 200
    _, [described] = manage(server, "GET", "/models/scaler")
    assert len(described["workers"]) == 2
    assert infer(server, "scaler/1.0") == (200, [3.0, 6.0])
    assert manage(server, "POST",
                  "/models?url=scaler-2.0.mar&initial_workers=1")[0] == 200
    assert infer(server, "scaler/2.0") == (200, [-3.0, -6.0])
    assert infer(server, "scaler") == (200, [3.0, 6.0])
    for version in ("2.0", "1.0"):
        assert manage(server, "DELETE", f"/models/scaler/{version}")[0] == 200
    assert infer(server, "scaler")[0] == 404


def test_metrics_of_a_handler_are_lines_of_the_log(server):
    manage(server, "POST", "/models?url=scaler-1.0.mar&initial_workers=1")
    infer(server, "scaler")
    end = r"\|#ModelName:scaler,Level:Model\|#hostname:[^,]+,timestamp:\d{10}"
    until(lambda: any(re.search(r"Rows\.Count:1" + end, line)
                      for line in server.lines))
    assert any(re.search(r"Took\.Milliseconds:1\.5" + end, line)
               for line in server.lines)
    manage(server, "DELETE", "/models/scaler")


def test_functions_are_handlers_too(server):
    assert infer(server, "plain", b"x", "text/plain") == (
        200, {"model": "plain", "keys": ["body"]})
    form = (b"--b\r\nContent-Disposition: form-data; name=\"data\"\r\n\r\n"
            b"1\r\n--b--\r\n")
    assert infer(server, "plain", form, "multipart/form-data; boundary=b") == (
        200, {"model": "plain", "keys": ["data"]})
    status, body = manage(server, "POST",
                          "/models?url=named-1.0.mar&initial_workers=1")
    assert status == 200, body
    done = subprocess.run(
        ["curl", "-sS", "-d", "x", "http://127.0.0.1:"
         f"{server.ports['inference']}/predictions/named"],
        capture_output=True, text=True, timeout=60)
    assert done.stdout == "other"
    manage(server, "DELETE", "/models/named")


def test_a_handler_reads_headers_but_no_keys(server):
    status, body = manage(server, "POST",
                          "/models?url=headers-1.0.mar&initial_workers=1")
    assert status == 200, body
    base = f"http://127.0.0.1:{server.ports['inference']}"
    for path, body, explain in (("/predictions/headers", '"x"', None),
                                ("/explanations/headers", '"x"', "True"),
                                ("/v1/models/headers:predict",
                                 '{"instances": [1]}', None)):
        done = subprocess.run(
            ["curl", "-sS", "-d", body, "-H", "X-Caller: Ann", "-H",
             "Authorization: Bearer secret", "-H", "explain: no", "-H",
             "Content-Type: application/json", base + path],
            capture_output=True, text=True, timeout=60)
        answer = json.loads(done.stdout)
        if "predictions" in answer:
            answer, = answer["predictions"]
        assert answer == {"X-Caller": "Ann", "x-caller": "Ann", "none": None,
                          "explain": explain, "authorization": None}, path
    manage(server, "DELETE", "/models/headers")


def test_a_handler_sets_the_status_and_headers_of_an_answer(server):
    status, body = manage(server, "POST",
                          "/models?url=shaped-1.0.mar&initial_workers=1")
    assert status == 200, body

    def ask_for(**said):
        request = urllib.request.Request(
            f"http://127.0.0.1:{server.ports['inference']}/predictions/shaped",
            json.dumps(said).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()
    said = {"status": 207, "headers": {"X-Model": "b", "Content-Length": "1"}}
    status, headers, body = ask_for(**said)
    assert status == 207 and json.loads(body) == {"seen": said}
    assert headers["X-Model"] == "b"
    # It is forgotten with the request.
    status, headers, body = ask_for()
    assert status == 200 and "X-Model" not in headers
    status, _, body = ask_for(status=422)
    assert status == 422 and json.loads(body) == {"seen": {"status": 422}}
    assert ask_for(status=204)[::2] == (204, b"")
    for wrong, word in (({"status": 99}, "the status 99; expected"),
                        ({"status": 600}, "the status 600; expected"),
                        ({"headers": {"X": "a\r\nSet-Cookie: b"}}, "header 'X'"),
                        ({"headers": {"X Y": "a"}}, "the header 'X Y'")):
        status, headers, body = ask_for(**wrong)
        assert status >= 500 and "Set-Cookie" not in headers, wrong
        assert word in json.loads(body)["message"], wrong
    for path, told in (("shaped", {"labels": ["a", "b"]}),
                       ("shaped/1.0", {"labels": ["a", "b"]})):
        status, (of,) = manage(server, "GET",
                               f"/models/{path}?customized=true")
        assert status == 200 and of["customizedMetadata"] == told
        assert of["modelName"] == "shaped" and len(of["workers"]) == 1
    assert "customizedMetadata" not in manage(
        server, "GET", "/models/shaped")[1][0]
    # A handler that knows nothing of it answers as it does.
    status, (of,) = manage(server, "GET", "/models/plain?customized=true")
    assert status == 200 and of["customizedMetadata"] == {
        "model": "plain", "keys": []}
    manage(server, "DELETE", "/models/shaped")


def test_what_cannot_be_run_leaves_nothing_behind(server, scratch):
    until(lambda: len(list(scratch.iterdir())) == 1)
    for name, word in (("broken", "no weights here"), ("gone", "'absent.py'"),
                       ("folder", "'../handler.py'")):
        status, body = manage(server, "POST",
                              f"/models?url={name}-1.0.mar&initial_workers=1")
        assert status in (400, 503), body
        assert word in body["message"], body
        assert manage(server, "GET", f"/models/{name}")[0] == 404
    until(lambda: len(list(scratch.iterdir())) == 1)


def test_nodes_of_a_workflow_may_be_functions(server, scratch):
    assert register(server, "url=flow.war")[0] == 200
    # The names are those that TorchServe gives.
    assert predict(server, "flow", b"[1, 2]") == (
        200, {"scaler": [6.0, 9.0], "side": [3, 4]})
    _, models = manage(server, "GET", "/models")
    assert [each["modelName"] for each in models["models"]] == \
        ["flow__scaler", "plain"]
    assert manage(server, "DELETE", "/workflows/flow")[0] == 200
    assert register(server, "url=boom.war")[0] == 200
    status, body = predict(server, "boom", b"[1, 2]")
    assert status == 400, body  # as any handler's exception
    assert body["message"].startswith("Error executing boom")
    assert "it went wrong" in body["message"]
    assert manage(server, "DELETE", "/workflows/boom")[0] == 200
    status, body = register(server, "url=nofunction.war")
    assert (status, body["type"]) == (500, "WorkflowException")
    assert "Workflow Node nofunction__absent failed to register" in \
        body["message"]
    until(lambda: len(list(scratch.iterdir())) == 1)


def tries_of(server, path, name, **said):
    """Status, answer, and how often the node was tried, in how many seconds."""
    path.unlink(missing_ok=True)
    assert register(server, f"url={name}.war")[0] == 200
    begun = time.monotonic()
    status, body = predict(server, name, json.dumps(
        {"file": str(path), **said}).encode())
    seconds = time.monotonic() - begun
    assert manage(server, "DELETE", f"/workflows/{name}")[0] == 200
    return status, body, path.stat().st_size, seconds


def test_a_node_is_tried_as_often_and_as_long_as_the_workflow_says(server,
                                                                   tmp_path):
    path = tmp_path / "tries"
    # Its process dies: no fault of the request.
    status, body, tries, _ = tries_of(server, path, "dies-1-50000", times=1)
    assert status in (500, 503) and tries == 1, body
    assert body["message"].startswith("Error executing dies")
    # The first attempt is given up, the second waits for the process.
    assert tries_of(server, path, "sleeps-2-1500", times=1,
                    seconds=2)[:3] == (200, {"after": 1}, 2)
    status, body, tries, seconds = tries_of(server, path, "sleeps-1-1500",
                                            times=1, seconds=2)
    assert (status, body["type"], tries) == (500, "InternalServerException", 1)
    assert body["message"].startswith("Error executing sleeps")
    status, body, tries, seconds = tries_of(server, path, "sleeps-2-1500",
                                            times=9, seconds=20)
    assert (status, body["type"]) == (500, "InternalServerException"), body
    assert 2.9 < seconds < 15
    # Long enough for the first attempt.
    assert tries_of(server, path, "sleeps-1-50000", times=1,
                    seconds=2)[:3] == (200, {"after": 0}, 1)


@pytest.mark.skipif(shutil.which("torch-model-archiver") is None,
                    reason="torch-model-archiver is not installed")
def test_an_archive_of_the_real_archiver(server, store, tmp_path):
    (tmp_path / "real_handler.py").write_text(textwrap.dedent(CLASS))
    (tmp_path / "weights.pt").write_text("5")
    subprocess.run(
        ["torch-model-archiver", "--model-name", "real", "--version", "1.0",
         "--serialized-file", str(tmp_path / "weights.pt"), "--handler",
         str(tmp_path / "real_handler.py"), "--export-path", str(store)],
        check=True)
    assert manage(server, "POST",
                  "/models?url=real.mar&initial_workers=1")[0] == 200
    assert infer(server, "real") == (200, [5.0, 10.0])
    manage(server, "DELETE", "/models/real")


def test_a_stop_while_models_load_leaves_no_files(tmp_path):
    for folder in ("store", "temp", "work"):
        (tmp_path / folder).mkdir()
    mar(tmp_path / "store", "plain", FUNCTION)
    mar(tmp_path / "store", "slow", SLOW)
    properties = tmp_path / "config.properties"
    properties.write_text(f"model_store={tmp_path / 'store'}\nload_models=all\n"
                          f"python={sys.executable}\nenable_model_api=true\n")
    ports, management = [*PORTS], free_port()
    ports[ports.index("--management-port") + 1] = str(management)
    with start("--profile", "torchserve", "--ts-config", properties, *ports,
               until="listening", cwd=tmp_path / "work",
               env={"TMPDIR": str(tmp_path / "temp")}) as server:
        while server.wait_event("loading model")["model"] != "slow":
            pass
        keys = json.loads((tmp_path / "work" / "key_file.json").read_text())
        # One that is registered meanwhile, whose load waits for the others'.
        mar(tmp_path / "store", "late", FUNCTION)
        request = urllib.request.Request(
            f"http://127.0.0.1:{management}/models?url=late-1.0.mar"
            "&initial_workers=1&synchronous=false", b"",
            {"Authorization": f"Bearer {keys['management']['key']}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 202
        assert len(list((tmp_path / "temp").glob("millrace-mar-*"))) == 3
        assert server.stop(timeout=10) == 0
    assert list((tmp_path / "temp").iterdir()) == []
    assert list((tmp_path / "work").iterdir()) == []

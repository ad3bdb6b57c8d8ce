"""Handlers that were written for TorchServe, behind a repository: what their
context knows of the archive, functions, and metrics as lines of the log."""
import json
import re
import sys
import time
import urllib.error
import urllib.request

import pytest

from conftest import Server

SCALER = """
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
        self.rows = context.metrics.add_metric_to_cache(
            "Seen", "count", ["ModelName"])

    def preprocess(self, data):
        rows = [r.get("data") or r.get("body") for r in data]
        return np.array([r if isinstance(r, list) else json.loads(bytes(r))
                         for r in rows], np.float32)

    def inference(self, rows):
        return self.scale * rows

    def postprocess(self, rows):
        metrics = self.context.metrics
        metrics.add_counter("Rows", len(rows))
        metrics.add_time("Took", 1.5)
        metrics.add_size("Size", 2, unit="kB")
        metrics.add_percent("Share", 50)
        metrics.add_metric("Free", 3, "furlongs", dimensions=[Dimension()])
        metrics.add_error("Odd", "4" if rows[0][0] < 0 else 4)
        self.rows.add_or_update(1, ["scaler"])
        return rows.tolist()


class Dimension:
    name, value = "Level", "Host"
"""
FUNCTIONS = """
seen = []


def handle(data, context):
    seen.append(data)
    if data is not None:
        return [{"first": seen[0], "model": context.model_name}]


def other(data, context):
    if data is not None:
        return ["other"]


def typed(data, context):
    if data is not None:
        context.set_response_content_type(0, data[0]["data"].decode())
        return ["<a>"]
"""
MANIFEST = {"createdOn": "01/01/2026 00:00:00", "runtime": "python",
            "model": {"modelName": "scaler", "modelVersion": "1.0",
                      "handler": "handler.py", "serializedFile": "weights"},
            "archiverVersion": "0.12.0"}


def put(root, name, source, handler="handler.py", **files):
    folder = root / name / "1"
    (folder / "MAR-INF").mkdir(parents=True)
    (folder / "handler.py").write_text(source)
    for path, text in files.items():
        (folder / path).write_text(text)
    (root / name / "config.yaml").write_text(
        "external:\n  startup_timeout: 60s\n"
        f"  command: [{sys.executable}, -m, millrace_torchserve, "
        f"'{handler}']\n")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    put(root, "scaler", SCALER, weights="3",
        **{"MAR-INF/MANIFEST.json": json.dumps(MANIFEST)})
    put(root, "plain", FUNCTIONS)
    put(root, "named", FUNCTIONS, "handler:other")
    put(root, "typed", FUNCTIONS, "handler:typed")
    running = Server("--model-repository", root)
    yield running
    running.stop()


def ask(server, name, body, kind="text/plain"):
    request = urllib.request.Request(f"{server.url}/v1/tasks/{name}", body,
                                     {"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def test_a_clients_content_type_writes_no_headers(server):
    def headers(kind):
        request = urllib.request.Request(
            f"{server.url}/v1/tasks/typed", kind.encode(),
            {"Content-Type": "text/plain"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.read() == b"<a>"
            return answer.headers
    assert headers("image/svg+xml; a=b")["Content-Type"] == "image/svg+xml; a=b"
    for kind in "text/a\r\nSet-Cookie: a=b\r\n\r\n<b>", "text/a\n", "text/\u00fc":
        with pytest.raises(urllib.error.HTTPError) as refused:
            headers(kind)
        assert refused.value.code == 500
        assert "Set-Cookie" not in refused.value.headers
        assert "printable ASCII" in json.load(refused.value)["error"]["message"]


def said(server, pattern):
    end = time.monotonic() + 30
    while not any(re.search(pattern, line) for line in server.lines):
        assert time.monotonic() < end, pattern
        time.sleep(0.05)


def test_the_context_has_the_archives_manifest(server):
    assert json.loads(ask(server, "scaler", b"[1, 2]")) == [3, 6]


def test_metrics_are_lines_in_torchserves_format(server):
    ask(server, "scaler", b"[1, 2]")
    end = r"\|#hostname:[^,|]+,timestamp:\d{10}(\D|$)"
    of_model = r"\|#ModelName:scaler,Level:Model" + end
    for line in (r"Rows\.Count:1" + of_model,
                 r"Took\.Milliseconds:1\.5" + of_model,
                 r"Size\.Kilobytes:2" + of_model,
                 r"Share\.Percent:50" + of_model,
                 r"Free\.furlongs:3\|#Level:Host,ModelName:scaler" + end,
                 r"Odd\.unit:4\|#Level:Error" + end,
                 r"Seen\.Count:1\|#ModelName:scaler" + end):
        said(server, line)


def test_a_metric_that_is_no_number_costs_its_request_alone(server):
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(server, "scaler", b"[-1, 2]")
    assert "the metric Odd is '4', no number" in refused.value.read().decode()
    assert json.loads(ask(server, "scaler", b"[1, 2]")) == [3, 6]


def test_a_function_is_called_with_none_first(server):
    assert json.loads(ask(server, "plain", b"x")) == {
        "first": None, "model": "plain"}


def test_a_function_may_have_another_name(server):
    assert ask(server, "named", b"x") == b"other"

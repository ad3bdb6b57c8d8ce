"""POST /debug/trace and millrace trace: what all threads do for some seconds."""
import contextlib
import http.server
import json
import os
import stat
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from conftest import BINARY, MODEL, MODEL_ID, REPO, start

GRAPH = REPO / "tests" / "data" / "graph" / "mlp.onnx"
INFER = {"inputs": [
    {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]},
    {"name": "scale", "datatype": "FP32", "shape": [1], "data": [0.5]}]}


def post(server, path, body=None, **headers):
    request = urllib.request.Request(
        server.url + path, json.dumps(body).encode() if body else b"",
        {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=90) as answer:
        return answer.read().decode()


@contextlib.contextmanager
def repeated(work):
    """Does it all the time."""
    done = threading.Event()

    def repeat():
        while not done.is_set():
            try:
                work()
            except OSError:
                return

    thread = threading.Thread(target=repeat)
    thread.start()
    yield
    done.set()
    thread.join()


@pytest.fixture(scope="module")
def busy():
    """A server that completes text and computes a graph all the time."""
    with start(MODEL, GRAPH) as server:
        def work():
            post(server, "/v1/completions", {
                "model": MODEL_ID, "prompt": "Once upon a time",
                "max_tokens": 12, "ignore_eos": True})
            post(server, "/v2/models/mlp/infer", INFER)

        with repeated(work):
            yield server


def tracks(trace):
    """Names of (process, thread) by (pid, tid)."""
    processes, threads = {}, {}
    for event in trace["traceEvents"]:
        if event["ph"] == "M" and event["name"] == "process_name":
            processes[event["pid"]] = event["args"]["name"]
        if event["ph"] == "M" and event["name"] == "thread_name":
            threads[event["pid"], event["tid"]] = event["args"]["name"]
    return {at: (processes[at[0]], name) for at, name in threads.items()}


def test_a_capture_shows_requests_steps_phases_and_operators(busy):
    began = time.monotonic()
    trace = json.loads(post(busy, "/debug/trace?seconds=1"))
    assert 1 <= time.monotonic() - began < 10
    where = tracks(trace)
    slices = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert event["ts"] + event["dur"] < 2e6
        if event["ph"] in "Xb":
            slices.setdefault(where[event["pid"], event["tid"]],
                              []).append(event)
    model = f"model {MODEL_ID}"
    steps = slices[model, "steps"]
    assert {"decode"} <= {s["name"] for s in steps} <= {
        "decode", "prefill", "mixed"}
    assert all(s["args"]["rows"] >= s["args"]["sequences"] > 0 for s in steps)
    phases = slices[model, "worker 0"]
    assert {"qkv", "attention", "head", "sample"} <= {
        s["name"] for s in phases}
    # Each phase lies in a step.
    inside = [any(step["ts"] - 1 <= s["ts"] and s["ts"] + s["dur"] <=
                  step["ts"] + step["dur"] + 1 for step in steps)
              for s in phases[:300]]
    assert all(inside)
    assert len(slices["model mlp", "instance 0"]) > 0
    operators = {s["name"] for s in slices["model mlp", "instance 0 worker 0"]}
    assert len(operators) >= 2
    requests = slices["server", "requests"]
    assert {"request", "queue", "prefill", "decode", "compute"} <= {
        s["name"] for s in requests}
    assert any("/v1/completions req-" in s["args"].get("what", "")
               for s in requests)
    assert ("server", "handler-0") in slices
    ends = [e for e in trace["traceEvents"] if e["ph"] == "e"]
    assert len(ends) == len(requests)
    assert trace["otherData"]["slices_dropped"] == 0


def test_phases_of_a_gpu_are_those_of_its_own_clock():
    module = BINARY.parent / "libmillrace_cuda_emulated.so"
    if not module.exists():
        pytest.skip("built without the emulated module")
    with start(f"tiny={REPO}/tests/data/hf_llama", "--device", "cuda:0",
               env={"MILLRACE_CUDA_MODULE": str(module)}) as server:
        def complete():
            return post(server, "/v1/completions", {
                "model": "tiny", "prompt": [7, 9, 20], "max_tokens": 4,
                "temperature": 0, "ignore_eos": True, "seed": 1})

        def text():
            return json.loads(complete())["choices"][0]["text"]

        before = text()
        with repeated(complete):
            trace = json.loads(post(server, "/debug/trace?seconds=1"))
            words = post(server, "/debug/trace?seconds=1&format=text")
        where = tracks(trace)
        slices = {}
        for event in trace["traceEvents"]:
            if event["ph"] == "X":
                slices.setdefault(where[event["pid"], event["tid"]],
                                  []).append(event)
        steps = slices["model tiny", "steps"]
        phases = slices["model tiny", "worker 0"]
        assert {"embed", "qkv", "attention", "attention_output", "gate_up",
                "down", "head", "sample"} == {s["name"] for s in phases}
        assert {s["args"]["layer"] for s in phases if s["name"] == "qkv"} == {
            0, 1}
        # The clock's marks are in microseconds.
        assert all(any(step["ts"] - 1 <= s["ts"] and s["ts"] + s["dur"] <=
                       step["ts"] + step["dur"] + 1 for step in steps)
                   for s in phases[:300])
        assert "model tiny: phases: " in words
        assert text() == before


def test_the_breakdown_says_where_time_went(busy):
    words = post(busy, "/debug/trace?seconds=0.5&format=text").splitlines()
    text = "\n".join(words)
    assert f"model {MODEL_ID}: idle " in text
    for word in ("prefill", "decode", "phases: ", "attention", "head",
                 "operators: ", "requests: ", "in the queue", "overlap: ",
                 "padding waste: "):
        assert word in text, word


def test_one_capture_at_a_time(busy):
    refusals = []

    def capture(seconds):
        try:
            post(busy, f"/debug/trace?seconds={seconds}")
        except urllib.error.HTTPError as refused:
            refusals.append((refused.code, refused.read().decode()))

    # Whichever comes while the other runs is the one that is refused.
    first = threading.Thread(target=capture, args=(2,))
    first.start()
    while first.is_alive():
        capture(0.1)
    assert refusals
    for code, words in refusals:
        assert code == 409 and "another capture runs" in words
    post(busy, "/debug/trace?seconds=0.1")


@pytest.mark.parametrize("query, field", [
    ("seconds=0", "seconds"), ("seconds=61", "seconds"),
    ("seconds=x", "seconds"), ("seconds=nan", "seconds"),
    ("format=pdf", "format")])
def test_what_cannot_be_captured_is_refused(server, query, field):
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(server, f"/debug/trace?{query}")
    assert refused.value.code == 400
    assert json.load(refused.value)["error"]["param"] == field


def test_the_verb_writes_the_trace_and_prints_the_words(busy, tmp_path):
    path = tmp_path / "busy.json"
    done = subprocess.run(
        [BINARY, "trace", "--seconds", "1", "-o", path, "--url", busy.url],
        capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"model {MODEL_ID}: idle " in done.stdout
    assert json.loads(path.read_text())["traceEvents"]
    assert list(tmp_path.iterdir()) == [path]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    # A file that is there keeps its mode.
    path.write_text("of yesterday")
    path.chmod(0o604)
    done = subprocess.run(
        [BINARY, "trace", "--seconds", "1", "-o", path, "--url", busy.url],
        capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(path.read_text())["traceEvents"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_a_capture_that_fails_leaves_the_last_one(server, tmp_path):
    path = tmp_path / "trace.json"
    path.write_text("of yesterday")

    class Other(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.handle_request).start()
        urls = {f"http://127.0.0.1:{other.server_port}": "sent no trace",
                "http://127.0.0.1:1": "no server answers",
                server.url + "/nowhere": "404"}
        for url, says in urls.items():
            done = subprocess.run(
                [BINARY, "trace", "--seconds", "1", "-o", path, "--url", url],
                capture_output=True, text=True, timeout=60)
            assert done.returncode == 1 and says in done.stderr, done.stderr
            assert path.read_text() == "of yesterday"
    assert list(tmp_path.iterdir()) == [path]
    # What cannot be written is told before the capture.
    for file, says in ((tmp_path / "none" / "t", "No such file"),
                       (tmp_path, "it is a folder"), ("", "it has no name")):
        done = subprocess.run(
            [BINARY, "trace", "--seconds", "60", "-o", file, "--url",
             server.url], capture_output=True, text=True, timeout=20)
        assert done.returncode == 1 and "cannot be written" in done.stderr
        assert says in done.stderr
    # What is no file is written to as it is.
    done = subprocess.run(
        [BINARY, "trace", "--seconds", "1", "-o", "/dev/stdout", "--url",
         server.url], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith('{"')


def test_a_capture_that_is_ended_leaves_no_file(tmp_path):
    asked, ended = threading.Event(), threading.Event()

    class Slow(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            asked.set()
            ended.wait(60)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow) as slow:
        threading.Thread(target=slow.serve_forever).start()
        process = subprocess.Popen(
            [BINARY, "trace", "--seconds", "60", "-o", tmp_path / "trace.json",
             "--url", f"http://127.0.0.1:{slow.server_port}"])
        try:
            assert asked.wait(30)
            process.terminate()
            process.wait(30)
        finally:
            process.kill()
            ended.set()
            slow.shutdown()
    assert not list(tmp_path.iterdir())


def test_it_needs_the_key_and_ends_with_the_server():
    with start(GRAPH, "--api-key", "secret") as server:
        with pytest.raises(urllib.error.HTTPError) as refused:
            post(server, "/debug/trace?seconds=1")
        assert refused.value.code == 401
        thread = threading.Thread(target=lambda: post(
            server, "/debug/trace?seconds=60", Authorization="Bearer secret"))
        thread.start()
        time.sleep(0.5)
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 10
        thread.join()


def test_an_idle_server_says_so(server):
    words = post(server, "/debug/trace?seconds=0.2&format=text")
    assert "no model computed anything" in words

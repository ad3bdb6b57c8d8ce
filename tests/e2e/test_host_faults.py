"""Faults of the machine: a log that nobody reads, disks that are full, memory
that cannot be had, clocks that jump, peers that vanish. The server lives on and
says what happened. Tests that need root or a tool skip where it is missing."""
import contextlib
import ctypes
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time
import zipfile

import numpy as np
import pytest
import tritonclient.http as triton
from conftest import BINARY, MODEL, MODEL_ID, REPO, start
from test_faults import connect, open_connections, until
from test_keys import CHAT, TENSORS, call
from test_torchserve import ask, torchserve

GRAPHS = REPO / "tests/data/graph"
FAKETIME = pathlib.Path(
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


# ---- the log ----------------------------------------------------------------


class Unread:
    """A server whose log goes into a pipe that is read when a test says so."""

    def __init__(self, *flags, under=()):
        ours, theirs = os.pipe()
        self.log = os.fdopen(ours, "rb")
        self.process = subprocess.Popen(
            [*under, BINARY, "serve", "--http-port", "0", "--grpc-port", "0",
             "--log-format", "json", *map(str, flags)], stderr=theirs)
        os.close(theirs)
        ready = self.event("ready")
        self.url = f"http://127.0.0.1:{ready['http_port']}"

    def event(self, name):
        for line in self.log:
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if event["event"] == name:
                    return event
        raise AssertionError(f"the log ended before '{name}'")


@pytest.fixture
def unread():
    server = Unread(f"mlp={GRAPHS / 'mlp.onnx'}")
    yield server
    server.process.kill()
    server.process.wait()


def ask_often(server, times):
    """Seconds of the slowest."""
    slowest = 0
    for _ in range(times):
        began = time.monotonic()
        assert call(server, "GET", "/v2/models/mlp")[0] == 200
        slowest = max(slowest, time.monotonic() - began)
    return slowest


def test_a_log_that_nobody_reads_stops_nobody(unread):
    """Some 250 bytes a request: 64 KiB of the pipe are soon full."""
    assert ask_often(unread, 800) < 5
    # Once it is read again, the first line that fits tells what is missing.
    reader = threading.Thread(target=lambda: lost.append(
        unread.event("log lines lost")))
    lost = []
    reader.start()
    time.sleep(0.5)
    ask_often(unread, 5)
    reader.join(20)
    assert lost and lost[0]["level"] == "warning" and lost[0]["lines"] > 100


def test_a_log_whose_reader_is_gone(unread):
    unread.log.close()
    ask_often(unread, 100)
    unread.process.send_signal(signal.SIGPIPE)
    ask_often(unread, 1)
    unread.process.send_signal(signal.SIGTERM)
    assert unread.process.wait(30) == 0


# ---- signals ----------------------------------------------------------------


def test_a_hangup_drains_and_a_second_one_ends():
    stream = {**CHAT, "stream": True, "max_tokens": 2000, "ignore_eos": True}
    with start(f"{MODEL_ID}={MODEL}") as server:
        asking = threading.Thread(target=lambda: outcome.append(call(
            server, "POST", "/v1/chat/completions", None,
            {**stream, "max_tokens": 60})))
        outcome = []
        asking.start()
        until(lambda: server.pages()["used"] > 0)
        server.process.send_signal(signal.SIGHUP)
        server.wait_event("draining")
        asking.join(60)
        assert "[DONE]" in outcome[0][2]
        assert server.process.wait(30) == 0
    with start(f"{MODEL_ID}={MODEL}") as server:
        peer = connect(server)
        body = json.dumps(stream).encode()
        peer.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                     b"Content-Type: application/json\r\nContent-Length: %d"
                     b"\r\n\r\n" % len(body) + body)
        assert peer.recv(10)
        server.process.send_signal(signal.SIGTERM)
        server.wait_event("draining")
        server.process.send_signal(signal.SIGHUP)
        assert server.process.wait(10) == 128 + signal.SIGHUP
        peer.close()


def test_nohup_is_heeded():
    def ignored():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with start(f"mlp={GRAPHS / 'mlp.onnx'}", preexec_fn=ignored) as server:
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert call(server, "GET", "/health")[0] == 200


# ---- disks ------------------------------------------------------------------


def small_disk(path, size):
    """For preexec_fn: a file system of that size at `path`, which only the new
    process sees."""
    def mount():
        libc = ctypes.CDLL(None, use_errno=True)
        clone_newns, ms_rec_private = 0x00020000, 0x4000 | 1 << 18
        if libc.unshare(clone_newns) or \
                libc.mount(b"none", b"/", None, ms_rec_private, None) or \
                libc.mount(b"tmpfs", str(path).encode(), b"tmpfs", 0,
                           f"size={size}".encode()):
            os._exit(99)
    return mount


@needs_root
def test_the_disk_of_batches_is_full(tmp_path):
    import openai
    folder = tmp_path / "batches"
    folder.mkdir()
    line = json.dumps({
        "custom_id": "NUMBER", "method": "POST", "url": "/v1/chat/completions",
        "body": {**CHAT, "max_tokens": 200, "ignore_eos": True}})
    lines = "\n".join(line.replace("NUMBER", str(i)) for i in range(90))
    with start(f"{MODEL_ID}={MODEL}", "--batch-dir", folder,
               "--max-model-len", 512,
               preexec_fn=small_disk(folder, "64k")) as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none",
                               max_retries=0)
        with pytest.raises(openai.APIStatusError) as refused:
            client.files.create(file=("a.jsonl", b"x" * 200_000),
                                purpose="batch")
        assert "make room on the disk" in str(refused.value)
        # Its input fits; its output does not.
        file = client.files.create(file=("a.jsonl", lines.encode()),
                                   purpose="batch")
        batch = client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions",
            completion_window="24h")
        until(lambda: any("make room on the disk" in text
                          for text in server.lines), 120)
        assert server.process.poll() is None
        client.batches.cancel(batch.id)
        assert call(server, "POST", "/v1/chat/completions", None,
                    CHAT)[0] == 200


@needs_root
def test_shared_memory_is_full():
    """A region that promises more than /dev/shm has."""
    with start(f"mlp={GRAPHS / 'mlp.onnx'}",
               preexec_fn=small_disk("/dev/shm", "64k")) as server:
        shm = pathlib.Path(f"/proc/{server.process.pid}/root/dev/shm")
        (shm / "region").touch()
        os.truncate(shm / "region", 16 << 20)
        client = triton.InferenceServerClient(f"127.0.0.1:{server.http_port}",
                                              network_timeout=60)
        client.register_system_shared_memory("region", "/region", 16 << 20)
        rows = 20_000
        inputs = [triton.InferInput("x", [rows, 4], "FP32"),
                  triton.InferInput("scale", [1], "FP32")]
        inputs[0].set_data_from_numpy(np.ones((rows, 4), np.float32))
        inputs[1].set_data_from_numpy(np.ones(1, np.float32))
        output = triton.InferRequestedOutput("logits", binary_data=True)
        output.set_shared_memory("region", 8 << 20)
        with pytest.raises(triton.InferenceServerException) as refused:
            client.infer("mlp", inputs, outputs=[output])
        assert "region" in str(refused.value)
        assert call(server, "POST", "/v2/models/mlp/infer", None,
                    TENSORS)[0] == 200


def test_a_file_is_cut_short_while_its_graph_is_served(tmp_path):
    """Constants of a .pt2 stay in the mapped file. The graph that reads behind
    the cut says so, again and again; its neighbour does not notice; loaded from
    a whole file it serves again."""
    for name in ("cut", "whole"):
        folder = tmp_path / name / "1"
        folder.mkdir(parents=True)
        shutil.copy(GRAPHS / "dlrm.pt2", folder / "model.pt2")
    victim = tmp_path / "cut/1/model.pt2"
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit", "--load-model", "*") as server:
        client = triton.InferenceServerClient(f"127.0.0.1:{server.http_port}",
                                              network_timeout=60)
        ports = client.get_model_metadata("whole")["inputs"]

        def infer(model, rows):
            inputs = []
            for port in ports:
                shape = [rows if size < 0 else size for size in port["shape"]]
                kind = triton.triton_to_np_dtype(port["datatype"])
                inputs.append(triton.InferInput(port["name"], shape,
                                                port["datatype"]))
                inputs[-1].set_data_from_numpy(np.zeros(shape, kind))
            result = client.infer(model, inputs)
            return result.as_numpy(result.get_response()["outputs"][0]["name"])
        expected = infer("cut", 2)
        os.truncate(victim, 0)
        for rows in (2, 3):
            with pytest.raises(triton.InferenceServerException) as refused:
                infer("cut", rows)
            assert "cut short while the model was served" in str(refused.value)
            assert np.array_equal(infer("whole", 2), expected)
        assert server.line("cut short while the model was served",
                           '"status":500')
        shutil.copy(GRAPHS / "dlrm.pt2", victim)
        client.load_model("cut")
        assert np.array_equal(infer("cut", 2), expected)


# ---- memory -----------------------------------------------------------------


def test_memory_that_cannot_be_had(tmp_path):
    """The address space of the running process is limited to what it has and
    some more: a further model does not fit, what is served goes on."""
    for name in ("here", "more"):
        folder = tmp_path / name / "1"
        folder.mkdir(parents=True)
        os.symlink(MODEL, folder / "model.gguf")
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit", "--load-model", "here", "--max-model-len",
               256) as server:
        load = ("POST", "/v2/repository/models/more/load", None, {})
        chat = {**CHAT, "model": "here"}
        assert call(server, "POST", "/v1/chat/completions", None,
                    chat)[0] == 200
        pid = server.process.pid
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        used = int(status.split("VmSize:")[1].split()[0]) << 10
        free = resource.prlimit(pid, resource.RLIMIT_AS)
        resource.prlimit(pid, resource.RLIMIT_AS, (used + (40 << 20), free[1]))
        code, _, said = call(server, *load)
        assert code >= 400 and "memory" in said, said
        for _ in range(3):
            assert call(server, "POST", "/v1/chat/completions", None,
                        chat)[0] == 200
        assert server.line("memory", "more", '"level":"error"')
        resource.prlimit(pid, resource.RLIMIT_AS, free)
        assert call(server, *load)[0] == 200
        assert call(server, "POST", "/v1/chat/completions", None,
                    {**CHAT, "model": "more"})[0] == 200


def graph_of_zeros():
    """The bytes of an ONNX graph: zeros of the shape that a request asks for."""
    def field(number, *parts):
        body = b"".join(parts)
        size = bytes([len(body)])
        assert len(body) < 128
        return bytes([number << 3 | 2]) + size + body

    def whole(number, value):
        return bytes([number << 3, value])

    def port(number, name, dtype, *dims):
        sizes = [field(1, field(2, dim)) for dim in dims]
        tensor = field(1, whole(1, dtype), field(2, *sizes))
        return field(number, field(1, name), field(2, tensor))

    node = field(1, field(1, b"s"), field(2, b"y"), field(4, b"ConstantOfShape"))
    graph = (node, field(2, b"g"), port(11, b"s", 7, b"k"),
             port(12, b"y", 1, b"n", b"m"))
    return (whole(1, 8) + field(7, *graph) + field(8, field(1), whole(2, 13)))


def allow_more(server, size):
    """So many bytes of address space beside what the server has."""
    pid = server.process.pid
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    used = int(status.split("VmSize:")[1].split()[0]) << 10
    _, most = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (used + size, most))


def test_memory_for_a_result_cannot_be_had(tmp_path):
    """One request of 4 GiB ends by itself; the process and others go on."""
    (tmp_path / "zeros.onnx").write_bytes(graph_of_zeros())
    with start(tmp_path / "zeros.onnx") as server:
        def ask(*shape):
            return call(server, "POST", "/v2/models/zeros/infer", None, {
                "inputs": [{"name": "s", "datatype": "INT64", "shape": [2],
                            "data": list(shape)}]})

        assert ask(2, 3)[0] == 200
        allow_more(server, 1 << 30)
        for _ in range(2):
            code, _, said = ask(1024, 1 << 20)
            assert code == 503 and "has no memory for this request" in said, said
            assert ask(2, 3)[0] == 200


def test_memory_for_a_text_of_torchserve_cannot_be_had(tmp_path):
    """The tensor of 80 MiB fits; its text in JSON, twice while it grows, not."""
    with zipfile.ZipFile(tmp_path / "zeros.mar", "w") as archive:
        archive.writestr("zeros.onnx", graph_of_zeros())
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps(
            {"model": {"modelName": "zeros", "modelVersion": "1.0",
                       "serializedFile": "zeros.onnx",
                       "handler": "base_handler"}}))
    with torchserve("--model-store", tmp_path, "--models",
                    "zeros=zeros.mar") as server:
        def predict(*shape):
            return ask(server, "inference", "POST", "/predictions/zeros",
                       json.dumps(shape).encode(), "application/json")

        assert predict(2, 3) == (200, [[0.0] * 3] * 2)
        allow_more(server, 200 << 20)
        for _ in range(2):
            code, said = predict(20, 1 << 20)
            assert code == 503, said
            assert "has no memory for this request" in said["message"]
            assert predict(2, 3)[0] == 200


# ---- clocks -----------------------------------------------------------------


@pytest.mark.skipif(not FAKETIME.exists(), reason="libfaketime is missing")
def test_the_clock_of_the_wall_jumps(tmp_path):
    """A year forth and two back while streams run, with deadlines and limits of
    tenants: none ends early, none waits, and the log has the new dates."""
    clock = tmp_path / "clock"

    def jump(offset):
        (tmp_path / "next").write_text(offset)
        os.replace(tmp_path / "next", clock)
    jump("+0")
    keys = tmp_path / "keys.yaml"
    made = subprocess.run([BINARY, "keys", "create", "--id", "k", "--tenant",
                           "t"], capture_output=True, text=True, check=True)
    keys.write_text("tenants: {t: {requests_per_second: 50, "
                    "tokens_per_minute: 1000000}}\nkeys:\n" + made.stdout)
    key = made.stderr.strip()
    with start(f"{MODEL_ID}={MODEL}", "--max-model-len", 512,
               "--api-keys-file", keys, env={
                   "LD_PRELOAD": str(FAKETIME), "FAKETIME_NO_CACHE": "1",
                   "FAKETIME_TIMESTAMP_FILE": str(clock),
                   "FAKETIME_DONT_FAKE_MONOTONIC": "1"}) as server:
        outcome = []

        def ask():
            outcome.append(call(server, "POST", "/v1/chat/completions", key,
                                {**CHAT, "max_tokens": 40, "stream": True,
                                 "ignore_eos": True})[2])
        for offset in ("+365d", "-365d", "+0"):
            asking = threading.Thread(target=ask)
            began = time.monotonic()
            asking.start()
            time.sleep(0.2)
            jump(offset)
            status, headers, _ = call(server, "POST", "/v1/chat/completions",
                                      key, CHAT)
            assert status == 200
            assert int(headers["x-ratelimit-remaining-requests"]) <= 50
            asking.join(100)
            assert "[DONE]" in outcome[-1] and time.monotonic() - began < 100
        years = {line[9:13] for line in server.lines if "request" in line}
        assert len(years) == 3


# ---- peers ------------------------------------------------------------------


@needs_root
def test_peers_that_vanish_without_a_word():
    """TCP_REPAIR closes a socket without telling the other side, as a machine
    does that loses its power."""
    tcp_repair = 19
    with start(f"{MODEL_ID}={MODEL}", "--max-model-len", 512, "--idle-timeout",
               "1s", "--header-timeout", "1s", "--write-timeout",
               "2s") as server:
        body = json.dumps({**CHAT, "max_tokens": 10}).encode()
        head = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type"
                b": application/json\r\nContent-Length: %d\r\n\r\n" % len(body))
        begun = [b"", b"GET /hea", head, head + body[:20],
                 b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"]
        for text in begun * 10:
            peer = connect(server)
            peer.sendall(text)
            time.sleep(0.02)
            try:
                peer.setsockopt(socket.IPPROTO_TCP, tcp_repair, 1)
            except PermissionError:
                pytest.skip("TCP_REPAIR is not allowed here")
            peer.close()
        until(lambda: open_connections(server) <= 1, 60)
        assert call(server, "POST", "/v1/chat/completions", None,
                    CHAT)[0] == 200


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is missing")
def test_no_connection_leaves_the_process_unasked(tmp_path):
    calls = tmp_path / "calls"
    server = Unread(f"{MODEL_ID}={MODEL}", f"mlp={GRAPHS / 'mlp.onnx'}",
                    "--max-model-len", 256, under=(
                        "strace", "-D", "-f", "-qq", "-e",
                        "trace=connect,listen", "-o", calls))
    try:
        for method, path, body in (
                ("POST", "/v1/chat/completions", CHAT),
                ("POST", "/v2/models/mlp/infer", TENSORS),
                ("GET", "/metrics", None)):
            assert call(server, method, path, None, body)[0] == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    finally:
        server.process.kill()
        server.process.wait()
    text = calls.read_text()
    assert "listen(" in text
    assert not re.findall(r"connect\(.*AF_INET.*", text)

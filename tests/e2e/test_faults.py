"""Faults of the surroundings: the server lives on and says what happened."""
import json
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest
from conftest import BINARY, MODEL, MODEL_ID, REPO, start
from test_keys import CHAT, call

GRAPH = REPO / "tests/data/graph/mlp.onnx"
NUM_SLOW = 1000


@pytest.fixture(scope="module")
def running():
    with start(f"mlp={GRAPH}", f"{MODEL_ID}={MODEL}", "--max-model-len", 512,
               "--header-timeout", "2s", "--max-connections", 1200) as server:
        yield server


def connect(server):
    return socket.create_connection(("127.0.0.1", server.http_port),
                                    timeout=30)


def open_connections(server):
    return server.metric("millrace_http_connections")[""]


def until(holds, seconds=30):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def raise_own_limit():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    return soft, hard


def test_a_thousand_clients_that_send_a_byte_now_and_then(running):
    limits = raise_own_limit()
    slow = []
    try:
        for _ in range(NUM_SLOW):
            slow.append(connect(running))
            slow[-1].sendall(b"POST /v1/chat/completions HTTP/1.1\r\nX-A: ")
        over = threading.Event()

        def drip():
            while not over.wait(0.2):
                for each in slow:
                    try:
                        each.send(b"a")
                    except OSError:
                        pass
        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            began = time.monotonic()
            for _ in range(5):
                status, _, said = call(running, "POST", "/v1/chat/completions",
                                       None, CHAT)
                assert status == 200, said
            assert time.monotonic() - began < 20
            # Their time-out runs from the first byte, whatever they drip.
            until(lambda: open_connections(running) < NUM_SLOW / 10)
        finally:
            over.set()
            dripping.join()
        assert slow[0].recv(100).startswith(b"HTTP/1.1 408")
    finally:
        for each in slow:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert running.line('"status":408', "header did not arrive")


def test_peers_that_reset(running):
    body = json.dumps({**CHAT, "stream": True, "max_tokens": 400,
                       "ignore_eos": True}).encode()
    head = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
            b"application/json\r\nContent-Length: %d\r\n\r\n" % len(body))
    before = running.pages()["used"]
    for _ in range(20):
        peer = connect(running)
        peer.sendall(head + body)
        assert peer.recv(10)
        # SO_LINGER of 0 s: close() sends a reset.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                        struct.pack("ii", 1, 0))
        peer.close()
    until(lambda: running.pages()["used"] == before)
    assert call(running, "POST", "/v1/chat/completions", None, CHAT)[0] == 200


def test_half_open_connections(running):
    """Clients that say they send no more, and never read."""
    halves = [connect(running) for _ in range(50)]
    for half in halves:
        half.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /hea")
        half.shutdown(socket.SHUT_WR)
    until(lambda: open_connections(running) <= 1)
    for half in halves:
        half.close()
    assert call(running, "GET", "/health")[0] == 200


def test_out_of_descriptors():
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (320, 320))
    with start(f"mlp={GRAPH}", "--max-connections", 64,
               preexec_fn=few) as server:
        taken = []
        # Descriptors of the process itself, beyond those of connections.
        limits = raise_own_limit()
        try:
            for _ in range(400):
                try:
                    taken.append(socket.create_connection(
                        ("127.0.0.1", server.grpc_port if len(taken) % 2 else
                         server.http_port), timeout=2))
                except OSError:
                    break
            time.sleep(1)
            assert server.process.poll() is None
        finally:
            for each in taken:
                each.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

        def answers():
            try:
                return call(server, "GET", "/health")[0] == 200
            except OSError:
                return False
        until(answers)


def test_the_disk_is_full_while_a_model_is_converted(tmp_path):
    """The size of a file is limited: the system refuses the rest of a write, as
    a full disk does."""
    target = tmp_path / "model.packed"

    def small():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    done = subprocess.run([BINARY, "convert", MODEL, target],
                          capture_output=True, text=True, timeout=120,
                          preexec_fn=small)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1 and str(target) in done.stderr
    assert not target.exists(), "half a file is left behind"
    assert list(tmp_path.iterdir()) == []


def test_a_model_file_is_cut_short_while_it_is_read(tmp_path):
    """Another process truncates files of a repository while they are loaded,
    again and again. Each load ends by an answer, and other models live on."""
    for name in ("cut", "whole"):
        folder = tmp_path / "models" / name / "1"
        folder.mkdir(parents=True)
        shutil.copy(MODEL, folder / "model.gguf")
    victim = tmp_path / "models/cut/1/model.gguf"
    with start("--model-repository", tmp_path / "models",
               "--model-control-mode", "explicit", "--load-model", "whole",
               "--max-model-len", 256) as server:
        chat = {**CHAT, "model": "whole"}
        refused = 0
        for i in range(6):
            shutil.copy(MODEL, victim)
            cut = threading.Timer(0.05 + 0.08 * i, os.truncate,
                                  (victim, 8 << 20))
            cut.start()
            status, _, said = call(server, "POST",
                                   "/v2/repository/models/cut/load", None, {})
            cut.join()
            # Cut before it is opened, it is a damaged file: 400.
            assert status in (200, 400, 500), said
            refused += status == 500 and "cut short" in said
            assert server.process.poll() is None
            assert call(server, "POST", "/v1/chat/completions", None,
                        chat)[0] == 200
        assert refused > 0
        os.truncate(victim, 8 << 20)  # after the load: nobody notices
        assert call(server, "POST", "/v1/chat/completions", None,
                    chat)[0] == 200


def test_no_deadline_is_of_wall_time():
    """Clocks of the wall jump. They stand where a date is wanted: in logs,
    headers, certificates and tokens; never where time is waited for."""
    dated = {"config/base/log.cc", "config/base/metrics.cc",
             "scheduler/adapter_gauge.cc", "scheduler/batch_statistics.cc",
             "scheduler/engine_metrics.cc",
             "handlers/ensemble/ensemble.cc", "handlers/external/external.cc",
             "server/audit.cc", "server/auth.cc",
             "server/grpc/call_info.cc", "server/grpc/server.cc",
             "server/http/text_work.cc", "server/torchserve/registration.cc",
             "server/tracing/request_traces.cc"}
    found = set()
    for folder in ("config", "models", "scheduler", "handlers", "server"):
        for path in (REPO / folder).rglob("*.cc"):
            text = path.read_text()
            name = str(path.relative_to(REPO))
            for word in ("CLOCK_REALTIME", "gettimeofday", "wait_until"):
                if word in text and "steady" not in text:
                    found.add(f"{name}: {word}")
            if "system_clock::now" in text and name not in dated and \
                    "to_time_t" not in text and "created" not in text:
                found.add(f"{name}: system_clock")
    assert not found

"""Three replicas behind the HAProxy and nginx configurations of deploy/proxy: a
rolling restart breaks no stream, a killed replica takes along what it streams and
nothing else, a key keeps to one replica, and tokens pass through as they come."""
import contextlib
import http.client
import http.server
import json
import signal
import socket
import threading
import time

import pytest

from conftest import MODEL_ID, REPO, start
from replicas import PROXIES, Clients, Fleet, Stream, found, until


@pytest.fixture(scope="module", params=PROXIES)
def fleet(request, tmp_path_factory):
    if not found(request.param):
        pytest.skip(f"{request.param} is not installed")
    folder = tmp_path_factory.mktemp(request.param)
    with Fleet(request.param, folder) as running:
        yield running


@pytest.fixture(scope="module")
def internal():
    """(method, path) of all that a server moves to the port of management."""
    with start(REPO / "tests/data/hf_llama", "--management-port", 0) as server:
        with Fleet.link(server.http_port) as link:
            link.request("GET", "/openapi.json")
            paths = json.loads(link.getresponse().read())["paths"]
        found = []
        for path, methods in paths.items():
            path = path.replace("{id}", "m").replace("{version}", "1")
            for method in map(str.upper, methods):
                with Fleet.link(server.http_port) as link:
                    link.request(method, path)
                    answer = link.getresponse()
                    if b"that of management_port" in answer.read():
                        assert answer.status == 404
                        found.append((method, path))
    assert ("GET", "/metrics") in found and len(found) > 10
    return found


def spellings(path):
    """Of what a server takes as the same path."""
    yield path
    yield path + "?a=1"
    yield f"{path[:2]}%{ord(path[2]):02x}{path[3:]}"
    yield f"{path[:-1]}%{ord(path[-1]):02X}"
    if path.startswith("/v1/"):
        yield "/openai" + path


def test_metrics_and_management_are_not_for_clients(fleet, internal):
    for method, path in (*internal, (
            "POST", "/v2/systemsharedmemory/region/a/register")):
        for spelt in spellings(path):
            status, replica, _ = fleet.request(method, spelt)
            assert (status, replica) == (404, None), (method, spelt)
    for method, path, body in (
            ("GET", f"/v2/models/{MODEL_ID}", None), ("GET", "/v1/models", None),
            ("GET", "/v1/models/stats", None), ("GET", "/v2/models/stats/ready", None),
            ("POST", f"/v2/models/{MODEL_ID}/generate", {"text_input": ""})):
        assert fleet.request(method, path, body)[1] is not None, path


def test_a_page_of_the_proxys_own_origin_is_no_stranger(fleet):
    """A form is taken from a page of the same origin alone: scheme, host and
    port as the browser sees them, which are the proxy's."""
    def send(origin):
        return fleet.request(
            "POST", "/v1/completions",
            {"model": MODEL_ID, "prompt": "Once", "max_tokens": 1},
            {"Origin": origin,
             "Content-Type": "application/x-www-form-urlencoded"})[0]
    assert send(fleet.url) == 200
    assert send("http://127.0.0.1") == 415
    assert send("https://page.example.org") == 415


def test_a_rolling_restart_breaks_no_stream(fleet):
    with Clients(fleet, 4, 12) as clients:
        for i in range(3):
            until(lambda: clients.done_by(i, 0) > 0)
            fleet.restart(i)
            since = len(clients.ended)
            until(lambda: clients.done_by(i, since) > 0)
    ends = [stream.end for stream in clients.ended]
    assert set(ends) <= {"done", 429, 503}, [
        (stream.end, stream.why) for stream in clients.ended
        if stream.end not in ("done", 429, 503)]
    assert ends.count("done") >= 6  # before and after each restart


def test_a_key_keeps_to_one_replica(fleet):
    def ask(key, prompt="Once"):
        status, replica, body = fleet.request(
            "POST", "/v1/completions",
            {"model": MODEL_ID, "prompt": prompt, "max_tokens": 1},
            {"X-Affinity-Key": key})
        assert status == 200, body
        details = json.loads(body)["usage"]["prompt_tokens_details"]
        return replica, details["cached_tokens"]
    # A replica that the test before restarted takes its keys back when the proxy
    # has seen it ready, so the keys hold still only once all three answer.
    until(lambda: len({ask(f"key {i}")[0] for i in range(20)}) == 3)
    rules = "The rules of the house. " * 30
    first = [ask("a", rules) for _ in range(3)]
    assert len({replica for replica, _ in first}) == 1
    assert all(cached > 100 for _, cached in first[1:]), first


def test_a_killed_replica_fails_what_it_streams_alone(fleet):
    streams = [Stream(fleet, 400) for _ in range(4)]
    threads = [threading.Thread(target=stream.run) for stream in streams]
    for thread in threads:
        thread.start()
    until(lambda: all(stream.chunks > 0 or stream.end for stream in streams))
    victim = next(stream.replica for stream in streams if stream.end is None)
    fleet.servers[victim].process.send_signal(signal.SIGKILL)
    fleet.servers[victim].process.wait(30)
    for thread in threads:
        thread.join(150)
    try:
        # Errors, never a clean end of half an answer.
        assert {stream.end for stream in streams} <= {"done", "broken"}
        broken = [stream for stream in streams if stream.end == "broken"]
        assert broken and {stream.replica for stream in broken} == {victim}
        # Before the next check of health, too.
        after = [Stream(fleet, 2, key).run() for key in (None, "a", "b", "c")]
        assert [stream.end for stream in after] == ["done"] * 4
    finally:
        fleet.start_server(victim)


def test_no_replica_is_a_retryable_refusal(fleet):
    for server in fleet.servers:
        server.process.kill()
        server.process.wait(30)

    def refused():
        status, _, body = fleet.request("POST", "/v1/completions", {
            "model": MODEL_ID, "prompt": "Once", "max_tokens": 1})
        assert status in (502, 503, 504)
        return status == 503 and b"try again" in body
    until(refused)


class Fake(http.server.BaseHTTPRequestHandler):
    """A replica that is ready, and refuses one path."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        is_full = self.path.startswith("/slots")
        self.send_response(503 if is_full else 200)
        self.send_header("Content-Length", "4" if is_full else "0")
        self.end_headers()
        self.wfile.write(b"full" if is_full else b"")

    def log_message(self, *_):
        pass


class Chunks(Fake):
    """Streams four chunks, each once the client has the one before."""

    received = threading.Event()
    waits = []

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(4):
            self.received.clear()
            self.wfile.write(b"6\r\ndata\n\n\r\n")
            begun = time.monotonic()
            self.received.wait(10)
            self.waits.append(time.monotonic() - begun)
        self.wfile.write(b"0\r\n\r\n")


@contextlib.contextmanager
def silence():
    """The port of a replica whose machine takes no connection and refuses none:
    the kernel drops what comes while the queue of a listener is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@contextlib.contextmanager
def fakes(kind, folder, handler, silent=0):
    """A proxy in front of three such replicas, the last `silent` of them silent."""
    if not found(kind):
        pytest.skip(f"{kind} is not installed")
    with contextlib.ExitStack() as stack:
        fleet = Fleet(kind, folder)
        stack.callback(fleet.__exit__)
        fleet.ports = []
        for _ in range(3 - silent):
            upstream = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
            stack.callback(upstream.server_close)
            threading.Thread(target=upstream.serve_forever, daemon=True).start()
            stack.callback(upstream.shutdown)
            fleet.ports.append(upstream.server_port)
        for _ in range(silent):
            fleet.ports.append(stack.enter_context(silence()))
        fleet.start_proxy()
        yield fleet


@pytest.mark.parametrize("kind", PROXIES)
def test_one_clients_503_takes_no_replica_from_others(kind, tmp_path):
    with fakes(kind, tmp_path, Fake) as fleet:
        for headers in ({}, {"X-Affinity-Key": "a"}):
            for _ in range(4):  # each is asked of all three replicas
                status, _, body = fleet.request(
                    "GET", "/slots?fail_on_no_slot=1", headers=headers)
                assert (status, body) == (503, b"full")
            answers = [fleet.request("GET", "/v1/models", headers=headers)
                       for _ in range(6)]
            assert [status for status, _, _ in answers] == [200] * 6
            if not headers:
                assert len({replica for _, replica, _ in answers}) == 3


@pytest.mark.parametrize("kind", PROXIES)
def test_a_silent_replica_costs_time_and_no_request(kind, tmp_path):
    with fakes(kind, tmp_path, Fake, silent=1) as fleet:
        for headers in [{}] * 6 + [{"X-Affinity-Key": f"key {i}"}
                                   for i in range(8)]:
            begun = time.monotonic()
            status, replica, _ = fleet.request("GET", "/v1/models",
                                               headers=headers)
            assert status == 200 and replica in (0, 1), headers
            # Both proxies wait for a connection for 2 s.
            assert time.monotonic() - begun < 10


@pytest.mark.parametrize("kind", PROXIES)
def test_a_token_is_passed_on_as_it_comes(kind, tmp_path):
    """A proxy may keep a chunk for the next one: HAProxy tells the kernel that
    more follows, which then waits 200 ms."""
    Chunks.waits.clear()
    with fakes(kind, tmp_path, Chunks) as fleet:
        for _ in range(3):
            link = http.client.HTTPConnection("127.0.0.1", fleet.port,
                                              timeout=20)
            link.request("POST", "/v1/completions", "{}")
            answer = link.getresponse()
            while answer.read(6):
                Chunks.received.set()
            link.close()
    assert len(Chunks.waits) == 12
    # Held chunks all wait for 200 ms; a busy machine delays some.
    assert min(Chunks.waits) < 0.1, Chunks.waits

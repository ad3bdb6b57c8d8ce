"""Sessions over WebSocket: what is refused, cut off and bounded, by the client
`websockets` and by bare sockets."""
import json
import pathlib
import signal
import socket
import ssl
import struct
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from certificates import Authority
from conftest import Server, start
from replicas import PROXIES, Fleet, found
from session_client import (ask, close_of, frame, live, number, put_sum,
                            raw_session, session, sum_of, url, wait_for)
from test_external import TWICE, external, python  # noqa: F401 (a fixture)
from test_keys import create
from test_sequences import YAML


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    put_sum(root, config=YAML.replace("max_candidate_sequences: 1000",
                                      "max_candidate_sequences: 2000"))
    return root


@pytest.fixture(scope="module")
def server(repository):
    with start("--model-repository", repository, "--session-max-message-size",
               "64KiB", "--max-sessions", "1100") as running:
        yield running


@pytest.mark.parametrize("bytes_, code", [
    (frame(1, b"\xff\xfe"), 1007),                  # no UTF-8
    (frame(2, b"x" * 70000), 1009),                 # too long
    (frame(2, length=1 << 40), 1009),               # and it only says so
    (frame(1, b"{}", masked=False), 1002),          # clients mask
    (frame(3, b"?"), 1002),                         # no such opcode
    (frame(0, b"?"), 1002),                         # continues nothing
    (frame(9, b"x" * 126), 1002),                   # a ping of 126 bytes
    (frame(9, b"x", final=False), 1002),            # a ping in pieces
    (b"\xf1" + frame(1, b"{}")[1:], 1002),          # reserved bits
    (b"\xff" * 2000, 1002),
])
def test_frames_that_break_the_protocol(server, bytes_, code):
    said = {1002: "RFC 6455", 1007: "UTF-8", 1009: "session_max_message_size"}
    with raw_session(server) as opened, session(server) as other:
        opened.sendall(frame(1, json.dumps(number(5)).encode()))
        opened.sendall(bytes_)
        closed, reason = close_of(opened)
        assert closed == code and said[code] in reason
        assert sum_of(ask(other, number(2))) == 2  # unharmed
    wait_for(lambda: live(server) == 0)


def test_a_message_in_pieces_with_pings_between(server):
    text = json.dumps(number(5)).encode()
    with raw_session(server) as opened:
        for i, byte in enumerate(text):
            opened.sendall(frame(1 if i == 0 else 0, bytes([byte]),
                                 final=i == len(text) - 1))
            if i == 7:
                opened.sendall(frame(9, b"alive"))
        got = b""
        while b"OUTPUT" not in got:
            got += opened.recv(4096)
        assert b"\x8a\x05alive" in got  # the pong


def status_of(server, path, headers):
    request = urllib.request.Request(server.url + path, headers=headers)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=30)
    return caught.value.code, json.loads(caught.value.read())["error"]


def test_requests_that_are_no_upgrade(server):
    path = "/v2/models/sum/sessions"
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade",
               "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x" * 22 + "=="}
    code, error = status_of(server, path, {})
    assert code == 426 and "WebSocket" in error
    for change in ({"Sec-WebSocket-Version": "8"}, {"Upgrade": "h2c"}):
        assert status_of(server, path, {**upgrade, **change})[0] == 426
    with pytest.raises(InvalidStatus) as caught:
        connect(url(server, "none"))
    assert caught.value.response.status_code == 404
    with pytest.raises(InvalidStatus) as caught:
        connect(url(server), origin="https://evil.example")
    assert caught.value.response.status_code == 403
    assert b"cors_allow_origin" in caught.value.response.body
    with connect(url(server), origin=server.url) as opened:  # a page of ours
        assert sum_of(ask(opened, number(2))) == 2
    # The upgrade in the middle of a kept connection, and bytes behind it.
    head = "".join(f"{k}: {v}\r\n" for k, v in upgrade.items())
    with socket.create_connection(("127.0.0.1", server.http_port)) as opened:
        opened.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" in opened.recv(4096)
        opened.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode()
                       + frame(1, json.dumps(number(6)).encode()))
        got = b""
        while b"OUTPUT" not in got:
            got += opened.recv(4096)
        assert got.startswith(b"HTTP/1.1 101")
        assert b"Server: millrace" in got and b"X-Request-Id: " in got


def test_a_client_that_vanishes_ends_its_sequence(server):
    before = server.metric("millrace_sequences_expired_total")
    opened = raw_session(server)
    opened.sendall(frame(1, json.dumps(number(5)).encode()))
    wait_for(lambda: live(server) == 1)
    # A reset, without a word.
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                      struct.pack("ii", 1, 0))
    opened.close()
    wait_for(lambda: live(server) == 0)
    assert server.metric("millrace_sequences_expired_total") == before
    # One that closes as it should, and one that only stops sending.
    with session(server) as polite:
        ask(polite, number(1))
    opened = raw_session(server)
    opened.sendall(frame(1, json.dumps(number(5)).encode()))
    wait_for(lambda: live(server) == 1)
    opened.shutdown(socket.SHUT_WR)
    wait_for(lambda: live(server) == 0)
    opened.close()
    wait_for(lambda: server.metric("millrace_sessions")[""] == 0)


def rss_kib(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def test_a_thousand_idle_sessions_are_cheap(server):
    wait_for(lambda: server.metric("millrace_sessions")[""] == 0)
    text = frame(1, json.dumps(number(1)).encode())

    def spoken():
        """One that has its sequence and waits for more to say."""
        one = raw_session(server)
        one.sendall(text)
        got = b""
        while b"}]}" not in got:
            got += one.recv(4096)
        return one

    opened = [spoken() for _ in range(20)]
    before = rss_kib(server)
    opened += [spoken() for _ in range(1000)]
    each = (rss_kib(server) - before) / 1000
    print(f"{each:.1f} KiB for a session that waits")
    assert each < 50
    assert server.metric("millrace_sessions")[""] == live(server) == 1020
    for one in opened:
        one.close()
    wait_for(lambda: server.metric("millrace_sessions")[""] == 0)


def test_so_many_sessions_and_no_more(repository):
    with start("--model-repository", repository, "--max-sessions",
               "3") as server:
        opened = [raw_session(server) for _ in range(3)]
        with pytest.raises(InvalidStatus) as caught:
            connect(url(server))
        response = caught.value.response
        assert response.status_code == 503 and "Retry-After" in response.headers
        assert b"3 sessions" in response.body and b"max_sessions" in response.body
        for each in opened:
            each.close()
        wait_for(lambda: server.metric("millrace_sessions")[""] == 0)
        assert server.metric("millrace_sessions_refused_total")[""] == 1
        with session(server) as again:
            assert sum_of(ask(again, number(1))) == 1


def test_pings_find_a_client_that_is_gone(repository):
    with start("--model-repository", repository, "--session-ping-interval",
               "600ms") as server:
        deaf = raw_session(server)
        deaf.sendall(frame(1, json.dumps(number(5)).encode()))
        with session(server) as opened:
            assert sum_of(ask(opened, number(1))) == 1
            wait_for(lambda: live(server) == 1)  # the deaf one has ended
            data = b""
            while got := deaf.recv(4096):  # its socket is closed, too
                data += got
            assert b"\x89\x00" in data  # the ping
            time.sleep(2)  # the library answers pings by itself
            assert sum_of(ask(opened, number(2))) == 3
        deaf.close()


def test_an_upgrade_that_does_not_wait(python, tmp_path):  # noqa: F811
    """For the response to the request ahead of it, half a second of work."""
    external(tmp_path, "slow", TWICE)
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32",
                                   "shape": [1], "data": [-7]}]})
    with start("--model-repository", tmp_path, env=python) as server, \
            socket.create_connection(("127.0.0.1", server.http_port)) as opened:
        opened.sendall(
            "POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
            "GET /v2/models/slow/sessions HTTP/1.1\r\nHost: x\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {'x' * 22}==\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode())
        got = b""
        while more := opened.recv(4096):
            got += more
        assert got.startswith(b"HTTP/1.1 200") and b"HTTP/1.1 400" in got
        assert b"before the response" in got


def test_a_stop_waits_for_no_session(repository, python, tmp_path):  # noqa: F811
    """A model that hangs and a client that does not answer the closing: at the
    end of shutdown_timeout both are cut off."""
    external(tmp_path, "hangs", TWICE)
    with start("--model-repository", tmp_path, "--shutdown-timeout", "1s",
               env=python) as server:
        deaf = [raw_session(server, "hangs") for _ in range(20)]
        opened = raw_session(server, "hangs")
        for value in (-2, 1):  # the second one waits behind the first
            opened.sendall(frame(2, struct.pack("<f", value)))
        with session(server, "hangs") as other:
            other.send(np.float32([1.0, 2]).tobytes())
            time.sleep(0.3)
            begun = time.monotonic()
            assert server.stop(timeout=15) == 0
            assert time.monotonic() - begun < 8
        for each in (*deaf, opened):
            each.close()


def test_idle_sessions_and_a_server_that_stops(repository):
    with start("--model-repository", repository,
               "--session-idle-timeout", "1200ms") as server:
        with session(server) as opened:
            for _ in range(4):  # messages keep it
                time.sleep(0.4)
                ask(opened, number(1))
            with pytest.raises(ConnectionClosed) as closed:
                opened.recv(timeout=10)
            assert closed.value.rcvd.code == 1001
            assert closed.value.rcvd.reason == "no message for 1200 ms"
        wait_for(lambda: live(server) == 0)
        with session(server) as opened:
            ask(opened, number(1))
            server.process.send_signal(signal.SIGTERM)
            with pytest.raises(ConnectionClosed) as closed:
                opened.recv(timeout=10)
            assert closed.value.rcvd.code == 1001
        assert server.process.wait(20) == 0


def test_over_tls(repository, tmp_path):
    authority = Authority(tmp_path / "tls")
    certificate, key = authority.sign("server")
    with start("--model-repository", repository, "--ssl-cert-file", certificate,
               "--ssl-key-file", key) as server:
        address = f"wss://localhost:{server.http_port}/v2/models/sum/sessions"
        context = ssl.create_default_context(cafile=authority.file)
        with connect(address, ssl=context) as opened:  # offers compression
            assert sum_of(ask(opened, number(3))) == 3
            assert sum_of(ask(opened, struct.pack("<i", 4))) == 7


def test_each_message_counts_for_its_tenant(repository, tmp_path):
    """A session that waits takes none of the tenant's places."""
    entries, keys = "", {}
    for name in ("narrow", "thrifty", "elsewhere", "manager"):
        flags = (("--scopes", "manage") if name == "manager"
                 else ("--tenant", name))
        keys[name], entry = create("--id", name, *flags)
        entries += entry
    path = tmp_path / "keys.yaml"
    path.write_text("tenants:\n"
                    "  narrow: {max_concurrent_requests: 1, max_sessions: 2}\n"
                    "  thrifty: {requests_per_second: 0.01, request_burst: 2}\n"
                    "  elsewhere: {models: [other]}\n"
                    "keys:\n" + entries)

    def headers(name):
        return {"Authorization": f"Bearer {keys[name]}"}

    with start("--model-repository", repository, "--api-keys-file",
               path) as server:
        for refused, status in ((None, 401), (headers("manager"), 403),
                                (headers("elsewhere"), 403)):
            with pytest.raises(InvalidStatus) as caught:
                connect(url(server), additional_headers=refused)
            assert caught.value.response.status_code == status
        narrow = headers("narrow")
        with session(server, additional_headers=narrow) as one, \
                session(server, additional_headers=narrow) as two:
            assert sum_of(ask(one, number(1))) == 1
            assert sum_of(ask(two, number(2))) == 2
            assert sum_of(ask(one, number(3))) == 4
            with pytest.raises(InvalidStatus) as caught:
                connect(url(server), additional_headers=narrow)
            assert caught.value.response.status_code == 429
            assert b"'narrow' has 2 sessions" in caught.value.response.body
        with session(server, additional_headers=narrow) as one:
            assert sum_of(ask(one, number(1))) == 1
        with session(server, additional_headers=headers("thrifty")) as one:
            assert sum_of(ask(one, number(1))) == 1  # the upgrade was another
            assert "thrifty" in ask(one, number(1))["error"]
        with session(server, additional_headers=narrow) as one:
            path.write_text("keys: []\n")  # no key is valid now
            time.sleep(2.5)
            assert "key" in ask(one, number(1))["error"]
            with pytest.raises(ConnectionClosed) as closed:
                one.recv(timeout=10)
            assert closed.value.rcvd.code == 1008


def test_a_browser_sends_its_key_as_a_subprotocol(repository):
    """The key is offered beside the subprotocol that the server chooses; a
    browser gives up where none is chosen."""
    offered = ["millrace.session", "openai-insecure-api-key.sk-~right"]
    with start("--model-repository", repository, "--api-key",
               "sk-~right") as server:
        for protocols in (offered, offered[::-1], offered[1:]):
            with session(server, subprotocols=protocols) as opened:
                assert sum_of(ask(opened, number(3))) == 3
                assert opened.subprotocol == (
                    "millrace.session" if len(protocols) == 2 else None)
                # The key is never what the response names.
                assert "right" not in str(opened.response.headers)
        for protocols in (["millrace.session"],
                          ["millrace.session", "openai-insecure-api-key."],
                          ["millrace.session",
                           "openai-insecure-api-key.sk-wrong"],
                          ["sk-~right"]):
            with pytest.raises(InvalidStatus) as caught:
                connect(url(server), subprotocols=protocols)
            assert caught.value.response.status_code == 401
        # Of headers, a key in one of its own comes first.
        with pytest.raises(InvalidStatus) as caught:
            connect(url(server), subprotocols=offered,
                    additional_headers={"Authorization": "Bearer sk-wrong"})
        assert caught.value.response.status_code == 401
        # Of sessions alone: other routes take keys in headers.
        code, _ = status_of(server, "/v1/models", {
            "Sec-WebSocket-Protocol": ", ".join(offered)})
        assert code == 401
        # No log line has it.
        assert not [line for line in server.lines if "right" in line]


def test_lists_of_subprotocols_with_odd_commas(server):
    for offered, chosen in ((", ,millrace.session,,", True), (",", False),
                            ("x" * 4000, False), ("millrace.sessions", False)):
        with raw_session(server, headers=(
                f"Sec-WebSocket-Protocol: {offered}\r\n")) as opened:
            assert (b"Sec-WebSocket-Protocol: millrace.session" in
                    opened.head) == chosen
            opened.sendall(frame(1, json.dumps(number(5)).encode()))
            got = b""
            while b"OUTPUT" not in got:
                more = opened.recv(4096)
                assert more, got
                got += more


@pytest.mark.parametrize("kind", PROXIES)
def test_behind_a_proxy(repository, tmp_path, kind):
    """With the configurations of deploy/proxy: sessions pass, and those of a
    replica that drains are told so."""
    if not found(kind):
        pytest.skip(f"{kind} is not installed")

    class Replicas(Fleet):
        def start_server(self, i):
            self.servers[i] = Server(
                "--http-port", self.ports[i], "--grpc-port", -1,
                "--model-repository", repository)

    with Replicas(kind, tmp_path) as fleet:
        address = f"ws://127.0.0.1:{fleet.port}/v2/models/sum/sessions"
        with connect(address) as one, connect(address) as two:
            for i in (1, 2, 3):
                assert sum_of(ask(one, number(1))) == i
                assert sum_of(ask(two, number(10))) == 10 * i
            for server in fleet.servers:
                server.process.send_signal(signal.SIGTERM)
            for opened in (one, two):
                with pytest.raises(ConnectionClosed) as closed:
                    opened.recv(timeout=10)
                assert closed.value.rcvd.code == 1001

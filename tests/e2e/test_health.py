"""`millrace health`: the exit code that containers and supervisors act on."""
import http.server
import os
import signal
import socket
import subprocess
import threading
import time

from conftest import BINARY, start
from test_process import stream


def health(*flags, env=None):
    """Exit code and what stands on stderr."""
    done = subprocess.run([BINARY, "health", *map(str, flags)],
                          capture_output=True, text=True, timeout=30,
                          env={**os.environ, **(env or {})})
    assert done.returncode == 0 or done.stderr.count("\n") == 1, done.stderr
    return done.returncode, done.stderr


def test_a_ready_server(server):
    assert health("--url", server.url) == (0, "")
    assert health("--port", server.http_port) == (0, "")
    assert health("--host", "localhost", "--port", server.http_port)[0] == 0
    assert health(env={"MILLRACE_HTTP_PORT": str(server.http_port)})[0] == 0


def test_an_empty_variable_is_not_set():
    code, sentence = health(env={"MILLRACE_HTTP_PORT": "",
                                 "MILLRACE_SSL_CERT_FILE": ""})
    # Another server of this machine may listen on port 8000: then it is healthy.
    assert code in (0, 1) and (not sentence or "127.0.0.1:8000" in sentence)


def test_nobody_listens():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        code, sentence = health("--port", port)
    assert code == 1 and f"127.0.0.1:{port}" in sentence


def test_a_listener_that_never_answers():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        begun = time.monotonic()
        code, sentence = health("--port", silent.getsockname()[1],
                                "--timeout-ms", 300)
    assert code == 1 and "300 ms" in sentence
    assert time.monotonic() - begun < 5


def test_a_server_that_is_not_ready():
    class Loading(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(503 if self.path == "/health" else 404)
            self.end_headers()
            self.wfile.write(b'{"status":"loading"}\n\x1b[2J\xc2\x9b2J')

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Loading) as fake:
        threading.Thread(target=fake.handle_request).start()
        code, sentence = health("--port", fake.server_port)
    assert code == 1 and "503" in sentence and "loading" in sentence
    assert not {"\x1b", "\x9b"} & set(sentence)  # a terminal would obey them


def test_a_draining_server():
    with start() as server:
        lines = []
        thread = threading.Thread(target=stream, args=(server, 400, lines))
        thread.start()
        while len(lines) < 6:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        server.wait_event("draining")
        code, sentence = health("--url", server.url)
        assert code == 1 and str(server.http_port) in sentence
        thread.join(60)


def test_wrong_command_lines():
    assert health("--port", "99999")[0] == 2
    assert health("--url", "http://127.0.0.1:1", "--port", "2")[0] == 2
    assert health("--timeout-ms", "0")[0] == 2
    assert health("--prot", "1")[0] == 2

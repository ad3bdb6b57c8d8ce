"""What a new user meets in the first hour, the server's half: it listens before
it loads, says what it does, and names what is wrong."""
import concurrent.futures
import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import grpc
import pytest
import tritonclient.grpc as triton_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.utils import InferenceServerException

from conftest import BINARY, MODEL, MODEL_ID, REPO, start

CHAT = {"model": MODEL_ID, "max_tokens": 4,
        "messages": [{"role": "user", "content": "Hi"}]}


def ask(server, path, body=None, method=None, headers=None):
    """Status, headers and body, whatever the status."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    request = urllib.request.Request(
        server.url + path, body, method=method,
        headers=headers if headers is not None
        else {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def events(server):
    return [json.loads(line) for line in server.lines]


# ---- listen first, load behind ----


class SlowLoad:
    """A load that stands still until `go`: the chat template is read from a pipe
    that nobody writes to."""

    def __init__(self, folder):
        self.pipe = folder / "template"
        os.mkfifo(self.pipe)
        self.flags = ["--chat-template", self.pipe]

    def go(self):
        self.pipe.write_text("{{ messages[0].content }}")


@pytest.fixture
def slow(tmp_path):
    return SlowLoad(tmp_path)


def test_a_server_listens_while_it_loads(slow):
    with start(*slow.flags, until="listening") as server:
        server.wait_event("still loading model")
        for path in ("/health", "/health/ready", "/v2/health/ready"):
            status, headers, body = ask(server, path)
            assert status == 503 and int(headers["Retry-After"]) >= 1, path
            told = json.loads(body)
            assert told["status"] == "loading"
            assert told["models_expected"] == 1 and told["models_ready"] == 0
            assert told["loading"]["model"] == MODEL_ID
            assert told["loading"]["seconds"] > 0.9
        assert ask(server, "/health/live")[0] == 200
        assert ask(server, "/v2/health/live")[0] == 200
        assert ask(server, f"/v2/models/{MODEL_ID}/ready")[0] == 503
        status, headers, body = ask(server, "/v1/chat/completions", CHAT)
        assert status == 503 and int(headers["Retry-After"]) >= 1
        error = json.loads(body)["error"]
        assert error["code"] == "loading" and MODEL_ID in error["message"]
        address = f"127.0.0.1:{server.grpc_port}"
        with grpc.insecure_channel(address) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            request = health_pb2.HealthCheckRequest()
            assert (check(request).status
                    == health_pb2.HealthCheckResponse.NOT_SERVING)
            with triton_grpc.InferenceServerClient(address) as client:
                assert client.is_server_live()
                assert not client.is_server_ready()
                assert not client.is_model_ready(MODEL_ID)
                with pytest.raises(InferenceServerException,
                                   match="is not served yet"):
                    client.infer(MODEL_ID, [])
            slow.go()
            server.wait_event("ready")
            assert (check(request).status
                    == health_pb2.HealthCheckResponse.SERVING)
        assert ask(server, "/health")[0] == 200
        assert ask(server, "/v1/chat/completions", CHAT)[0] == 200


def test_each_load_is_logged_from_begin_to_end(slow):
    with start(*slow.flags, until="listening") as server:
        server.wait_event("still loading model")
        slow.go()
        server.wait_event("ready")
        told = {event["event"]: event for event in events(server)}
    names = [event["event"] for event in events(server)]
    order = ["listening", "loading model", "still loading model",
             "model ready", "ready"]
    assert sorted(order, key=names.index) == order
    assert told["loading model"]["path"] == str(MODEL)
    assert told["still loading model"]["model"] == MODEL_ID
    assert told["model ready"]["seconds"] >= 1
    assert told["model ready"]["memory_mib"] > 50
    assert told["model ready"]["resident_mib"] > 50


def test_sigterm_while_loading_ends_promptly(slow):
    with start(*slow.flags, until="listening") as server:
        server.wait_event("loading model")
        begun = time.monotonic()
        assert server.stop(timeout=10) == 0
        assert time.monotonic() - begun < 5


def test_a_busy_port_costs_no_load():
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        for flag in ("--http-port", "--grpc-port"):
            ports = {"--http-port": 0, "--grpc-port": 0,
                     flag: busy.getsockname()[1]}
            done = subprocess.run(
                [BINARY, "serve",
                 *(str(word) for pair in ports.items() for word in pair)],
                capture_output=True, text=True, timeout=30)
            assert done.returncode == 1
            assert f"cannot listen on 127.0.0.1:{ports[flag]}" in done.stderr
            for event in ("loading model", "model loaded", "model ready"):
                assert event not in done.stderr


def test_a_load_that_fails_ends_the_process(tmp_path):
    corrupt = tmp_path / "corrupt.gguf"
    corrupt.write_bytes(b"GGUF, but no model at all behind that word")
    done = subprocess.run(
        [BINARY, "serve", "--http-port", "0", "--grpc-port", "0", corrupt],
        capture_output=True, text=True, timeout=30)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("millrace serve: ") and last.count(str(corrupt)) == 1


def test_a_path_that_is_no_model_is_refused_before_anything_starts(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    (tmp_path / "folder").mkdir()
    script = tmp_path / "model.pt"
    script.write_text("a pickle")
    for model, code, words in (
            (script, 1,
             "TorchScript and pickles are not read; torch.export.save"),
            (text, 1, f"'{text}' is no model that millrace knows; a model is "),
            (tmp_path / "none.gguf", 1, "there is no file or folder '"),
            (tmp_path / "folder", 1, "has no config.json; a model is "),
            ("chat=", 2, "model 'chat' has no path; say chat=PATH")):
        done = subprocess.run(
            [BINARY, "serve", MODEL, model, "--http-port", "0",
             "--grpc-port", "0"], capture_output=True, text=True, timeout=30)
        assert done.returncode == code and words in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


@contextlib.contextmanager
def on_a_terminal(*flags, term="xterm"):
    """A server whose stderr is a terminal; gives what it writes there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [BINARY, "serve", "--http-port", "0", "--grpc-port", "0",
         *map(str, flags)], stderr=theirs, env={**os.environ, "TERM": term})
    os.close(theirs)
    try:
        yield lambda: os.read(ours, 1 << 16).decode(), process
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_terminal_shows_a_bar(slow):
    with on_a_terminal(*slow.flags) as (read, process):
        text = ""
        while text.count("\r\x1b[Kloading") < 2:
            text += read()
        assert f"loading {MODEL_ID} 0.0 s" in text
        slow.go()
        while " ready " not in text:
            text += read()
        assert f"loading {MODEL_ID} [" in text and "] 100%" in text
        assert "still loading" not in text
        # The bar is gone when the line of the end is written.
        ready = next(line for line in text.split("\n") if " ready " in line)
        assert "[#" not in ready.split("\x1b[K")[-1]
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def test_a_dumb_terminal_has_lines_and_no_bar(slow):
    with on_a_terminal(*slow.flags, term="dumb") as (read, process):
        text = ""
        while "still loading model" not in text:
            text += read()
            assert "\x1b" not in text
        slow.go()
        while " ready " not in text:
            text += read()
        assert "\x1b" not in text
        process.send_signal(signal.SIGTERM)
        process.wait(10)


# ---- what is served ----


def test_openapi_is_valid(server):
    """By the validator from PyPI, which is no part of requirements.txt: a unit
    test checks the references of the same text."""
    validator = pytest.importorskip("openapi_spec_validator")
    description = json.loads(server.get("/openapi.json"))
    assert description["openapi"].startswith("3.1")
    validator.validate(description)


def test_the_front_page_is_for_people(server):
    text = server.get("/").decode()
    assert MODEL_ID in text and "/v1/chat/completions" in text
    _, headers, html = ask(server, "/", headers={"Accept": "text/html"})
    assert headers["Content-Type"].startswith("text/html")
    assert MODEL_ID in html.decode()


@pytest.mark.parametrize("path, remedy", [
    ("/v1/chat/completion", "POST /v1/chat/completions"),
    ("/chat/completion", "POST /chat/completions"),
    ("/v1/audio/speech", "POST /v1/audio/transcriptions is offered"),
    ("/nonsense", "/openapi.json"),
])
def test_a_path_that_is_not_there_names_what_is(server, path, remedy):
    status, _, body = ask(server, path, {})
    assert status == 404
    message = json.loads(body)["error"]["message"]
    assert remedy in message and "/openapi.json" in message


# ---- the log says why ----


def line_of(server, **fields):
    """The access log's line that has these values."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        for event in events(server):
            if event["event"] == "request" and fields.items() <= event.items():
                return event
        time.sleep(0.02)
    raise AssertionError(f"no line with {fields}: " + "".join(server.lines))


def test_a_refused_requests_line_says_why(server):
    ask(server, "/v1/chat/completions", {**CHAT, "temperature": 9},
        headers={"X-Request-Id": "too-hot", "Content-Type": "application/json"})
    line = line_of(server, id="too-hot")
    assert line["status"] == 400 and line["outcome"] == "client_error"
    assert line["error_kind"] == "INVALID_ARGUMENT"
    assert line["error_field"] == "temperature"
    assert "temperature is 9" in line["error"]
    assert not {"prompt_tokens", "completion_tokens", "ttft_s"} & set(line)
    ask(server, "/v1/models", headers={"X-Request-Id": "fine"})
    assert not {"error", "error_kind", "error_field", "model"} & set(
        line_of(server, id="fine"))


def test_grpc_lines_say_why(server):
    address = f"127.0.0.1:{server.grpc_port}"
    with triton_grpc.InferenceServerClient(address) as client:
        with pytest.raises(InferenceServerException):
            client.infer("nobody", [], headers={"x-request-id": "no-model"})
        with pytest.raises(InferenceServerException):
            client.get_model_metadata("nobody-else")
    line = line_of(server, id="no-model")
    assert line["error_kind"] == "model_not_found"
    assert "'nobody' does not exist" in line["error"]
    assert not {"prompt_tokens", "completion_tokens", "ttft_s"} & set(line)
    line = line_of(server, path="grpc/ModelMetadata")
    assert "'nobody-else' does not exist" in line["error"]


# ---- what is not offered says so ----


def test_unknown_grpc_methods_say_what_to_use(server):
    address = f"127.0.0.1:{server.grpc_port}"
    with grpc.insecure_channel(address) as channel:
        for method, words in [
                ("/org.pytorch.serve.grpc.inference/Predictions", "ModelInfer"),
                ("/inference.GRPCInferenceService/Nothing", "reflection")]:
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(method)(b"")
            assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
            assert f"there is no method '{method}'" in refused.value.details()
            assert words in refused.value.details()


def test_a_route_a_model_does_not_have_is_no_model(server):
    status, _, body = ask(server, f"/v2/models/{MODEL_ID}/config")
    assert status == 200 and json.loads(body)["name"] == MODEL_ID
    status, _, body = ask(server, f"/v2/models/{MODEL_ID}/metrics")
    error = json.loads(body)["error"]
    assert status == 404
    assert f"the model '{MODEL_ID}' has nothing at '/metrics'" in error


@pytest.mark.parametrize("method, path, allow", [
    ("GET", "/v1/chat/completions", "POST"),
    ("GET", f"/v2/models/{MODEL_ID}/infer", "POST"),
    ("DELETE", f"/v1/models/{MODEL_ID}", "GET"),
    ("PUT", "/metrics", "GET"),
    ("POST", f"/v2/models/{MODEL_ID}/config", "GET"),
])
def test_a_wrong_method_names_the_right_one(server, method, path, allow):
    status, headers, body = ask(server, path, method=method)
    assert status == 405 and allow in headers["Allow"].split(", ")
    assert allow in body.decode()


def test_a_server_of_graphs_says_that_it_generates_no_text():
    with start(REPO / "tests/data/graph/mlp.onnx") as server:
        status, _, body = ask(server, "/v1/chat/completions",
                              {"messages": CHAT["messages"]})
        assert status == 404
        assert ("this server has no model that generates text"
                in json.loads(body)["error"]["message"])


def test_curl_needs_no_content_type(server):
    done = subprocess.run(
        ["curl", "-s", server.url + "/v1/chat/completions", "-d",
         json.dumps(CHAT)], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["choices"][0]["message"]["content"]


# ---- memory ----


def refusal(*flags):
    """The last line of a server that cannot start."""
    done = subprocess.run(
        [BINARY, "serve", "--http-port", "0", "--grpc-port", "0",
         *map(str, flags)], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    return done.stderr.splitlines()[-1]


def test_too_little_memory_names_the_setting_and_the_path_once():
    line = refusal("--kv-cache-memory-bytes", "2MiB", "--max-model-len", 4096,
                   MODEL)
    assert "2.0 MiB (--kv-cache-memory-bytes)" in line
    assert "lower --max-model-len or raise --kv-cache-memory-bytes to" in line
    assert line.count(str(MODEL)) == 1
    # What the sentence says helps.
    size = line.rsplit(" ", 1)[1]
    with start("--kv-cache-memory-bytes", size, "--max-model-len", 4096):
        pass
    line = refusal("--kv-cache-memory-bytes", "8TiB", "--max-num-seqs", 512,
                   "--kv-cache-dtype", "f32", MODEL)
    assert "GiB" in line and "lower --kv-cache-memory-bytes to" in line
    assert line.count(str(MODEL)) == 1


def test_the_size_of_the_kv_cache_is_told_at_start(server):
    told = next(event for event in events(server)
                if event["event"] == "KV cache sized")
    assert told["model"] == MODEL_ID and told["at_most"].endswith("iB")
    assert told["tokens"] >= 8192 and told["sequences_of_full_length"] >= 1
    assert "memory limit" in told["bound_by"]
    assert told["setting"] == "--kv-cache-memory-bytes"
    with start("--max-model-len", 128, "--max-num-seqs", 2) as small:
        told = next(event for event in events(small)
                    if event["event"] == "KV cache sized")
    assert told["tokens"] == 256
    assert told["bound_by"] == "max_num_seqs sequences of full length"


# ---- right figures ----


def test_limits_name_settings_that_exist():
    with start("--http-max-input-size", "1KiB", "--http-max-header-size",
               "1KiB") as server:
        _, _, body = ask(server, "/v1/chat/completions", b" " * 2000)
        assert "raise http_max_input_size" in json.loads(body)["error"]["message"]
        _, _, body = ask(server, "/", headers={"X-Long": "x" * 2000})
        assert ("raise http_max_header_size"
                in json.loads(body)["error"]["message"])


def test_probes_may_be_left_out_of_the_log():
    with start("--disable-access-log-for-endpoints",
               "/metrics,/health") as server:
        for path in ("/metrics", "/health", "/version"):
            ask(server, path)
        line_of(server, path="/version")
        paths = {event.get("path") for event in events(server)}
        assert not paths & {"/metrics", "/health"}


@pytest.mark.parametrize("path, body, status", [
    ("/ping", None, 404), ("/models", None, 404),
    ("/predictions/m", {}, 404), ("/v1/models/m:predict", {}, 405)])
def test_routes_of_torchserve_name_its_profile(server, path, body, status):
    said, _, error = ask(server, path, body)
    assert said == status
    assert "--profile torchserve" in json.loads(error)["error"]["message"]


def test_metrics_hold_no_series_of_routes_that_nobody_asked():
    with start() as server:
        routes = set(server.metric("millrace_request_duration_seconds_count"))
        assert '{route="/v1/chat/completions"}' in routes
        assert '{route="/v1/models"}' not in routes
        ask(server, "/v1/models")
        routes = set(server.metric("millrace_request_duration_seconds_count"))
        assert '{route="/v1/models"}' in routes


def test_retry_after_is_right_after_single_requests():
    """A full queue of short requests behind slow single ones: what Retry-After
    promised is near what it took, not the rate of one request at a time."""
    with start("--max-num-seqs", 8, "--max-queue-size", 16) as server:
        long = {"model": MODEL_ID, "prompt": "Once", "max_tokens": 48,
                "ignore_eos": True}
        for _ in range(3):
            assert ask(server, "/v1/completions", long)[0] == 200
        begun = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            answers = list(pool.map(
                lambda _: (ask(server, "/v1/completions", long),
                           time.monotonic() - begun), range(40)))
        promised = [int(headers["Retry-After"])
                    for (status, headers, _), _ in answers if status == 429]
        took = max(seconds for (status, _, _), seconds in answers
                   if status == 200)
        assert promised
        assert max(promised) <= 4 * took + 1, (promised, took)

"""Bytes a client might send: the status and error object each of them gets."""
import http.client
import json
import shutil
import socket
import subprocess

import pytest

from conftest import MODEL_ID, start

CHAT = "/v1/chat/completions"
OK = {"model": MODEL_ID, "max_tokens": 2,
      "messages": [{"role": "user", "content": "Hi"}]}


def post(server, path, body, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port,
                                            timeout=30)
    if not isinstance(body, (bytes, str)):
        body = json.dumps(body)
    connection.request("POST", path, body,
                       {"Content-Type": "application/json", **(headers or {})})
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read()


@pytest.mark.parametrize("body, status, param", [
    ("{", 400, None),
    ("[]", 400, None),
    (b'{"model": "\xff"}', 400, None),
    ("[" * 100000, 400, None),
    ({"model": MODEL_ID}, 400, "messages"),
    ({**OK, "messages": []}, 400, "messages"),
    ({**OK, "messages": "hi"}, 400, "messages"),
    ({**OK, "messages": [{"content": "hi"}]}, 400, "messages[0].role"),
    ({**OK, "messages": [{"role": "user", "content": 3}]}, 400,
     "messages[0].content"),
    ({**OK, "temperature": "hot"}, 400, "temperature"),
    ({**OK, "temperature": -0.1}, 400, "temperature"),
    ({**OK, "top_p": 0}, 400, "top_p"),
    ({**OK, "max_tokens": 0}, 400, "max_tokens"),
    ({**OK, "max_tokens": 1.5}, 400, "max_tokens"),
    ({**OK, "max_tokens": 100000}, 400, "max_tokens"),
    ({**OK, "top_logprobs": 21, "logprobs": True}, 400, "top_logprobs"),
    ({**OK, "stop": ["x"] * 17}, 400, "stop"),
    ({**OK, "logit_bias": {"x": 1}}, 400, "logit_bias"),
    ({**OK, "logit_bias": {"99999999": 1}}, 400, "logit_bias"),
    ({**OK, "allowed_token_ids": []}, 400, "allowed_token_ids"),
    ({**OK, "allowed_token_ids": [99999999]}, 400, "allowed_token_ids"),
    ({**OK, "bad_words": [""]}, 400, "bad_words[0]"),
    ({**OK, "tools": [{"type": "web_search"}]}, 400, "tools[0].type"),
    ({**OK, "response_format": {"type": "xml"}}, 400,
     "response_format.type"),
    ({**OK, "stream": "yes"}, 400, "stream"),
    ({**OK, "model": "nobody"}, 404, "model"),
])
def test_bad_bodies(server, body, status, param):
    got, _, text = post(server, CHAT, body)
    error = json.loads(text)["error"]
    assert got == status, error
    assert error["message"] and error["type"]
    assert set(error) == {"message", "type", "param", "code"}
    if param is not None:
        assert error["param"] == param


def test_fields_without_effect_are_accepted(server):
    got, _, text = post(server, CHAT, {
        **OK, "user": "u", "store": False, "metadata": {"a": "b"},
        "service_tier": "auto", "temperature": None, "unheard_of": 1})
    assert got == 200, text


def test_media_type_method_and_path(server):
    assert post(server, CHAT, "x", {"Content-Type": "text/plain"})[0] == 415
    assert post(server, "/nowhere", OK)[0] == 404
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port)
    connection.request("GET", CHAT)
    answer = connection.getresponse()
    assert answer.status == 405 and "POST" in answer.getheader("Allow")
    assert json.loads(answer.read())["error"]["type"]


def test_request_id_is_echoed_or_made(server):
    _, headers, _ = post(server, CHAT, OK, {"X-Request-Id": "abc-1"})
    assert headers["X-Request-Id"] == "abc-1"
    _, headers, _ = post(server, CHAT, OK)
    assert headers["X-Request-Id"]


def test_size_limits():
    with start("--http-max-input-size", "1KiB") as small:
        status, _, text = post(small, CHAT, {**OK, "user": "x" * 2000})
        assert status == 413 and "1024" in json.loads(text)["error"]["message"]
        # Chunked, so that the length is only known by reading.
        raw = socket.create_connection(("127.0.0.1", small.http_port))
        raw.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: "
                    b"application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
                    % CHAT.encode())
        raw.sendall(b"800\r\n" + b"x" * 2048 + b"\r\n")
        assert b" 413 " in raw.recv(4096).split(b"\r\n")[0]
        raw = socket.create_connection(("127.0.0.1", small.http_port))
        raw.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX: "
                    + b"y" * 20000 + b"\r\n\r\n")
        assert b" 431 " in raw.recv(4096).split(b"\r\n")[0]


def test_deadline(server):
    status, _, text = post(
        server, CHAT, {**OK, "max_tokens": 4000, "ignore_eos": True},
        {"X-Request-Timeout-Ms": "200"})
    assert status == 504, text


def test_health_ready_version(server):
    assert json.loads(server.get("/health"))["status"] == "ok"
    assert json.loads(server.get("/v2/health/live"))["live"] is True
    assert json.loads(server.get("/v2/health/ready"))["ready"] is True
    assert json.loads(server.get("/version"))["version"]


def test_tokenize_detokenize_apply_template(server):
    _, _, text = post(server, "/tokenize",
                      {"content": "Hello world", "model": MODEL_ID})
    tokens = json.loads(text)["tokens"]
    _, _, text = post(server, "/detokenize",
                      {"tokens": tokens, "model": MODEL_ID})
    answer = json.loads(text)
    assert (answer.get("content") or answer.get("prompt")) == "Hello world"
    _, _, text = post(server, "/apply-template", OK)
    assert "<|im_start|>user\nHi<|im_end|>" in json.loads(text)["prompt"]


def test_metrics_pass_promtool(server):
    promtool = shutil.which("promtool")
    assert promtool, "promtool is missing; deploy/install_deps.sh installs it"
    post(server, CHAT, OK)
    text = server.get("/metrics")
    done = subprocess.run([promtool, "check", "metrics"], input=text,
                          capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    for name in ("requests_total", "time_to_first_token_seconds_bucket",
                 "inter_token_latency_seconds_bucket", "prompt_tokens_total",
                 "request_duration_seconds_bucket", "queue_time_seconds_bucket",
                 "generation_tokens_total", "requests_running",
                 "requests_waiting", "kv_pages", "preemptions_total",
                 "batch_size_bucket", "model_load_seconds", "build_info"):
        assert b"millrace_" + name.encode() in text, name


def test_curl_streams(server):
    done = subprocess.run(
        ["curl", "-sN", server.url + CHAT, "-H",
         "Content-Type: application/json", "-d",
         json.dumps({**OK, "stream": True})], capture_output=True, timeout=30)
    events = [e for e in done.stdout.decode().split("\n\n") if e]
    assert all(e.startswith("data: ") for e in events)
    assert events[-1] == "data: [DONE]"

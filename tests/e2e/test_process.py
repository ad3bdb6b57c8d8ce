"""The process: how it starts, refuses to start, drains and ends."""
import http.client
import json
import resource
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from conftest import BINARY, MODEL, MODEL_ID, start


def fails(*args, **kwargs):
    """One sentence on stderr, and the exit code."""
    done = subprocess.run([BINARY, "serve", *map(str, args)],
                          capture_output=True, text=True, timeout=60, **kwargs)
    assert done.returncode != 0
    sentences = [line for line in done.stderr.splitlines()
                 if line.startswith("millrace serve: ")]
    assert len(sentences) == 1, done.stderr
    return sentences[0]


def test_missing_file():
    assert "nowhere.gguf" in fails("nowhere.gguf")


def test_corrupt_and_truncated_files(tmp_path):
    corrupt = tmp_path / "corrupt.gguf"
    corrupt.write_bytes(b"not a model at all, but long enough to look at")
    assert "corrupt.gguf" in fails(corrupt)
    truncated = tmp_path / "truncated.gguf"
    with open(MODEL, "rb") as whole:
        truncated.write_bytes(whole.read(20_000_000))
    assert "truncated.gguf" in fails(truncated)
    empty = tmp_path / "empty.gguf"
    empty.touch()
    assert "empty.gguf" in fails(empty)


def test_busy_port():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert str(port) in fails("--http-port", port, "--grpc-port", 0)


def test_unknown_flag_names_the_nearest():
    assert "--http-port" in fails("--htp-port", 1)


def test_value_out_of_bounds():
    sentence = fails("--max-num-seqs", 0)
    assert "max_num_seqs" in sentence.replace("-", "_")


def test_public_host_needs_a_key():
    assert "api" in fails("--host", "0.0.0.0").lower()


def test_too_few_files():
    sentence = fails("--max-connections", 4000, preexec_fn=lambda:
                     resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))
    assert "256" in sentence and "4000" in sentence


def test_too_little_memory_for_the_cache():
    assert "--kv-cache-memory-bytes" in fails("--kv-cache-memory-bytes", "1KiB")


def lines_of(server, max_tokens):
    request = urllib.request.Request(
        server.url + "/v1/completions",
        json.dumps({"model": MODEL_ID, "prompt": "Once", "stream": True,
                    "max_tokens": max_tokens, "ignore_eos": True}).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        yield from answer


def stream(server, max_tokens, out):
    try:
        for line in lines_of(server, max_tokens):
            out.append(line)
    except (OSError, http.client.HTTPException):
        pass  # cut off: what came is in `out`


def test_sigterm_lets_streams_finish():
    with start("--shutdown-timeout", "30s") as server:
        lines = []
        thread = threading.Thread(target=stream, args=(server, 150, lines))
        thread.start()
        while len(lines) < 6:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        thread.join(60)
        assert lines[-2].strip() == b"data: [DONE]"
        assert server.process.wait(30) == 0


def test_readiness_goes_false_while_draining():
    with start() as server:
        lines = []
        thread = threading.Thread(target=stream, args=(server, 400, lines))
        thread.start()
        while len(lines) < 6:
            time.sleep(0.01)
        keep = socket.create_connection(("127.0.0.1", server.http_port))
        server.process.send_signal(signal.SIGTERM)
        server.wait_event("draining")
        keep.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = keep.recv(4096)
        assert b" 503 " in answer.split(b"\r\n")[0]
        with pytest.raises(urllib.error.HTTPError) as refused:
            list(lines_of(server, 4))
        assert refused.value.code == 503
        thread.join(60)
        assert server.process.wait(30) == 0


def test_second_signal_ends_at_once():
    with start() as server:
        lines = []
        thread = threading.Thread(target=stream, args=(server, 4000, lines))
        thread.start()
        while len(lines) < 6:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        server.wait_event("draining")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(5) == 128 + signal.SIGTERM
        thread.join(10)


def test_shutdown_timeout_cuts_off():
    with start("--shutdown-timeout", "500ms") as server:
        lines = []
        thread = threading.Thread(target=stream, args=(server, 8000, lines))
        thread.start()
        while len(lines) < 6:
            time.sleep(0.01)
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0
        assert time.monotonic() - begun < 10
        thread.join(10)
        assert any(b'"error"' in line for line in lines)


def test_print_config_tells_origins():
    done = subprocess.run(
        [BINARY, "serve", "--print-config", "--max-num-seqs", "7"],
        capture_output=True, text=True, timeout=30,
        env={"HOME": "/root", "MILLRACE_HTTP_PORT": "9001",
             "MILLRACE_API_KEY": "hidden"})
    assert done.returncode == 0, done.stderr
    lines = {line.split(":")[0].strip(): line
             for line in done.stdout.splitlines() if ":" in line}
    assert "9001" in lines["http_port"] and "env" in lines["http_port"]
    assert "7" in lines["max_num_seqs"] and "flag" in lines["max_num_seqs"]
    assert "hidden" not in done.stdout


def test_served_model_name_is_an_alias():
    with start("--served-model-name", "gpt-small", "--max-model-len",
               "512") as server:
        body = json.loads(server.get("/v1/models"))
        assert body["data"][0]["max_model_len"] == 512
        assert json.loads(server.get("/v1/models/gpt-small"))["id"]
    with start(f"chat={MODEL}") as server:
        assert json.loads(server.get("/v1/models"))["data"][0]["id"] == "chat"


@pytest.mark.parametrize("verb", ["serve", "chat", "inspect", "topology",
                                  "bench", "logits"])
def test_every_verb_has_help(verb):
    done = subprocess.run([BINARY, verb, "--help"], capture_output=True,
                          text=True, timeout=30)
    assert done.returncode == 0 and verb in done.stdout


def test_inspect_and_chat(server):
    done = subprocess.run([BINARY, "inspect", MODEL], capture_output=True,
                          text=True, timeout=30)
    assert done.returncode == 0
    for word in ("llama", "Q4_1", "Q8_0", "servable"):
        assert word in done.stdout
    done = subprocess.run(
        [BINARY, "chat", "--url", server.url, "--max-tokens", "20",
         "--temperature", "0", "Which city is the capital of Japan?"],
        capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "Tokyo" in done.stdout

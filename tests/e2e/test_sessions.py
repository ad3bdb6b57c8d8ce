"""Sessions over WebSocket: a sequence of requests to a model with a state, as
the client `websockets` speaks it. Silero VAD's probabilities are those of
onnxruntime, chunk by chunk (tests/data/audio/make_silero.py)."""
import json
import queue
import struct

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException
from websockets.exceptions import ConnectionClosed

from conftest import REPO, start
from session_client import (SILERO, SILERO_CONFIG, ask, live, number, put,
                            put_sum, session, sum_of, wait_for)
from test_sequences import YAML, config as sequence_config
from test_sequences import put as put_sequence

GOLDEN = np.load(REPO / "tests" / "data" / "audio" / "silero.npz")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    put_sum(root)
    put(root, "vad", SILERO, SILERO_CONFIG)
    put(root, "microphone", SILERO, SILERO_CONFIG + """
session: {input: input, encoding: pcm16, context: 64, sample_rate: 16000}
""")
    put_sum(root, "alone", YAML.replace("max_candidate_sequences: 1000",
                                        "max_candidate_sequences: 1"))
    put(root, "plain", REPO / "tests" / "data" / "graph" / "mlp.onnx", "")
    return root


@pytest.fixture(scope="module")
def server(repository):
    with start("--model-repository", repository) as running:
        yield running


def test_a_session_is_a_sequence(server):
    with session(server) as one, session(server) as two:
        assert sum_of(ask(one, number(3))) == 3
        assert sum_of(ask(two, number(10))) == 10
        answer = ask(one, number(4, id="mine"))
        assert sum_of(answer) == 7 and answer["id"] == "mine"
        assert answer["model_name"] == "sum" and answer["model_version"] == "1"
        assert sum_of(ask(two, struct.pack("<i", 1))) == 11  # raw bytes
        assert live(server) == 2
        # Answers come in the order of messages that did not wait for them.
        for value in range(1, 51):
            one.send(json.dumps(number(value, id=str(value))))
        got = [json.loads(one.recv(timeout=30)) for _ in range(50)]
        assert [each["id"] for each in got] == [str(i) for i in range(1, 51)]
        assert [sum_of(each) for each in got] == [
            7 + i * (i + 1) // 2 for i in range(1, 51)]
        assert sum_of(ask(one, number(0, end=True))) == 1282
        with pytest.raises(ConnectionClosed) as closed:
            one.recv(timeout=10)
        assert closed.value.rcvd.code == 1000
        assert ask(two, {"type": "session.end"}) == {"type": "session.ended"}
        with pytest.raises(ConnectionClosed):
            two.recv(timeout=10)
    wait_for(lambda: live(server) == 0)
    assert server.metric("millrace_sessions")[""] == 0


def test_config_pbtxt_says_how_bytes_are_read(tmp_path):
    """As config.yaml does, and the configuration tells the same again."""
    oldest = sequence_config("oldest { max_candidate_sequences: 1000 }")

    def parameter(text):
        return (oldest + 'parameters { key: "session" value { string_value: "'
                + text + '" } }')
    put_sequence(tmp_path, "sum", parameter("input=INPUT,encoding=pcm16"))
    put_sequence(tmp_path, "wrong", parameter("encoding=mp3"))
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit", "--load-model", "sum") as server:
        with session(server) as opened:
            assert sum_of(ask(opened, struct.pack("<h", -3))) == -3
            assert sum_of(ask(opened, struct.pack("<h", 10))) == 7
            # As its INPUT has them, it would be one value of four bytes.
            assert "error" in ask(opened, struct.pack("<hh", 1, 2))
        client = triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}")
        told = client.get_model_config("sum")["parameters"]["session"]
        assert told["string_value"] == "input=INPUT,encoding=pcm16"
        with pytest.raises(InferenceServerException,
                           match="session: encoding is 'mp3'"):
            client.load_model("wrong")
        assert client.is_model_ready("sum")


@pytest.mark.parametrize("rate", [16000, 8000])
@pytest.mark.parametrize("encoding", ["raw", "pcm16"])
def test_silero_says_what_it_says_in_onnxruntime(server, rate, encoding):
    speech, wanted = GOLDEN[f"speech/{rate}"], GOLDEN[f"probs/{rate}"]
    chunk, context = (512, 64) if rate == 16000 else (256, 32)
    padded = np.concatenate([np.zeros(context, np.int16), speech])
    got = []
    with session(server, "vad") as opened:
        assert ask(opened, {
            "type": "session.update", "encoding": encoding, "input": "input",
            "inputs": [{"name": "sr", "datatype": "INT64", "shape": [],
                        "data": [rate]}]}) == {"type": "session.updated"}
        for at in range(0, len(speech), chunk):
            x = padded[at: at + context + chunk]
            if encoding == "raw":
                x = x.astype("<f4") / np.float32(32768)
            got.append(ask(opened, x.tobytes())["outputs"][0]["data"][0])
    assert wanted.max() > 0.9 and wanted.min() < 0.1  # speech and silence
    np.testing.assert_allclose(got, wanted, atol=1e-4)
    wait_for(lambda: live(server, "vad") == 0)


def test_silero_by_a_microphone(server):
    """The model declares how it hears: its client sends samples alone."""
    speech, wanted = GOLDEN["speech/16000"], GOLDEN["probs/16000"]
    labels = '{model="microphone"}'
    rate = {"inputs": [{"name": "sr", "datatype": "INT64", "shape": [],
                        "data": [16000]}]}
    with session(server, "microphone") as opened:
        assert "session.updated" in ask(opened, {
            "type": "session.update", **rate})["type"]
        got = []
        for i, at in enumerate(range(0, len(speech), 512)):
            if i == 20:  # what is not computed changes nothing
                assert "error" in ask(opened, b"odd")
            chunk = speech[at: at + 512].tobytes()
            got.append(ask(opened, chunk)["outputs"][0]["data"][0])
    np.testing.assert_allclose(got, wanted, atol=1e-4)
    heard = server.metric("millrace_session_audio_seconds_total")[labels]
    assert heard == pytest.approx(len(speech) / 16000)
    computed = server.metric("millrace_session_compute_seconds_total")[labels]
    assert 0 < computed < heard, "one stream is far from real time"
    count = server.metric("millrace_session_real_time_factor_count")[labels]
    assert count == len(wanted)


def test_samples_for_an_input_of_whole_numbers(server):
    with session(server) as opened:
        ask(opened, {"type": "session.update", "encoding": "pcm16"})
        assert sum_of(ask(opened, struct.pack("<h", -7))) == -7
        assert sum_of(ask(opened, struct.pack("<h", 30))) == 23
        assert "16000" not in ask(opened, b"\1\2\3")["error"]
        assert sum_of(ask(opened, struct.pack("<h", 1))) == 24


def test_a_model_without_a_state(server):
    with session(server, "plain") as opened:
        for _ in range(2):
            answer = ask(opened, {"inputs": [
                {"name": "x", "datatype": "FP32", "shape": [1, 4],
                 "data": [1, 2, 3, 4]},
                {"name": "scale", "datatype": "FP32", "shape": [1],
                 "data": [0.5]}]})
            assert answer["outputs"][0]["name"] == "logits"
        # Which input is a binary message?
        assert "name one, or set the others" in ask(
            opened, struct.pack("<4f", 1, 2, 3, 4))["error"]
        ask(opened, {"type": "session.update", "inputs": [
            {"name": "scale", "datatype": "FP32", "shape": [1],
             "data": [0.5]}]})
        again = ask(opened, struct.pack("<4f", 1, 2, 3, 4))
        assert again["outputs"] == answer["outputs"]


def test_the_same_over_a_grpc_stream(server):
    """ModelStreamInfer with a sequence id of the client's own: each chunk is
    answered before the next one is sent, and two sequences share a stream."""
    answers = queue.Queue()
    client = triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    client.start_stream(lambda result, error: answers.put(error or result))
    rate = triton_grpc.InferInput("sr", [], "INT64")
    rate.set_data_from_numpy(np.array(16000, np.int64))
    padded = np.concatenate([np.zeros(64, np.int16), GOLDEN["speech/16000"]])
    wanted = GOLDEN["probs/16000"]
    got = {"speech": [], "silence": []}
    for i in range(len(wanted)):
        x = padded[512 * i: 512 * i + 576].astype(np.float32) / 32768
        for name, values in (("speech", x), ("silence", 0 * x)):
            chunk = triton_grpc.InferInput("input", [1, 576], "FP32")
            chunk.set_data_from_numpy(values[None])
            client.async_stream_infer("vad", [chunk, rate], sequence_id=name,
                                      request_id=name, sequence_start=i == 0,
                                      sequence_end=i == len(wanted) - 1)
            answer = answers.get(timeout=30)
            assert answer.get_response().id == name
            got[name].append(answer.as_numpy("output")[0, 0])
    client.stop_stream()
    np.testing.assert_allclose(got["speech"], wanted, atol=1e-4)
    assert max(got["silence"]) < 0.1
    wait_for(lambda: live(server, "vad") == 0)


@pytest.mark.parametrize("message, says", [
    ("hello", "JSON"),
    ("[]", "object"),
    ("", ""),
    (b"", "no bytes"),
    (b"abc", "input 'INPUT'"),
    ({"inputs": []}, ""),
    ({"inputs": [{"name": "none", "datatype": "INT32", "shape": [1, 1],
                  "data": [1]}]}, "'none'"),
    (number("x"), ""),
    ({"type": "dance"}, "session.update or session.end"),
    ({"type": "session.update", "input": "x"}, "'x' is not one of the model"),
    ({"type": "session.update", "context": "x"}, "context"),
    ({"type": "session.update", "encoding": "mp3"}, "raw or pcm16"),
    ({**number(1), "parameters": {"sequence_id": 7}}, "session's own"),
    ({**number(1), "parameters": {"sequence_start": True}}, "session's own"),
    ({**number(1), "parameters": {"binary_data_output": True}}, "in JSON"),
])
def test_bad_messages_are_answered_and_change_nothing(server, message, says):
    with session(server) as opened:
        assert sum_of(ask(opened, number(40))) == 40
        answer = ask(opened, message)
        assert list(answer) == ["error"] and says in answer["error"], answer
        assert sum_of(ask(opened, number(2))) == 42


def test_a_model_that_leaves_takes_its_states_along(repository):
    with start("--model-repository", repository, "--model-control-mode",
               "explicit", "--load-model", "sum") as server:
        client = triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}")
        with session(server) as opened:
            assert sum_of(ask(opened, number(1))) == 1
            client.unload_model("sum")  # a session that waits does not hold it
            wait_for(lambda: not client.is_model_ready("sum"))
            assert "sum" in ask(opened, number(1))["error"]
            client.load_model("sum")
            assert "START" in ask(opened, number(1))["error"]
            with pytest.raises(ConnectionClosed) as closed:
                opened.recv(timeout=10)
            assert closed.value.rcvd.code == 1012
            assert "open a new session" in closed.value.rcvd.reason


def test_no_room_for_another_sequence(server):
    with session(server, "alone") as one, session(server, "alone") as two:
        assert sum_of(ask(one, number(1))) == 1
        assert "max_candidate_sequences" in ask(two, number(1))["error"]
        with pytest.raises(ConnectionClosed) as closed:
            two.recv(timeout=10)
        assert closed.value.rcvd.code == 1013
        assert sum_of(ask(one, number(1))) == 2

"""A streaming recogniser (RNN-T of three graphs) asked as its users do: over a
WebSocket, as tritonclient's stream, and with whole files by openai-python. What
torchaudio hears stands in tests/data/transducer/rnnt.json, segment by segment."""
import concurrent.futures
import io
import json
import queue
import shutil
import urllib.error
import urllib.request
import wave

import numpy as np
import openai
import pytest
import tritonclient.grpc as triton_grpc
from websockets.exceptions import ConnectionClosed

from conftest import REPO, start
from session_client import ask, live, session, wait_for

DATA = REPO / "tests" / "data"
TINY = DATA / "transducer" / "rnnt"
WANTED = json.loads((DATA / "transducer" / "rnnt.json").read_text())
SPEECH = np.load(DATA / "audio" / "silero.npz")["speech/16000"]
TOKENS = (TINY / "tokens.txt").read_text().splitlines()
CLIPS = sorted(WANTED["clips"])
SEGMENT = 2560  # samples: 160 ms


def samples(clip):
    begin, end = WANTED["clips"][clip]["samples"]
    return SPEECH[begin:end]


def text_of(answer):
    pieces = [TOKENS[token] for token in answer["tokens"]]
    joined = "".join(piece for piece in pieces if piece != "<unk>")
    return joined.replace("\u2581", " ").strip()


def put(root, name, old="", new=""):
    shutil.copytree(TINY, root / name)
    config = root / name / "config.yaml"
    text = config.read_text() + f"  max_symbols: {WANTED['max_symbols']}\n"
    assert old in text
    config.write_text(text.replace(old, new, 1))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    put(root, "greedy")
    put(root, "beam4", "  mel:", "  beam_width: 4\n  mel:")
    put(root, "brief", "  mel:", "  max_duration: 500ms\n  mel:")
    with start("--model-repository", root) as running:
        yield running


def outputs(answer):
    assert "outputs" in answer, answer
    return {each["name"]: each["data"][0] for each in answer["outputs"]}


END = {"inputs": [], "parameters": {"sequence_end": True}}


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("model", ["greedy", "beam4"])
def test_a_session_hears_what_torchaudio_hears(server, model, clip):
    """160 ms at a time, as a microphone gives them; the end flushes the rest."""
    wanted, sound = WANTED["clips"][clip][model], samples(clip)
    with session(server, model) as opened:
        for i, at in enumerate(range(0, len(sound), SEGMENT)):
            chunk = sound[at: at + SEGMENT]
            got = outputs(ask(opened, chunk.tobytes()))
            assert got["is_final"] is False
            if len(chunk) == SEGMENT:
                assert got["text"] == text_of(wanted[i])
                assert got["score"] == pytest.approx(wanted[i]["score"],
                                                     abs=1e-3)
        got = outputs(ask(opened, END))
        assert got["is_final"] is True
        assert got["text"] == text_of(wanted[-1])
        assert got["score"] == pytest.approx(wanted[-1]["score"], abs=1e-3)
        with pytest.raises(ConnectionClosed):
            opened.recv(timeout=10)
    assert len({text_of(each) for each in wanted}) > 2, "the text grows"


def test_sessions_do_not_hear_each_other(server):
    one, two = samples("short"), samples("long")
    with session(server, "greedy") as first, \
            session(server, "greedy") as second:
        for at in range(0, len(one), 1000):
            ask(first, one[at: at + 1000].tobytes())
            ask(second, two[at: at + 1000].tobytes())
        got = outputs(ask(first, END))
    assert got["text"] == text_of(WANTED["clips"]["short"]["greedy"][-1])


def wav(sound, rate=16000):
    held = io.BytesIO()
    with wave.open(held, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(sound.tobytes())
    return held.getvalue()


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("model", ["greedy", "beam4"])
def test_openai_python_sends_whole_files(server, model, clip):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none",
                           max_retries=0, timeout=60)
    wanted = WANTED["clips"][clip][model][-1]
    answer = client.audio.transcriptions.create(
        model=model, file=("speech.wav", wav(samples(clip))),
        response_format="verbose_json", timestamp_granularities=["word"])
    assert answer.text == text_of(wanted)
    seconds = len(samples(clip)) / 16000
    assert answer.duration == pytest.approx(seconds, abs=1e-3)
    starts = [word.start for word in answer.words]
    assert starts == sorted(starts) and 0 <= starts[-1] <= seconds
    assert " ".join(word.word for word in answer.words) == answer.text


def test_tritonclient_streams(server):
    """The same over gRPC, where sequence ids are the client's."""
    sound = samples("short").astype(np.float32) / 32768
    answers = queue.Queue()
    with triton_grpc.InferenceServerClient(
            f"127.0.0.1:{server.grpc_port}") as client:
        client.start_stream(lambda result, error: answers.put(error or result))

        def send(part, **place):
            given = triton_grpc.InferInput("audio", [len(part)], "FP32")
            given.set_data_from_numpy(part)
            client.async_stream_infer("greedy", [given], sequence_id=7,
                                      **place)
            return answers.get(timeout=30)
        no_start = send(sound[:100])
        assert "START" in str(no_start)
        send(sound[:5000], sequence_start=True)
        last = send(sound[5000:], sequence_end=True)
        client.stop_stream()
    wanted = WANTED["clips"]["short"]["greedy"][-1]
    assert last.as_numpy("text")[0].decode() == text_of(wanted)
    assert last.as_numpy("is_final")[0]


def test_bad_messages_leave_the_session_as_it_was(server):
    wanted, sound = WANTED["clips"]["short"]["greedy"][-1], samples("short")
    with session(server, "greedy") as opened:
        ask(opened, sound[:5000].tobytes())
        for message, why in [
                ("hello", "JSON"),
                (b"odd", "odd number"),
                (b"", "no bytes"),
                ({"type": "session.update", "sample_rate": 8000},
                 "sample_rate is 8000 but the model hears 16000"),
                ({"type": "session.update", "input": "video"}, "'video'"),
                ({"type": "start"}, "session.update or session.end"),
                ({"inputs": [{"name": "state", "datatype": "UINT8",
                              "shape": [1], "data": [1]}]},
                 "'state' is not one that clients"),
                ({"inputs": [{"name": "audio", "datatype": "INT32",
                              "shape": [1], "data": [1]}]}, "INT32")]:
            assert why in ask(opened, message)["error"], message
        # NaN has no JSON, but bytes can say it.
        ask(opened, {"type": "session.update", "encoding": "raw"})
        nan = np.full(100, np.nan, np.float32).tobytes()
        assert "sample 0 of the sound is no number" in ask(opened, nan)["error"]
        ask(opened, {"type": "session.update", "encoding": "pcm16"})
        ask(opened, sound[5000:].tobytes())
        assert outputs(ask(opened, END))["text"] == text_of(wanted)


def test_a_session_that_is_too_long_can_still_end(server):
    sound = samples("long")
    with session(server, "brief") as opened:
        before = outputs(ask(opened, sound[:8000].tobytes()))
        refused = ask(opened, sound[8000:8100].tobytes())["error"]
        assert "max_duration of the model 'brief' is 0.5" in refused
        got = outputs(ask(opened, END))
        assert got["is_final"] and got["text"].startswith(before["text"][:1])
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(
            server.url + "/v1/tasks/brief", wav(sound),
            {"Content-Type": "audio/wav"}), timeout=60)
    assert caught.value.code == 400
    assert b"max_duration" in caught.value.read()


def test_silence_and_an_end_without_sound(server):
    with session(server, "beam4") as opened:
        got = outputs(ask(opened, np.zeros(16000, np.int16).tobytes()))
        assert np.isfinite(got["score"])
    with session(server, "greedy") as opened:
        assert outputs(ask(opened, END)) == {"text": "", "is_final": True,
                                             "score": 0}


def test_clients_that_vanish_leave_nothing(server):
    for _ in range(5):
        opened = session(server, "greedy")
        socket = opened.__enter__()
        ask(socket, samples("short")[:3000].tobytes())
        socket.send(samples("long").tobytes())
        socket.socket.close()  # without a word
    wait_for(lambda: live(server, "greedy") == 0)
    wait_for(lambda: server.metric("millrace_sequence_state_bytes")[
        '{model="greedy"}'] == 0)


def test_metrics(server):
    label = '{model="beam4"}'

    def metric(name):
        return server.metric(f"millrace_transcribe_{name}")[label]
    heard, count = metric("audio_seconds_total"), metric("real_time_factor_count")
    with session(server, "beam4") as opened:
        ask(opened, samples("long")[:32000].tobytes())
    assert metric("audio_seconds_total") - heard == pytest.approx(2)
    assert metric("real_time_factor_count") == count + 1
    assert 0 < metric("compute_seconds_total") < metric("audio_seconds_total")
    assert server.metric("millrace_session_audio_seconds_total")[label] > 0


@pytest.mark.parametrize("old, new, why", [
    ("joiner.pt2", "nothing.pt2", "nothing.pt2"),
    ("task: transcribe", "# no task", "task_options"),
    ("segment_length: 16", "segment_length: 12", "expected FP32 [1, 16, mels]"),
    ("segment_length: 16", "segments: 12", "unknown key 'segments'"),
    ('blank: "28"', 'blank: "29"', "blank is '29'"),
    ("n_mels: 80", "n_mels: 64", "n_mels is 64"),
    ("feature_stats: global_stats.json", "feature_stats: tokens.txt",
     "feature_stats"),
])
def test_a_wrong_folder_says_what_is_wrong(tmp_path, old, new, why):
    put(tmp_path, "asr", old, new)
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit") as server:
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(urllib.request.Request(
                server.url + "/v2/repository/models/asr/load", b"{}",
                {"Content-Type": "application/json"}), timeout=60)
        assert why in caught.value.read().decode()


def test_unloading_waits_for_what_is_heard(tmp_path):
    """A long file is transcribed while its model goes; another session finds it
    again when it is back."""
    put(tmp_path, "asr")

    def repository(server, what):
        urllib.request.urlopen(urllib.request.Request(
            f"{server.url}/v2/repository/models/asr/{what}", b"{}",
            {"Content-Type": "application/json"}), timeout=60).read()
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit", "--load-model", "asr") as server, \
            concurrent.futures.ThreadPoolExecutor() as pool:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none",
                               max_retries=0, timeout=60)
        sound = np.tile(SPEECH, 2)
        heard = pool.submit(lambda: client.audio.transcriptions.create(
            model="asr", file=("speech.wav", wav(sound))).text)
        wait_for(lambda: server.metric("millrace_requests_running").get(
            '{model="asr/encoder",version="1"}', 0) > 0 or heard.done())
        repository(server, "unload")
        assert len(heard.result(timeout=60).split()) > 10
        repository(server, "load")
        with session(server, "asr") as opened:
            for at in range(0, 9000, SEGMENT):
                ask(opened, samples("short")[at: at + SEGMENT].tobytes())
            got = outputs(ask(opened, END))
    assert got["text"] == text_of(WANTED["clips"]["short"]["greedy"][-1])

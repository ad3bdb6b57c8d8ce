"""Recordings to texts: a model whose config.yaml declares the task, asked
through OpenAI's route by openai-python, and as the other tasks are. What
onnxruntime and transformers make of the recordings stands in ctc.json."""
import base64
import io
import json
import shutil
import struct
import urllib.error
import urllib.request
import wave

import numpy as np
import openai
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

from conftest import REPO, start

DATA = REPO / "tests" / "data" / "audio"
WANTED = json.loads((DATA / "ctc.json").read_text())
FILES = {name.removeprefix("file/"): array.tobytes()
         for name, array in np.load(DATA / "audio.npz").items()
         if name.startswith("file/")}
CONFIGS = {
    "ctc_wave": "task: transcribe\ntask_options: {labels: vocab.json, "
                "normalize: true, language: en, max_duration: 2s}",
    "ctc_mel": "task: transcribe\ntask_options: {labels: vocab.json}",
}


def put(root, name, config, model=None):
    folder = root / name / "1"
    folder.mkdir(parents=True)
    shutil.copy(DATA / f"{model or name}.onnx", folder / "model.onnx")
    shutil.copy(DATA / "vocab.json", root / name)
    (root / name / "config.yaml").write_text(config)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    for name, config in CONFIGS.items():
        put(root, name, config)
    put(root, "beam", CONFIGS["ctc_mel"].replace("}", ", beam_width: 8}"),
        "ctc_mel")
    with start("--model-repository", root, "--http-max-input-size",
               "4MiB") as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none",
                         max_retries=0, timeout=60)


def cases():
    return sorted(WANTED)


@pytest.mark.parametrize("case", cases())
def test_openai_python(client, case):
    """Text, words and their times are those of transformers' tokenizer."""
    model, name = case.split("/")
    wanted = WANTED[case]
    assert wanted["margin"] > 1e-3, "make_ctc.py left a frame undecided"
    answer = client.audio.transcriptions.create(
        model=model, file=(name, FILES[name]), response_format="verbose_json",
        timestamp_granularities=["word", "segment"], temperature=0)
    assert answer.text == wanted["text"]
    assert answer.duration == pytest.approx(wanted["seconds"], abs=1e-3)
    assert [word.word for word in answer.words] == [
        word for word, _, _ in wanted["words"]]
    for word, (_, begin, end) in zip(answer.words, wanted["words"]):
        assert word.start == pytest.approx(begin, abs=1e-3)
        assert word.end == pytest.approx(end, abs=1e-3)
    if answer.text:
        assert answer.segments[0].text == answer.text
        assert answer.segments[0].avg_logprob < 0


def test_the_texts_are_worth_a_test():
    texts = [each["text"] for each in WANTED.values()]
    assert len(set(texts)) > 8 and max(map(len, texts)) > 10
    assert any(" " in text for text in texts)


def test_formats_of_answers(client):
    voice = ("voice.flac", io.BytesIO(FILES["voice.flac"]))
    text = WANTED["ctc_wave/voice.flac"]["text"]
    answer = client.audio.transcriptions.create(model="ctc_wave", file=voice)
    assert answer.text == text
    assert answer.usage.seconds == 1 and answer.usage.type == "duration"
    plain = client.audio.transcriptions.create(
        model="ctc_wave", file=voice, response_format="text", language="en")
    assert plain == text + "\n"


def test_subtitles(server, client):
    """Cues hold all words, in their order, at their times."""
    name = "voice.flac"
    wanted = WANTED[f"ctc_wave/{name}"]["words"]
    assert len(wanted) > 1
    for kind, mark in (("srt", ","), ("vtt", ".")):
        answer = client.audio.transcriptions.create(
            model="ctc_wave", file=(name, FILES[name]), response_format=kind)
        blocks = answer.rstrip("\n").split("\n\n")
        if kind == "vtt":
            assert blocks.pop(0) == "WEBVTT"
        words, times = [], []
        for i, block in enumerate(blocks, 1):
            lines = block.split("\n")
            if kind == "srt":
                assert lines.pop(0) == str(i)
            times.append([
                sum(float(part) * unit for part, unit in
                    zip(time.replace(mark, ".").split(":"), (3600, 60, 1)))
                for time in lines[0].split(" --> ")])
            words += lines[1].split(" ")
        assert words == [word for word, _, _ in wanted]
        assert times[0][0] == pytest.approx(wanted[0][1], abs=2e-3)
        assert times[-1][1] == pytest.approx(wanted[-1][2], abs=2e-3)
        with urllib.request.urlopen(urllib.request.Request(
                server.url + f"/v1/tasks/ctc_wave?response_format={kind}",
                FILES[name], {"Content-Type": "audio/flac"})) as raw:
            assert raw.read().decode() == answer
            assert raw.headers["Content-Type"] == (
                "text/vtt; charset=utf-8" if kind == "vtt"
                else "text/plain; charset=utf-8")


def test_the_beam_answers(client):
    answer = client.audio.transcriptions.create(
        model="beam", file=("voice.flac", FILES["voice.flac"]))
    assert answer.text  # its text is tested against all paths elsewhere


def post(server, path, body, content_type="application/octet-stream",
         headers=None):
    request = urllib.request.Request(
        server.url + path, body, {"Content-Type": content_type,
                                  **(headers or {})})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def refused(server, path, body, content_type="application/octet-stream"):
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(server, path, body, content_type)
    return caught.value.code, caught.value.read().decode()


def test_as_the_other_tasks(server):
    """A raw body, JSON with base64, and an infer request with a raw body."""
    voice = FILES["voice.flac"]
    text = WANTED["ctc_mel/voice.flac"]["text"]
    assert json.loads(post(server, "/v1/tasks/ctc_mel", voice))["text"] == text
    words = json.loads(post(
        server, "/v1/tasks/ctc_mel?response_format=verbose_json"
        "&timestamp_granularities=word", voice, "audio/flac"))
    assert len(words["words"]) == len(WANTED["ctc_mel/voice.flac"]["words"])
    items = [base64.b64encode(voice).decode(),
             {"b64": base64.b64encode(FILES["pcm16.wav"]).decode()}]
    many = json.loads(post(server, "/v1/tasks/ctc_mel",
                           json.dumps({"inputs": items}).encode(),
                           "application/json"))
    assert [each["text"] for each in many] == [
        text, WANTED["ctc_mel/pcm16.wav"]["text"]]
    infer = json.loads(post(server, "/v2/models/ctc_mel/infer", voice,
                            "audio/flac"))
    assert json.loads(infer["outputs"][0]["data"][0])["text"] == text


@pytest.mark.parametrize("wire", ["rest", "grpc"])
def test_tritonclient(server, wire):
    kind = triton_http if wire == "rest" else triton_grpc
    port = server.http_port if wire == "rest" else server.grpc_port
    names = ["voice.flac", "ulaw_8k.wav"]
    audio = kind.InferInput("audio", [2], "BYTES")
    audio.set_data_from_numpy(np.array([FILES[name] for name in names],
                                       np.object_))
    answer = kind.InferenceServerClient(f"127.0.0.1:{port}").infer(
        "ctc_wave", [audio])
    texts = [json.loads(each)["text"] for each in answer.as_numpy("output")]
    assert texts == [WANTED[f"ctc_wave/{name}"]["text"] for name in names]


def wav(samples, rate=16000):
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(np.asarray(samples, "<i2").tobytes())
    return file.getvalue()


def with_rate(rate):
    file = bytearray(wav(np.zeros(100)))
    file[24:28] = struct.pack("<I", rate)
    return bytes(file)


@pytest.mark.parametrize("file, code, says", [
    (b"", 400, "no bytes"),
    (b"ID3\4" + bytes(1000), 501, "MP3"),
    (b"hello", 400, "no WAV and no FLAC"),
    (FILES["voice.flac"][:5000], 400, "is damaged"),
    (FILES["pcm16.wav"][:1000], 400, "ends early"),
    (with_rate(4_000_000_000), 400, "cannot be read"),
    (with_rate(3_000_000), 400, "3000000 samples a second"),
    (with_rate(5), 400, "samples a second"),
    (wav(np.zeros(0)), 400, "no samples"),
    (wav(np.zeros(32001)), 400, "more than 2 s"),
    (b"\0" * (5 << 20), 413, "http_max_input_size"),
])
def test_bad_recordings(server, client, file, code, says):
    with pytest.raises(openai.APIStatusError) as caught:
        client.audio.transcriptions.create(model="ctc_wave",
                                           file=("a.wav", file))
    assert caught.value.status_code == code and says in caught.value.message
    # Others are unharmed.
    assert client.audio.transcriptions.create(
        model="ctc_wave", file=("a", FILES["pcm16.wav"])
    ).text == WANTED["ctc_wave/pcm16.wav"]["text"]


@pytest.mark.parametrize("fields, says", [
    ({"response_format": "ssa"}, "json, text, srt, verbose_json, vtt"),
    ({"language": "de"}, "transcribes 'en'"),
    ({"prompt": "Ada"}, "takes no prompt"),
    ({"temperature": 0.7}, "temperature"),
    ({"stream": True}, "as a whole"),
    ({"timestamp_granularities": ["word"]}, "verbose_json"),
    ({"model": "none"}, "none"),
])
def test_bad_fields(client, fields, says):
    with pytest.raises(openai.APIStatusError) as caught:
        client.audio.transcriptions.create(**{
            "model": "ctc_wave", "file": ("a", FILES["pcm16.wav"]), **fields})
    assert caught.value.status_code in (400, 404)
    assert says in caught.value.message


def test_bodies_that_are_no_forms(server):
    path = "/v1/audio/transcriptions"
    code, text = refused(server, path, b"{}", "application/json")
    assert code == 415 and "multipart/form-data" in text
    form = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\n'
    form += b"ctc_mel\r\n--x--\r\n"
    code, text = refused(server, path, form, "multipart/form-data; boundary=x")
    assert code == 400 and "file is missing" in text
    code, text = refused(server, "/v1/audio/speech", b"{}", "application/json")
    assert code == 404 and "transcriptions" in text


@pytest.mark.parametrize("config, why", [
    ("task: transcribe", "labels is missing"),
    (CONFIGS["ctc_mel"].replace("}", ", n_mels: 81}"), "n_mels is 81"),
])
def test_a_config_that_does_not_fit_is_told(tmp_path, config, why):
    put(tmp_path, "m", config, "ctc_mel")
    with start("--model-repository", tmp_path, until="listening") as server:
        assert why in server.wait_event("model not loaded")["error"]

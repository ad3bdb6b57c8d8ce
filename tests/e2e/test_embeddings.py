"""Vectors and scores of newer encoders and of decoders, from folders and GGUF
files, beside what transformers gives for the same texts; by openai-python."""
import base64
import json
import math
import shutil
import subprocess

import numpy as np
import openai
import pytest

from conftest import BINARY, REPO, start
from texts import cosine, post, refused

DATA = REPO / "tests" / "data" / "encoders"
EMBEDDERS = {
    "bert": (DATA / "bert_embed" / "model.gguf", "mean"),
    "roberta": (DATA / "roberta_embed", "mean"),
    "nomic": (DATA / "nomic_embed", "mean"),
    "nomic_gguf": (DATA / "nomic_embed" / "model.gguf", "mean"),
    "modernbert": (DATA / "modernbert_embed", "mean"),
    "qwen3": (DATA / "qwen3_embed", "last"),
    "qwen3_gguf": (DATA / "qwen3_embed" / "model.gguf", "last"),
}


def golden(path):
    folder = path if path.is_dir() else path.parent
    return json.loads((folder / "golden.json").read_text())


@pytest.fixture(scope="module")
def server():
    models = [f"{name}={path}" for name, (path, _) in EMBEDDERS.items()]
    with start(*models, f"modernbert_rerank={DATA / 'modernbert_rerank'}",
               "--compute-dtype", "f32", "--kv-cache-dtype", "f32") as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none",
                         max_retries=0, timeout=120)


def test_the_list_of_models_has_those_that_take_texts(server, client):
    listed = {each.id: each for each in client.models.list()}
    assert set(listed) == {*EMBEDDERS, "modernbert_rerank"}
    assert listed["modernbert_rerank"].task == "rerank"
    for name in EMBEDDERS:
        assert listed[name].task == "embed"
        assert listed[name].max_model_len > 0
        assert client.models.retrieve(name) == listed[name]
    # None of them answers a chat.
    said = subprocess.run(
        [BINARY, "chat", "--url", server.url, "hello"], capture_output=True,
        text=True, timeout=60)
    assert said.returncode == 1
    assert "no model" in said.stderr, said.stderr


# Texts that are longer than encoders take are left out.
def short(want):
    return [i for i, text in enumerate(want["texts"]) if len(text) < 100]


@pytest.mark.parametrize("name", EMBEDDERS)
@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_vectors_are_those_of_transformers(client, name, encoding):
    path, pooling = EMBEDDERS[name]
    want = golden(path)
    rows = [i for i in short(want) if want["texts"][i]]
    got = client.embeddings.create(
        model=name, input=[want["texts"][i] for i in rows],
        encoding_format=encoding)
    assert [d.index for d in got.data] == list(range(len(rows)))
    for i, each in zip(rows, got.data):
        vector = each.embedding
        if encoding == "base64":
            vector = np.frombuffer(base64.b64decode(vector), np.float32)
        assert cosine(vector, want[pooling][i]) > 0.99999, want["texts"][i]
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("name", ["qwen3", "qwen3_gguf"])
def test_a_decoder_reads_texts_ids_and_lengths(server, client, name):
    want = golden(DATA / "qwen3_embed")
    rows = range(len(want["texts"]))  # the longest, too
    texts = [want["texts"][i] for i in rows]
    got = client.embeddings.create(model=name, input=texts)
    assert got.usage.prompt_tokens == sum(map(len, want["ids"]))
    together = [d.embedding for d in got.data]
    for i in rows:
        assert cosine(together[i], want["last"][i]) > 0.99999
        alone = client.embeddings.create(model=name, input=texts[i])
        assert alone.data[0].embedding == together[i]
    ids = client.embeddings.create(model=name, input=want["ids"])
    assert [d.embedding for d in ids.data] == together
    many = client.embeddings.create(model=name, input=texts[::-1] * 20)
    assert [d.embedding for d in many.data] == together[::-1] * 20
    cut = client.embeddings.create(model=name, input=texts[1], dimensions=8)
    assert len(cut.data[0].embedding) == 8
    assert cosine(cut.data[0].embedding, want["last"][1][:8]) > 0.99999
    code, message = refused(server, "/v1/embeddings", {
        "model": name, "input": "the mill " * 500})
    assert code == 400 and "truncat" in message
    code, message = refused(server, "/v1/chat/completions", {
        "model": name, "messages": [{"role": "user", "content": "hi"}]})
    assert code == 400 and "/v1/embeddings" in message


@pytest.mark.parametrize("path", ["/embedding", "/embeddings"])
def test_the_shape_of_llama_cpp(server, client, path):
    want = golden(DATA / "bert_embed")
    texts = [text for text in want["texts"] if text][:3]
    ours = [each.embedding for each in client.embeddings.create(
        model="bert", input=texts, encoding_format="float").data]
    for field in ("content", "input"):
        got = post(server, path, {"model": "bert", field: texts})
        assert [row["index"] for row in got] == [0, 1, 2]
        assert [row["embedding"] for row in got] == [[each] for each in ours]
    (one,) = post(server, path, {"model": "bert", "content": texts[0],
                                 "embd_normalize": 2})
    assert one["embedding"] == [ours[0]]
    (raw,) = post(server, path, {"model": "bert", "content": texts[0],
                                 "embd_normalize": -1})
    assert cosine(raw["embedding"][0], ours[0]) > 0.99999
    assert np.linalg.norm(raw["embedding"][0]) != pytest.approx(1, abs=1e-3)
    for body, field in (({}, "content"), ({"content": texts[0],
                                           "embd_normalize": 1},
                                          "embd_normalize"),
                        ({"content": texts[0], "encoding_format": "base64"},
                         "encoding_format"), ({"content": 7}, "content")):
        code, message = refused(server, path, {"model": "bert", **body})
        assert code == 400 and field in message


def test_pooling_of_a_repository(tmp_path):
    """config.yaml says what a generating model does, and how."""
    folder = tmp_path / "mean"
    (folder / "1").mkdir(parents=True)
    shutil.copy(DATA / "qwen3_embed" / "model.gguf", folder / "1")
    (folder / "config.yaml").write_text(
        "task: embed\ntask_options: {pooling: mean}\ncompute_dtype: f32\n"
        "kv_cache_dtype: f32\n")
    want = golden(DATA / "qwen3_embed")
    with start("--model-repository", tmp_path) as server:
        got = post(server, "/v1/embeddings", {
            "model": "mean", "input": want["texts"]})
        for row, vector in zip(got["data"], want["mean"]):
            assert cosine(row["embedding"], vector) > 0.99999


def test_a_converted_decoder_gives_the_vectors_of_its_original(tmp_path):
    source = DATA / "qwen3_embed"
    mean = tmp_path / "mean"
    shutil.copytree(source, mean)
    (mean / "1_Pooling" / "config.json").write_text(
        '{"pooling_mode_mean_tokens": true}')
    models = []
    for name, path in (("folder", source), ("gguf", source / "model.gguf"),
                       ("mean", mean)):
        models.append(f"{name}={tmp_path / name}.gguf")
        subprocess.run([BINARY, "convert", path, f"{tmp_path / name}.gguf",
                        "--compute-dtype", "f32"], check=True, timeout=60)
    want = golden(source)
    with start(*models, f"original={mean}", "--compute-dtype", "f32",
               "--kv-cache-dtype", "f32") as server:
        rows = {}
        for name in ("folder", "gguf", "mean", "original"):
            got = post(server, "/v1/embeddings", {
                "model": name, "input": want["texts"]})
            assert got["usage"]["prompt_tokens"] == sum(map(len, want["ids"]))
            rows[name] = [row["embedding"] for row in got["data"]]
    for i, text in enumerate(want["texts"]):
        assert cosine(rows["folder"][i], want["last"][i]) > 0.99999, text
        assert cosine(rows["mean"][i], want["mean"][i]) > 0.99999, text
    assert rows["folder"] == rows["gguf"]
    assert rows["mean"] == rows["original"]


def test_reranking_of_modernbert(server):
    want = json.loads((DATA / "modernbert_rerank" / "golden.json").read_text())
    rows = short(want)
    texts = [want["texts"][i] for i in rows]
    logits = [want["logits"][i][0] for i in rows]
    scores = [1 / (1 + math.exp(-x)) for x in logits]
    got = post(server, "/v1/rerank", {
        "model": "modernbert_rerank", "query": want["query"],
        "documents": texts})
    order = [r["index"] for r in got["results"]]
    assert order == sorted(range(len(texts)), key=lambda i: -logits[i])
    for result in got["results"]:
        assert result["relevance_score"] == pytest.approx(
            scores[result["index"]], abs=1e-5)
    got = post(server, "/v1/score", {
        "model": "modernbert_rerank", "text_1": want["query"],
        "text_2": texts})
    assert [d["score"] for d in got["data"]] == pytest.approx(scores, abs=1e-5)

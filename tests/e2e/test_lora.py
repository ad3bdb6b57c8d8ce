"""LoRA adapters: named at the start and loaded live, chosen by the name of the
model, over a tiny random model. The files are made by tests/data/make_lora.py.
"""
import concurrent.futures
import json
import re
import shutil
import subprocess
import threading
import time

import pytest
import requests

from conftest import BINARY, REPO, start

DATA = REPO / "tests" / "data"
BASE = DATA / "hf_llama_yarn" / "model.gguf"
ADAPTER = DATA / "lora_llama"


@pytest.fixture(scope="module")
def server():
    with start(f"base={BASE}", "--lora-modules", f"sql={ADAPTER}",
               "--allow-runtime-lora-updating", "--max-model-len", "128",
               "--compute-dtype", "f32") as running:
        yield running


def complete(server, model, tokens, **fields):
    answer = requests.post(server.url + "/v1/completions", timeout=120, json={
        "model": model, "prompt": tokens, "temperature": 0, "max_tokens": 8,
        "logprobs": 3, **fields})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["model"] == model
    return body["choices"][0]["text"], body["choices"][0]["logprobs"]


def post(server, path, **body):
    return requests.post(server.url + path, json=body, timeout=120)


def names(server):
    return {m["id"]: m for m in json.loads(server.get("/v1/models"))["data"]}


def test_an_adapter_is_a_model_of_its_own_name(server):
    models = names(server)
    assert models["sql"]["parent"] == "base"
    assert models["sql"]["root"] == str(ADAPTER)
    assert models["base"]["parent"] is None
    listed = json.loads(server.get("/lora-adapters"))
    assert [(a["name"], a["scale"]) for a in listed] == [("sql", 1.0)]

    # By the folder, the logits that peft gives: the next token and its rank.
    golden = json.loads((ADAPTER / "golden.json").read_text())
    last = str(max(map(int, golden["logits"])))
    logits = golden["logits"][last]
    tokens = golden["tokens"][:int(last) + 1]
    best = max(range(len(logits)), key=logits.__getitem__)
    chosen = requests.post(server.url + "/detokenize", timeout=60, json={
        "model": "base", "tokens": [best]}).json()
    text, _ = complete(server, "sql", tokens, max_tokens=1)
    assert text == chosen.get("prompt", chosen.get("content"))
    assert complete(server, "sql", tokens) != complete(server, "base", tokens)


def test_scales_change_live(server):
    """As llama.cpp's clients set them: for requests that begin afterwards."""
    tokens = list(range(5, 45))

    def scale(*entries):
        return requests.post(server.url + "/lora-adapters", timeout=60,
                             json=list(entries))

    base, whole = (complete(server, name, tokens) for name in ("base", "sql"))
    assert scale({"id": 0, "scale": 0}).json() == {"success": True}
    assert complete(server, "sql", tokens) == base
    assert scale({"id": 0, "scale": 0.5}).status_code == 200
    (listed,) = json.loads(server.get("/lora-adapters"))
    assert listed == {"id": 0, "name": "sql", "path": str(ADAPTER),
                      "scale": 0.5}
    half = complete(server, "sql", tokens)
    assert half != whole and half != base
    assert complete(server, "base", tokens) == base
    assert scale({"id": 0, "scale": 1}).status_code == 200
    assert complete(server, "sql", tokens) == whole
    assert scale().status_code == 200  # those that are not named get 0
    assert complete(server, "sql", tokens) == base
    assert scale({"id": 0, "scale": 1}).status_code == 200
    for bad, param in (({"id": 1, "scale": 1}, "[0].id"),
                       ({"id": 0, "scale": -1}, "[0].scale"),
                       ({"id": 0, "scale": "1"}, "[0].scale"),
                       ({"id": 0}, "[0]")):
        answer = scale(bad)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == param
    assert complete(server, "sql", tokens) == whole


def test_loaded_and_unloaded_live_beside_others(server):
    tokens = list(range(5, 45))
    alone = {model: complete(server, model, tokens)
             for model in ("base", "sql")}
    gguf = str(ADAPTER / "adapter.gguf")
    loaded = post(server, "/v1/load_lora_adapter", lora_name="again",
                  lora_path=gguf)
    assert loaded.status_code == 200, loaded.text
    assert "again" in names(server)
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        crowd = list(pool.map(
            lambda model: (model, complete(server, model, tokens)),
            ["base", "sql", "again"] * 6))
    for model, answer in crowd:
        assert answer == alone["base" if model == "base" else "sql"], model

    twice = post(server, "/v1/load_lora_adapter", lora_name="again",
                 lora_path=gguf)
    assert twice.status_code == 400
    assert "loaded already" in twice.json()["error"]["message"]
    in_place = post(server, "/v1/load_lora_adapter", lora_name="again",
                    lora_path=gguf, load_inplace=True)
    assert in_place.status_code == 200
    gone = post(server, "/v1/unload_lora_adapter", lora_name="again")
    assert gone.status_code == 200 and "again" not in names(server)
    answer = post(server, "/v1/completions", model="again", prompt=tokens)
    assert answer.status_code == 404


def test_what_is_wrong_is_said(server):
    for body, status, words in (
            ({"lora_name": "x"}, 400, "lora_path is missing"),
            ({"lora_name": "x", "lora_path": "/nowhere"}, 404, "no such file"),
            ({"lora_name": "base", "lora_path": str(ADAPTER)}, 400,
             "give the adapter another name"),
            ({"lora_name": "x", "lora_path": str(BASE)}, 400,
             "not an adapter"),
            ({"lora_name": "x", "lora_path": str(DATA / "lora_phi3")}, 400,
             "lora_phi3"),
            ({"lora_name": "x", "lora_path": str(ADAPTER),
              "base_model_name": "other"}, 404, "other")):
        answer = post(server, "/v1/load_lora_adapter", **body)
        assert answer.status_code == status, (body, answer.text)
        assert words in answer.json()["error"]["message"]
    answer = post(server, "/v1/unload_lora_adapter", lora_name="x")
    assert answer.status_code == 404


def test_not_by_request_unless_allowed():
    with start(f"base={BASE}", "--max-model-len", "128") as closed:
        answer = post(closed, "/v1/load_lora_adapter", lora_name="x",
                      lora_path=str(ADAPTER))
        assert answer.status_code == 503
        assert "--allow-runtime-lora-updating" in answer.json()[
            "error"]["message"]


def test_kept_in_int8_and_bf16():
    """Other bits than in f16, close to them; alone and among others the same."""
    tokens = list(range(5, 21))

    def loaded(server):
        return json.loads(server.line("adapter loaded"))

    with start(f"base={BASE}", "--lora-modules", f"sql={ADAPTER}",
               "--max-model-len", "128") as server:
        assert loaded(server)["dtype"] == "f16"
        _, wanted = complete(server, "sql", tokens)
        _, without = complete(server, "base", tokens)
    for dtype, named in (("int8", "int8"), ("bfloat16", "bf16")):
        with start(f"base={BASE}", "--lora-modules",
                   f"sql={ADAPTER},again={ADAPTER}", "--max-model-len", "128",
                   "--lora-dtype", dtype) as server:
            told = loaded(server)
            assert (told["dtype"], told["rank"]) == (named, 4)
            alone = complete(server, "sql", tokens)
            assert complete(server, "base", tokens)[1] == without
            # The first token's, which no other choice has preceded.
            first = alone[1]["top_logprobs"][0]
            best = wanted["top_logprobs"][0]
            assert first != best
            for token in first.keys() & best.keys():
                assert abs(first[token] - best[token]) < 0.1, (first, best)
            assert len(first.keys() & best.keys()) >= 2
            with concurrent.futures.ThreadPoolExecutor(9) as pool:
                crowd = list(pool.map(
                    lambda model: (model, complete(server, model, tokens)),
                    ["base", "sql", "again"] * 6))
            for model, answer in crowd:
                if model != "base":
                    assert answer == alone


@pytest.mark.parametrize("flags, words", [
    (["--lora-dtype", "q4"], "--lora-dtype is 'q4' but must be one of"),
    (["--lora-dtype", "int8", "--device", "cuda"],
     "a GPU keeps adapters in f16")])
def test_numbers_that_adapters_cannot_be_kept_in(flags, words):
    done = subprocess.run(
        [BINARY, "serve", BASE, "--http-port", "0", "--lora-modules",
         f"sql={ADAPTER}", *flags], timeout=120, capture_output=True, text=True)
    assert done.returncode != 0
    assert words in done.stdout + done.stderr


def test_routers_of_vllm_see_which_adapters_run_and_wait():
    """One sequence at a time, so that others wait; no adapter is in no list."""
    def labels(server):
        found = server.metric("vllm:lora_requests_info")
        (text, value), = found.items()  # one series at a time
        assert abs(value - time.time()) < 60
        told = dict(re.findall(r'(\w+)="([^"]*)"', text))
        assert set(told) == {"running_lora_adapters", "waiting_lora_adapters",
                             "max_lora"}
        return (told["running_lora_adapters"], told["waiting_lora_adapters"],
                told["max_lora"])
    with start(f"base={BASE}", "--lora-modules",
               f"sql={ADAPTER},other={ADAPTER}", "--max-model-len", "128",
               "--max-num-seqs", "1", "--metrics-compat", "vllm") as server, \
            concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert labels(server) == ("", "", "1")
        complete(server, "base", [5, 6, 7])
        assert labels(server) == ("", "", "1")
        stop = threading.Event()

        def crowd(model):
            while not stop.is_set():
                complete(server, model, [5, 6, 7], max_tokens=100,
                         ignore_eos=True)
        futures = [pool.submit(crowd, model)
                   for model in ("sql", "sql", "other", "other", "base")]
        seen = set()
        end = time.monotonic() + 60
        try:
            while time.monotonic() < end and not {
                    ("sql", "other,sql", "1"),
                    ("other", "other,sql", "1")} <= seen:
                seen.add(labels(server))
        finally:
            stop.set()
        assert ("sql", "other,sql", "1") in seen, seen
        assert ("other", "other,sql", "1") in seen, seen
        for future in futures:
            future.result()
        assert labels(server) == ("", "", "1")
    with start(f"base={BASE}", "--metrics-compat", "vllm") as server:
        complete(server, "base", [5, 6, 7])
        assert server.metric("vllm:lora_requests_info") == {}


def test_inspect_tells_of_an_adapter(tmp_path):
    def inspect(*args, code=0):
        done = subprocess.run([BINARY, "inspect", *map(str, args)], timeout=120,
                              capture_output=True, text=True)
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout

    text = inspect(ADAPTER)
    assert re.search(r"base model +hf_llama_yarn\n", text)
    assert re.search(r"self_attn\.q_proj +3 +4 +1344\n", text), text
    assert "servable       yes, beside a model that it fits" in text
    text = inspect(ADAPTER / "adapter.gguf", "--base", BASE)
    assert re.search(r"attn_q +3 +4 +1344\n", text), text
    assert f"servable       yes: millrace serve {BASE} --lora-modules" in text
    text = inspect(ADAPTER, "--base", DATA / "hf_qwen2", code=1)
    assert "servable       no: " in text and "made for another model" in text
    shutil.copytree(ADAPTER, tmp_path / "odd")
    config = json.loads((ADAPTER / "adapter_config.json").read_text())
    config["use_dora"] = True
    (tmp_path / "odd" / "adapter_config.json").write_text(json.dumps(config))
    text = inspect(tmp_path / "odd", code=1)
    assert "DoRA is not served" in text and "self_attn.q_proj" in text


def test_statistics_count_completions(server):
    def stats(path="/v2/models/base/stats"):
        told, = json.loads(server.get(path))["model_stats"]
        assert (told["name"], told["version"]) == ("base", "1")
        return told

    before = stats()
    complete(server, "base", [5, 6, 7])
    complete(server, "sql", [5, 6, 7])  # counted with its base
    after = stats("/v2/models/stats")
    assert after["inference_count"] - before["inference_count"] == 2
    assert after["execution_count"] - before["execution_count"] >= 8
    assert after["last_inference"] > 1_700_000_000_000
    for part in ("success", "queue", "compute_infer"):
        assert (after["inference_stats"][part]["count"]
                - before["inference_stats"][part]["count"]) == 2
    assert (after["inference_stats"]["compute_infer"]["ns"]
            > before["inference_stats"]["compute_infer"]["ns"])
    answer = requests.get(server.url + "/v2/models/sql/stats", timeout=60)
    assert answer.status_code == 400
    assert "is an adapter, which is counted with the model" in answer.text

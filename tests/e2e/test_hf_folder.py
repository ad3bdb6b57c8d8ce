"""A Hugging Face folder, from its files to answers over HTTP."""
import json
import subprocess
import urllib.request

import pytest

from conftest import BINARY, REPO, start

FOLDERS = ["hf_llama", "hf_qwen2"]


def post(server, path, body):
    request = urllib.request.Request(
        server.url + path, json.dumps(body).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_answers_as_transformers_does(name):
    folder = REPO / "tests" / "data" / name
    golden = json.loads((folder / "golden.json").read_text())
    # A trailing slash is part of no name.
    with start(f"{folder}/", "--compute-dtype", "f32", "--kv-cache-dtype",
               "f32") as server:
        models = json.loads(server.get("/v1/models"))["data"]
        assert [m["id"] for m in models] == [name]
        answer = post(server, "/v1/completions", {
            "model": name, "prompt": golden["prompt"], "temperature": 0,
            "repetition_penalty": 1, "ignore_eos": True,
            "max_tokens": len(golden["answer"]), "logprobs": 0,
            "return_tokens_as_token_ids": True})
        assert answer["choices"][0]["text"] == golden["answer_text"]
        chat = post(server, "/v1/chat/completions", {
            "model": name, "max_tokens": 4,
            "messages": [{"role": "user", "content": "the mill"}]})
        assert chat["usage"]["prompt_tokens"] > 4


def test_what_requests_leave_out_is_as_the_folder_says():
    # top_k 20, temperature 0.7 and a repetition penalty change what a seed
    # draws; without the folder's word the draw is as with none of them.
    folder = REPO / "tests" / "data" / "hf_qwen2"
    body = {"model": "hf_qwen2", "prompt": "the mill turns", "seed": 5,
            "max_tokens": 24, "ignore_eos": True}
    spelled = {"temperature": 0.7, "top_k": 20, "top_p": 0.8,
               "repetition_penalty": 1.1}
    texts = {}
    for mode in ("auto", "none"):
        with start(folder, "--generation-config", mode) as server:
            for kind, more in (("left out", {}), ("spelled", spelled)):
                answer = post(server, "/v1/completions", {**body, **more})
                texts[mode, kind] = answer["choices"][0]["text"]
    assert texts["auto", "left out"] == texts["auto", "spelled"]
    assert texts["none", "spelled"] == texts["auto", "spelled"]
    assert texts["none", "left out"] != texts["auto", "left out"]


def test_inspect_shows_a_folder():
    done = subprocess.run([BINARY, "inspect", REPO / "tests/data/hf_llama"],
                          capture_output=True, text=True, check=True)
    for part in ("Hugging Face folder, 2 files", "num_hidden_layers",
                 "BF16", "servable       yes"):
        assert part in done.stdout, part

"""llama.cpp's own routes, as its clients call them."""
import json

import pytest
import requests

from conftest import MODEL_ID


def post(server, path, **body):
    return requests.post(server.url + path, json=body, timeout=120)


def test_completion(server):
    ask = dict(prompt="The capital of France is", temperature=0, n_predict=4)
    answer = post(server, "/completion", **ask).json()
    assert "Paris" in answer["content"] and answer["stop"] is True
    assert answer["stop_type"] == "limit" and answer["tokens_predicted"] == 4
    assert answer["prompt"] == ask["prompt"] and not answer["truncated"]
    assert answer["timings"]["predicted_n"] == 4
    ids = requests.post(server.url + "/tokenize", timeout=60, json={
        "content": ask["prompt"]}).json()["tokens"]
    by_ids = post(server, "/completion", **{**ask, "prompt": ids}).json()
    assert by_ids["content"] == answer["content"]
    mixed = post(server, "/completion", **{
        **ask, "prompt": ["The capital of France", *ids[-1:]]}).json()
    assert mixed["content"] == answer["content"]
    word = post(server, "/completion", **{
        **ask, "n_predict": 20, "stop": ["Paris"]}).json()
    assert word["stop_type"] == "word" and word["stopping_word"] == "Paris"

    events = [json.loads(line[6:]) for line in post(
        server, "/completion", stream=True, **ask).text.splitlines()
        if line.startswith("data: ")]
    assert "".join(e["content"] for e in events) == answer["content"]
    assert [e["stop"] for e in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["timings"]["predicted_n"] == 4


def test_several_prompts(server):
    """A list of strings is as many prompts; with an id in it, it is one."""
    ask = dict(temperature=0, n_predict=4)
    texts = ["The capital of France is", "Two and two make"]
    alone = [post(server, "/completion", prompt=text, **ask).json()["content"]
             for text in texts]
    assert alone[0] != alone[1]
    ids = requests.post(server.url + "/tokenize", timeout=60, json={
        "content": texts[1]}).json()["tokens"]
    for prompts in (texts, [texts[0], ids], [ids, texts[0]]):
        want = alone if prompts[0] == texts[0] else alone[::-1]
        whole = post(server, "/completion", prompt=prompts, **ask).json()
        assert [each["content"] for each in whole] == want
        assert [each["index"] for each in whole] == [0, 1]
        assert [each["prompt"] for each in whole] == prompts
        assert [each["timings"]["predicted_n"] for each in whole] == [4, 4]
    one = post(server, "/completion", prompt=texts[:1], **ask).json()
    assert one["content"] == alone[0]

    text = ["", ""]
    ends = []
    for line in post(server, "/completion", prompt=texts, stream=True,
                     **ask).text.splitlines():
        if not line:
            continue
        event = json.loads(line.removeprefix("data: "))
        text[event["index"]] += event["content"]
        if event["stop"]:
            ends.append(event["index"])
    assert text == alone and sorted(ends) == [0, 1]

    # More than the server runs at once wait for their turn.
    many = post(server, "/completion", prompt=texts * 32, **ask)
    assert [each["content"] for each in many.json()] == alone * 32
    for prompts, param in ((texts * 33, "prompt"), ([], "prompt"),
                           (["a", [2**31]], "prompt[1][0]"),
                           (["a", "b c " * 9000], "prompt")):
        answer = post(server, "/completion", prompt=prompts, **ask)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == param


def test_samplers(server):
    """Each changes a random completion, and draws it again."""
    ask = dict(prompt="one two one two one two one two one two", n_predict=24,
               seed=5, temperature=1.2)
    plain = post(server, "/completion", **ask).json()["content"]
    for fields in ({"typical_p": 0.2}, {"top_n_sigma": 0.2},
                   {"xtc_probability": 1, "xtc_threshold": 0.05},
                   {"dynatemp_range": 1.2, "dynatemp_exponent": 2},
                   {"mirostat": 2, "mirostat_tau": 1}):
        first, second = (post(server, "/completion", **ask, **fields)
                         for _ in range(2))
        assert first.status_code == 200, first.text
        assert first.json()["content"] == second.json()["content"], fields
        assert first.json()["content"] != plain, fields
    # Greedy, and yet nothing is said twice at length.
    greedy = {**ask, "temperature": 0, "n_predict": 48}
    dry = post(server, "/completion", dry_multiplier=5, dry_allowed_length=1,
               dry_base=4, dry_sequence_breakers=["#"], **greedy)
    assert "one two one two" not in dry.json()["content"]
    plain = post(server, "/completion", **greedy).json()["content"]
    assert dry.json()["content"] != plain


def test_what_is_not_there_is_refused(server):
    for body, param in (({"n_probs": 3}, "n_probs"),
                        ({"return_tokens": True}, "return_tokens"),
                        ({"mirostat": 1}, "mirostat"),
                        ({"prompt": None}, "prompt")):
        answer = post(server, "/completion", **{"prompt": "a", **body})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == param
    answer = post(server, "/infill", input_prefix="a", input_suffix="b")
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "no_infill_tokens"


def test_props_slots_and_adapters(server):
    props = json.loads(server.get("/props"))
    assert props["model_alias"] == MODEL_ID and props["total_slots"] > 0
    assert "im_start" in props["chat_template"]
    assert props["default_generation_settings"]["n_ctx"] == 8192
    slots = json.loads(server.get("/slots"))
    assert len(slots) == props["total_slots"]
    assert not any(slot["is_processing"] for slot in slots)
    assert json.loads(server.get("/lora-adapters")) == []


@pytest.mark.parametrize("action", ["save", "restore", "erase"])
def test_actions_on_slots_are_refused_with_what_to_use(server, action):
    answer = requests.post(f"{server.url}/slots/0", params={"action": action},
                           json={"filename": "a.bin"}, timeout=30)
    assert answer.status_code == 501
    assert "--kv-cache-dir" in answer.json()["error"]["message"]


def test_an_unknown_action_on_a_slot_is_named(server):
    for path in ("/slots/0?action=move", "/slots/0"):
        answer = requests.post(server.url + path, json={}, timeout=30)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "action"

"""llama.cpp's own routes, as its clients call them."""
import json
import math

import pytest
import requests

from conftest import MODEL_ID, start


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


def test_the_tokens_of_an_answer(server):
    ask = dict(prompt="The capital of France is", temperature=0, n_predict=8)
    assert post(server, "/completion", **ask).json()["tokens"] == []
    answer = post(server, "/completion", return_tokens=True, **ask).json()
    assert len(answer["tokens"]) == 8
    text = requests.post(server.url + "/detokenize", timeout=60, json={
        "tokens": answer["tokens"]}).json()["content"]
    assert text == answer["content"]
    events = [json.loads(line[6:]) for line in post(
        server, "/completion", stream=True, **ask).text.splitlines()
        if line.startswith("data: ")]
    assert [id for e in events for id in e["tokens"]] == answer["tokens"]
    # What ends an answer is a token, too.
    ends = post(server, "/completion", return_tokens=True, **{
        **ask, "n_predict": 200, "prompt": "<|im_start|>user\nSay yes."
        "<|im_end|>\n<|im_start|>assistant\n"}).json()
    assert ends["stop_type"] == "eos"
    assert len(ends["tokens"]) == ends["tokens_predicted"]
    assert post(server, "/completion", return_tokens=True, **{
        **ask, "n_predict": 0}).json()["tokens"] == []


def test_probabilities_and_chosen_fields(server):
    ask = dict(prompt="The capital of France is", temperature=0, n_predict=4,
               n_probs=3)
    answer = post(server, "/completion", return_tokens=True, **ask).json()
    told = answer["completion_probabilities"]
    assert [token["id"] for token in told] == answer["tokens"]
    assert "".join(token["token"] for token in told) == answer["content"]
    for token in told:
        assert bytes(token["bytes"]).decode() == token["token"]
        assert len(token["top_logprobs"]) == 3
        assert token["top_logprobs"][0]["logprob"] == token["logprob"] <= 0
    events = [json.loads(line[6:]) for line in post(
        server, "/completion", stream=True, **ask).text.splitlines()
        if line.startswith("data: ")]
    assert [token for e in events[:-1]
            for token in e["completion_probabilities"]] == told
    names = ["content", "generation_settings/n_predict", "timings/none"]
    chosen = post(server, "/completion", response_fields=names, **ask).json()
    assert chosen == {"content": answer["content"],
                      "generation_settings/n_predict": 4}


def test_the_settings_of_an_answer(server):
    ask = dict(prompt="a", n_predict=2, seed=3, temperature=0.5, top_k=7,
               repeat_penalty=1.1, dry_multiplier=0.8, stop=["x"],
               logit_bias=[[5, -1.5]], mirostat=2, grammar='root ::= "a"*')
    for stream in (False, True):
        text = post(server, "/completion", stream=stream, **ask).text
        answer = json.loads(text.strip().splitlines()[-1].removeprefix("data: "))
        settings = answer["generation_settings"]
        for name in ("n_predict", "seed", "temperature", "top_k", "stop",
                     "dry_multiplier", "repeat_penalty", "mirostat",
                     "grammar"):
            assert settings[name] == pytest.approx(ask[name]), name
        assert settings["logit_bias"] == [{"token": 5, "bias": -1.5}]
        assert settings["stream"] is stream
        assert settings["min_p"] == 0 and settings["dry_base"] == 1.75
    by_default = post(server, "/completion", prompt="a", n_predict=-1,
                      stop=["b", " "]).json()["generation_settings"]
    params = json.loads(server.get("/props"))[
        "default_generation_settings"]["params"]
    assert {**by_default, "stop": []} == params
    assert params["seed"] == 2**32 - 1


def stream_of(server, path, **body):
    lines = post(server, path, stream=True, **body).text.splitlines()
    return [json.loads(line[6:]) for line in lines
            if line.startswith("data: {")]


@pytest.mark.parametrize("path", ["/completion", "/v1/chat/completions",
                                  "/v1/completions"])
def test_how_far_the_prompt_is(server, path):
    text = f"{path}: " + "one two three four five six seven eight " * 300
    ask = dict(temperature=0, max_tokens=4, n_predict=4, ignore_eos=True)
    if "chat" in path:
        ask["messages"] = [{"role": "user", "content": text}]
    else:
        ask["prompt"] = text
    events = stream_of(server, path, return_progress=True,
                       timings_per_token=True, **ask)
    told = [e["prompt_progress"] for e in events if "prompt_progress" in e]
    total = told[0]["total"]
    assert total > 2048 and len(told) >= 3
    assert told[0] == {"total": total, "cache": 0, "processed": 0,
                       "time_ms": 0}
    for before, after in zip(told, told[1:]):
        assert before["processed"] < after["processed"]
        assert before["time_ms"] <= after["time_ms"]
    assert told[-1]["processed"] == total and told[-1]["time_ms"] > 0
    # It is told before the first token, and each event has timings.
    timed = [e["timings"] for e in events if "timings" in e]
    assert len(timed) >= len(told) + 2
    assert [t["predicted_n"] for t in timed[:len(told)]] == [0] * len(told)
    assert timed[0]["prompt_n"] == 0 and timed[-1]["prompt_n"] == total
    assert timed[-1]["predicted_n"] == 4
    again = stream_of(server, path, return_progress=True, **ask)
    told = [e["prompt_progress"] for e in again if "prompt_progress" in e]
    assert 0 < told[0]["cache"] == told[0]["processed"] < total
    assert told[-1]["processed"] == total
    plain = stream_of(server, path, **ask)
    assert not any("prompt_progress" in e for e in plain)
    assert sum("timings" in e for e in plain) == 1
    whole = post(server, path, return_progress=True, **ask).json()
    assert "prompt_progress" not in whole


def test_a_text_has_a_bias_by_its_tokens(server):
    ask = dict(prompt="The capital of France is", temperature=0, n_predict=4)
    assert "Paris" in post(server, "/completion", **ask).json()["content"]
    for bias in ([[" Paris", False]], [[" Paris", -100]], {" Paris": -100}):
        answer = post(server, "/completion", logit_bias=bias, **ask).json()
        assert "Paris" not in answer["content"], bias
    assert answer["generation_settings"]["logit_bias"][0]["bias"] == -100


def test_the_same_routes_under_other_paths(server):
    ask = dict(prompt="The capital of France is", temperature=0, n_predict=4)
    want = post(server, "/completion", **ask).json()["content"]
    assert post(server, "/completions", **ask).json()["content"] == want
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2,
            "temperature": 0}
    assert post(server, "/chat/completions", **chat).json()["choices"][0][
        "message"]["content"]
    answer = post(server, "/responses", input="Hi", max_output_tokens=2)
    assert answer.json()["object"] == "response"
    assert server.get("/v1/health") == server.get("/health")
    for path in ("/reranking", "/v1/reranking"):
        assert post(server, path, query="a", documents=["b"]).json() == post(
            server, "/v1/rerank", query="a", documents=["b"]).json()


def test_names_that_no_model_has():
    ask = dict(prompt="The capital of France is", temperature=0, max_tokens=4)
    with start("--served-model-name", "small,*") as server:
        for name in ("davinci-002", "small", MODEL_ID, "a/b"):
            answer = post(server, "/v1/completions", model=name, **ask).json()
            assert "Paris" in answer["choices"][0]["text"]
        models = json.loads(server.get("/v1/models"))["data"]
        assert [each["id"] for each in models] == [MODEL_ID, "small"]
        assert 'model="davinci-002"' not in server.get("/metrics").decode()
    with start("--served-model-name", "small") as server:
        answer = post(server, "/v1/completions", model="davinci-002", **ask)
        assert answer.status_code == 404


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
                   {"mirostat": 2, "mirostat_tau": 1},
                   {"mirostat": 1, "mirostat_tau": 1},
                   {"samplers": ["temperature", "top_p"], "top_p": 0.3},
                   {"min_keep": 50, "top_p": 0.01},
                   {"repeat_last_n": 4, "frequency_penalty": 2}):
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
    # Two of the likeliest stay, so that the greatest is not the only one.
    cut = dict(ask, top_p=0.01, seed=1)
    one = {post(server, "/completion", **dict(cut, seed=seed)).json()["content"]
           for seed in range(4)}
    some = {post(server, "/completion", **dict(cut, seed=seed, min_keep=5))
            .json()["content"] for seed in range(4)}
    assert len(one) == 1 and len(some) == 4


def test_penalties_of_the_last_tokens(server):
    """A token that may not stand twice in the last N tokens comes back after
    N, and what is beyond the window has no effect."""
    ask = dict(prompt="one two three four", temperature=0, n_predict=40,
               ignore_eos=True, return_tokens=True, presence_penalty=2,
               frequency_penalty=2, repeat_penalty=10)

    def tokens(**fields):
        answer = post(server, "/completion", **{**ask, **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()["tokens"]

    def gaps(ids):
        last, found = {}, []
        for i, token in enumerate(ids):
            if token in last:
                found.append(i - last[token])
            last[token] = i
        return found

    everything = tokens(repeat_last_n=-1)
    assert not gaps(everything)
    assert tokens(repeat_last_n=10000) == everything
    few = tokens(repeat_last_n=5)
    assert few != everything
    assert gaps(few) and min(gaps(few)) > 5
    off = tokens(repeat_last_n=0)
    assert off == tokens(repeat_penalty=1, presence_penalty=0,
                         frequency_penalty=0)
    settings = post(server, "/completion", **{**ask, "n_predict": 1},
                    repeat_last_n=5, min_keep=2).json()["generation_settings"]
    assert settings["repeat_last_n"] == 5 and settings["min_keep"] == 2
    # By each API, several at once, and streamed.
    answer = post(server, "/v1/completions", prompt=ask["prompt"], n=2,
                  temperature=0, max_tokens=40, ignore_eos=True,
                  presence_penalty=2, frequency_penalty=2, repeat_penalty=10,
                  repeat_last_n=5)
    assert answer.status_code == 200, answer.text
    texts = {choice["text"] for choice in answer.json()["choices"]}
    assert texts == {post(server, "/completion", repeat_last_n=5,
                          **ask).json()["content"]}


GREEDY = dict(temperature=0, n_predict=24, ignore_eos=True)


def said(server, path, **body):
    """The text of an answer, and the whole of it."""
    if "chat" in path:
        body["messages"] = [{"role": "user", "content": "Say one two one two."}]
    else:
        body["prompt"] = "one two one two one two one two one two"
    answer = post(server, path, **body)
    assert answer.status_code == 200, answer.text
    whole = answer.json()
    if path == "/completion":
        return whole["content"], whole
    choice = whole["choices"][0]
    return (choice["message"]["content"] if "chat" in path
            else choice["text"]), whole


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions",
                                  "/completion"])
def test_names_of_fields_on_every_route(server, path):
    plain, whole = said(server, path, **GREEDY)
    if path != "/completion":
        assert whole["usage"]["completion_tokens"] == 24
    ours = said(server, path, repetition_penalty=1.8, **GREEDY)[0]
    assert said(server, path, repeat_penalty=1.8, **GREEDY)[0] == ours != plain
    assert said(server, path, repeat_penalty=1.8, repeat_last_n=-1,
                **GREEDY)[0] == ours
    assert said(server, path, repeat_penalty=1.8, repeat_last_n=0,
                **GREEDY)[0] == plain
    # Of many samplers only the named ones act, in llama.cpp's order.
    random = dict(GREEDY, temperature=1.5, seed=3)
    assert said(server, path, top_k=1, **random)[0] == plain
    assert said(server, path, top_k=1, samplers=["temperature"],
                **random)[0] != plain
    assert said(server, path, top_k=1, repeat_penalty=1.8,
                samplers=["top_k", "temperature"], **random)[0] == plain
    for body, param in (
            ({"repeat_penalty": 1.8, "repetition_penalty": 2},
             "repeat_penalty"),
            ({"samplers": ["top_k", "top_k"]}, "samplers"),
            ({"samplers": ["adaptive_p"]}, "samplers"),
            ({"adaptive_target": 0.5}, "adaptive_target"),
            ({"lora": [{"id": 0, "scale": 1}]}, "lora"),
            ({"grammar": "root ::= [a]", "grammar_lazy": True},
             "grammar_lazy")):
        answer = post(server, path, prompt="a", messages=[
            {"role": "user", "content": "a"}], **body)
        assert answer.status_code == 400, (body, answer.text)
        assert answer.json()["error"]["param"] == param


def test_probabilities_by_llama_cpps_name(server):
    _, chat = said(server, "/v1/chat/completions", n_probs=2, **GREEDY)
    entries = chat["choices"][0]["logprobs"]["content"]
    assert len(entries) == 24
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
    _, text = said(server, "/v1/completions", n_probs=2, **GREEDY)
    assert all(len(top) == 2
               for top in text["choices"][0]["logprobs"]["top_logprobs"])


def test_probabilities_after_sampling(server):
    ask = dict(prompt="The capital of France is", n_predict=6, seed=11,
               n_probs=4, post_sampling_probs=True, top_k=0, top_p=1, min_p=0,
               repeat_penalty=1)
    def told(**more):
        answer = post(server, "/completion", **{**ask, **more}).json()
        return answer["completion_probabilities"]
    for greedy in ({"temperature": 0}, {"top_k": 1}):
        for token in told(**greedy):
            assert token["prob"] == 1
            assert [each["prob"] for each in token["top_probs"]] == [1]
    full = told(temperature=1)
    plain = told(temperature=1, post_sampling_probs=False)
    for token, raw in zip(full, plain):
        assert token["prob"] == pytest.approx(math.exp(raw["logprob"]))
        assert [each["id"] for each in token["top_probs"]] == [
            each["id"] for each in raw["top_logprobs"]]
        assert "logprob" not in token
    # Of three candidates at another temperature, by hand.
    few = told(temperature=0.5, top_k=3)
    raw = told(temperature=0.5, top_k=3, post_sampling_probs=False)
    for token, before in zip(few, raw):
        weights = [math.exp(each["logprob"] / 0.5)
                   for each in before["top_logprobs"][:3]]
        assert [each["prob"] for each in token["top_probs"]] == pytest.approx(
            [weight / sum(weights) for weight in weights], abs=1e-5)
        assert token["prob"] in [each["prob"] for each in token["top_probs"]]
    answer = post(server, "/v1/completions", prompt="a", logprobs=2,
                  post_sampling_probs=True)
    assert answer.status_code == 400


def test_several_completions_of_a_prompt(server):
    ask = dict(prompt="Once", n_predict=8, temperature=1, ignore_eos=True)
    first, second = post(server, "/completion", n_cmpl=2, seed=7, **ask).json()
    assert [first["index"], second["index"]] == [0, 1]
    for seed, answer in ((7, first), (8, second)):
        alone = post(server, "/completion", seed=seed, **ask).json()
        assert answer["content"] == alone["content"]
    assert first["content"] != second["content"]
    many = post(server, "/completion", **{**ask, "prompt": ["a"] * 9},
                n_cmpl=8)
    assert many.status_code == 400
    assert many.json()["error"]["param"] == "n_cmpl"


def test_what_is_not_there_is_refused(server):
    for body, param in (({"n_probs": 21}, "n_probs"),
                        ({"n_probs": 2, "post_sampling_probs": True,
                          "top_k": 40}, "post_sampling_probs"),
                        ({"n_probs": 2, "post_sampling_probs": True,
                          "repeat_penalty": 1.1}, "post_sampling_probs"),
                        ({"response_fields": [3]}, "response_fields[0]"),
                        ({"return_progress": "yes"}, "return_progress"),
                        ({"timings_per_token": 1}, "timings_per_token"),
                        ({"logit_bias": [[1.5, 1]]}, "logit_bias[0]"),
                        ({"lora": [{"id": 0, "scale": 1}]}, "lora"),
                        ({"mirostat": 3}, "mirostat"),
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

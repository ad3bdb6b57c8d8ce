"""Rules about which tokens come next, by name (vLLM's `logits_processors`) and
by the fields that they set, behind openai-python.

The oracle of greedy answers is plain: each token must be the likeliest of the
alternatives that the server reports, but for those that the rule forbids.
"""
import json
import urllib.request

import openai
import pytest
from conftest import MODEL, MODEL_ID, start

TEXT = "one two three one two three one two three one two"


def post(server, path, **body):
    request = urllib.request.Request(
        server.url + path, json.dumps({"model": MODEL_ID, **body}).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def complete(client, max_tokens=16, **extra):
    answer = client.completions.create(
        model=MODEL_ID, prompt=TEXT, temperature=0, max_tokens=max_tokens,
        logprobs=20, extra_body={"ignore_eos": True, **extra})
    return answer.choices[0]


def tokens(choice):
    return choice.logprobs.tokens


def named(name, *args, **kwargs):
    return {"qualname": name, "args": list(args), "kwargs": kwargs}


def pieces(server, text):
    ids = post(server, "/tokenize", prompt=text)["tokens"]
    return [post(server, "/detokenize", tokens=[id])["prompt"] for id in ids]


def id_of(server, piece):
    ids = post(server, "/tokenize", prompt=piece)["tokens"]
    assert len(ids) == 1
    return ids[0]


def check(choice, is_forbidden):
    """By `is_forbidden(output so far, token)`; the number of tokens that the
    rule changed."""
    changed = 0
    for i, chosen in enumerate(tokens(choice)):
        top = sorted(choice.logprobs.top_logprobs[i].items(),
                     key=lambda each: -each[1])
        free = [text for text, _ in top
                if not is_forbidden(tokens(choice)[:i], text)]
        assert chosen == free[0], (i, chosen, top)
        changed += chosen != top[0][0]
    return changed


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_ngram_comes_twice(server, client, n):
    prompt = pieces(server, TEXT)

    def repeats(output, token):
        text = [*prompt, *output, token]
        grams = [tuple(text[i:i + n]) for i in range(len(text) - n + 1)]
        return grams[-1] in grams[:-1]

    by_field = complete(client, no_repeat_ngram_size=n)
    assert check(by_field, repeats) > 0
    by_name = complete(client,
                       logits_processors=[named("no_repeat_ngram", n)])
    assert by_name == by_field
    if n == 3:
        assert complete(client,
                        logits_processors=["no_repeat_ngram"]) == by_field


def test_suppressed_tokens(server, client):
    words = [" three", " one"]
    ids = [id_of(server, word) for word in words]
    by_field = complete(client, suppress_tokens=ids)
    assert check(by_field, lambda _, token: token in words) > 0
    assert complete(client, logits_processors=[
        named("suppress_tokens", suppress_tokens=ids)]) == by_field


def test_allowed_tokens(server, client):
    words = [" three", " one", " four"]
    ids = [id_of(server, word) for word in words]
    by_name = complete(client, 8, logits_processors=[
        named("allowed_token_ids", ids)])
    assert check(by_name, lambda _, token: token not in words) > 0
    assert complete(client, 8, allowed_token_ids=ids) == by_name


def test_bad_words(server, client):
    by_name = complete(client, logits_processors=[
        named("bad_words", ["three one"])])

    def is_bad(output, token):
        return ["three one"] == ["".join([*output, token][-2:]).strip()]

    assert check(by_name, is_bad) > 0
    assert complete(client, bad_words=["three one"]) == by_name


def test_rules_together(server, client):
    three = id_of(server, " three")
    prompt = pieces(server, TEXT)

    def is_forbidden(output, token):
        text = [*prompt, *output, token]
        return token == " three" or (text[-2:] in [
            text[i:i + 2] for i in range(len(text) - 2)])

    choice = complete(client, logits_processors=[
        named("suppress_tokens", [three]), named("no_repeat_ngram", 2)])
    assert check(choice, is_forbidden) > 1


def test_the_other_names_are_their_fields(client):
    """Random draws: a name and its fields give the same text."""
    plain = dict(model=MODEL_ID, prompt=TEXT, temperature=1.2, seed=5,
                 max_tokens=24)
    usual = client.completions.create(**plain).choices[0].text
    for name, fields in {
            "dry": {"dry_multiplier": 5, "dry_allowed_length": 1},
            "frequency_penalty": {"frequency_penalty": 2},
            "logit_bias": {"logit_bias": {"30": 50}},
            "min_p": {"min_p": 0.5},
            "presence_penalty": {"presence_penalty": 2},
            "repetition_penalty": {"repetition_penalty": 1.8},
            "top_n_sigma": {"top_n_sigma": 0.2},
            "typical": {"typical_p": 0.2},
            "xtc": {"xtc_probability": 1, "xtc_threshold": 0.05}}.items():
        by_field = client.completions.create(
            **plain, extra_body=fields).choices[0].text
        by_name = client.completions.create(**plain, extra_body={
            "logits_processors": [named(name, **fields)]}).choices[0].text
        assert by_name == by_field != usual, name


def test_chats_and_several_answers(client):
    """n > 1 shares the prompt; draft tokens are on."""
    ask = dict(model=MODEL_ID, max_completion_tokens=24, n=3, seed=1,
               messages=[{"role": "user", "content": "Count: " + TEXT}])
    by_field = client.chat.completions.create(
        **ask, extra_body={"no_repeat_ngram_size": 2})
    by_name = client.chat.completions.create(
        **ask, extra_body={"logits_processors": [named("no_repeat_ngram", 2)]})
    texts = [choice.message.content for choice in by_field.choices]
    assert [choice.message.content for choice in by_name.choices] == texts
    assert len(set(texts)) > 1


def refused(client, processors):
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, logits_processors=processors)
    assert caught.value.body["param"] == "logits_processors"
    return caught.value.body["message"]


def test_unknown_names_are_refused(client):
    message = refused(client, ["vllm.Secret"])
    assert message.startswith(
        'logits_processors[0] names "vllm.Secret", which is no logits '
        "processor of this server; it has allowed_token_ids, bad_words, dry,")
    assert "needs min_p" in refused(client, ["min_p"])
    assert "sets dry_multiplier, which the request sets already" in refused(
        client, ["dry", named("dry", 1)])


def test_a_pattern_says_which_may_be_named():
    with start(MODEL, "--logits-processor-pattern", "min_|xtc$") as running:
        client = openai.OpenAI(base_url=running.url + "/v1", api_key="none",
                               max_retries=0, timeout=120)
        assert refused(client, ["xtc", "dry"]) == (
            'logits_processors[1] names "dry", which logits_processor_pattern '
            f"of model '{MODEL_ID}' does not allow; it allows min_p, "
            "min_tokens, xtc")
        complete(client, logits_processors=["xtc", named("min_tokens", 2)])
        # The pattern is about names; the fields are there as ever.
        complete(client, dry_multiplier=1)
    with pytest.raises(AssertionError, match="is no regular expression"):
        with start(MODEL, "--logits-processor-pattern", "("):
            pass

"""Chats with images: a tiny folder of the Idefics3 class behind openai-python.

What transformers makes of the same chats is in tests/data/hf_idefics3.
"""
import base64
import concurrent.futures
import json
import shutil
import struct
import zlib

import openai
import pytest
import requests
from conftest import REPO, start

FOLDER = REPO / "tests" / "data" / "hf_idefics3"
GOLDEN = json.loads((FOLDER / "golden.json").read_text())
CASES = {case["name"]: case for case in GOLDEN["cases"]}
FLOATS = ["--compute-dtype", "f32", "--kv-cache-dtype", "f32"]


def serve(*flags, folder=FOLDER):
    return start(f"vlm={folder}", *FLOATS, *flags)


def client_of(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none",
                         max_retries=0, timeout=120)


def url(data, kind="png"):
    return f"data:image/{kind};base64," + base64.b64encode(data).decode()


def part(data, kind="png"):
    return {"type": "image_url", "image_url": {"url": url(data, kind)}}


def messages(case):
    """The case's chat in OpenAI's shape."""
    files = iter(case["images"])
    out = []
    for message in case["messages"]:
        content = []
        for each in message["content"]:
            if each["type"] == "image":
                name = next(files)
                each = part((FOLDER / name).read_bytes(),
                            "jpeg" if name.endswith("jpg") else "png")
            content.append(each)
        out.append({**message, "content": content})
    return out


def ask(client, case, num_tokens=None, **more):
    return client.chat.completions.create(
        model="vlm", messages=messages(case), temperature=0, logprobs=True,
        max_completion_tokens=num_tokens or len(case["answer"]), **more)


def tokens(answer):
    """Bytes of each token: text alone hides those that are no UTF-8."""
    return [(bytes(each.bytes), each.logprob)
            for each in answer.choices[0].logprobs.content]


def bytes_of_ids():
    """By id, as byte-level BPE spells them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    spelt = {chr(byte): byte for byte in plain}
    spelt |= {chr(256 + i): byte for i, byte in enumerate(others)}
    tokenizer = json.loads((FOLDER / "tokenizer.json").read_text())
    out = {id: bytes(spelt[each] for each in text)
           for text, id in tokenizer["model"]["vocab"].items()}
    return out | {token["id"]: token["content"].encode()
                  for token in tokenizer["added_tokens"]}


BYTES = bytes_of_ids()
END = json.loads((FOLDER / "config.json").read_text())["eos_token_id"]


def check(case, answer):
    assert answer.usage.prompt_tokens == len(case["ids"])
    assert answer.choices[0].message.content == case["answer_text"]
    # The token that ends an answer is no part of it.
    ids = [id for id in case["answer"] if id != END]
    assert [each for each, _ in tokens(answer)] == [BYTES[id] for id in ids]


@pytest.fixture(scope="module")
def vlm():
    with serve() as running:
        yield running


@pytest.mark.parametrize("name", [n for n in CASES if CASES[n]["split"]])
def test_tokens_are_those_of_transformers(vlm, name):
    case = CASES[name]
    client = client_of(vlm)
    answer = ask(client, case)
    check(case, answer)
    again = ask(client, case)
    assert tokens(again) == tokens(answer)
    # All full pages but that of the last token, images included.
    cached = again.usage.prompt_tokens_details.cached_tokens
    assert cached == (len(case["ids"]) - 1) // 64 * 64


def test_images_that_are_not_split(tmp_path):
    for path in FOLDER.iterdir():
        shutil.copy(path, tmp_path)
    config = json.loads((FOLDER / "processor_config.json").read_text())
    config["image_processor"]["do_image_splitting"] = False
    (tmp_path / "processor_config.json").write_text(json.dumps(config))
    with serve(folder=tmp_path) as running:
        for case in CASES.values():
            if not case["split"]:
                check(case, ask(client_of(running), case))


def test_other_images_behind_the_same_text_are_told_apart(vlm):
    """The same tokens all along; the prefix cache may not mix them up."""
    client = client_of(vlm)
    case = CASES["wide"]
    right = ask(client, case)
    # The same size, other pixels.
    data = (FOLDER / "wide.png").read_bytes()
    other = png(90, 50, lambda x, y: (x * 2, y * 5, 9))
    chat = messages(case)
    assert chat[0]["content"][0] == part(data)
    chat[0]["content"][0] = part(other)
    wrong = client.chat.completions.create(
        model="vlm", messages=chat, temperature=0, logprobs=True,
        max_completion_tokens=len(case["answer"]))
    assert wrong.usage.prompt_tokens == right.usage.prompt_tokens
    assert wrong.usage.prompt_tokens_details.cached_tokens == 0
    assert tokens(wrong) != tokens(right)
    assert tokens(ask(client, case)) == tokens(right)


def test_company_and_chunks_do_not_change_a_bit(vlm):
    """Alone in large steps; then together in steps of a few rows, with so few
    pages that sequences are put back to the start."""
    cases = [case for case in CASES.values() if case["split"]]
    long = {"num_tokens": 80, "extra_body": {"ignore_eos": True}}
    alone = [tokens(ask(client_of(vlm), case, **long)) for case in cases]
    with serve("--max-num-batched-tokens", "32", "--max-num-seqs", "4",
               "--kv-cache-memory-bytes", "230KiB", "--max-model-len",
               "448") as running:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            together = list(pool.map(
                lambda case: tokens(ask(client_of(running), case, **long)),
                cases * 3))
        preempted = running.metric("millrace_preemptions_total")
    assert together == alone * 3
    assert sum(preempted.values()) > 0


def test_several_completions_share_the_images(vlm):
    case = CASES["photo"]
    answer = ask(client_of(vlm), case, n=3)
    assert {choice.message.content for choice in answer.choices} == {
        case["answer_text"]}


def test_streams(vlm):
    case = CASES["tall"]
    stream = client_of(vlm).chat.completions.create(
        model="vlm", messages=messages(case), temperature=0, stream=True,
        max_completion_tokens=len(case["answer"]),
        stream_options={"include_usage": True})
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or ""
                   for chunk in chunks if chunk.choices)
    assert text == case["answer_text"]
    assert chunks[-1].usage.prompt_tokens == len(case["ids"])


def test_chats_without_images(vlm):
    """A string is one part; parts of text stay parts."""
    client = client_of(vlm)
    texts = ["Hello", [{"type": "text", "text": "Hello"}]]
    answers = [client.chat.completions.create(
        model="vlm", temperature=0, max_completion_tokens=4,
        messages=[{"role": "user", "content": text}]) for text in texts]
    assert (answers[0].choices[0].message.content
            == answers[1].choices[0].message.content)
    # Words of the user are never the token.
    answer = client.chat.completions.create(
        model="vlm", temperature=0, max_completion_tokens=4,
        messages=[{"role": "user", "content": "an <image> of a mill"}])
    assert answer.usage.prompt_tokens > answers[0].usage.prompt_tokens


def png(width, height, pixel=lambda x, y: (0, 0, 0)):
    rows = b"".join(
        b"\0" + b"".join(bytes(v % 256 for v in pixel(x, y))
                         for x in range(width)) for y in range(height))

    def chunk(name, data):
        return (struct.pack(">I", len(data)) + name + data
                + struct.pack(">I", zlib.crc32(name + data)))
    return (b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0,
                                         0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def refused(server, content, model="vlm"):
    with pytest.raises(openai.BadRequestError) as caught:
        client_of(server).chat.completions.create(
            model=model, max_completion_tokens=4,
            messages=[{"role": "user", "content": content}])
    assert caught.value.status_code == 400
    return caught.value.body["message"], caught.value.body["param"]


SMALL = (FOLDER / "small.png").read_bytes()


def test_bad_images(vlm):
    at = "messages[0].content[0]"
    bad = {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}
    assert refused(vlm, [bad]) == (
        f"{at}.image_url.url is no data URL, and this server fetches nothing; "
        "send the image itself as data:image/png;base64,... (or jpeg, webp)",
        f"{at}.image_url.url")
    bad["image_url"]["url"] = "data:image/png;base64,@@@@"
    assert refused(vlm, [bad]) == (
        f"{at}.image_url.url has no base64 behind its comma",
        f"{at}.image_url.url")
    message, field = refused(vlm, [part(SMALL[:200])])
    assert message.startswith(f"{at}.image_url: ") and field == f"{at}.image_url"
    assert "end" in message, message
    message, field = refused(vlm, [part(b"GIF89a" + b"\0" * 100)])
    assert message.startswith(f"{at}.image_url: ") and "GIF" in message, message
    message, field = refused(vlm, [part(b"hello")])
    assert message.startswith(f"{at}.image_url: "), message
    # More tokens than the context, told before they are computed.
    many = [part(SMALL)] * 8
    assert refused(vlm, many) == (
        "messages[0].content[6].image_url: the images up to this one have 1071 "
        "tokens but the context of model 'vlm' is 1024; send fewer images",
        "messages[0].content[6].image_url")
    # The server is as it was.
    case = CASES["photo"]
    check(case, ask(client_of(vlm), case))


def test_limits_are_settings():
    with serve("--limit-mm-per-prompt", '{"image": 2}', "--max-pixels",
               "5000") as running:
        message, field = refused(running, [part(SMALL)] * 3)
        assert message == (
            "the request has 3 images but model 'vlm' takes 2; send fewer or "
            "raise limit_mm_per_prompt")
        assert field == "messages[0].content[2]"
        message, field = refused(running, [part(png(100, 51))])
        assert message == (
            "messages[0].content[0].image_url: the PNG has 100 x 51 pixels but "
            "at most 5000 pixels are allowed (max_pixels); send a smaller one")
        check(CASES["two"], ask(client_of(running), CASES["two"]))
    with pytest.raises(AssertionError, match="limit_mm_per_prompt is 'two'"):
        with serve("--limit-mm-per-prompt", "two"):
            pass


def test_a_template_that_places_no_images(tmp_path):
    path = tmp_path / "template.jinja"
    path.write_text("{% for message in messages %}"
                    "{{ message['content'][-1]['text'] }}{% endfor %}")
    with serve("--chat-template", path) as running:
        message, field = refused(
            running, [part(SMALL), {"type": "text", "text": "What is it?"}])
        assert message == (
            "the chat template of model 'vlm' places 0 of the 1 images of the "
            "request; send images in messages of the user")
        assert field == "messages"


def test_an_image_to_a_model_of_text(server, client):
    model = client.models.list().data[0].id
    fetched = {"type": "image_url",
               "image_url": {"url": "https://a.example/b.png"}}
    for image in (part(SMALL), fetched):
        assert refused(server, [image], model) == (
            f"messages[0].content[0] is an image but model '{model}' takes only "
            "text", "messages[0].content[0]")


def test_tokenize_counts_images(vlm):
    """No rows are computed for it, and the ids are those of the prompt."""
    for name in ("wide", "tall", "two", "photo"):
        answer = requests.post(vlm.url + "/tokenize", timeout=60, json={
            "model": "vlm", "messages": messages(CASES[name])}).json()
        assert answer["tokens"] == CASES[name]["ids"]
        assert answer["count"] == len(CASES[name]["ids"])
    refusal = requests.post(vlm.url + "/tokenize", timeout=60, json={
        "model": "vlm", "messages": [
            {"role": "user", "content": [part(SMALL[:200])]}]})
    assert refusal.status_code == 400
    assert refusal.json()["error"]["param"] == "messages[0].content[0].image_url"

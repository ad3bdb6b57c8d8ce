"""Images over the other APIs, by their own clients: OpenAI's Responses,
Anthropic's Messages, Ollama, and llama.cpp's /completion. The answers are those of
/v1/chat/completions, which test_vision.py holds against transformers.
"""
import base64
import json
import urllib.error
import urllib.request

import anthropic
import ollama
import openai
import pytest
import requests
from conftest import MODEL_ID
from test_vision import CASES, FOLDER, SMALL, client_of, messages, serve, url

# Answers without an end token, so that lengths are equal everywhere.
TOKENS = 8


@pytest.fixture(scope="module")
def vlm():
    with serve() as running:
        yield running


def chat_answer(vlm, chat):
    answer = client_of(vlm).chat.completions.create(
        model="vlm", messages=chat, temperature=0, max_tokens=TOKENS)
    return answer.choices[0].message.content, answer.usage.prompt_tokens


def as_responses(chat):
    """The chat as `input` of a response."""
    out = []
    for message in chat:
        content = [
            {"type": "input_text", "text": part["text"]}
            if part["type"] == "text" else
            {"type": "input_image", "detail": "auto",
             "image_url": part["image_url"]["url"]}
            for part in message["content"]]
        out.append({"role": message["role"], "content": content})
    return out


def as_anthropic(chat, by_url=False):
    out = []
    for message in chat:
        content = []
        for part in message["content"]:
            if part["type"] == "text":
                content.append(part)
                continue
            head, data = part["image_url"]["url"].split(",")
            kind = head.removeprefix("data:").removesuffix(";base64")
            content.append({"type": "image", "source": (
                {"type": "url", "url": part["image_url"]["url"]} if by_url else
                {"type": "base64", "media_type": kind, "data": data})})
        out.append({"role": message["role"], "content": content})
    return out


SPLIT = [name for name in CASES if CASES[name]["split"]]


@pytest.mark.parametrize("name", SPLIT)
def test_responses(vlm, name):
    client = client_of(vlm)
    chat = messages(CASES[name])
    text, prompt_tokens = chat_answer(vlm, chat)
    response = client.responses.create(
        model="vlm", input=as_responses(chat), temperature=0,
        max_output_tokens=TOKENS)
    assert response.output_text == text
    assert response.usage.input_tokens == prompt_tokens
    events = client.responses.create(
        model="vlm", input=as_responses(chat), temperature=0,
        max_output_tokens=TOKENS, stream=True)
    assert "".join(event.delta for event in events
                   if event.type == "response.output_text.delta") == text


def test_a_response_goes_on_from_one_with_an_image(vlm):
    client = client_of(vlm)
    chat = messages(CASES["photo"])
    first = client.responses.create(
        model="vlm", input=as_responses(chat), temperature=0,
        max_output_tokens=TOKENS)
    second = client.responses.create(
        model="vlm", previous_response_id=first.id, input="And now?",
        temperature=0, max_output_tokens=TOKENS)
    # What the first one said is a message of the assistant's.
    text, prompt_tokens = chat_answer(vlm, [
        *chat, {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "And now?"}])
    assert (second.output_text, second.usage.input_tokens) == (
        text, prompt_tokens)


@pytest.mark.parametrize("by_url", [False, True])
@pytest.mark.parametrize("name", SPLIT)
def test_anthropic(vlm, name, by_url):
    client = anthropic.Anthropic(base_url=vlm.url, api_key="none",
                                 max_retries=0, timeout=120)
    chat = messages(CASES[name])
    text, prompt_tokens = chat_answer(vlm, chat)
    ask = dict(model="vlm", messages=as_anthropic(chat, by_url),
               max_tokens=TOKENS, extra_body={"temperature": 0})
    message = client.messages.create(**ask)
    assert "".join(block.text for block in message.content) == text
    assert (message.usage.input_tokens +
            message.usage.cache_read_input_tokens) == prompt_tokens
    with client.messages.stream(**ask) as stream:
        assert "".join(stream.text_stream) == text


def ollama_case(name):
    """Files of a case whose images come first, and its text."""
    case = CASES[name]
    files = [(FOLDER / image).read_bytes() for image in case["images"]]
    kinds = [part["type"] for part in case["messages"][0]["content"]]
    assert kinds == ["image"] * len(files) + ["text"]
    return files, case["messages"][0]["content"][-1]["text"]


@pytest.mark.parametrize("name", ["wide", "two", "photo"])
def test_ollama(vlm, name):
    client = ollama.Client(host=vlm.url)
    files, text = ollama_case(name)
    expected, prompt_tokens = chat_answer(vlm, messages(CASES[name]))
    options = {"temperature": 0, "num_predict": TOKENS}
    chat = [{"role": "user", "content": text, "images": files}]
    answer = client.chat(model="vlm", messages=chat, options=options)
    assert answer.message.content == expected
    assert answer.prompt_eval_count == prompt_tokens
    pieces = client.chat(model="vlm", messages=chat, options=options,
                         stream=True)
    assert "".join(each.message.content for each in pieces) == expected
    made = client.generate(model="vlm", prompt=text, images=files,
                           options=options)
    assert made.response == expected
    assert "vision" in client.show("vlm").capabilities


def post(server, path, **body):
    """The status of a refusal and its text."""
    request = urllib.request.Request(server.url + path,
                                     json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=30)
    return caught.value.code, caught.value.read().decode()


def test_props_say_that_images_are_taken(vlm, server):
    assert json.loads(vlm.get("/props"))["modalities"]["vision"] is True
    assert json.loads(server.get("/props"))["modalities"]["vision"] is False


@pytest.mark.parametrize("name", SPLIT)
def test_count_tokens_of_anthropic_counts_images(vlm, name):
    client = anthropic.Anthropic(base_url=vlm.url, api_key="none",
                                 max_retries=0, timeout=120)
    count = client.messages.count_tokens(
        model="vlm", messages=as_anthropic(messages(CASES[name])))
    assert count.input_tokens == len(CASES[name]["ids"])


def llama(vlm, prompt, **more):
    return requests.post(vlm.url + "/completion", timeout=120, json={
        "model": "vlm", "prompt": prompt, "temperature": 0,
        "n_predict": TOKENS, **more})


def media_prompt(vlm, case):
    """The case's chat as a text with markers, and its files."""
    marker = json.loads(vlm.get("/props"))["media_marker"]
    text = requests.post(vlm.url + "/apply-template", timeout=60, json={
        "model": "vlm", "messages": messages(case)}).json()["prompt"]
    return {"prompt_string": text.replace("<image>", marker),
            "multimodal_data": [
                base64.b64encode((FOLDER / name).read_bytes()).decode()
                for name in case["images"]]}


@pytest.mark.parametrize("name", SPLIT)
def test_completion_of_llama(vlm, name):
    case = CASES[name]
    expected, prompt_tokens = chat_answer(vlm, messages(case))
    prompt = media_prompt(vlm, case)
    answer = llama(vlm, prompt).json()
    assert answer["content"] == expected
    assert answer["tokens_evaluated"] == prompt_tokens
    assert answer["prompt"] == prompt["prompt_string"]
    assert llama(vlm, [prompt]).json()["content"] == expected
    both = llama(vlm, ["a", prompt]).json()
    assert [each["index"] for each in both] == [0, 1]
    assert both[1]["content"] == expected
    events = [json.loads(line[6:]) for line in llama(
        vlm, prompt, stream=True).text.splitlines()
        if line.startswith("data: ")]
    assert "".join(event["content"] for event in events) == expected
    # Without a limit the answer may fill the context.
    whole = llama(vlm, prompt, n_predict=-1, ignore_eos=True).json()
    assert whole["tokens_predicted"] == 1024 - prompt_tokens
    assert whole["stop_type"] == "limit"


def test_a_text_of_llama_without_files_has_no_markers(vlm):
    bare = llama(vlm, "a <__media__> b").json()
    wrapped = llama(vlm, {"prompt_string": "a <__media__> b"}).json()
    assert wrapped["content"] == bare["content"]
    assert wrapped["tokens_evaluated"] == bare["tokens_evaluated"]


BAD = base64.b64encode(b"GIF89a" + b"\0" * 100).decode()


def anthropic_image(source):
    return {"model": "vlm", "max_tokens": 4, "messages": [
        {"role": "user", "content": [{"type": "image", "source": source}]}]}


def ollama_image(image, **more):
    return {"model": "vlm", **more, "messages": [
        {"role": "user", "content": "x", "images": [image]}]}


def response_image(**part):
    return {"model": "vlm", "input": [{"role": "user", "content": [
        {"type": "input_text", "text": "x"},
        {"type": "input_image", **part}]}]}


@pytest.mark.parametrize("path, body, words", [
    ("/v1/responses", response_image(image_url="https://a.example/b.png"),
     "input[0].content[1].image_url is no data URL, and this server fetches"),
    ("/v1/responses", response_image(file_id="file-1"),
     "files by file_id are not read"),
    ("/v1/responses", response_image(image_url="data:;base64," + BAD),
     "input[0].content[1].image_url: "),
    ("/v1/messages", anthropic_image({"type": "base64", "data": "@@"}),
     "messages[0].content[0].source.data is no base64"),
    ("/v1/messages", anthropic_image({"type": "base64", "data": BAD}),
     "messages[0].content[0].source.data: "),
    ("/v1/messages", anthropic_image({"type": "url",
                                      "url": "https://a.example/b.png"}),
     "messages[0].content[0].source.url is no data URL, and this server"),
    ("/v1/messages", anthropic_image({"type": "file", "file_id": "f"}),
     "messages[0].content[0].source.type is"),
    ("/v1/messages", anthropic_image({"type": "base64"}),
     "messages[0].content[0].source.data is missing"),
    ("/v1/messages", {"model": "vlm", "max_tokens": 4, "messages": [
        {"role": "assistant", "content": [{"type": "image", "source": {}}]}]},
     "messages[0].content[0].type is"),
    ("/api/chat", ollama_image("@@"), "messages[0].images[0] is no base64"),
    ("/api/chat", ollama_image(BAD), "messages[0].images[0]: "),
    ("/api/chat", ollama_image(3),
     "messages[0].images[0] must be a string in base64"),
    ("/api/generate", {"model": "vlm", "prompt": "x", "images": [BAD]},
     "images[0]: "),
    ("/api/generate", {"model": "vlm", "prompt": "x", "images": "x"},
     "images must be an array of base64 strings"),
    ("/api/generate", {"model": "vlm", "prompt": "x", "raw": True, "images": [
        base64.b64encode(SMALL).decode()]}, "images stand in no raw prompt"),
    ("/completion", {"model": "vlm", "prompt": {
        "prompt_string": "<__media__>", "multimodal_data": ["@@"]}},
     "prompt.multimodal_data[0] is no base64"),
    ("/completion", {"model": "vlm", "prompt": [{
        "prompt_string": "<__media__>", "multimodal_data": [BAD]}]},
     "prompt[0].multimodal_data[0]: "),
    ("/completion", {"model": "vlm", "prompt": {
        "prompt_string": "<__media__>", "multimodal_data": "x"}},
     "prompt.multimodal_data must be an array of base64 strings"),
    ("/completion", {"model": "vlm", "prompt": {
        "prompt_string": "<__media__>", "multimodal_data": [3]}},
     "prompt.multimodal_data[0] must be a string in base64"),
    ("/completion", {"model": "vlm", "prompt": {"multimodal_data": []}},
     "prompt.prompt_string is missing"),
    ("/completion", {"model": "vlm", "prompt": [
        "a", {"prompt_string": "<__media__>", "multimodal_data": [BAD]}]},
     "prompt[1].multimodal_data[0]: "),
    ("/completion", {"model": "vlm", "prompt": [3, {"prompt_string": "b"}]},
     "prompt[0] must be a string, a list of token ids and strings, or"),
    ("/completion", {"model": "vlm", "prompt": {
        "prompt_string": "a", "multimodal_data": [
            base64.b64encode(SMALL).decode()]}},
     "the prompt has 0 times <__media__> but 1 images"),
    ("/completion", {"model": "vlm", "prompt": {
        "prompt_string": "<image><__media__>", "multimodal_data": [
            base64.b64encode(SMALL).decode()]}},
     "the prompt holds '<image>', which stands for an image"),
])
def test_bad_images(vlm, path, body, words):
    code, text = post(vlm, path, **body)
    assert code == 400
    assert words in text, text


def test_an_image_to_a_model_of_text(server, client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model=MODEL_ID, input=[
            {"role": "user", "content": [
                {"type": "input_image", "image_url": url(SMALL)}]}])
    assert caught.value.body["message"] == (
        f"input[0].content[0] is an image but model '{MODEL_ID}' takes only "
        "text")
    code, text = post(server, "/v1/messages", **{
        **anthropic_image({"type": "base64",
                           "data": base64.b64encode(SMALL).decode()}),
        "model": MODEL_ID})
    assert code == 400 and "takes only text" in text
    code, text = post(server, "/completion", prompt={
        "prompt_string": "<__media__>",
        "multimodal_data": [base64.b64encode(SMALL).decode()]})
    assert code == 400
    assert "prompt.multimodal_data[0] is an image but model" in text
    with pytest.raises(ollama.ResponseError, match="takes only text"):
        ollama.Client(host=server.url).chat(model=MODEL_ID, messages=[
            {"role": "user", "content": "x", "images": [SMALL]}])

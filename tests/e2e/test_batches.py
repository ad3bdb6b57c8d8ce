"""Files and batches through openai-python, unmodified."""
import json
import resource
import signal
import threading
import time

import openai
import pytest

from conftest import MODEL, MODEL_ID, start
from test_keys import create

PATIENCE = 600  # seconds; reached only when something is broken
WORDS = ["river", "stone", "cloud", "bread", "winter", "engine", "letter",
         "garden", "silver", "planet", "window", "forest"]


def client_of(server, key="none"):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=key,
                         max_retries=0, timeout=120)


def line(custom_id, body, url="/v1/chat/completions"):
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url,
                       "body": {"model": MODEL_ID, **body}})


def chats(count, max_tokens=12):
    """Half of them greedy, half drawn with a seed."""
    return {f"chat-{i}": {
        "messages": [{"role": "user",
                      "content": f"Say something about a {WORDS[i % 12]} "
                                 f"and the number {i}."}],
        "max_tokens": max_tokens, "seed": i, "temperature": i % 2}
        for i in range(count)}


def upload(client, lines, name="requests.jsonl"):
    return client.files.create(
        file=(name, "\n".join(lines).encode()), purpose="batch")


def submit(client, lines, endpoint="/v1/chat/completions", **fields):
    return client.batches.create(
        input_file_id=upload(client, lines).id, endpoint=endpoint,
        completion_window="24h", **fields)


def await_batch(client, batch_id, is_so=None):
    is_so = is_so or (lambda batch: batch.status in (
        "completed", "failed", "expired", "cancelled"))
    end = time.monotonic() + PATIENCE
    while True:
        batch = client.batches.retrieve(batch_id)
        if is_so(batch):
            return batch
        assert time.monotonic() < end, batch
        time.sleep(0.05)


def rows(client, file_id):
    """The lines of a file by custom id; each id is there once."""
    found = [json.loads(text)
             for text in client.files.content(file_id).text.splitlines()]
    by_id = {row["custom_id"]: row for row in found}
    assert len(by_id) == len(found)
    return by_id


def said(row):
    return row["response"]["body"]["choices"][0]["message"]["content"]


@pytest.fixture(scope="module")
def keeper(tmp_path_factory):
    with start(MODEL, "--max-model-len", 512, "--batch-dir",
               tmp_path_factory.mktemp("batches") / "new") as server:
        yield server


@pytest.fixture(scope="module")
def batcher(keeper):
    return client_of(keeper)


def test_files(batcher):
    kept = batcher.files.create(file=("a b.jsonl", b'{"x": 1}\n'),
                                purpose="batch",
                                expires_after={"anchor": "created_at",
                                               "seconds": 3600})
    assert kept.id.startswith("file-") and kept.object == "file"
    assert (kept.filename, kept.bytes, kept.purpose) == ("a b.jsonl", 9,
                                                         "batch")
    assert kept.expires_at == kept.created_at + 3600
    assert batcher.files.retrieve(kept.id) == kept
    assert batcher.files.content(kept.id).read() == b'{"x": 1}\n'
    others = [upload(batcher, ["{}"], f"{i}.jsonl").id for i in range(3)]
    listed = [file.id for file in batcher.files.list(limit=2)]  # pages
    assert listed[:4] == [*reversed(others), kept.id]
    assert batcher.files.list(order="asc").data[-1].id == others[-1]
    assert batcher.files.list(purpose="fine-tune").data == []
    assert batcher.files.delete(kept.id).deleted
    with pytest.raises(openai.NotFoundError, match="there is no file"):
        batcher.files.retrieve(kept.id)
    with pytest.raises(openai.BadRequestError, match="batches only"):
        batcher.files.create(file=b"x", purpose="fine-tune")
    for file in others:
        batcher.files.delete(file)


def test_a_full_disk_is_507_and_not_asked_again(keeper, batcher):
    """The size of files is limited: the system refuses the rest of a write, as a
    full disk does."""
    pid = keeper.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        asked = []
        patient = openai.OpenAI(
            base_url=keeper.url + "/v1", api_key="none", max_retries=2,
            http_client=openai.DefaultHttpxClient(event_hooks={
                "request": [asked.append]}))
        with pytest.raises(openai.InternalServerError) as caught:
            upload(patient, ["x" * 10_000])
        assert caught.value.status_code == 507
        assert caught.value.code == "disk_full"
        assert "make room on the disk of batch_dir" in str(caught.value)
        assert len(asked) == 1
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    kept = upload(batcher, ["x" * 10_000])
    batcher.files.delete(kept.id)


def test_a_batch_answers_as_the_routes_do(batcher):
    asked = chats(8)
    lines = [line(key, body) for key, body in asked.items()]
    lines.insert(3, line("wrong", {**asked["chat-0"], "max_tokens": -1}))
    made = submit(batcher, lines, metadata={"night": "1"})
    assert made.status == "validating" and made.object == "batch"
    assert made.metadata == {"night": "1"}
    batch = await_batch(batcher, made.id)
    assert batch.status == "completed" and batch.errors is None
    assert batch.request_counts.total == 9
    assert batch.request_counts.completed == 8
    assert batch.request_counts.failed == 1
    assert batch.in_progress_at and batch.finalizing_at and batch.completed_at
    answers = rows(batcher, batch.output_file_id)
    assert answers.keys() == asked.keys()
    tokens = 0
    for key, body in asked.items():
        response = answers[key]["response"]
        assert response["status_code"] == 200 and answers[key]["error"] is None
        tokens += response["body"]["usage"]["completion_tokens"]
        online = batcher.chat.completions.create(model=MODEL_ID, **body)
        assert said(answers[key]) == online.choices[0].message.content
    assert batch.usage.output_tokens == tokens
    (wrong,) = rows(batcher, batch.error_file_id).values()
    assert wrong["response"]["status_code"] == 400
    assert "max_tokens" in wrong["response"]["body"]["error"]["message"]
    assert batcher.batches.list(limit=1).data[0] == batch


def test_completions_without_a_model(batcher):
    batch = await_batch(batcher, submit(
        batcher, [json.dumps({
            "custom_id": "a", "method": "POST", "url": "/v1/completions",
            "body": {"prompt": "One, two,", "max_tokens": 4}})],
        "/v1/completions").id)
    assert batch.status == "completed" and batch.error_file_id is None
    assert rows(batcher, batch.output_file_id)["a"]["response"]["body"][
        "object"] == "text_completion"


@pytest.mark.parametrize("text,code,number", [
    ("", "empty_file", None),
    ("{", "invalid_json_line", 1),
    (line("a", {}, "/v1/completions"), "mismatched_url", 1),
    (line("a", {}) + "\n" + line("a", {}), "duplicate_custom_id", 2),
    (line("a", {"model": "nobody"}), "model_not_found", 1)])
def test_bad_input_fails_with_its_lines(batcher, text, code, number):
    batch = await_batch(batcher, submit(batcher, [text]).id)
    assert batch.status == "failed" and batch.failed_at
    assert batch.errors.data[0].code == code
    assert batch.errors.data[0].line == number
    assert batch.output_file_id is None


def test_refusals(batcher, client):
    for ask, error, text in (
            (lambda: batcher.batches.create(
                input_file_id="file-0", endpoint="/v1/chat/completions",
                completion_window="24h"), openai.NotFoundError, "no file"),
            (lambda: submit(batcher, ["{}"], "/v1/images"),
             openai.BadRequestError, "/v1/chat/completions"),
            (lambda: batcher.batches.retrieve("batch_0"),
             openai.NotFoundError, "no batch"),
            (lambda: upload(client, ["{}"]),
             openai.BadRequestError, "--batch-dir"),
            (lambda: client.batches.list(),
             openai.BadRequestError, "--batch-dir")):
        with pytest.raises(error, match=text):
            ask()


def test_a_batch_can_be_cancelled_and_needs_its_file(batcher):
    made = submit(batcher, [line(key, body) for key, body in
                            chats(300, 60).items()])
    await_batch(batcher, made.id, lambda b: b.request_counts.completed > 0)
    with pytest.raises(openai.BadRequestError, match="is the input of"):
        batcher.files.delete(made.input_file_id)
    assert batcher.batches.cancel(made.id).status == "cancelling"
    batch = await_batch(batcher, made.id)
    assert batch.status == "cancelled" and batch.cancelled_at
    done = rows(batcher, batch.output_file_id)
    rest = rows(batcher, batch.error_file_id)
    assert len(done) == batch.request_counts.completed
    assert len(done) + len(rest) == 300 and not done.keys() & rest.keys()
    assert {row["error"]["code"] for row in rest.values()} == {
        "batch_cancelled"}
    batcher.files.delete(made.input_file_id)


def test_online_requests_go_first(keeper, batcher):
    made = submit(batcher, [line(key, body) for key, body in
                            chats(1000, 40).items()])
    await_batch(batcher, made.id, lambda b: b.request_counts.completed > 0)
    for _ in range(3):
        answer = batcher.completions.create(model=MODEL_ID, prompt="One",
                                            max_tokens=4)
        assert answer.usage.completion_tokens == 4
    assert not batcher.batches.retrieve(made.id).completed_at
    batcher.batches.cancel(made.id)
    await_batch(batcher, made.id)


def test_a_killed_server_goes_on_with_equal_answers(batcher, tmp_path):
    asked = chats(120, 24)
    lines = [line(key, body) for key, body in asked.items()]
    whole = await_batch(batcher, submit(batcher, lines).id)
    expected = rows(batcher, whole.output_file_id)
    batch_id, before = None, []
    for done in (5, 20, None):
        # Slowly, so that the kill comes before the end.
        with start(MODEL, "--max-model-len", 512, "--batch-dir", tmp_path,
                   "--batch-concurrency", 1 if done else 8) as server:
            client = client_of(server)
            batch_id = batch_id or submit(client, lines).id
            if done is not None:
                await_batch(client, batch_id,
                            lambda b: b.request_counts.completed >= done)
                server.stop(signal.SIGKILL)
                part = tmp_path / "batches" / f"{batch_id}.output.part"
                # What the kill may have cut off is no line.
                before = part.read_text().rpartition("\n")[0].splitlines()
                assert done <= len(before) < 120
                continue
            batch = await_batch(client, batch_id)
            answers = rows(client, batch.output_file_id)
            ours = client.files.content(batch.output_file_id).text
            assert server.stop(signal.SIGTERM) == 0
    assert batch.status == "completed"
    assert batch.request_counts.completed == 120
    assert batch.usage.output_tokens == whole.usage.output_tokens
    # None of them was asked again.
    assert ours.splitlines()[:len(before)] == before
    assert answers.keys() == asked.keys()
    for key in asked:
        assert said(answers[key]) == said(expected[key]), key


def test_a_stop_does_not_wait_for_a_batch(tmp_path):
    with start(MODEL, "--max-model-len", 512, "--batch-dir",
               tmp_path) as server:
        client = client_of(server)
        made = submit(client, [line(key, body) for key, body in
                               chats(2000, 400).items()])
        await_batch(client, made.id, lambda b: b.status == "in_progress")
        assert server.stop(signal.SIGTERM) == 0


def test_tenants(tmp_path):
    keys, entries = {}, ""
    for tenant in ("one", "two"):
        keys[tenant], entry = create("--id", tenant, "--tenant", tenant)
        entries += entry
    path = tmp_path / "keys.yaml"
    path.write_text("tenants:\n  one: {}\n  two: {tokens_per_minute: 100000}\n"
                    "keys:\n" + entries)
    with start(MODEL, "--max-model-len", 512, "--batch-dir", tmp_path / "b",
               "--api-keys-file", path) as server:
        one, two = (client_of(server, keys[name]) for name in ("one", "two"))
        batches = {}
        for client in (one, two):
            batches[client] = submit(client, [
                line(key, body) for key, body in chats(6).items()])
        threads = [threading.Thread(target=await_batch,
                                    args=(client, batch.id))
                   for client, batch in batches.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        mine = await_batch(one, batches[one].id)
        assert mine.status == "completed"
        assert len(rows(one, mine.output_file_id)) == 6
        for call in (lambda: two.batches.retrieve(mine.id),
                     lambda: two.batches.cancel(mine.id),
                     lambda: two.files.content(mine.output_file_id),
                     lambda: two.files.delete(mine.input_file_id),
                     lambda: two.batches.create(
                         input_file_id=mine.input_file_id,
                         endpoint="/v1/chat/completions",
                         completion_window="24h")):
            with pytest.raises(openai.NotFoundError):
                call()
        assert mine.id not in {batch.id for batch in two.batches.list()}
        assert len(list(one.files.list())) == 2
        with pytest.raises(openai.AuthenticationError):
            client_of(server, "wrong").files.list()

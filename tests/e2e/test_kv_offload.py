"""KV pages in a folder: conversations outlive eviction, restarts and kills of
the server with the same answers; damaged files are computed again."""
import resource
import shutil
import signal
import time

import openai
import pytest
import requests

from conftest import MODEL, MODEL_ID, start

PAGE = 64
STORY = " ".join(f"On day {i} the {w} went to the {v}."
                 for i, (w, v) in enumerate(zip(
                     ["river", "stone", "cloud", "bread", "winter"] * 8,
                     ["garden", "planet", "window", "forest"] * 10)))


def metric(server, name):
    return sum(server.metric(name).values())


def await_metric(server, name, least):
    end = time.monotonic() + 60
    while metric(server, name) < least:
        assert time.monotonic() < end, (name, metric(server, name))
        time.sleep(0.02)


def ask(server, messages, seed=7):
    """What was said, with log-probabilities, and the tokens found computed."""
    answer = requests.post(server.url + "/v1/chat/completions", json={
        "model": MODEL_ID, "messages": messages, "max_tokens": 20,
        "temperature": 0.8, "seed": seed, "logprobs": True}, timeout=300)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    details = body["usage"].get("prompt_tokens_details") or {}
    return body["choices"][0], details.get("cached_tokens", 0)


def talk(number):
    return [{"role": "user", "content": f"Story {number}. {STORY} What now?"}]


def serve(folder, *flags):
    return start(MODEL, "--max-model-len", 2048, "--kv-cache-dir", folder,
                 *flags)


def stored(server):
    return metric(server, "millrace_kv_offload_stored_pages_total")


def test_conversations_outlive_a_kill(tmp_path):
    talks = [talk(i) for i in range(3)]
    with serve(tmp_path / "kv") as server:
        said = [ask(server, each) for each in talks]
        assert [cached for _, cached in said] == [0, 0, 0]
        usage = metric(server, "millrace_prompt_tokens_total")
        await_metric(server, "millrace_kv_offload_stored_pages_total",
                     usage // PAGE - 3)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(timeout=60)
    with serve(tmp_path / "kv") as server:
        for each, (choice, _) in zip(talks, said):
            again, cached = ask(server, each)
            assert again == choice  # text and log-probabilities
            assert cached >= 256
        # Only once; later from memory.
        restored = metric(server, "millrace_kv_offload_restored_pages_total")
        assert restored * PAGE == metric(
            server, "millrace_kv_offload_hit_tokens_total")
        assert ask(server, talks[0])[0] == said[0][0]
        assert restored == metric(
            server, "millrace_kv_offload_restored_pages_total")
        # The next turn of a conversation.
        longer = talks[1] + [said[1][0]["message"],
                             {"role": "user", "content": "Go on."}]
        longer[1] = {"role": "assistant",
                     "content": said[1][0]["message"]["content"]}
        turn, _ = ask(server, longer)
    with start(MODEL, "--max-model-len", 2048) as plain:
        assert ask(plain, longer)[0] == turn
        assert ask(plain, talks[2])[0] == said[2][0]


def test_evicted_pages_come_back(tmp_path):
    # Room for two conversations.
    with serve(tmp_path / "kv", "--max-model-len", 1024,
               "--kv-cache-memory-bytes", "32MiB") as server:
        first, _ = ask(server, talk(0))
        for i in range(1, 5):
            ask(server, talk(i))
        await_metric(server, "millrace_kv_offload_stored_pages_total", 20)
        before = metric(server, "millrace_kv_offload_restored_pages_total")
        again, cached = ask(server, talk(0))
        assert again == first and cached >= 256
        assert metric(server,
                      "millrace_kv_offload_restored_pages_total") > before


def test_damaged_files_are_computed_again(tmp_path):
    folder = tmp_path / "kv"
    with serve(folder) as server:
        first, _ = ask(server, talk(0))
        await_metric(server, "millrace_kv_offload_stored_pages_total", 5)
    pages = sorted(folder.glob("kv-*/*.page"))
    assert len(pages) >= 5
    assert all(page.stat().st_mode & 0o77 == 0 for page in pages)
    for page in pages:
        data = bytearray(page.read_bytes())
        data[len(data) // 2] ^= 1
        page.write_bytes(data)
    with serve(folder) as server:
        again, cached = ask(server, talk(0))
        assert again == first and cached == 0
        assert metric(server, "millrace_kv_offload_damaged_pages_total") == 1
        assert len(list(folder.glob("kv-*/*.page"))) >= 5


def test_the_folder_is_bounded_and_of_one_configuration(tmp_path):
    folder = tmp_path / "kv"
    with serve(folder, "--kv-cache-dir-max-size", "8MiB") as server:
        for i in range(4):
            ask(server, talk(i))
        await_metric(server, "millrace_kv_offload_evicted_pages_total", 5)
        size = sum(p.stat().st_size for p in folder.glob("kv-*/*.page"))
        assert 0 < size <= 8 << 20
    with serve(folder, "--kv-cache-dtype", "int8") as server:
        assert ask(server, talk(3))[1] == 0  # other bits
    assert len(list(folder.glob("kv-*"))) == 2


def warnings(server, text):
    return [line for line in server.lines
            if '"warning"' in line and text in line]


def test_a_kill_in_the_middle_of_writing(tmp_path):
    """Whatever the kill left of the files, the tokens are the same."""
    folder = tmp_path / "kv"
    with start(MODEL, "--max-model-len", 2048) as plain:
        want = ask(plain, talk(0))[0]
    for wait in (0, 0.01, 0.05):
        shutil.rmtree(folder, ignore_errors=True)
        with serve(folder) as server:
            assert ask(server, talk(0))[0] == want
            time.sleep(wait)
            server.process.send_signal(signal.SIGKILL)
            server.process.wait(timeout=60)
        with serve(folder) as server:
            assert ask(server, talk(0))[0] == want
            assert metric(server, "millrace_kv_offload_damaged_pages_total") == 0


def limit_files():
    """Files of 100 kB at most: like a full disk, in the middle of a page."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def test_what_cannot_be_written_is_told_and_harms_nobody(tmp_path):
    folder = tmp_path / "kv"
    with start(MODEL, "--max-model-len", 2048, "--kv-cache-dir", folder,
               preexec_fn=limit_files) as server:
        first, _ = ask(server, talk(0))
        await_metric(server, "millrace_kv_offload_failed_writes_total", 5)
        assert stored(server) == 0
        again, cached = ask(server, talk(0))
        assert again == first and cached >= 256  # from memory
        assert warnings(server, "a KV page cannot be written")
        assert list(folder.glob("kv-*/*")) == []
    with serve(folder) as server:
        assert ask(server, talk(0)) == (first, 0)
        await_metric(server, "millrace_kv_offload_stored_pages_total", 5)
        # The folder goes away.
        shutil.rmtree(folder)
        other, _ = ask(server, talk(1))
        await_metric(server, "millrace_kv_offload_failed_writes_total", 1)
        assert warnings(server, "a KV page cannot be written")
    with serve(folder) as server:
        assert ask(server, talk(1)) == (other, 0)


def test_a_page_of_other_tokens_is_not_taken(tmp_path):
    folder = tmp_path / "kv"
    with serve(folder) as server:
        first, _ = ask(server, talk(0))
        await_metric(server, "millrace_kv_offload_stored_pages_total", 5)
    pages = sorted(folder.glob("kv-*/*.page"))
    turned = [page.read_bytes() for page in pages[1:] + pages[:1]]
    for page, data in zip(pages, turned):
        page.write_bytes(data)
    with serve(folder) as server:
        assert ask(server, talk(0)) == (first, 0)
        assert metric(server, "millrace_kv_offload_damaged_pages_total") == 1
        assert warnings(server, "a KV page is damaged")


def test_openai_python_is_told_of_cached_tokens(tmp_path):
    def complete():
        with serve(tmp_path / "kv") as server:
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="none",
                                   max_retries=0, timeout=300)
            answer = client.completions.create(
                model=MODEL_ID, prompt=STORY, max_tokens=16, temperature=0,
                logprobs=1)
            await_metric(server, "millrace_kv_offload_stored_pages_total",
                         0 if answer.usage.prompt_tokens_details.cached_tokens
                         else answer.usage.prompt_tokens // PAGE)
            return answer
    first, second = complete(), complete()
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    # All full pages but the one with the last token, which is computed.
    assert second.usage.prompt_tokens_details.cached_tokens == (
        (first.usage.prompt_tokens - 1) // PAGE * PAGE)
    assert second.choices[0].logprobs.tokens == first.choices[0].logprobs.tokens
    assert second.choices[0].text == first.choices[0].text


def test_folders_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("x")
    for folder, flags, why in (
            (tmp_path / "file", [], "kv_cache_dir is .*Not a directory"),
            (tmp_path / "kv", ["--kv-cache-dir-max-size", "1KiB"],
             "one page of the KV cache takes")):
        with pytest.raises(AssertionError, match=why):
            with serve(folder, *flags):
                pass

"""A flood of one tenant leaves places and slots to another."""
import threading
import time

from conftest import MODEL, MODEL_ID, start
from test_keys import CHAT, call, create

LONG = {**CHAT, "max_tokens": 60, "ignore_eos": True}


def test_another_tenant_is_served_in_the_middle_of_a_flood(tmp_path):
    flood, first = create("--id", "flood", "--tenant", "flood")
    quiet, second = create("--id", "quiet", "--tenant", "quiet")
    (tmp_path / "keys.yaml").write_text(
        "tenants: {flood: {}, quiet: {}}\nkeys:\n" + first + second)
    ended = []

    def ask():
        status, _, said = call(running, "POST", "/v1/chat/completions", flood,
                               LONG)
        ended.append((status, time.monotonic(), said))

    with start("--api-keys-file", tmp_path / "keys.yaml", f"{MODEL_ID}={MODEL}",
               "--max-num-seqs", 2, "--max-queue-size", 6,
               "--max-model-len", 256) as running:
        asking = [threading.Thread(target=ask) for _ in range(16)]
        for each in asking:
            each.start()
        # 7 of 8 places are the flood's; the rest of it is refused.
        deadline = time.monotonic() + 60
        while len([status for status, _, _ in ended if status == 429]) < 9:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        status, _, said = call(running, "POST", "/v1/chat/completions", quiet,
                               CHAT)
        answered = time.monotonic()
        for each in asking:
            each.join()
    assert status == 200, said
    served = [at for status, at, _ in ended if status == 200]
    refused = [said for status, _, said in ended if status == 429]
    assert len(served) == 7 and "beside other tenants" in refused[0]
    # Of the flood only one runs at a time: most came after the quiet one.
    assert sum(at > answered for at in served) >= 4

"""Many clients at once: bounds hold, nobody waits for a slow reader, nothing
leaks."""
import asyncio
import json
import random
import socket
import time

import aiohttp

from conftest import MODEL_ID, start


def body(max_tokens, **more):
    return {"model": MODEL_ID, "prompt": "Once upon a time", "stream": True,
            "max_tokens": max_tokens, "ignore_eos": True, **more}


async def one(session, url, request):
    """(status, seconds to the header, text, whether [DONE] came)"""
    begun = time.monotonic()
    async with session.post(url + "/v1/completions", json=request) as answer:
        waited = time.monotonic() - begun
        text = await answer.text()
        return answer.status, waited, text


def test_the_queue_is_bounded_and_refuses_at_once():
    with start("--max-num-seqs", 64, "--max-queue-size", 64) as server:
        async def main():
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(connector=connector) as session:
                # Connections first, so that only requests are timed.
                await asyncio.gather(*[
                    session.get(server.url + "/health") for _ in range(256)])
                return await asyncio.gather(*[
                    one(session, server.url, body(24)) for _ in range(256)])
        answers = asyncio.run(main())
        done = [a for a in answers if a[0] == 200]
        refused = [a for a in answers if a[0] == 429]
        assert len(done) == 128 and len(refused) == 128
        assert all(a[2].rstrip().endswith("data: [DONE]") for a in done)
        assert all(json.loads(a[2])["error"]["type"] for a in refused)
        pages = server.pages()
        assert pages["used"] == 0


def test_random_cancels_leak_no_page():
    with start("--max-num-seqs", 16) as server:
        rng = random.Random(5)
        # The engine tells of them once its thread runs.
        while (total := sum(server.pages().values())) == 0:
            time.sleep(0.02)

        async def cancelled(session):
            try:
                async with session.post(server.url + "/v1/completions",
                                        json=body(rng.choice([40, 2000]))) as a:
                    for _ in range(rng.randrange(4)):
                        await a.content.readline()
            except aiohttp.ClientError:
                pass

        async def main():
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            async with aiohttp.ClientSession(connector=connector) as session:
                for _ in range(20):
                    tasks = [asyncio.create_task(cancelled(session))
                             for _ in range(50)]
                    await asyncio.sleep(rng.random() * 0.1)
                    for task in tasks:
                        if rng.random() < 0.5:
                            task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
        asyncio.run(main())
        end = time.monotonic() + 10
        while server.pages()["used"] != 0 and time.monotonic() < end:
            time.sleep(0.02)
        assert server.pages()["used"] == 0
        assert sum(server.pages().values()) == total


def test_a_slow_reader_delays_nobody(server):
    raw = socket.create_connection(("127.0.0.1", server.http_port))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    request = json.dumps(body(3000)).encode()
    raw.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
                b"application/json\r\nContent-Length: %d\r\n\r\n"
                % len(request) + request)  # and never reads

    async def main():
        async with aiohttp.ClientSession() as session:
            return await asyncio.gather(
                *[one(session, server.url, body(20)) for _ in range(4)])
    answers = asyncio.run(asyncio.wait_for(main(), 60))
    assert [a[0] for a in answers] == [200] * 4
    raw.close()


def test_preempted_answers_are_the_same():
    # 20 pages of 64 tokens cannot hold eight sequences of 300.
    def texts(server):
        async def main():
            async with aiohttp.ClientSession() as session:
                return await asyncio.gather(*[
                    one(session, server.url, body(
                        280, prompt=f"Story number {i}:", temperature=0.9,
                        seed=i, stream=False)) for i in range(8)])
        return [json.loads(a[2])["choices"][0]["text"]
                for a in asyncio.run(main())]
    page = 64 * 30 * 3 * 64 * 2 * 2
    with start("--kv-cache-memory-bytes", 20 * page,
               "--max-model-len", 1024) as small:
        tight = texts(small)
        assert sum(small.metric("millrace_preemptions_total").values()) > 0
    with start() as large:
        assert texts(large) == tight

"""Rows over HTTP. The client is the peers' folder's bench_server.py."""
import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "peers"))
import aiohttp  # noqa: E402
import bench_server as client  # noqa: E402

from report import Row  # noqa: E402


def _cell(server, workload, concurrency, turn):
    options = argparse.Namespace(api="completions", seed="llm", timeout=1800)

    async def run():
        target = dict(url=server.url, model=await client.model_name(server.url, None), extra={})
        return await client.run_cell(target, options, workload, concurrency, turn)
    server.freeze(False)
    try:
        wall, streams, _ = asyncio.run(run())
    finally:
        server.freeze(True)
    errors = {s.error for s in streams if s.error}
    if errors:
        raise SystemExit(f"{server.name}, {workload} at {concurrency}: {sorted(errors)[:3]}")
    return wall, streams


def _turns(servers, rounds):
    for turn in range(rounds):
        yield turn, servers.all if turn % 2 == 0 else servers.all[::-1]


def closed_loop(args, servers, workload, concurrency, goal, total):
    """Tokens/s (prompt tokens too where `total`) and TTFT of one cell."""
    rates = {s.name: [] for s in servers.all}
    ttft = {s.name: [] for s in servers.all}
    for turn, order in _turns(servers, args.rounds):
        for server in order:
            wall, streams = _cell(server, workload, concurrency, turn)
            tokens = sum(s.tokens + (s.prompt_tokens if total else 0) for s in streams)
            rates[server.name].append(tokens / wall)
            ttft[server.name].append(1000 * statistics.median(s.ttft for s in streams))
    mine, first = rates.pop("millrace"), ttft.pop("millrace")
    what = "1,500 in, 32 out" if workload == "long" else "32 in, 64 out"
    rows = [Row(f"http/{workload}/{concurrency}", f"{concurrency} streams over HTTP, {what}",
                "tokens/s", mine, rates, goal)]
    if total:
        rows.append(Row(f"http/{workload}/{concurrency}/ttft",
                        f"{concurrency} streams over HTTP, {what}, TTFT p50", "ms", first, ttft,
                        1 / goal, higher=False))
    return rows


def shared_prefix(args, servers):
    """16 clients whose prompts share 1,000 words, beside 16 whose do not."""
    mine = [s for s in servers.all if s.name == "millrace"][0]
    ratios, warm_ms, cold_ms = [], [], []
    for turn in range(args.rounds):
        def ttft(workload):
            _, streams = _cell(mine, workload, 16, turn)
            return 1000 * statistics.median(s.ttft for s in streams)
        client.WORKLOADS["apart"] = dict(words=1040, out=32, n={16: 16})
        client.WORKLOADS["warm"] = dict(words=40, prefix=1000, out=32, n={16: 16, 1: 1})
        cold = ttft("apart")
        # The prefix is in the cache once one request has used it.
        prefix = client.text(random.Random(f"llm/16/{turn}/prefix"), 1000)
        client.WORKLOADS["first"] = dict(words=0, out=32, n={1: 1})
        original, client.prompts = client.prompts, lambda *_: [prefix + " and"]
        try:
            _cell(mine, "first", 1, turn)
        finally:
            client.prompts = original
        warm = ttft("warm")
        ratios.append(warm / cold)
        warm_ms.append(warm)
        cold_ms.append(cold)
    return [Row("http/shared", "shared 1,000-word prefix, 16 clients: TTFT p50, warm / cold", "ratio",
                ratios, {}, 0.2, higher=False, against="",
                note=f"warm {statistics.median(warm_ms):.0f} ms, cold {statistics.median(cold_ms):.0f} ms")]


# ---- open loop: arrivals do not wait for answers ----

MIX = [(0.25, 1500, 32), (0.75, 32, 64)]  # share, words in, tokens out


def _mix(seed, count):
    rnd = random.Random(seed)
    for _ in range(count):
        pick = rnd.random()
        for share, words, out in MIX:
            pick -= share
            if pick < 0:
                break
        yield client.text(rnd, words), out


async def _send(session, server, model, prompt, out):
    body = dict(model=model, prompt=prompt, max_tokens=out, temperature=0, stream=True, ignore_eos=True,
                stream_options={"include_usage": True})
    return await client.one(session, server.url + "/v1/completions", json.dumps(body).encode(), False)


async def _open(server, rate, seconds, seed):
    """Poisson arrivals for so many seconds; every stream is heard to its end."""
    model = await client.model_name(server.url, None)
    rnd = random.Random(f"{seed}/arrivals")
    tasks = []
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=1 << 20,
                                     timeout=aiohttp.ClientTimeout(total=1800)) as session:
        began = time.perf_counter()
        at = 0.0
        for prompt, out in _mix(seed, 100000):
            at += rnd.expovariate(rate)
            if at > seconds:
                break
            await asyncio.sleep(max(0.0, began + at - time.perf_counter()))
            tasks.append(asyncio.create_task(_send(session, server, model, prompt, out)))
        return await asyncio.gather(*tasks)


async def _saturated(server, seed, count, concurrency=16):
    """Requests a second of the mix with `concurrency` always under way."""
    model = await client.model_name(server.url, None)
    todo = iter(list(_mix(seed, count)))
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=1 << 20,
                                     timeout=aiohttp.ClientTimeout(total=1800)) as session:
        async def worker():
            for prompt, out in todo:
                await _send(session, server, model, prompt, out)
        began = time.perf_counter()
        await asyncio.gather(*[worker() for _ in range(concurrency)])
        return count / (time.perf_counter() - began)


def open_loop(args, servers):
    peers = [s for s in servers.all if s.name != "millrace"]
    rates = {}
    for server in peers:
        server.freeze(False)
        rates[server.name] = asyncio.run(_saturated(server, "saturate", args.mix_requests))
        server.freeze(True)
    name, best = max(rates.items(), key=lambda item: item[1])
    rate = 0.8 * best
    itl = {s.name: [] for s in servers.all}
    ttft = {s.name: [] for s in servers.all}
    for turn, order in _turns(servers, args.rounds):
        for server in order:
            server.freeze(False)
            streams = asyncio.run(_open(server, rate, args.mix_seconds, f"open/{turn}"))
            server.freeze(True)
            errors = {s.error for s in streams if s.error}
            if errors:
                raise SystemExit(f"{server.name}, open loop: {sorted(errors)[:3]}")
            itl[server.name].append(1000 * client.pct([g for s in streams for g in s.gaps], 99))
            ttft[server.name].append(1000 * client.pct([s.ttft for s in streams], 99))
    note = (f"Poisson arrivals at {rate:.2f} requests/s, 80 % of what {name} sustains; a quarter bring "
            "1,500 words and want 32 tokens, the others 32 and 64")
    mine_itl, mine_ttft = itl.pop("millrace"), ttft.pop("millrace")
    return [Row("open/itl", "open-loop mix, p99 ITL", "ms", mine_itl, itl, 0.7, higher=False, note=note),
            Row("open/ttft", "open-loop mix, p99 TTFT", "ms", mine_ttft, ttft, 0.7, higher=False)]

"""The same closed loop of streaming chats by three clients: millrace-loadtest,
aiperf, and one of our own on aiohttp. Each returns the same figures: requests/s,
tokens/s, and TTFT, time per output token and latency in milliseconds (p50, p99)."""
import asyncio
import json
import pathlib
import subprocess
import sys
import time

import aiohttp
import numpy as np

REPO = pathlib.Path(__file__).resolve().parents[3]
LOADTEST = REPO / "build/release/bin/millrace-loadtest"
TIMES = {"ttft": "time_to_first_token_ms", "tpot": "time_per_output_token_ms",
         "latency": "request_latency_ms"}


def write_dataset(path, prompts):
    path.write_text("".join(json.dumps({"text": text}) + "\n"
                            for text in prompts))


def run(command, cpus=None):
    command = [str(part) for part in command]
    if cpus is not None:
        command = ["taskset", "-c", str(cpus)] + command
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0:6]} failed:\n{done.stdout[-2000:]}\n"
                 f"{done.stderr[-2000:]}")
    return done.stdout


def loadtest(url, model, dataset, work, users, count, tokens, cpus=None,
             streaming=True):
    out = work / "loadtest.json"
    run([LOADTEST, "--url", url, "-m", model, "--concurrency", users, "-n",
         count, "--dataset", dataset, "--no-progress", "--json", out,
         "--warmup", users] + (["--streaming"] if streaming else []) +
        (["--output-tokens", tokens] if tokens else []), cpus)
    report = json.loads(out.read_text())
    assert report["errors"]["total"] == 0, report["errors"]
    figures = {"requests/s": report["request_throughput"],
               "tokens/s": report["output_token_throughput"]}
    for name, key in TIMES.items():
        if key in report:
            figures[f"{name} p50"] = report[key]["p50"]
            figures[f"{name} p99"] = report[key]["p99"]
    return figures


def word_tokenizer(folder):
    """aiperf wants one and would ask the network; token counts are the
    server's, so any does."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "</s>": 1}, "[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]",
                            eos_token="</s>").save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    return folder


def aiperf(url, model, dataset, work, users, count, tokens, cpus=None,
           streaming=True):
    folder = work / "aiperf"
    tokenizer = work / "tokenizer"
    if not tokenizer.exists():
        word_tokenizer(tokenizer)
    extra = []
    if tokens:
        for field in (f"max_tokens:{tokens}", f"min_tokens:{tokens}",
                      "ignore_eos:true"):
            extra += ["--extra-inputs", field]
    run([pathlib.Path(sys.executable).parent / "aiperf", "profile", "--url", url, "-m",
         model, "--endpoint-type", "chat", "--concurrency", users,
         "--request-count", count, "--warmup-request-count", users,
         "--input-file", dataset, "--custom-dataset-type", "single_turn",
         "--use-server-token-count", "--tokenizer", tokenizer,
         "--artifact-dir", folder, "--ui", "none"] +
        (["--streaming"] if streaming else []) + extra, cpus)
    report = json.loads(next(folder.rglob("profile_export_aiperf.json"))
                        .read_text())
    keys = {"ttft": "time_to_first_token", "tpot": "inter_token_latency",
            "latency": "request_latency"}
    figures = {"requests/s": report["request_throughput"]["avg"],
               "tokens/s": report.get("output_token_throughput",
                                      {"avg": 0})["avg"]}
    for name, key in keys.items():
        if report.get(key):
            figures[f"{name} p50"] = report[key]["p50"]
            figures[f"{name} p99"] = report[key]["p99"]
    return figures


async def _own(url, model, prompts, users, count, tokens):
    records = []
    todo = iter(range(-users, count))

    async def one(session, index, keep):
        body = {"model": model, "stream": True, "max_tokens": tokens,
                "min_tokens": tokens, "ignore_eos": True,
                "stream_options": {"include_usage": True},
                "messages": [{"role": "user",
                              "content": prompts[index % len(prompts)]}]}
        begun = time.perf_counter()
        first = None
        produced = 0
        async with session.post(url + "/v1/chat/completions",
                                json=body) as answer:
            answer.raise_for_status()
            async for line in answer.content:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                if first is None and event["choices"] and \
                        event["choices"][0]["delta"].get("content"):
                    first = time.perf_counter()
                if event.get("usage"):
                    produced = event["usage"]["completion_tokens"]
        if keep:
            records.append((begun, first, time.perf_counter(), produced))

    async def user(session):
        for index in todo:
            await one(session, index, index >= 0)

    async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(user(session) for _ in range(users)))
    begun, first, end, produced = map(np.array, zip(*records))
    seconds = end.max() - begun.min()
    figures = {"requests/s": len(records) / seconds,
               "tokens/s": produced.sum() / seconds}
    for name, values in (("ttft", first - begun),
                         ("tpot", (end - first) / (produced - 1)),
                         ("latency", end - begun)):
        for percent in (50, 99):
            figures[f"{name} p{percent}"] = 1000 * float(np.percentile(
                values, percent, method="inverted_cdf"))
    return figures


def own(url, model, dataset, work, users, count, tokens, cpus=None):
    prompts = [json.loads(line)["text"]
               for line in dataset.read_text().splitlines()]
    arguments = json.dumps([url, model, prompts, users, count, tokens])
    code = ("import sys, json, asyncio; sys.path.insert(0, sys.argv[1]); "
            "import clients; print(json.dumps(asyncio.run("
            "clients._own(*json.load(sys.stdin)))))")
    command = [sys.executable, "-B", "-c", code, str(pathlib.Path(__file__).parent)]
    if cpus is not None:
        command = ["taskset", "-c", str(cpus)] + command
    done = subprocess.run(command, input=arguments, capture_output=True,
                          text=True)
    if done.returncode != 0:
        sys.exit(done.stderr[-3000:])
    return json.loads(done.stdout)

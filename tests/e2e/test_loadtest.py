"""millrace-loadtest against servers of known behaviour and the real one."""
import asyncio
import base64
import csv
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import time

import aiohttp
import numpy as np
import pytest
from conftest import MODEL_ID, REPO, start
from fake_llm import FakeLlm

LOADTEST = pathlib.Path(os.environ.get(
    "MILLRACE_LOADTEST", REPO / "build/release/bin/millrace-loadtest"))
DATA = REPO / "tests/data/graph"


@pytest.fixture
def fake():
    server = FakeLlm()
    yield server
    server.stop()


def command(*flags):
    return [LOADTEST, *map(str, flags)]


def load(tmp_path, *flags, expect=0, timeout=60):
    """Runs to the end and returns the JSON report."""
    out = tmp_path / "report.json"
    done = subprocess.run(command(*flags, "--json", out), capture_output=True,
                          text=True, timeout=timeout)
    assert done.returncode == expect, done.stdout + done.stderr
    return json.loads(out.read_text()) if out.exists() else None


# What a busy machine may add to a delay. That percentiles are exact is shown with
# a clock of the test's own in tests/unit/loadtest.
SLACK_MS = 100

# ---- known delays ------------------------------------------------------------

def test_a_stream_of_known_delays(fake, tmp_path):
    report = load(tmp_path, "--url", fake.url, "-m", "steady", "--streaming",
                  "--concurrency", 4, "-n", 40)
    # Sleeps end late on a busy machine, never early.
    ttft = report["time_to_first_token_ms"]["p50"]
    assert 60 <= ttft < 60 + SLACK_MS
    assert 15 * 0.99 <= report["inter_token_latency_ms"]["p50"] < 15 + SLACK_MS
    assert report["inter_token_latency_ms"]["count"] == 40 * 10
    took = statistics.median(fake.waits[-40:]) * 1000
    assert report["request_latency_ms"]["p50"] == pytest.approx(
        took, abs=SLACK_MS)
    per_token = (report["request_latency_ms"]["mean"] -
                 report["time_to_first_token_ms"]["mean"]) / 10
    assert report["time_per_output_token_ms"]["mean"] == pytest.approx(
        per_token, rel=0.05)
    assert report["output_tokens"]["mean"] == 11
    assert report["errors"]["total"] == 0
    rate = report["request_throughput"]
    assert report["output_token_throughput"] == pytest.approx(11 * rate)
    assert rate * report["duration_s"] == pytest.approx(40)


def test_percentiles_agree_with_the_server(fake, tmp_path):
    report = load(tmp_path, "--url", fake.url, "-m", "spread",
                  "--concurrency", 10, "-n", 500)
    waits = np.array(fake.waits[-500:]) * 1000
    latency = report["request_latency_ms"]
    for percent in (50, 90, 95, 99):
        exact = np.percentile(waits, percent, method="inverted_cdf")
        assert exact - 1 <= latency[f"p{percent}"] < exact + SLACK_MS
    assert waits.mean() - 1 <= latency["mean"] < waits.mean() + SLACK_MS


def test_a_stall_shows_in_every_request_that_was_due(fake, tmp_path):
    # 50 requests/s for 1.2 s; the server stands still for the first second. A
    # client with four connections that measured from sending would report a
    # median near zero.
    report = load(tmp_path, "--url", fake.url, "-m", "stall",
                  "--request-rate", 50, "--duration", "1.2s",
                  "--max-connections", 4)
    assert report["request_latency_ms"]["count"] == 60
    # Due at 0, 20, ..., 980 ms: latencies 1000, 980, ..., 20, then none.
    assert report["request_latency_ms"]["p50"] == pytest.approx(420, abs=2 * SLACK_MS)
    assert report["request_latency_ms"]["max"] == pytest.approx(1000, abs=2 * SLACK_MS)
    assert report["schedule_lag_ms"]["p50"] > 300
    assert any("behind its schedule" in text for text in report["warnings"])


def test_open_loops_keep_their_rate(fake, tmp_path):
    for arrival, count in (("constant", 100), ("burst", 100)):
        report = load(tmp_path, "--url", fake.url, "-m", "spread",
                      "--request-rate", 100, "--arrival", arrival,
                      "--duration", "1s")
        assert report["request_count"] == count
        assert report["schedule_lag_ms"]["p50"] < 5
    report = load(tmp_path, "--url", fake.url, "-m", "spread",
                  "--request-rate", 100, "--arrival", "poisson",
                  "--duration", "1s", "--random-seed", 3)
    assert 60 < report["request_count"] < 140


def test_a_trace_is_replayed(fake, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(
        json.dumps({"timestamp": at, "input_length": 20,
                    "output_length": tokens}) + "\n"
        for at, tokens in ((5000, 3), (5000, 3), (5400, 5), (6000, 7))))
    report = load(tmp_path, "--url", fake.url, "-m", "spread", "--arrival",
                  "trace", "--dataset", trace, "--trace-speed", 2,
                  "--warmup", 2)
    assert report["request_count"] == 4
    assert 0.5 < report["duration_s"] < 0.7
    # The first lines again after the warm-up: each has its own time.
    assert [body["max_tokens"] for body in fake.bodies] == [3] * 4 + [5, 7]
    prompt = fake.bodies[0]["messages"][0]["content"]
    assert len(prompt.split()) == 20


def test_conversations_send_the_replies_before(fake, tmp_path):
    load(tmp_path, "--url", fake.url, "-m", "spread", "--turns", 3, "-n", 2,
         "--input-tokens", 5, "--shared-prefix-tokens", 3)
    turns = [body["messages"] for body in fake.bodies]
    assert [len(messages) for messages in turns] == [1, 3, 5, 1, 3, 5]
    assert turns[1][1] == {"role": "assistant", "content": "yes"}
    assert turns[2][:3] == turns[1]
    first, second = (turns[i][0]["content"].split() for i in (0, 3))
    assert first[:3] == second[:3] and len(first) == len(second) == 5


def test_embeddings_and_predictions(fake, tmp_path):
    report = load(tmp_path, "--url", fake.url, "-m", "vectors", "-n", 7,
                  "--endpoint-type", "embeddings", "--input-tokens", 9)
    assert report["request_count"] == 7
    assert report["input_tokens"]["p50"] == 9
    assert "output_tokens" not in report
    assert isinstance(fake.bodies[0]["input"], str)
    image = tmp_path / "image.bin"
    image.write_bytes(bytes(range(256)))
    report = load(tmp_path, "--url", fake.url, "-m", "resnet", "-n", 5,
                  "--endpoint-type", "torchserve", "--data", image)
    assert report["request_count"] == 5
    assert fake.bodies[-1] == image.read_bytes()
    more = tmp_path / "more"
    more.mkdir()
    for name in ("a", "b", "c"):
        (more / name).write_text(name)
    load(tmp_path, "--url", fake.url, "-m", "resnet", "-n", 6,
         "--endpoint-type", "torchserve", "--data", more)
    assert fake.bodies[-6:] == [b"a", b"b", b"c"] * 2


def test_pictures_of_a_data_set_are_parts_of_messages(fake, tmp_path):
    photo = REPO / "tests/data/image/photo.jpg"
    data = tmp_path / "set.jsonl"
    data.write_text(json.dumps({"text": "what?", "image": str(photo)}) + "\n")
    load(tmp_path, "--url", fake.url, "-m", "spread", "-n", 2, "--dataset",
         data)
    text, image = fake.bodies[-1]["messages"][0]["content"]
    assert text == {"type": "text", "text": "what?"}
    kind, data_uri = image["image_url"]["url"].split(",")
    assert kind == "data:image/jpeg;base64"
    assert base64.b64decode(data_uri) == photo.read_bytes()


def test_warmup_is_not_reported_and_repetitions_are(fake, tmp_path):
    report = load(tmp_path, "--url", fake.url, "-m", "spread", "--warmup", 5,
                  "-n", 20, "--concurrency", 5, "--repetitions", 3,
                  "--client-threads", 2)
    assert fake.num_requests == 65
    assert report["request_count"] == 60
    interval = report["confidence_95"]["request_throughput"]
    assert interval["low"] <= interval["mean"] <= interval["high"]


def test_slo_decides_the_exit_status(fake, tmp_path):
    flags = ("--url", fake.url, "-m", "steady", "--streaming", "-n", 4)
    report = load(tmp_path, *flags, "--slo", "ttft:p99:2s,itl:p50:1s")
    assert report["slo"]["met"]
    assert report["goodput"] == pytest.approx(report["request_throughput"])
    report = load(tmp_path, *flags, "--slo", "ttft:p99:1ms", expect=3)
    assert not report["slo"]["met"]
    assert report["goodput"] == 0


def test_a_sweep_measures_each_load_and_writes_a_page(fake, tmp_path):
    # Requests take the same time whatever the load: throughput grows with
    # concurrency and every load meets the objective.
    page, table = tmp_path / "sweep.html", tmp_path / "sweep.csv"
    report = load(tmp_path, "--url", fake.url, "-m", "steady", "--streaming",
                  "--sweep", "concurrency=1,2,4", "-n", 8, "--html", page,
                  "--csv", table, "--slo", "ttft:p99:2s")
    assert [step["concurrency"] for step in report["steps"]] == [1, 2, 4]
    rates = [step["request_throughput"] for step in report["steps"]]
    assert rates[1] > 1.3 * rates[0]
    assert report["highest_meeting_slo"] == 4
    assert page.read_text().count("<svg") >= 4
    rows = list(csv.DictReader(table.open()))
    assert [row["concurrency"] for row in rows] == ["1", "2", "4"]


def test_two_reports_are_compared(fake, tmp_path):
    page = tmp_path / "run.html"
    load(tmp_path, "--url", fake.url, "-m", "spread", "-n", 5, "--html", page)
    assert page.read_text().count("<svg") == 3
    out = tmp_path / "report.json"
    done = subprocess.run(command("compare", out, out), capture_output=True,
                          text=True, timeout=10)
    assert done.returncode == 0
    assert "WORSE" not in done.stdout and "same" in done.stdout
    done = subprocess.run(command("compare", out), capture_output=True,
                          text=True, timeout=10)
    assert done.returncode == 2 and "two reports" in done.stderr


# ---- faults ------------------------------------------------------------------

@pytest.mark.parametrize("model,kind,streaming", [
    ("cut", "truncated_stream", True),
    ("no-done", "truncated_stream", True),
    ("bad-json", "wrong_json", True),
    ("stream-error", "stream_error", True),
    ("steady", "wrong_json", False),
    ("busy", "http_503", False),
    ("reset", "connection_lost", False),
    ("garbage", "protocol", False),
])
def test_faults_are_counted_by_kind(fake, tmp_path, model, kind, streaming):
    flags = ["--streaming"] if streaming else []
    report = load(tmp_path, "--url", fake.url, "-m", model, "-n", 6,
                  "--concurrency", 2, *flags, expect=1)
    assert report["errors"]["by_kind"] == {kind: 6}
    assert report["errors"]["rate"] == 1
    assert report["errors"]["examples"][kind]
    assert "request_latency_ms" not in report
    assert report["request_throughput"] == 0


def test_failures_are_averaged_into_nothing(fake, tmp_path):
    report = load(tmp_path, "--url", fake.url, "-m", "mixed", "-n", 40,
                  "--concurrency", 4, "--streaming")
    assert report["request_count"] == 10
    assert report["errors"]["by_kind"] == {
        "truncated_stream": 10, "http_429": 10, "wrong_json": 10}
    for key in ("time_to_first_token_ms", "request_latency_ms",
                "output_tokens"):
        assert report[key]["count"] == 10
    # A half-written stream took a second.
    assert 20 <= report["request_latency_ms"]["max"] < 1000
    assert report["request_throughput"] == pytest.approx(
        10 / report["duration_s"])


def test_429_is_counted_apart_and_obeyed(fake, tmp_path):
    begun = time.monotonic()
    report = load(tmp_path, "--url", fake.url, "-m", "limited", "-n", 3,
                  expect=1)
    assert report["errors"]["by_kind"] == {"http_429": 3}
    assert report["retry_after_ms"]["mean"] == 1000
    assert time.monotonic() - begun >= 2
    assert fake.num_requests == 3


def test_a_server_that_never_answers_times_out(fake, tmp_path):
    begun = time.monotonic()
    report = load(tmp_path, "--url", fake.url, "-m", "hang", "-n", 4,
                  "--concurrency", 2, "--request-timeout", "500ms", expect=1)
    assert report["errors"]["by_kind"] == {"timeout": 4}
    assert time.monotonic() - begun < 5


def test_requests_under_way_at_the_end_are_failures(fake, tmp_path):
    report = load(tmp_path, "--url", fake.url, "-m", "hang", "--duration",
                  "300ms", "--grace-period", "200ms", "--concurrency", 3,
                  expect=1)
    assert report["errors"]["by_kind"] == {"unfinished": 3}


def test_connections_that_close_each_time_are_opened_again(fake, tmp_path):
    report = load(tmp_path, "--url", fake.url, "-m", "close", "-n", 20)
    assert report["request_count"] == 20
    assert report["errors"]["total"] == 0


def test_a_refused_connection_ends_before_the_run():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    done = subprocess.run(command("--url", f"http://127.0.0.1:{port}", "-m",
                                  "x"), capture_output=True, text=True,
                          timeout=20)
    assert done.returncode == 1
    assert "is the server running" in done.stderr


def test_an_interrupt_reports_what_was_measured(fake, tmp_path):
    out = tmp_path / "report.json"
    running = subprocess.Popen(
        command("--url", fake.url, "-m", "spread", "--duration", "60s",
                "--json", out), stdout=subprocess.PIPE, text=True)
    time.sleep(1)
    running.send_signal(signal.SIGINT)
    text, _ = running.communicate(timeout=10)
    assert running.returncode == 0
    assert "interrupted" in text
    assert json.loads(out.read_text())["request_count"] > 5


def test_wrong_datasets_end_with_2(fake, tmp_path):
    wrong = tmp_path / "wrong.jsonl"
    for line, says in (("{}", "line 1"),
                       ('{"messages": [{"role": "user"}]}', "chat")):
        wrong.write_text(line)
        done = subprocess.run(
            command("--url", fake.url, "-m", "x", "--endpoint-type",
                    "completions", "--dataset", wrong),
            capture_output=True, text=True, timeout=10)
        assert done.returncode == 2
        assert str(wrong) in done.stderr and says in done.stderr


def test_wrong_flags_end_with_2():
    done = subprocess.run(command("--concurency", "3"), capture_output=True,
                          text=True, timeout=10)
    assert done.returncode == 2
    assert "--concurrency" in done.stderr


# ---- the real server -----------------------------------------------------------

def test_the_default_model_streams(server, tmp_path):
    table = tmp_path / "report.csv"
    report = load(tmp_path, "--url", server.url, "--streaming",
                  "--concurrency", 3, "-n", 9, "--input-tokens", 40,
                  "--output-tokens", 12, "--csv", table)
    assert report["model"] == MODEL_ID
    assert report["errors"]["total"] == 0
    assert report["output_tokens"]["min"] == report["output_tokens"]["max"] == 12
    # The server's own times are parts of what the client saw.
    assert 0 < report["server_prefill_ms"]["mean"] <= (
        report["time_to_first_token_ms"]["mean"])
    assert report["server_decode_ms"]["mean"] <= (
        report["request_latency_ms"]["mean"])
    rows = {row["metric"]: row for row in csv.DictReader(table.open())}
    assert float(rows["request_latency_ms"]["p50"]) == pytest.approx(
        report["request_latency_ms"]["p50"], rel=1e-4)


def test_synthetic_lengths_are_those_of_the_models_tokenizer(server, tmp_path):
    report = load(tmp_path, "--url", server.url, "--endpoint-type",
                  "completions", "-n", 5, "--input-tokens", 33,
                  "--output-tokens", 2)
    assert report["input_tokens"]["min"] == report["input_tokens"]["max"] == 33
    assert report["warnings"] == []


@pytest.mark.parametrize("flags", [["--tensor-format", "binary"],
                                   ["--tensor-format", "json"], ["grpc"]])
def test_tensors_by_each_wire(tmp_path, flags):
    with start(DATA / "mlp.onnx") as running:
        if flags == ["grpc"]:
            target = ["--url", f"127.0.0.1:{running.grpc_port}",
                      "--endpoint-type", "kserve-grpc"]
        else:
            target = ["--url", running.url, "--endpoint-type", "kserve", *flags]
        report = load(tmp_path, *target, "-m", "mlp", "--concurrency", 4,
                      "-n", 200, "--batch-size", 2)
        assert report["request_count"] == 200
        assert report["errors"]["total"] == 0
        report = load(tmp_path, *target, "-m", "mlp", "--request-rate", 100,
                      "-n", 50)
        assert report["request_count"] == 50


@pytest.mark.parametrize("grpc", [False, True])
def test_a_server_killed_mid_run(tmp_path, grpc):
    out = tmp_path / "report.json"
    with start(DATA / "mlp.onnx") as running:
        target = (["--url", f"127.0.0.1:{running.grpc_port}",
                   "--endpoint-type", "kserve-grpc"] if grpc else
                  ["--url", running.url, "--endpoint-type", "kserve"])
        client = subprocess.Popen(
            command(*target, "-m", "mlp", "--duration", "3s",
                    "--concurrency", 4, "--json", out),
            stdout=subprocess.DEVNULL)
        time.sleep(1.5)
        running.stop(signal.SIGKILL)
        assert client.wait(20) == 0
    report = json.loads(out.read_text())
    kinds = report["errors"]["by_kind"]
    assert report["request_count"] > 20
    assert kinds["connect"] > 4
    assert set(kinds) <= {"connect", "connection_lost"}
    # Refusals are paced: they would be thousands otherwise.
    assert kinds["connect"] < 4 * 40


def test_a_server_killed_in_the_middle_of_streams(tmp_path):
    out = tmp_path / "report.json"
    with start() as running:
        client = subprocess.Popen(
            command("--url", running.url, "--streaming", "--concurrency", 4,
                    "--duration", "4s", "--input-tokens", 16,
                    "--output-tokens", 200, "--json", out),
            stdout=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while time.monotonic() < end and running.metric(
                "millrace_generation_tokens_total").get(
                    f'{{model="{MODEL_ID}",version="1"}}', 0) < 300:
            time.sleep(0.05)
        running.stop(signal.SIGKILL)
        client.wait(30)
    report = json.loads(out.read_text())
    kinds = report["errors"]["by_kind"]
    assert set(kinds) <= {"connect", "connection_lost", "truncated_stream"}
    assert kinds.get("truncated_stream", 0) + kinds.get(
        "connection_lost", 0) >= 1
    if "output_tokens" in report:
        assert report["output_tokens"]["min"] == 200


def test_pictures_are_sent_in_turn_and_the_server_tells_its_stages(tmp_path):
    root = tmp_path / "repository"
    (root / "animals" / "1").mkdir(parents=True)
    images = REPO / "tests/data/image"
    shutil.copy(images / "classifier.onnx", root / "animals/1/model.onnx")
    (root / "animals/config.yaml").write_text(
        "task: classify\ntask_options: {resize: 10, center_crop: 8}\n")
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name in ("photo.jpg", "turned.png"):
        shutil.copy(images / name, folder)
    with start("--model-repository", root) as running:
        flags = ("-m", "animals", "--input", f"image:{folder}", "-n", 20)
        report = load(tmp_path, "--url", running.url, "--endpoint-type",
                      "kserve", *flags)
        assert report["request_count"] == 20
        assert report["errors"]["total"] == 0
        stages = report["server_stages_ms"]
        assert set(stages) >= {"queue", "compute_infer"}
        assert sum(stages.values()) < report["request_latency_ms"]["mean"]
        report = load(tmp_path, "--url", f"127.0.0.1:{running.grpc_port}",
                      "--endpoint-type", "kserve-grpc", *flags)
        assert report["request_count"] == 20
        stages = report["server_stages_ms"]
        assert set(stages) >= {"queue", "compute_infer"}
        assert 0 < sum(stages.values()) < report["request_latency_ms"]["mean"]
        # A file that is no picture is the server's to refuse.
        (folder / "photo.jpg").write_text("no picture")
        report = load(tmp_path, "--url", running.url, "--endpoint-type",
                      "kserve", *flags)
        assert report["errors"]["by_kind"] == {"http_400": 10}


async def independent(url, count, concurrency, body):
    """The same closed loop by aiohttp: latencies and the time of the whole."""
    todo = iter(range(count))
    latencies = []

    async def user(session):
        for _ in todo:
            begun = time.monotonic()
            async with session.post(url, json=body) as answer:
                await answer.read()
                assert answer.status == 200
            latencies.append(time.monotonic() - begun)

    async with aiohttp.ClientSession() as session:
        begun = time.monotonic()
        await asyncio.gather(*(user(session) for _ in range(concurrency)))
        return latencies, time.monotonic() - begun


def test_an_independent_client_agrees(fake, tmp_path):
    report = load(tmp_path, "--url", fake.url, "-m", "spread", "-n", 300,
                  "--concurrency", 8)
    fake.num_requests = 0  # the same delays again
    latencies, seconds = asyncio.run(independent(
        fake.url + "/v1/chat/completions", 300, 8,
        {"model": "spread", "messages": [{"role": "user", "content": "x"}]}))
    # Loose: the machine is shared and aiohttp is slower.
    assert report["request_throughput"] == pytest.approx(300 / seconds, rel=0.5)
    assert report["request_latency_ms"]["p50"] == pytest.approx(
        statistics.median(latencies) * 1000, abs=2 * SLACK_MS)

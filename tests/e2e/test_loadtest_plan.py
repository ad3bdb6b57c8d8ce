"""millrace-loadtest plan: fitted to the fake server of known delays, and the
simulated fleet."""
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
from conftest import REPO, start
from fake_llm import FakeLlm

LOADTEST = pathlib.Path(os.environ.get(
    "MILLRACE_LOADTEST", REPO / "build/release/bin/millrace-loadtest"))
SLACK_MS = 20  # that a busy machine may add to the mean of a delay


def run(*flags, expect=0):
    done = subprocess.run([LOADTEST, *map(str, flags)], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == expect, done.stdout + done.stderr
    return done


@pytest.fixture
def model(tmp_path):
    file = tmp_path / "model.json"
    file.write_text(json.dumps({
        "format": "millrace-server-model/1", "kind": "llm",
        "step_base_ms": 6, "prefill_token_ms": 0.05,
        "decode_sequence_ms": 0.5, "kv_tokens": 65536}))
    return file


def test_a_model_fitted_to_a_server_predicts_it(tmp_path):
    fake = FakeLlm()
    file = tmp_path / "fitted.json"
    try:
        run("plan", "fit", "--url", fake.url, "-m", "steady", "--loads", "1",
            "-n", 20, "--output", file)
        report = tmp_path / "report.json"
        run("--url", fake.url, "-m", "steady", "--streaming", "-n", 20,
            "--json", report)
    finally:
        fake.stop()
    fitted = json.loads(file.read_text())
    # 15 ms a token, and 60 ms until the first one of a prompt of 5 tokens.
    step = fitted["step_base_ms"] + fitted["decode_sequence_ms"]
    assert 15 * 0.99 <= step < 15 + SLACK_MS
    assert (fitted["step_base_ms"] + 5 * fitted["prefill_token_ms"] ==
            pytest.approx(60, abs=SLACK_MS))
    # The same from a report.
    run("plan", "fit", report, "--output", tmp_path / "second.json")
    out = tmp_path / "plan.json"
    run("plan", "--server-model", file, "--request-rate", 0.5, "--replicas", 1,
        "--input-tokens", 5, "--output-tokens", 11, "-n", 100, "--json", out)
    step = json.loads(out.read_text())["steps"][0]
    measured = json.loads(report.read_text())
    for key in ("time_to_first_token_ms", "inter_token_latency_ms",
                "request_latency_ms"):
        assert step[key]["p50"] == pytest.approx(measured[key]["p50"],
                                                 abs=SLACK_MS)


def test_the_server_tells_what_bounds_it(tmp_path):
    file = tmp_path / "fitted.json"
    with start("--max-num-seqs", 7, "--max-num-batched-tokens", 96,
               "--target-itl", "80ms") as server:
        told = run("plan", "fit", "--url", server.url, "--loads", "1,2",
                   "-n", 6, "--input-tokens", 40, "--output-tokens", 8,
                   "--output", file).stdout
        pages = server.metric("millrace_kv_cache_info")
        seconds = server.metric("millrace_model_load_seconds")
    assert "Limits and step prices are the server's own" in told
    fitted = json.loads(file.read_text())
    assert fitted["max_num_seqs"] == 7
    assert fitted["max_num_batched_tokens"] == 96
    assert fitted["target_itl_ms"] == 80
    pages = int(next(iter(pages)).split('num_pages="')[1].split('"')[0])
    assert fitted["kv_tokens"] == 64 * pages
    assert fitted["start_ms"] == pytest.approx(
        1000 * next(iter(seconds.values())))


def test_a_graph_is_fitted_by_its_rows(tmp_path):
    file = tmp_path / "fitted.json"
    with start("--max-batch-size", 16, "--max-queue-delay", "2ms",
               "--instance-count", 1, REPO / "tests/data/graph/mlp.onnx") as server:
        run("plan", "fit", "--url", server.url, "--endpoint-type", "kserve",
            "-m", "mlp", "--rows", "1,8", "-n", 50, "--output", file)
        # A file has its rows, whatever --rows says.
        def fit_file(count, rows, output, expect=0):
            np.save(tmp_path / "x.npy", np.ones((count, 4), np.float32))
            return run("plan", "fit", "--url", server.url, "--endpoint-type",
                       "kserve", "-m", "mlp", "--input", f"x:{tmp_path}/x.npy",
                       "--rows", rows, "-n", 5, "--output", output,
                       expect=expect)
        refused = fit_file(1, "1,8", tmp_path / "none.json", expect=2)
        # Of a graph that has no rows --rows 1 is the only one.
        fit_file(3, "1", tmp_path / "whole.json")
    assert "no input of a request has 8 rows" in refused.stderr
    assert "median ms" not in refused.stdout, "it was told before"
    assert not (tmp_path / "none.json").exists()
    whole = json.loads((tmp_path / "whole.json").read_text())
    assert [rows for rows, _ in whole["batch_ms"]] == [1]
    fitted = json.loads(file.read_text())
    assert [rows for rows, _ in fitted["batch_ms"]] == [1, 8]
    # The server's own words: it does not join requests of this graph.
    assert fitted["max_batch_size"] == 1
    assert fitted["max_queue_delay_ms"] == 2
    out = tmp_path / "plan.json"
    run("plan", "--server-model", file, "--request-rate", 1, "--replicas", 1,
        "-n", 10, "--json", out)
    step = json.loads(out.read_text())["steps"][0]
    assert step["request_latency_ms"]["p50"] == pytest.approx(
        fitted["batch_ms"][0][1], rel=0.01)


def test_the_fewest_replicas_are_found(tmp_path, model):
    flags = ("plan", "--server-model", model, "--request-rate", 30,
             "--arrival", "poisson", "--input-tokens", "200:50",
             "--output-tokens", "100:30", "--slo", "ttft:p99:500ms",
             "--price-per-hour", 1.2)
    out, page = tmp_path / "plan.json", tmp_path / "plan.html"
    done = run(*flags, "--json", out, "--html", page)
    plan = json.loads(out.read_text())
    needed = plan["replicas_needed"]
    assert f"Replicas needed for the SLO: {needed}" in done.stdout
    met = {step["replicas"]: step["slo_met"] for step in plan["steps"]}
    assert met[needed] and not met[needed - 1]
    step = next(s for s in plan["steps"] if s["replicas"] == needed)
    assert step["cost_per_million_output_tokens"] == pytest.approx(
        1.2 * needed / 3600 / step["output_token_throughput"] * 1e6, rel=0.01)
    assert "<svg" in page.read_text()
    bars = [line for line in done.stdout.splitlines() if " ms |" in line]
    assert len(bars) == len(plan["steps"])
    # The seed decides.
    run(*flags, "--json", tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == out.read_text()
    # One replica does not do, and the exit status says so.
    run(*flags, "--replicas", needed - 1, expect=3)


def test_traces_are_replayed(tmp_path, model):
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(
        json.dumps({"timestamp": 1000 * i, "input_length": 100,
                    "output_length": 11}) + "\n" for i in range(20)))
    out = tmp_path / "plan.json"
    run("plan", "--server-model", model, "--arrival", "trace", "--dataset",
        trace, "--replicas", "1,2", "--json", out)
    for step in json.loads(out.read_text())["steps"]:
        assert step["request_count"] == 20
        # 6 + 100 x 0.05, then 10 tokens of 6.5 ms.
        assert step["time_to_first_token_ms"]["max"] == pytest.approx(11)
        assert step["request_latency_ms"]["max"] == pytest.approx(76)


def test_scaling_and_lost_replicas(tmp_path, model):
    done = run("plan", "--server-model", model, "--request-rate", 60,
               "--replicas", "6:20", "--target-load", 8, "--start-time", "5s",
               "--lose", "0.5@30s:20s", "--duration", "100s")
    assert "started again" in done.stdout


def test_ten_thousand_replicas_serve_what_one_serves(tmp_path, model):
    out = tmp_path / "plan.json"

    def plan(replicas, rate, count):
        run("plan", "--server-model", model, "--request-rate", rate,
            "--arrival", "constant", "-n", count, "--replicas", replicas,
            "--input-tokens", 100, "--output-tokens", 20, "--json", out)
        return json.loads(out.read_text())["steps"][0]

    one, many = plan(1, 2, 20), plan(10_000, 20_000, 100_000)
    for key in ("time_to_first_token_ms", "request_latency_ms"):
        assert many[key]["p50"] == pytest.approx(one[key]["p50"], rel=0.01)
    done = run("plan", "--server-model", model, "--request-rate", 1,
               "--replicas", 10_001, expect=2)
    assert "10000" in done.stderr


def test_wrong_flags_name_the_remedy(tmp_path, model):
    for flags, says in (((), "plan fit --url"),
                        (("--server-model", model), "--request-rate"),
                        (("--server-model", model, "--request-rate", 3),
                         "--slo"),
                        (("--server-model", model, "--request-rate", 3,
                          "--routing", "x"), "least-loaded"),
                        (("--server-model", model, "--url", "x"),
                         "leave it out")):
        assert says in run("plan", *flags, expect=2).stderr

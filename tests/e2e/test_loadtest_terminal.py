"""millrace-loadtest as a person or a CI job meets it: the line of progress, its
warnings, the exit status by errors, pinned threads."""
import json
import os
import pathlib
import subprocess
import time

import pytest
from conftest import REPO
from fake_llm import FakeLlm
from terminal import Terminal, plain

LOADTEST = pathlib.Path(os.environ.get(
    "MILLRACE_LOADTEST", REPO / "build/release/bin/millrace-loadtest"))


@pytest.fixture
def fake():
    server = FakeLlm()
    yield server
    server.stop()


def load(tmp_path, *flags):
    """The exit status, the text, and the JSON report."""
    out = tmp_path / "report.json"
    done = subprocess.run([LOADTEST, *map(str, flags), "--json", out],
                          capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr, json.loads(
        out.read_text())


def test_a_terminal_shows_the_progress_and_then_the_report(fake):
    flags = ("--url", fake.url, "-m", "spread", "--duration", "2s",
             "--concurrency", 2)
    with Terminal(LOADTEST, *flags, columns=200) as terminal:
        line = plain(terminal.until(r"answered .*requests/s .*tokens/s"))
        assert "0 failed" in line and "2 under way" in line
        # Drawn over itself, and gone when the report comes.
        terminal.until("\r\x1b\\[K")
        assert terminal.end() == 0
    quiet = subprocess.run([LOADTEST, *map(str, flags)], capture_output=True,
                           text=True, timeout=60)
    assert "under way" not in quiet.stderr, "this is no terminal"


def test_a_client_that_is_late_says_so(fake, tmp_path):
    status, text, report = load(
        tmp_path, "--url", fake.url, "-m", "steady", "--streaming",
        "--request-rate", 40, "--max-connections", 1, "-n", 20)
    assert status == 0
    assert "the client is behind its schedule" in text
    assert any("--max-connections" in each for each in report["warnings"])
    # The lag is the queue before the one connection, and latencies count it.
    assert report["schedule_lag_ms"]["max"] > 1000
    assert report["request_latency_ms"]["max"] > \
        report["schedule_lag_ms"]["max"]


def test_errors_beyond_a_rate_miss_the_objectives(fake, tmp_path):
    flags = ("--url", fake.url, "-m", "mixed", "--streaming", "-n", 20,
             "--concurrency", 4, "--slo", "latency:p99:30s")
    status, text, report = load(tmp_path, *flags)
    assert status == 3
    assert report["errors"]["rate"] == 0.75
    assert "75" in text
    assert load(tmp_path, *flags, "--max-error-rate", "0.8")[0] == 0
    assert load(tmp_path, *flags, "--max-error-rate", "0.7")[0] == 3


def test_lengths_are_forced_where_the_server_knows_how(fake, tmp_path):
    flags = ("--url", fake.url, "-m", "spread", "-n", 2, "--output-tokens", 7)
    load(tmp_path, *flags)
    load(tmp_path, *flags, "--no-ignore-eos")
    forced, free = fake.bodies[0], fake.bodies[-1]
    assert (forced["ignore_eos"], forced["min_tokens"]) == (True, 7)
    assert 7 in (free.get("max_tokens"), free.get("max_completion_tokens"))
    assert "ignore_eos" not in free and "min_tokens" not in free


def test_threads_are_pinned_where_that_is_asked_for(fake):
    cpu = sorted(os.sched_getaffinity(0))[-1]
    running = subprocess.Popen(
        [LOADTEST, "--url", fake.url, "-m", "spread", "--duration", "20s",
         "--client-cpus", str(cpu)], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 10
        pinned = []
        while not pinned and time.monotonic() < end:
            time.sleep(0.05)
            for task in pathlib.Path(f"/proc/{running.pid}/task").iterdir():
                try:
                    name = (task / "comm").read_text()
                    text = (task / "status").read_text()
                except OSError:
                    continue  # it has ended
                if name.startswith("load-"):
                    pinned.append(text.split("Cpus_allowed_list:")[1]
                                  .split()[0])
        assert pinned and set(pinned) == {str(cpu)}
    finally:
        running.kill()
        running.wait()


def test_a_load_that_is_refused_at_once_is_no_busy_client(server, tmp_path):
    status, text, report = load(
        tmp_path, "--url", f"http://127.0.0.1:{server.http_port}",
        "-m", "none", "-n", 2)
    assert status == 1
    assert "the model 'none' does not exist here" in text
    assert "bottleneck" not in text
    assert "counted no tokens (there is none, or it refused)" in text
    assert report["client"]["cpu_utilization"] < 2


@pytest.mark.parametrize("flag", ["--json", "--csv", "--html"])
def test_a_report_that_cannot_be_written_is_told_before_the_load(
        fake, tmp_path, flag):
    done = subprocess.run(
        [LOADTEST, "--url", fake.url, "-m", "steady", "-n", "2",
         flag, tmp_path / "none" / "report"],
        capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "cannot be written; does its folder exist?" in done.stderr
    assert "Requests/s" not in done.stdout

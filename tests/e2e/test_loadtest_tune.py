"""millrace-loadtest tune against the real server: what it writes is served."""
import os
import pathlib
import signal
import subprocess
import time

from conftest import BINARY, REPO

LOADTEST = pathlib.Path(os.environ.get(
    "MILLRACE_LOADTEST", REPO / "build/release/bin/millrace-loadtest"))
GRAPH = REPO / "tests/data/graph/mlp.onnx"


def command(tmp_path, *flags, serve=f"serve {GRAPH}"):
    return [LOADTEST, "tune", "--server-command", f"{BINARY} {serve}",
            "--output", tmp_path / "tuned.yaml", "--no-progress",
            *map(str, flags)]


def tune(tmp_path, *flags, serve=f"serve {GRAPH}", expect=0):
    done = subprocess.run(command(tmp_path, *flags, serve=serve),
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == expect, done.stdout + done.stderr
    return done


def children_of(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_the_file_it_writes_is_served(tmp_path):
    done = tune(tmp_path, "--slo", "latency:p99:5s", "--budget", "8s",
                "--duration", "200ms", "--warmup", 5, "--rounds", 2,
                "--try", "threads=1,2")
    assert "as given; met" in done.stdout
    assert "threads 1" in done.stdout and "threads 2" in done.stdout
    tuned = tmp_path / "tuned.yaml"
    text = tuned.read_text()
    for evidence in ("Found by: millrace-loadtest tune", "Machine:", "Given:",
                     "Objectives: latency:p99:5s", "requests/s"):
        assert evidence in text
    printed = subprocess.run(
        [BINARY, "serve", "--config", tuned, "--print-config"],
        capture_output=True, text=True, timeout=10)
    assert printed.returncode == 0, printed.stderr
    assert str(GRAPH) in printed.stdout
    # The tuner's own ports and log settings are not part of the answer.
    assert "http_port" not in text and "access_log" not in text


def test_candidates_that_do_not_start_are_counted(tmp_path):
    done = tune(tmp_path, "--slo", "latency:p99:5s", "--budget", "9s",
                "--duration", "200ms", "--rounds", 2, "--try",
                "max_batch_size=0,99999999")
    failed = [line for line in done.stdout.splitlines() if "FAILED" in line]
    assert len(failed) == 1
    assert "must be at most 65536" in failed[0]
    assert "1 failed" in (tmp_path / "tuned.yaml").read_text()


def test_an_slo_that_nothing_meets_ends_with_3(tmp_path):
    done = tune(tmp_path, "--slo", "latency:p99:1ns", "--budget", "5s",
                "--duration", "200ms", "--try", "threads=1,2", expect=3)
    assert "No configuration met the SLO" in done.stdout
    assert not (tmp_path / "tuned.yaml").exists()


def test_a_configuration_that_does_not_serve_ends_with_1(tmp_path):
    done = tune(tmp_path, "--slo", "latency:p99:1s",
                serve="serve /nope.onnx", expect=1)
    assert "there is no file or folder '/nope.onnx'" in done.stderr


def test_an_interrupt_leaves_no_server_behind(tmp_path):
    running = subprocess.Popen(
        command(tmp_path, "--slo", "latency:p99:5s", "--budget", "60s",
                "--duration", "30s"),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 10
    while not children_of(running.pid) and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.7)
    servers = children_of(running.pid)
    assert servers
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=15)
    assert running.returncode == 1
    assert "interrupted" in errors
    assert not any(pathlib.Path(f"/proc/{pid}").exists() for pid in servers)

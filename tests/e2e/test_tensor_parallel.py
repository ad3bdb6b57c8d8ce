"""A model served by several processes under mpirun: the answers of one process,
and one clear end whatever happens to a rank."""
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from conftest import BINARY, MODEL, MODEL_ID, REPO, Server, start

MPIRUN = shutil.which("mpirun")
MODULE = BINARY.parent / "libmillrace_mpi.so"
pytestmark = [
    pytest.mark.skipif(MPIRUN is None, reason="mpirun is not installed"),
    pytest.mark.skipif(not MODULE.exists(),
                       reason="the MPI module was not built"),
]
# 4 heads, 2 KV heads; loads at once.
TINY = REPO / "tests/data/hf_llama"
F32 = ("--compute-dtype", "f32", "--kv-cache-dtype", "f32")


def mpirun(size):
    return (MPIRUN, "--allow-run-as-root", "--oversubscribe", "--bind-to",
            "none", "-np", str(size))


def start_ranks(size, model, *flags, **kwargs):
    return start(model, "--tensor-parallel-size", size, *flags,
                 launcher=mpirun(size), **kwargs)


def state_of(pid):
    """Of /proc: "R", "S", …; "Z" and "" for those that have ended."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rsplit(")", 1)[1].split()[0]


def ranks_of(server):
    """Process ids by rank."""
    parent = str(server.process.pid)
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if stat[1] != parent:
                continue
            for word in (entry / "environ").read_bytes().split(b"\0"):
                if word.startswith(b"OMPI_COMM_WORLD_RANK="):
                    found[int(word.split(b"=")[1])] = int(entry.name)
        except OSError:
            continue
    return found


def assert_no_rank_lives(pids, within=5):
    end = time.monotonic() + within
    while time.monotonic() < end:
        left = [pid for pid in pids if state_of(pid) not in ("", "Z")]
        if not left:
            return
        time.sleep(0.05)
    raise AssertionError(f"these ranks still run: {left}")


def post(server, path, body, timeout=120):
    request = urllib.request.Request(
        server.url + path, json.dumps(body).encode(),
        {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=timeout)


def completion(server, model, prompt, **more):
    body = {"model": model, "prompt": prompt, "max_tokens": 24,
            "temperature": 0, "logprobs": 3, **more}
    with post(server, "/v1/completions", body) as answer:
        return json.load(answer)["choices"][0]


def stream_forever(server, model):
    """Streams in a thread of its own, one after another until one fails; with what
    is in the list."""
    ended = []
    began = threading.Event()

    def run():
        try:
            while not ended:
                with post(server, "/v1/completions",
                          {"model": model, "prompt": "Once", "stream": True,
                           "max_tokens": 100, "ignore_eos": True}) as answer:
                    for line in answer:
                        began.set()
                        if b"error" in line:
                            ended.append(line)
        except (OSError, http.client.HTTPException, ValueError) as error:
            ended.append(error)
        began.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert began.wait(60) and not ended, ended
    return thread, ended


def test_three_ranks_give_the_answers_of_one():
    # The last one's sums are long enough to be made in parts.
    prompts = ["The capital of France is", "def add(a, b):",
               "It rained. " * 30 + "Then"]
    with start(MODEL, *F32) as one:
        expected = [completion(one, MODEL_ID, prompt) for prompt in prompts]
    seen = []
    for rows in (512, 512, 16):
        with start_ranks(3, MODEL, *F32, "--max-num-batched-tokens",
                         rows) as group:
            seen.append([completion(group, MODEL_ID, p) for p in prompts])
    # One bit pattern on every run and in steps of any size; one rank sums in
    # another order.
    assert seen[0] == seen[1] == seen[2]
    for ours, theirs in zip(seen[0], expected):
        assert ours["text"] == theirs["text"]
        assert ours["logprobs"]["token_logprobs"] == pytest.approx(
            theirs["logprobs"]["token_logprobs"], abs=1e-3)


def test_two_ranks_that_sum_in_parts_give_the_bits_of_short_sums():
    # 300 rows of 64 values are summed in parts, 16 rows are not.
    prompt = "It rained. " * 28
    seen = []
    for rows in (512, 16):
        with start_ranks(2, TINY, *F32, "--max-num-batched-tokens",
                         rows) as group:
            seen.append(completion(group, "hf_llama", prompt))
    assert seen[0] == seen[1]
    with start(TINY, *F32) as one:
        alone = completion(one, "hf_llama", prompt)
    assert seen[0]["text"] == alone["text"]
    assert seen[0]["logprobs"]["token_logprobs"] == pytest.approx(
        alone["logprobs"]["token_logprobs"], abs=1e-3)


def test_chats_stream_and_stop_with_rank_zero():
    with start_ranks(3, MODEL) as group:
        ranks = ranks_of(group)
        assert sorted(ranks) == [0, 1, 2]
        body = {"model": MODEL_ID, "max_tokens": 12, "temperature": 0,
                "messages": [{"role": "user", "content": "Say hello."}]}
        with post(group, "/v1/chat/completions", body) as answer:
            whole = json.load(answer)["choices"][0]["message"]["content"]
        pieces = ""
        with post(group, "/v1/chat/completions",
                  {**body, "stream": True}) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    delta = json.loads(line[6:])["choices"][0]["delta"]
                    pieces += delta.get("content") or ""
        assert whole and pieces == whole
        seconds = group.metric("millrace_step_phase_seconds_total")
        shares = [value for labels, value in seconds.items()
                  if 'phase="all_reduce"' in labels]
        assert shares and shares[0] > 0
        os.kill(ranks[0], signal.SIGTERM)
        assert group.process.wait(20) == 0
        assert_no_rank_lives(ranks.values())


def test_requests_run_side_by_side():
    with start_ranks(2, TINY) as group:
        alone = [completion(group, "hf_llama", "a" * n) for n in (3, 40, 90)]
        together = [None] * 3

        def ask(i, n):
            together[i] = completion(group, "hf_llama", "a" * n)

        threads = [threading.Thread(target=ask, args=(i, n))
                   for i, n in enumerate((3, 40, 90))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert together == alone


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_killed_in_a_step_ends_all(rank):
    with start_ranks(2, TINY, "--max-model-len", 128) as group:
        ranks = ranks_of(group)
        stream_forever(group, "hf_llama")
        os.kill(ranks[rank], signal.SIGKILL)
        assert group.process.wait(10) != 0
        assert_no_rank_lives(ranks.values())
        text = "".join(group.lines)
        assert f"process rank {rank} " in text and "Killed" in text


def test_a_rank_killed_at_start_ends_all():
    with start_ranks(3, MODEL, until="listening") as group:
        ranks = ranks_of(group)
        os.kill(ranks[2], signal.SIGKILL)
        assert group.process.wait(10) != 0
        assert_no_rank_lives(ranks.values())


def test_a_rank_killed_in_shutdown_ends_all():
    with start_ranks(2, TINY) as group:
        ranks = ranks_of(group)
        thread, _ = stream_forever(group, "hf_llama")
        os.kill(ranks[0], signal.SIGTERM)  # drains
        os.kill(ranks[1], signal.SIGKILL)
        assert group.process.wait(10) != 0
        assert_no_rank_lives(ranks.values())
        thread.join(10)
        assert not thread.is_alive()


def test_a_rank_that_hangs_ends_all_after_the_timeout():
    with start_ranks(2, TINY, "--tensor-parallel-timeout", "1s") as group:
        ranks = ranks_of(group)
        completion(group, "hf_llama", "a")
        os.kill(ranks[1], signal.SIGSTOP)
        with pytest.raises(urllib.error.HTTPError) as error:
            completion(group, "hf_llama", "b")
        assert error.value.code == 503
        assert b"rank 1" in error.value.read()
        assert group.process.wait(10) != 0
        assert_no_rank_lives(ranks.values())
        says = [line for line in group.lines
                if line.startswith("millrace serve: ")]
        assert len(says) == 1 and "rank 1" in says[0] and "1000 ms" in says[0]


def test_ranks_end_with_mpirun():
    with start_ranks(2, TINY) as group:
        ranks = ranks_of(group)
        assert len(ranks) == 2
        group.process.kill()
        assert_no_rank_lives(ranks.values())


def run_refused(command):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True,
                          timeout=60)
    says = [line for line in done.stderr.splitlines()
            if line.startswith("millrace serve: ")]
    return done.returncode, says


def serve(model, size, *flags):
    return [BINARY, "serve", model, "--http-port", 0, "--grpc-port", -1,
            "--tensor-parallel-size", size, *flags]


def test_a_size_that_does_not_divide_is_refused_once():
    code, says = run_refused([*mpirun(2), *serve(MODEL, 2)])
    assert code != 0
    assert len(says) == 1
    assert ("tensor_parallel_size is 2, but the model has 9 heads, which these "
            "sizes divide: 3") in says[0]


def test_without_mpirun_or_with_another_number_it_is_refused():
    code, says = run_refused(serve(TINY, 2))
    assert code == 1 and "mpirun -np N millrace serve" in says[0]
    code, says = run_refused([*mpirun(3), *serve(TINY, 2)])
    assert code != 0 and len(says) == 1
    assert "mpirun started 3 processes; say mpirun -np 2" in says[0]


@pytest.mark.parametrize("flags, words", [
    (["--kv-cache-dir", "/tmp/x"], "leave kv_cache_dir out"),
    (["--speculative-model", MODEL], "leave speculative_model out"),
    (["--lora-modules", "a=b"], "leave lora_modules out"),
    (["--device", "auto"], "on device 'auto'; cpu is, and cuda"),
])
def test_what_ranks_do_not_serve_is_refused_before_mpi(flags, words):
    code, says = run_refused(serve(TINY, 2, *flags))
    assert code == 1 and words in says[0]


def test_mixtures_of_experts_are_refused():
    code, says = run_refused(
        [*mpirun(2), *serve(REPO / "tests/data/hf_mixtral", 2)])
    assert code != 0 and len(says) == 1 and "mixtures of experts" in says[0]


AGENT = """#!/bin/sh
# Instead of ssh HOST COMMAND: the second host is a namespace.
shift
exec ip netns exec {b} unshare -u sh -c "hostname {b}; TMPDIR={tmp} $*"
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def cable(a, b):
    """Joins two namespaces by a pair of devices that are named as they are."""
    ip("link", "add", a, "type", "veth", "peer", "name", b)
    for name in (a, b):
        ip("link", "set", name, "netns", name)
    return contextlib.nullcontext()


@contextlib.contextmanager
def bad_line(a, b):
    """The same, by a line with 1 ms of delay in each direction that loses 1 % of
    all packets."""
    with subprocess.Popen(
            [sys.executable, "-B", REPO / "tests/e2e/bad_line.py", a, b,
             "--delay-ms", "1", "--loss", "0.01", "--seed", "7"],
            stdout=subprocess.PIPE, text=True) as line:
        try:
            if line.stdout.readline() != "ready\n":
                pytest.skip("TUN devices cannot be made here")
            yield
        finally:
            line.terminate()
            words = line.stdout.read().split()
    # Else the test has shown nothing.
    carried, dropped = map(int, words)
    assert carried > 1000 and 0.003 < dropped / carried < 0.03, words


@contextlib.contextmanager
def hosts(folder, joined):
    """A namespace, and words before the program's name: two ranks, each in a
    network namespace and with a host name of its own, joined in that way."""
    tag = f"mr{os.getpid() % 10000}"
    a, b = tag + "a", tag + "b"
    with contextlib.ExitStack() as ending:
        for name in (a, b):
            try:
                ip("netns", "add", name)
            except (OSError, subprocess.CalledProcessError):
                pytest.skip("network namespaces cannot be made here")
            ending.callback(subprocess.run, ["ip", "netns", "del", name],
                            capture_output=True)
        ending.enter_context(joined(a, b))
        for name, address in ((a, "10.77.0.1/24"), (b, "10.77.0.2/24")):
            ip("-n", name, "addr", "add", address, "dev", name)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", name, "up")
        agent = folder / "agent"
        agent.write_text(AGENT.format(b=b, tmp=folder))
        agent.chmod(0o755)
        network = "10.77.0.0/24"
        yield a, (
            "ip", "netns", "exec", a, "unshare", "-u", "sh", "-c",
            f'hostname {a}; exec "$@"', "sh", MPIRUN, "--allow-run-as-root",
            "--bind-to", "none", "--mca", "plm_rsh_agent", str(agent), "--mca",
            "btl_tcp_if_include", network, "--mca", "oob_tcp_if_include",
            network, "-H", "10.77.0.1:1,10.77.0.2:1", "-np", "2")


@pytest.fixture
def two_hosts(tmp_path):
    with hosts(tmp_path, cable) as made:
        yield made


def rank_processes():
    """Ids of all processes that are a rank."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if os.readlink(entry / "exe") != str(BINARY.resolve()):
                continue
            for word in (entry / "environ").read_bytes().split(b"\0"):
                if word.startswith(b"OMPI_COMM_WORLD_RANK="):
                    found[int(entry.name)] = int(word.split(b"=")[1])
        except OSError:
            continue
    return found


# As deploy/README.md and the manifest have them, with shorter times: 5 s.
KEEPALIVE = ("--mca", "oob_tcp_keepalive_time", "2",
             "--mca", "oob_tcp_keepalive_intvl", "1",
             "--mca", "oob_tcp_keepalive_probes", "3")


@pytest.mark.parametrize("words,timeout,why", [
    ((), "60s", "is 60000 ms, but mpirun notices a lost machine only after "
                "480 s"),
    (KEEPALIVE, "5s", "is 5000 ms, but mpirun notices a lost machine only "
                      "after 5 s"),
])
def test_a_timeout_below_mpiruns_is_refused(two_hosts, words, timeout, why):
    launcher = two_hosts[1]
    done = subprocess.run(
        [*launcher[:-2], *words, *launcher[-2:], BINARY, "serve", TINY,
         "--tensor-parallel-size", "2", "--tensor-parallel-timeout", timeout,
         "--http-port", "0", "--grpc-port", "0"],
        capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert f"tensor_parallel_timeout {why}" in done.stdout + done.stderr
    assert "oob_tcp_keepalive_probes 5, or raise" in done.stdout + done.stderr


@pytest.mark.parametrize("joined", [cable, bad_line])
def test_ranks_on_two_hosts(tmp_path, joined):
    prompts = ["ab", "c" * 60, "d", "e", "f", "g"]
    with start_ranks(2, TINY, *F32) as near:
        expected = [completion(near, "hf_llama", prompt) for prompt in prompts]
    before = rank_processes()
    with (hosts(tmp_path, joined) as (host, launcher),
          start(TINY, "--tensor-parallel-size", 2, *F32,
                launcher=(*launcher[:-2], *KEEPALIVE, *launcher[-2:])) as far):
        ranks = {rank: pid for pid, rank in rank_processes().items()
                 if pid not in before}
        assert sorted(ranks) == [0, 1]
        for prompt, answer in zip(prompts, expected):
            body = {"model": "hf_llama", "prompt": prompt, "max_tokens": 24,
                    "temperature": 0, "logprobs": 3}
            done = subprocess.run(
                ["ip", "netns", "exec", host, "curl", "-s",
                 far.url + "/v1/completions", "-H",
                 "Content-Type: application/json", "-d", json.dumps(body)],
                capture_output=True, timeout=60, check=True)
            assert json.loads(done.stdout)["choices"][0] == answer
        os.kill(ranks[1], signal.SIGKILL)
        assert far.process.wait(20) != 0
        assert_no_rank_lives(ranks.values(), within=20)


@pytest.mark.parametrize("busy", [False, True])
def test_a_cable_that_is_cut_ends_all_on_both_hosts(two_hosts, busy):
    host, launcher = two_hosts
    before = rank_processes()
    with start(TINY, "--tensor-parallel-size", 2,
               launcher=(*launcher[:-2], *KEEPALIVE, *launcher[-2:])) as far:
        ranks = [pid for pid in rank_processes() if pid not in before]
        assert len(ranks) == 2
        subprocess.run(["ip", "-n", host, "link", "set", host, "down"],
                       check=True)
        if busy:
            subprocess.run(
                ["ip", "netns", "exec", host, "curl", "-s", "-m", "20",
                 far.url + "/v1/completions", "-H",
                 "Content-Type: application/json", "-d",
                 json.dumps({"model": "hf_llama", "prompt": "ab"})],
                capture_output=True, timeout=30)
        assert far.process.wait(20) != 0
        assert_no_rank_lives(ranks, within=20)


def test_inspect_tells_how_tensors_are_cut():
    def inspect(size):
        return subprocess.run(
            [BINARY, "inspect", TINY, "--tensor-parallel-size", str(size)],
            capture_output=True, text=True, timeout=30)

    fits = inspect(2)
    assert fits.returncode == 0, fits.stderr
    lines = [" ".join(line.split()) for line in fits.stdout.splitlines()]
    assert "tensor parallel of 2 processes" in lines
    assert "blk.*.attn_k.weight outputs 1 of 2 KV heads" in lines
    assert "blk.*.ffn_down.weight inputs 40 of 80 ffn columns" in lines
    refused = inspect(3)
    assert refused.returncode != 0
    assert "the model has 4 heads, which these sizes divide: 2" in refused.stderr

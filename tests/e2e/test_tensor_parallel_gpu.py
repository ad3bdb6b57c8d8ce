"""A language model on several GPUs, one for each process under mpirun: GPUs are
emulated and a library stands in for NCCL. The answers of one GPU, and one clear
end whatever happens."""
import ctypes
import os
import signal
import time

import pytest

from conftest import BINARY, REPO, start
from test_device import EMULATED, MODULE
from test_tensor_parallel import (
    MODULE as MPI_MODULE, MPIRUN, assert_no_rank_lives, completion, mpirun, ranks_of,
    run_refused, serve, stream_forever)

FAKE_NCCL = BINARY.parent / "libmillrace_fake_nccl.so"
pytestmark = [
    pytest.mark.skipif(MPIRUN is None, reason="mpirun is not installed"),
    pytest.mark.skipif(not MPI_MODULE.exists(),
                       reason="the MPI module was not built"),
    pytest.mark.skipif(not FAKE_NCCL.exists(),
                       reason="built without the emulated module"),
]
TINY = REPO / "tests/data/hf_llama"  # 2 layers: 4 sums a step
GPUS = {**EMULATED, "MILLRACE_NCCL": str(FAKE_NCCL),
        "MILLRACE_EMULATED_DEVICES": "2"}
F32 = ("--compute-dtype", "f32", "--kv-cache-dtype", "f32")
SUMS_OF_A_LOAD = 8


def start_gpus(*flags, device="cuda", env=None, **kwargs):
    return start(TINY, "--device", device, "--tensor-parallel-size", 2, *flags,
                 launcher=mpirun(2), env={**GPUS, **(env or {})}, **kwargs)


def refused(*flags, device="cuda", env=None):
    command = ["env", *[f"{name}={value}"
                        for name, value in {**GPUS, **(env or {})}.items()],
               *mpirun(2), *serve(TINY, 2, "--device", device, *flags)]
    return run_refused(command)


def ask_all(server):
    return [completion(server, "hf_llama", prompt)
            for prompt in ("a", "It rained. " * 5, "to be or not")]


def test_two_gpus_give_the_answers_of_one():
    with start(TINY, "--device", "cuda:0", *F32, env=GPUS) as one:
        expected = ask_all(one)
    seen = []
    # "cuda:1,cuda:0": rank 0 has the second one.
    for device, *flags in (("cuda",), ("cuda:1,cuda:0", "--enforce-eager"),
                           ("cuda:all", "--max-num-batched-tokens", 16)):
        with start_gpus(*F32, *flags, device=device) as group:
            seen.append(ask_all(group))
            ranks = ranks_of(group)
            assert sorted(ranks) == [0, 1]
            os.kill(ranks[0], signal.SIGTERM)
            assert group.process.wait(20) == 0
            assert_no_rank_lives(ranks.values())
    # One bit pattern on every run, as graphs or not, in steps of any size.
    assert seen[0] == seen[1] == seen[2]
    for ours, theirs in zip(seen[0], expected):
        assert ours["text"] == theirs["text"]
        assert ours["logprobs"]["token_logprobs"] == pytest.approx(
            theirs["logprobs"]["token_logprobs"], abs=1e-3)


def ends_with_one_line(group, within=40):
    """The line; all ranks have ended with a failure."""
    assert group.process.wait(within) != 0
    group._reader.join(5)
    says = [line for line in group.lines if line.startswith("millrace serve: ")]
    assert len(says) == 1, says
    return says[0]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("call, said", [
    ("all_reduce", "NCCL failed to add over the ranks"),
    ("stop", "NCCL failed to compute a step with the others"),
])
def test_a_call_of_nccl_that_fails_ends_all(rank, call, said):
    fail = f"{call}@{rank}:{SUMS_OF_A_LOAD + 30}"
    with start_gpus("--enforce-eager", "--max-model-len", 128,
                    env={"MILLRACE_FAKE_NCCL_FAIL": fail}) as group:
        ranks = ranks_of(group)
        thread, ended = stream_forever(group, "hf_llama")
        line = ends_with_one_line(group)
        assert said in line and f"at rank {rank} of" in line
        assert "as the test wants it" in line
        assert_no_rank_lives(ranks.values())
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_killed_in_a_step_ends_all(rank):
    with start_gpus("--max-model-len", 128) as group:
        ranks = ranks_of(group)
        stream_forever(group, "hf_llama")
        os.kill(ranks[rank], signal.SIGKILL)
        assert group.process.wait(10) != 0
        assert_no_rank_lives(ranks.values())


def test_a_rank_that_hangs_ends_all_after_the_timeout():
    with start_gpus("--tensor-parallel-timeout", "10s",
                    env={"MILLRACE_FAKE_NCCL_PATIENCE_MS": "4000"}) as group:
        ranks = ranks_of(group)
        stream_forever(group, "hf_llama")
        os.kill(ranks[1], signal.SIGSTOP)
        line = ends_with_one_line(group)
        # By NCCL, or by MPI where rank 1 had not taken the step.
        assert "within 10000 ms" in line and ("at rank 0" in line or "rank 1" in line)
        assert_no_rank_lives(ranks.values())


@pytest.mark.parametrize("flags, env, words", [
    ({}, {"MILLRACE_NCCL": "/nonexistent/libnccl.so.2"},
     "on GPUs needs NCCL, which cannot be opened (/nonexistent/libnccl.so.2"),
    ({}, {"MILLRACE_NCCL": str(MODULE)}, "is no NCCL"),
    ({}, {"MILLRACE_FAKE_NCCL_VERSION": "21104"}, "is too old"),
    ({}, {"MILLRACE_EMULATED_DEVICES": "1"},
     "rank 1: cuda:1 cannot serve: there are 1 GPUs"),
    ({"device": "cuda:0"}, {}, "device names 1 GPU, but 2 ranks run"),
    ({"device": "cuda:0,cuda:0"}, {}, "device names cuda:0 twice"),
    ({"device": "cuda:0,cuda:5"}, {}, "rank 1: cuda:5 cannot serve"),
    ({}, {"MILLRACE_CUDA_MODULE": "/nonexistent/module.so"},
     "there is no CUDA module"),
])
def test_what_cannot_serve_is_said_once(flags, env, words):
    code, says = refused(**flags, env=env)
    assert code != 0 and len(says) == 1, says
    assert words in says[0]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_gpu_that_cannot_be_connected_ends_all(rank):
    code, says = refused(env={"MILLRACE_FAKE_NCCL_FAIL": f"init@{rank}"})
    assert code != 0 and len(says) == 1, says
    assert f"NCCL failed to connect the GPU at rank {rank} of" in says[0]


def test_a_gpu_without_memory_to_connect_ends_all_at_once():
    """Not after the time-out of those that wait for it, which is 60 s."""
    little = ("sh", "-c", 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then '
              'export MILLRACE_EMULATED_BYTES=10000000; fi; exec "$@"', "sh")
    begun = time.monotonic()
    code, says = run_refused([
        "env", *[f"{name}={value}" for name, value in GPUS.items()], *mpirun(2),
        *little, *serve(TINY, 2, "--device", "cuda")])
    assert code != 0 and len(says) == 1, says
    assert "rank 1: cuda:1 has no memory for NCCL's first sums" in says[0]
    assert time.monotonic() - begun < 30


def test_the_real_nccl_says_what_it_lacks():
    """Without a GPU it opens, is recent enough, and fails."""
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("there is a GPU")
    try:
        ctypes.CDLL("libnccl.so.2")
    except OSError:
        pytest.skip("there is no libnccl.so.2")
    code, says = refused("--tensor-parallel-timeout", "20s",
                         env={"MILLRACE_NCCL": "libnccl.so.2"})
    assert code != 0 and len(says) == 1, says
    assert "NCCL" in says[0]

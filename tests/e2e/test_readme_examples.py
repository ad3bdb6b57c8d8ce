"""The examples of server/README.md, and the commands of README.md that install
nothing, run as they are printed. Only the ports are others, so that the test
runs beside any server."""
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from conftest import BINARY, MODEL, REPO

README = (REPO / "server" / "README.md").read_text()
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```", README, re.M | re.S)
SERVE, EXAMPLES = BLOCKS[0], BLOCKS[1:]
# What each example must print at least.
EXPECTED = [
    r'"object":"chat\.completion".*"finish_reason"',
    r"data: \[DONE\]",
    r"Tokyo",
    r"Tokyo.*Tokyo",
    r'"model_name":"mlp".*"logits".*"probabilities"',
    r"\[\[.*\]\]",
    r"\w+",
    r"max_num_seqs: 16 .*file",
    r'"name":"mlp","version":"1","state":"READY"',
    r"(?i)time to first token",
    r'FP32 \[batch, 4\].*"batch":2',
]


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


class Setting:
    """A folder that looks like the root of the repository, and free ports."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "tests").symlink_to(REPO / "tests")
        (folder / "home/.cache/millrace/models").mkdir(parents=True)
        (folder / "home/.cache/millrace/models" / MODEL.name).symlink_to(MODEL)
        self.ports = dict(zip(("8000", "8001", "8080"), free_ports(3)))
        self.env = {**os.environ, "HOME": str(folder / "home"),
                    "PATH": f"{BINARY.parent}:{os.environ['PATH']}",
                    "MILLRACE_HTTP_PORT": str(self.ports["8000"]),
                    "MILLRACE_GRPC_PORT": str(self.ports["8001"])}

    def start(self, language, text):
        for printed, real in self.ports.items():
            text = re.sub(rf"\b{printed}\b", str(real), text)
        if "millrace-loadtest" in text:  # asks port 8000 unless told
            text = text.replace(
                "millrace-loadtest",
                f"millrace-loadtest --url http://127.0.0.1:{self.ports['8000']}")
        command = {"sh": ["bash", "-euo", "pipefail", "-c", text],
                   "python": [sys.executable, "-c", text]}[language]
        return subprocess.Popen(command, cwd=self.folder, env=self.env,
                                text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT,
                                start_new_session=True)


def wait_for(server, url):
    end = time.monotonic() + 60
    while True:
        try:
            return urllib.request.urlopen(url, timeout=5)
        except OSError:
            assert server.poll() is None, server.stdout.read()
            assert time.monotonic() < end
            time.sleep(0.05)


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    made = Setting(tmp_path_factory.mktemp("readme"))
    server = made.start(SERVE[0], "exec " + SERVE[1])
    try:
        wait_for(server, f"http://127.0.0.1:{made.ports['8000']}/health")
        yield made
    finally:
        server.kill()
        server.wait()


def test_there_are_eleven():
    assert len(EXAMPLES) == len(EXPECTED) == 11
    assert len(re.findall(r"^\d+\. ", README, re.M)) == 11
    assert SERVE[1].startswith("millrace serve ")


@pytest.mark.parametrize("index", range(11))
def test_an_example_does_what_it_says(setting, index):
    done = setting.start(*EXAMPLES[index])
    output, _ = done.communicate(timeout=120)
    assert done.returncode == 0, output
    assert re.search(EXPECTED[index], output, re.S), output


# ---- README.md ----

FIRST = re.search(r"^Then:\n\n((?:    .*\n|\n)+)",
                  (REPO / "README.md").read_text(), re.M)[1]
COMMANDS = re.sub(r"\\\n *", "", re.sub("(?m)^    ", "", FIRST)).split("\n")
# A model from the network is the matter of test_pull.py.
COMMANDS = [line for line in COMMANDS if line and "hf://" not in line]
SERVES = [line for line in COMMANDS
          if " serve" in line and "--help" not in line.split("#")[0]]


@pytest.fixture
def root(tmp_path):
    """As after the quickstart, with the files that the commands name."""
    made = Setting(tmp_path)
    (tmp_path / "build/release").mkdir(parents=True)
    (tmp_path / "build/release/bin").symlink_to(BINARY.parent)
    (tmp_path / "my-model.gguf").symlink_to(MODEL)
    (tmp_path / "resnet50.onnx").symlink_to(REPO / "tests/data/graph/mlp.onnx")
    (tmp_path / "path/to").mkdir(parents=True)
    (tmp_path / "path/to/Qwen2.5-0.5B").symlink_to(
        REPO / "tests/data/hf_llama")
    made.env.pop("MILLRACE_CACHE", None)  # HOME holds it
    return made


@pytest.mark.parametrize("command", SERVES)
def test_a_serve_of_the_readme_gets_ready(root, command):
    server = root.start("sh", "exec " + command)
    try:
        wait_for(server, f"http://127.0.0.1:{root.ports['8000']}/health/ready")
    finally:
        server.kill()
        server.wait()


def test_the_other_commands_of_the_readme(root):
    others = [line for line in COMMANDS if line not in SERVES]
    expected = {"millrace chat": r"\w+",
                "serve --help ": "usage: millrace serve",
                "completion bash": "^$",
                "curl ": r'"object":"chat\.completion".*"finish_reason"'}
    assert len(others) == len(expected)
    server = root.start("sh", "exec " + SERVES[0])
    try:
        wait_for(server, f"http://127.0.0.1:{root.ports['8000']}/health/ready")
        for line, (part, pattern) in zip(others, expected.items()):
            assert part in line
            typed = "echo 'Name a colour.' | " if part == "millrace chat" else ""
            done = root.start("sh", typed + line)
            output, _ = done.communicate(timeout=120)
            assert done.returncode == 0, output
            assert re.search(pattern, output, re.S), (line, output)
    finally:
        server.kill()
        server.wait()

"""The group of deploy/kubernetes/tensor-parallel, without a cluster: its two
scripts run as its user in two network namespaces, each with the host name and
the hosts file of a pod, and start the ranks by ssh as they would there."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import pytest
import yaml

from conftest import BINARY, CACHE, REPO
from test_tensor_parallel import (MODULE, MPIRUN, TINY, assert_no_rank_lives,
                                  completion, rank_processes, start_ranks,
                                  two_hosts)  # noqa: F401: a fixture

MANIFEST = REPO / "deploy/kubernetes/tensor-parallel/leaderworkerset.yaml"
SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:"
                    f"{CACHE / 'deps/openssh-server/usr/sbin'}")
DOMAIN = ".millrace-tp.default"
LEADER, WORKER = "millrace-tp-0", "millrace-tp-0-1"
USER = "10001"
KEY = "key-of-the-test"
SECONDS = 300  # on a machine that builds beside it

pytestmark = [
    pytest.mark.skipif(MPIRUN is None, reason="mpirun is not installed"),
    pytest.mark.skipif(SSHD is None, reason="there is no sshd"),
    pytest.mark.skipif(not MODULE.exists(),
                       reason="the MPI module was not built"),
]


def documents():
    return {document["kind"]: document
            for document in yaml.safe_load_all(MANIFEST.read_text())}


def as_user(*words):
    return ("setpriv", "--reuid", USER, "--regid", USER, "--clear-groups",
            *map(str, words))


@pytest.fixture
def folder():
    """What the pods mount, in a place that their user may enter."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="millrace-tp-"))
    path.chmod(0o755)
    if subprocess.run(as_user("test", "-x", BINARY)).returncode != 0:
        pytest.skip("another user may not run the program where it stands")
    for name in ("ssh", "config", "keys", "bin"):
        (path / name).mkdir()
    shutil.copy(SSHD, path / "bin/sshd")  # the cache may be closed to the user
    (path / "tmp").mkdir()
    (path / "tmp").chmod(0o777)
    shutil.copytree(TINY, path / "model")
    (path / "keys/keys").write_text(KEY + "\n")
    for name, text in documents()["ConfigMap"]["data"].items():
        for there, here in (
                ("/tmp/", f"{path}/tmp/"), ("/etc/millrace", path),
                ("/var/lib/millrace/models/chat.gguf", path / "model")):
            text = text.replace(there, str(here))
        (path / "config" / name).write_text(text)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
                    path / "ssh/id"], check=True)
    for name in ("id", "id.pub"):  # as a secret's volume with fsGroup
        os.chown(path / "ssh" / name, 0, int(USER))
        (path / "ssh" / name).chmod(0o440)
    yield path
    shutil.rmtree(path)


def etc(namespace, own):
    """Files that `ip netns exec` puts over those of /etc."""
    path = pathlib.Path("/etc/netns", namespace)
    path.mkdir(parents=True)
    addresses = {LEADER: "10.77.0.1", WORKER: "10.77.0.2"}
    (path / "hosts").write_text("127.0.0.1 localhost\n" + "".join(
        f"{address} {name}{DOMAIN}{' ' + name if name == own else ''}\n"
        for name, address in addresses.items()))
    (path / "passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\n"
        f"ranks:x:{USER}:{USER}::/tmp:/bin/sh\n")
    return path


def pod(namespace, name, folder, script, out):
    path = f"{BINARY.parent}:/usr/local/bin:/usr/bin:/bin:{folder / 'bin'}"
    env = {**os.environ, "PATH": path, "HOME": "/tmp",
           "LWS_LEADER_ADDRESS": LEADER + DOMAIN, "LWS_GROUP_SIZE": "2"}
    return subprocess.Popen(
        ["ip", "netns", "exec", namespace, "unshare", "-u", "sh", "-c",
         f'hostname {name}; exec "$@"', "sh",
         *as_user("/bin/sh", folder / "config" / script)],
        env=env, stdout=out, stderr=out)


def of(folder):
    """Ids of processes that name the folder."""
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if str(folder).encode() in (entry / "cmdline").read_bytes():
                    yield int(entry.name)
            except OSError:
                pass


def call(namespace, path, *flags):
    """(status, body)"""
    done = subprocess.run(
        ["ip", "netns", "exec", namespace, "curl", "-s", "-m", "30", "-w",
         "\n%{http_code}", f"http://10.77.0.1:8000{path}", *flags],
        capture_output=True, text=True, timeout=60)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


def test_the_group_starts_serves_and_ends(folder, two_hosts):  # noqa: F811
    host = two_hosts[0]
    other = host[:-1] + "b"
    with start_ranks(2, TINY) as near:
        expected = completion(near, "hf_llama", "ab")["text"]
    before = rank_processes()
    places, pods = [], []
    log = (folder / "log").open("w+")
    try:
        places += [etc(host, LEADER), etc(other, WORKER)]
        pods.append(pod(host, LEADER, folder, "leader.sh", log))
        time.sleep(1)  # it waits for the worker's sshd
        pods.append(pod(other, WORKER, folder, "worker.sh", log))
        end = time.monotonic() + SECONDS
        while call(host, "/health")[0] != 200:
            assert time.monotonic() < end, (folder / "log").read_text()
            assert all(each.poll() is None for each in pods), (
                folder / "log").read_text()
            time.sleep(0.2)
        ranks = [pid for pid in rank_processes() if pid not in before]
        assert len(ranks) == 2
        homes = {os.readlink(f"/proc/{pid}/ns/net") for pid in ranks}
        assert len(homes) == 2
        ask = ("-H", "Content-Type: application/json", "-d", json.dumps(
            {"model": "chat", "prompt": "ab", "max_tokens": 24,
             "temperature": 0}))
        assert call(host, "/v1/completions", *ask)[0] == 401
        status, body = call(host, "/v1/completions", *ask, "-H",
                            f"Authorization: Bearer {KEY}")
        assert status == 200
        assert json.loads(body)["choices"][0]["text"] == expected
        # All pods of a group are told to end at the same time.
        for each in reversed(pods):
            each.send_signal(signal.SIGTERM)
        for each in pods:
            each.wait(SECONDS)
        assert [each.returncode for each in pods] == [0, 0], (
            folder / "log").read_text()
        assert_no_rank_lives(ranks)
        assert '"event":"stopped","clean":true' in (
            folder / "log").read_text().replace(" ", "")
    finally:
        for each in pods:
            each.kill()
            each.wait()
        for pid in of(folder):
            os.kill(pid, signal.SIGKILL)
        for place in places:
            shutil.rmtree(place)
        log.close()

"""`millrace pull` and `serve ADDRESS`, against a web server with faults."""
import concurrent.futures
import hashlib
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import threading

import pytest

from conftest import BINARY, MODEL, REPO, start
from model_host import COMMIT, KEY_ID, SECRET, Host

# A graph, padded so that it takes several packets: protobuf readers skip what
# they do not know, so field 15 (bytes) may hold anything.
GRAPH = (REPO / "tests/data/graph/mlp.onnx").read_bytes()
PAD = 400_000
MODEL_BYTES = (GRAPH + bytes([15 << 3 | 2]) +
               bytes([PAD & 127 | 128, PAD >> 7 & 127 | 128, PAD >> 14]) +
               bytes(i * 7 % 251 for i in range(PAD)))
SUM = hashlib.sha256(MODEL_BYTES).hexdigest()


# A namespace of mounts of its own for one command: root's.
UNSHARE = ["unshare", "-m", "sh", "-c"]
READ_ONLY = ('mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" || exit 99; '
             'exec "$@"')
needs_mounts = pytest.mark.skipif(
    subprocess.run([*UNSHARE, "mount -t tmpfs none /mnt"],
                   capture_output=True).returncode != 0,
    reason="mounts are not allowed")


@pytest.fixture
def host():
    with_faults = Host()
    with_faults.files["/m/net.onnx"] = MODEL_BYTES
    yield with_faults
    with_faults.close()


def environment(tmp_path, **more):
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith(("AWS_", "HF_", "MILLRACE_")) and
             not name.lower().endswith("_proxy")}
    return {**clean, "MILLRACE_CACHE": str(tmp_path / "cache"), **more}


def pull(tmp_path, *args, preexec_fn=None, **env):
    return subprocess.run(
        [BINARY, "pull", "--retry-delay-ms", "1", *map(str, args)],
        capture_output=True, text=True, timeout=120, preexec_fn=preexec_fn,
        env=environment(tmp_path, **env))


def pulled(done):
    assert done.returncode == 0, done.stderr
    return pathlib.Path(done.stdout.strip())


def sentence(done):
    """The one sentence of a failure; nothing but unfinished files is left."""
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    return done.stderr.splitlines()[-1]


def whole_files(tmp_path):
    """Files of the cache that a server could take for a model."""
    return [path for path in (tmp_path / "cache").rglob("*")
            if path.is_file() and "partial" not in path.parts and
            path.name != "lock"]


# ---- faults ----

@pytest.mark.parametrize("at", [0, 1, 15_999, 200_000, len(MODEL_BYTES) - 1])
def test_a_cut_answer_is_continued(host, tmp_path, at):
    host.faults = [("cut", at)]
    path = pulled(pull(tmp_path, host.url + "/m/net.onnx"))
    assert path.name == "net.onnx" and path.read_bytes() == MODEL_BYTES
    ranges = [headers.get("Range") for _, headers in host.requests]
    assert ranges == [None, f"bytes={at}-" if at else None]


@pytest.mark.parametrize("at", [0, 1, 200_000, len(MODEL_BYTES) - 1])
def test_a_connection_that_is_reset_is_continued(host, tmp_path, at):
    host.faults = [("reset", at)] * 2
    path = pulled(pull(tmp_path, host.url + "/m/net.onnx"))
    assert path.read_bytes() == MODEL_BYTES
    assert len(host.requests) == 3


def test_a_later_process_continues(host, tmp_path):
    host.faults = [("cut", 100_000)]
    url = host.url + "/m/net.onnx"
    said = sentence(pull(tmp_path, "--retries", 0, url))
    assert "given up after 1 try" in said
    assert whole_files(tmp_path) == []
    assert pulled(pull(tmp_path, url)).read_bytes() == MODEL_BYTES
    assert host.requests[1][1]["Range"] == "bytes=100000-"
    assert host.requests[1][1]["If-Range"]


def test_a_file_that_changed_meanwhile_is_fetched_anew(host, tmp_path):
    host.faults = [("cut", 100_000)]
    url = host.url + "/m/net.onnx"
    pull(tmp_path, "--retries", 0, url)
    host.files["/m/net.onnx"] = GRAPH
    assert pulled(pull(tmp_path, url)).read_bytes() == GRAPH


def test_a_server_without_ranges(host, tmp_path):
    host.faults = [("cut", 100_000), ("ignore_range",)]
    path = pulled(pull(tmp_path, host.url + "/m/net.onnx"))
    assert path.read_bytes() == MODEL_BYTES


@pytest.mark.parametrize("at", [0, 200_000, len(MODEL_BYTES) - 1])
def test_a_wrong_byte_is_found(host, tmp_path, at):
    host.faults = [("wrong", at)]
    url = host.url + "/m/net.onnx"
    said = sentence(pull(tmp_path, "--sha256", SUM, url))
    assert SUM in said and "nothing was kept" in said
    assert not list((tmp_path / "cache").rglob("net.onnx*"))
    assert pulled(pull(tmp_path, "--sha256", SUM, url)).exists()


def test_a_wrong_beginning_is_fetched_again(host, tmp_path):
    """What a pull left is of another file: its sum tells, not its length."""
    url = host.url + "/m/net.onnx"
    host.files["/m/net.onnx"] = bytes(len(MODEL_BYTES))
    host.faults = [("cut", 100_000)]
    pull(tmp_path, "--retries", 0, "--sha256", SUM, url)
    host.files["/m/net.onnx"] = MODEL_BYTES
    path = pulled(pull(tmp_path, "--sha256", SUM, url))
    assert path.read_bytes() == MODEL_BYTES


def test_errors_of_the_server_are_tried_again(host, tmp_path):
    host.faults = [("status", code, {"Retry-After": "0"})
                   for code in (500, 502, 503, 504, 429)]
    done = pull(tmp_path, host.url + "/m/net.onnx")
    assert pulled(done).read_bytes() == MODEL_BYTES
    assert done.stderr.count("trying again in") == 5
    host.faults = [("status", 503, {})] * 3
    said = sentence(pull(tmp_path / "b", "--retries", 2,
                         host.url + "/m/net.onnx"))
    assert "503" in said and "given up after 3 tries" in said


def test_a_silent_server_is_asked_again(host, tmp_path):
    host.faults = [("stall", 100_000)]
    path = pulled(pull(tmp_path, "--stall-timeout", 1,
                       host.url + "/m/net.onnx"))
    assert path.read_bytes() == MODEL_BYTES


def test_what_is_not_there(host, tmp_path):
    said = sentence(pull(tmp_path, host.url + "/m/other.onnx"))
    assert "404" in said and "check the address" in said
    assert len(host.requests) == 1, "what is not there is not asked for again"
    assert "libcurl" not in sentence(
        pull(tmp_path, "--retries", 0, "http://127.0.0.1:1/a.onnx"))


def test_a_full_disk(host, tmp_path):
    """The size of a file is limited: the system refuses the rest of a write, as
    a full disk does."""
    def small():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    url = host.url + "/m/net.onnx"
    said = sentence(pull(tmp_path, url, preexec_fn=small))
    assert "make room" in said
    assert whole_files(tmp_path) == []
    assert pulled(pull(tmp_path, url)).read_bytes() == MODEL_BYTES


# A file system of one process: the cache stands in it, and ends with it.
ON_A_DISK_OF = """mkdir -p "$0" && mount -t tmpfs -o size=$SIZE none "$0" || exit 99
"$@"; code=$?; find "$0" -type f | sed 's/^/left: /' >&2; exit $code"""


@needs_mounts
@pytest.mark.parametrize("size, fault, address, says", [
    ("8m", None, None, "are free at"),  # before anything is written
    ("200k", ("no_size",), None, "make room"),  # in the middle
    ("200k", None, "file", "make room"),
])
def test_a_disk_that_is_full(host, tmp_path, size, fault, address, says):
    (tmp_path / "net.onnx").write_bytes(MODEL_BYTES)
    host.faults = [fault]
    done = subprocess.run(
        [*UNSHARE, ON_A_DISK_OF, tmp_path / "cache", BINARY, "pull",
         f"file://{tmp_path / 'net.onnx'}" if address else
         host.url + "/m/net.onnx"],
        capture_output=True, text=True, timeout=60,
        env=environment(tmp_path, SIZE=size))
    assert done.returncode == 1 and says in done.stderr
    assert [line for line in done.stderr.splitlines()
            if line.startswith("left: ") and "/partial/" not in line and
            not line.endswith("/lock")] == []


def test_concurrent_pulls_take_turns(host, tmp_path):
    host.gate = threading.Event()
    url = host.url + "/m/net.onnx"
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        pulls = [pool.submit(pull, tmp_path, url) for _ in range(4)]
        threading.Timer(1, host.gate.set).start()
        paths = {pulled(one.result()) for one in pulls}
    assert [path.read_bytes() == MODEL_BYTES for path in paths] == [True]
    # The others learn that theirs is the version of the cache.
    bodies = [headers for _, headers in host.requests
              if "If-None-Match" not in headers]
    assert len(bodies) == 1


def test_a_killed_pull_leaves_nothing_to_serve(host, tmp_path):
    host.gate = threading.Event()
    url = host.url + "/m/net.onnx"
    process = subprocess.Popen([BINARY, "pull", url],
                               env=environment(tmp_path),
                               stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    while not list((tmp_path / "cache").rglob("*.part")):
        assert process.poll() is None
    process.kill()
    process.wait()
    assert whole_files(tmp_path) == []
    host.gate.set()
    assert pulled(pull(tmp_path, url)).read_bytes() == MODEL_BYTES


# ---- redirects and secrets ----

def test_secrets_stay_with_the_first_host(host, tmp_path):
    other = Host()
    try:
        other.files["/m/net.onnx"] = MODEL_BYTES
        host.faults = [("redirect", other.url + "/m/net.onnx?signature=x")]
        url = host.url.replace("://", "://user:pass@") + "/m/net.onnx"
        done = pull(tmp_path, url)
        assert pulled(done).read_bytes() == MODEL_BYTES
        assert "Authorization" in host.requests[0][1]
        assert "Authorization" not in other.requests[0][1]
    finally:
        other.close()
    assert "pass" not in "".join(str(path) for path in
                                 (tmp_path / "cache").rglob("*"))
    host.faults = [("status", 403, {})]
    url = host.url.replace("://", "://user:pass@") + "/m/n.onnx?signature=x"
    said = sentence(pull(tmp_path, url))
    assert "403" in said and "pass" not in said and "signature" not in said


def test_a_redirect_that_leads_elsewhere(host, tmp_path):
    host.faults = [("redirect", "file:///etc/passwd")]
    assert "redirect" in sentence(pull(tmp_path, "--retries", 0,
                                       host.url + "/m/net.onnx"))
    host.faults = [("redirect", host.url + "/m/net.onnx")] * 20
    assert "redirect" in sentence(pull(tmp_path, host.url + "/m/net.onnx"))


# ---- Hugging Face ----

def hf_folder():
    """As a hub has it: the GGUF of the same model is a repository of its own."""
    folder = REPO / "tests/data/hf_llama"
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())
            if path.is_file() and path.suffix != ".gguf"}


def test_a_repository_is_pulled_and_served(host, tmp_path):
    files = hf_folder()
    weights = [name for name in files if name.endswith(".safetensors")]
    host.add_repo("tiny/llama", {
        **files, "README.md": b"# no", "pytorch_model.bin": b"\x80\x02pickle",
        "onnx/model.onnx": GRAPH}, lfs=weights)
    cdn = Host()
    try:
        cdn.files, host.cdn = host.files, cdn.url
        # A signed address that has run out is asked for again.
        cdn.faults = [("status", 403, {})]
        env = {"HF_ENDPOINT": host.url, "HF_TOKEN": "hf_secret"}
        path = pulled(pull(tmp_path, "hf://tiny/llama", **env))
        assert path.name == "llama"
        assert {each.name for each in path.iterdir()} == {
            name for name in files if not name.endswith((".md", ".py"))}
        assert all(headers.get("Authorization") == "Bearer hf_secret"
                   for _, headers in host.requests)
        assert all("Authorization" not in headers
                   for _, headers in cdn.requests)
        done = pull(tmp_path, "hf://tiny/llama", **env)
        assert pulled(done) == path and "already" in done.stderr
    finally:
        cdn.close()
    # Without any network.
    with start("hf://tiny/llama", env=environment(
            tmp_path, HF_ENDPOINT="http://127.0.0.1:1")) as server:
        assert b'"llama"' in server.get("/v1/models")


def test_a_repository_that_was_cut_is_continued(host, tmp_path):
    """Between files and within one; what is whole is not asked for again."""
    files = hf_folder()
    weights = [name for name in files if name.endswith(".safetensors")]
    host.add_repo("tiny/llama", files, lfs=weights)
    env = {"HF_ENDPOINT": host.url}
    # Each process is cut in its first request but one that succeeds.
    host.faults = [None, ("cut", 10), None, ("reset", 0)]
    for _ in range(2):
        said = sentence(pull(tmp_path, "--retries", 0, "hf://tiny/llama", **env))
        assert "given up after 1 try" in said
        assert whole_files(tmp_path) == []
    path = pulled(pull(tmp_path, "hf://tiny/llama", **env))
    assert {each.name: each.read_bytes() for each in path.iterdir()} == {
        name: content for name, content in files.items()
        if not name.endswith((".md", ".py"))}
    asked = [name for name, _ in host.requests if "/resolve/" in name]
    # All once, and once more each that was cut.
    assert len(asked) == len(set(asked)) + 2


def test_concurrent_pulls_of_a_repository(host, tmp_path):
    host.add_repo("tiny/llama", hf_folder())
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        pulls = [pool.submit(pull, tmp_path, "hf://tiny/llama",
                             HF_ENDPOINT=host.url) for _ in range(4)]
        paths = {pulled(one.result()) for one in pulls}
    assert len(paths) == 1
    asked = [name for name, _ in host.requests if "/resolve/" in name]
    assert len(asked) == len(set(asked))


def test_a_token_that_has_expired(host, tmp_path):
    host.add_repo("tiny/llama", hf_folder())
    host.hub_token = "hf_new"
    said = sentence(pull(tmp_path, "hf://tiny/llama", HF_ENDPOINT=host.url,
                         HF_TOKEN="hf_old"))
    assert "401" in said and "Invalid credentials" in said
    assert "HF_TOKEN" in said and "hf_old" not in said
    assert len(host.requests) == 1, "it is no use to try again"
    pulled(pull(tmp_path, "hf://tiny/llama", HF_ENDPOINT=host.url,
                HF_TOKEN="hf_new"))


def test_checksums_of_a_repository(host, tmp_path):
    host.add_repo("a/b", {"net.onnx": MODEL_BYTES, "small.onnx": GRAPH},
                  lfs=["net.onnx"])
    for name in ("net.onnx", "small.onnx"):
        host.faults = [("wrong", 5)]
        said = sentence(pull(tmp_path, f"hf://a/b@main/{name}",
                             HF_ENDPOINT=host.url))
        assert "is expected" in said
        path = pulled(pull(tmp_path, f"hf://a/b@main/{name}",
                           HF_ENDPOINT=host.url))
        assert path.name == name
    # A commit is not asked for twice.
    pulled(pull(tmp_path, f"hf://a/b@{COMMIT}/net.onnx", HF_ENDPOINT=host.url))
    before = len(host.requests)
    pulled(pull(tmp_path, f"hf://a/b@{COMMIT}/net.onnx", HF_ENDPOINT=host.url))
    assert len(host.requests) == before


@pytest.mark.parametrize("files, says", [
    ({"pytorch_model.bin": b"x", "config.json": b"{}"}, "pickles"),
    ({"a.gguf": b"x", "b.gguf": b"x"}, "name one, as in hf://x/y/a.gguf"),
    ({"sub/m.onnx": b"x"}, "name one of its graphs: sub/m.onnx"),
    ({"../../escape.json": b"x"}, "no path"),
])
def test_repositories_without_a_model(host, tmp_path, files, says):
    host.add_repo("x/y", files)
    done = pull(tmp_path, "hf://x/y", HF_ENDPOINT=host.url)
    assert done.returncode != 0 and says in done.stderr
    assert whole_files(tmp_path) == []


def test_no_repository(host, tmp_path):
    said = sentence(pull(tmp_path, "hf://no/body", HF_ENDPOINT=host.url))
    assert "404" in said and "RepoNotFound" in said


# ---- S3 ----

def s3(host, **more):
    return {"AWS_ENDPOINT_URL_S3": host.url, "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "eu-north-1", **more}


def test_s3_is_signed(host, tmp_path):
    host.s3_token = ""
    host.files["/bucket/a b/net+1.onnx"] = MODEL_BYTES
    host.faults = [("cut", 100_000)]
    path = pulled(pull(tmp_path, "s3://bucket/a b/net+1.onnx", **s3(host)))
    assert path.read_bytes() == MODEL_BYTES and path.name == "net+1.onnx"
    assert "/eu-north-1/s3/" in host.requests[0][1]["Authorization"]
    said = sentence(pull(tmp_path, "s3://bucket/b.onnx",
                         **s3(host, AWS_SECRET_ACCESS_KEY="other")))
    assert "SignatureDoesNotMatch" in said and "AWS_SECRET_ACCESS_KEY" in said
    said = sentence(pull(tmp_path, "s3://bucket/b.onnx",
                         AWS_ENDPOINT_URL=host.url))
    assert "AccessDenied" in said


def test_s3_with_credentials_for_a_while(host, tmp_path):
    host.s3_token = "token/1=="
    host.files["/bucket/net.onnx"] = MODEL_BYTES
    said = sentence(pull(tmp_path, "s3://bucket/net.onnx",
                         **s3(host, AWS_SESSION_TOKEN="old")))
    assert "ExpiredToken" in said and "AWS_SESSION_TOKEN" in said
    path = pulled(pull(tmp_path, "s3://bucket/net.onnx",
                       **s3(host, AWS_SESSION_TOKEN=host.s3_token)))
    assert path.read_bytes() == MODEL_BYTES


# ---- addresses, kinds, serve ----

@pytest.mark.parametrize("address, says", [
    ("hf://org", "org/repo"), ("hf://org/re po", "org/repo"),
    ("hf://o/r@/x.gguf", "revision"), ("hf://o/r/../x.gguf", "no path"),
    ("https:///a.gguf", "no host"), ("https://h/", "no file"),
    ("s3://bucket", "no object"), ("file://a.gguf", "absolute"),
    ("ftp://h/a.gguf", "no address"),
    ("hf://o/r/pytorch_model.bin", ".safetensors"),
    ("https://h/model.pt?x=1", "pickle"), ("s3://b/m.CKPT", "pickle"),
])
def test_addresses_that_are_none(tmp_path, address, says):
    done = pull(tmp_path, address)
    assert done.returncode in (1, 2) and says in done.stderr
    assert not (tmp_path / "cache").exists()


def test_what_is_no_model_is_not_kept(host, tmp_path):
    host.files["/page.gguf"] = b"<html>please log in</html>"
    host.files["/sneaky.onnx"] = b"\x80\x04\x95pickle"
    for name, says in (("page.gguf", "no model"), ("sneaky.onnx", "pickle")):
        assert says in sentence(pull(tmp_path, f"{host.url}/{name}"))
    assert whole_files(tmp_path) == []


def test_files(tmp_path):
    source = tmp_path / "net.onnx"
    source.write_bytes(MODEL_BYTES)
    path = pulled(pull(tmp_path, "--sha256", SUM, f"file://{source}"))
    assert path.read_bytes() == MODEL_BYTES and path != source
    assert "nothing was kept" in sentence(
        pull(tmp_path / "b", "--sha256", "0" * 64, f"file://{source}"))


def test_serve_pulls_only_when_asked(host, tmp_path):
    url = host.url + "/m/net.onnx"
    done = subprocess.run([BINARY, "serve", url], capture_output=True,
                          text=True, timeout=60, env=environment(tmp_path))
    assert done.returncode == 1 and "millrace pull" in done.stderr
    assert host.requests == []
    with start("--pull", url, "--model-sha256", SUM,
               env=environment(tmp_path)) as server:
        assert b'"net"' in server.get("/v2/models/net")
    with start(f"again={url}", env=environment(tmp_path)) as server:
        assert b'"again"' in server.get("/v2/models/again")
    assert len(host.requests) == 1


@needs_mounts
def test_models_on_a_read_only_volume(host, tmp_path):
    host.add_repo("tiny/llama", hf_folder())
    pulled(pull(tmp_path, "hf://tiny/llama", HF_ENDPOINT=host.url))
    cache = tmp_path / "cache"
    shutil.copytree(REPO / "tests/data/hf_llama", cache / "folder")
    launcher = [*UNSHARE, READ_ONLY, cache]
    env = environment(tmp_path, HF_ENDPOINT="http://127.0.0.1:1")
    for flags, name in ((("hf://tiny/llama",), "llama"),
                        (("--pull", "hf://tiny/llama"), "llama"),
                        ((f"m={cache / 'folder'}",), "m")):
        with start(*flags, launcher=launcher, env=env) as server:
            assert f'"{name}"'.encode() in server.get("/v1/models")
    said = sentence(subprocess.run(
        [*launcher, BINARY, "pull", host.url + "/m/net.onnx"],
        capture_output=True, text=True, timeout=60, env=env))
    assert "Read-only file system" in said and "MILLRACE_CACHE" in said


def test_serve_checks_the_sum_of_a_model(tmp_path):
    done = subprocess.run([BINARY, "serve", MODEL, "--model-sha256", "0" * 64],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "not served" in done.stderr
    done = subprocess.run([BINARY, "serve", MODEL, "--model-sha256", "12"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "64 hexadecimal digits" in done.stderr


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "cache").write_text("a file")
    said = sentence(pull(tmp_path, "http://127.0.0.1:1/a.onnx"))
    assert "MILLRACE_CACHE" in said

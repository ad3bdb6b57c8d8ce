"""Archives of TorchServe that a client names by an address: fetched, unpacked
and served, or refused with nothing left behind."""
import contextlib
import threading
import time
import urllib.parse

import pytest

from model_host import KEY_ID, SECRET, Host
from test_torchserve import GOLDEN, archives, ask, torchserve, until
from test_torchserve_workflows import MODELS, war

ROW = (b"[1, 2, 3]", "application/json")
KEYS = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "eu-west-1", "no_proxy": "*"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    root = tmp_path_factory.mktemp("built")
    archives.write_store(root, "onnx")
    war(root, "chain", MODELS + "  m1:\n    url: linear.mar\n"
        "  m2:\n    url: other.mar\ndag:\n  m1: [m2]\n")
    return root


@pytest.fixture
def host(built):
    host = Host()
    host.files = {f"/m/{path.name}": path.read_bytes()
                  for path in built.iterdir()}
    host.files["/m/linear.onnx"] = (GOLDEN / "linear.onnx").read_bytes()
    host.files["/m/weights.pt"] = b"\x80\x02."
    yield host
    host.close()


@contextlib.contextmanager
def serve(tmp_path, *flags, properties="", **env):
    """With an empty store and a scratch folder of its own."""
    for name in ("store", "scratch"):
        (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / "config.properties").write_text(
        f"model_store={tmp_path / 'store'}\nenable_model_api=true\n"
        f"default_workers_per_model=1\n{properties}")
    with torchserve("--ts-config", tmp_path / "config.properties", *flags,
                    env={"TMPDIR": str(tmp_path / "scratch"), "no_proxy": "*",
                         **env}) as server:
        server.scratch = tmp_path / "scratch"
        yield server


def register(server, url, more="", kind="models"):
    return ask(server, "management", "POST",
               f"/{kind}?url={urllib.parse.quote(url, safe='')}{more}")


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def empty(server):
    until(lambda: not list(server.scratch.iterdir()))
    return True


def predicts(server, name):
    return ask(server, "inference", "POST", f"/predictions/{name}",
               *ROW) == (200, [3, 5, 7])


def test_an_archive_is_fetched_served_and_leaves(host, tmp_path):
    with serve(tmp_path) as server:
        url = host.url + "/m/linear.mar"
        status, body = register(server, url)
        assert status == 200, body
        assert predicts(server, "linear")
        _, [described] = ask(server, "management", "GET", "/models/linear")
        assert described["modelUrl"] == url
        # The archive itself left when it was unpacked.
        assert files(server.scratch) == ["MANIFEST.json", "linear.onnx"]
        assert not list((tmp_path / "store").iterdir())
        assert register(server, url)[0] == 500  # as there
        assert register(server, url, "&model_name=second")[0] == 200
        for name in ("linear", "second"):
            ask(server, "management", "DELETE", f"/models/{name}")
        assert empty(server)
        # A graph without an archive is kept while it serves.
        assert register(server, host.url + "/m/linear.onnx")[0] == 200
        assert predicts(server, "linear")
        assert files(server.scratch) == ["linear.onnx"]
        ask(server, "management", "DELETE", "/models/linear")
        assert empty(server)


def test_what_cannot_be_fetched_leaves_nothing(host, tmp_path):
    with serve(tmp_path) as server:
        def refused(url, code, kind, word, fault=None):
            host.faults = [fault] if fault else []
            status, body = register(server, url)
            assert (status, body["code"], body["type"]) == (code, code, kind), \
                body
            assert word in body["message"], body
            assert empty(server)
        failed = (400, "DownloadArchiveException")
        there = host.url + "/m/linear.mar"
        refused(host.url + "/m/absent.mar", *failed,
                f"Failed to download archive from: {host.url}/m/absent.mar")
        refused("http://127.0.0.1:1/x.mar", *failed, "Failed to download")
        refused(there, *failed, "503", ("status", 503, {"Retry-After": "60"}))
        refused(there, *failed, "Failed to download", ("cut", 100))
        refused(there, *failed, "redirect", ("redirect", "file:///etc/passwd"))
        refused(host.url + "/m/weights.pt", *failed, "pickle")
        refused(host.url + "/m/", *failed, "names no file")
        refused(host.url + "/m/text.mar", 400, "InvalidModelException", "ZIP")
        refused(host.url + "/m/noname.mar", 400, "InvalidModelException",
                "modelName")
        for other in ("file:///etc/passwd", "ftp://127.0.0.1/x.mar",
                      "hf://org/repo", "gopher://x/y.mar"):
            refused(other, 404, "ModelNotFoundException", "https://")
        secret = host.url.replace("://", "://user:secret@") + \
            "/m/absent.mar?signature=secret"
        status, body = register(server, secret)
        assert status == 400 and "secret" not in body["message"]
        assert ask(server, "management", "GET", "/models")[1] == {"models": []}


def test_passwords_in_addresses_are_not_shown(host, tmp_path):
    def secret(path):
        return (host.url.replace("://", "://user:secret@") + path +
                "?signature=secret")
    shown = host.url.replace("://", "://***@") + "/m/linear.mar?***"
    with serve(tmp_path, properties="allowed_urls=.*/m/[lb].*\n") as server:
        status, body = register(server, secret("/m/linear.mar"))
        assert status == 200 and "secret" not in str(body)
        assert predicts(server, "linear")
        assert ask(server, "management", "GET", "/models")[1]["models"] == [
            {"modelName": "linear", "modelUrl": shown}]
        told, = ask(server, "management", "GET", "/models/linear")[1]
        assert told["modelUrl"] == shown
        for address, code in ((secret("/m/other.mar"), 404),
                              (secret("/m/bad.txt"), 400),
                              (secret("/m/linear.mar").replace("http:", "ftp:"),
                               404)):
            status, body = register(server, address)
            assert status == code and "secret" not in str(body), body
        assert not [line for line in server.lines if "secret" in line]


def test_only_allowed_addresses_are_fetched(host, tmp_path):
    with serve(tmp_path, properties="allowed_urls=http://127.0.0.1.*/m/l.*,"
               "https://example.com/.*\n") as server:
        assert register(server, host.url + "/m/linear.mar")[0] == 200
        seen = len(host.requests)
        url = host.url + "/m/other.mar"
        assert register(server, url) == (404, {
            "code": 404, "type": "ModelNotFoundException", "message":
            f"Given URL {url} does not match any allowed URL(s)"})
        assert len(host.requests) == seen
        # What a redirect leads to was not looked at.
        host.faults = [("redirect", url)]
        status, body = register(server, host.url + "/m/linear2.mar")
        assert (status, body["type"]) == (400, "DownloadArchiveException")
        assert len(host.requests) == seen + 1


def test_objects_of_s3_are_signed_for(host, tmp_path):
    host.files["/bucket/linear.mar"] = host.files["/m/linear.mar"]
    host.s3_token = ""
    with serve(tmp_path, AWS_ENDPOINT_URL_S3=host.url, **KEYS) as server:
        assert register(server, "s3://bucket/linear.mar")[0] == 200
        assert predicts(server, "linear")
        ask(server, "management", "DELETE", "/models/linear")
        url = host.url + "/bucket/linear.mar"
        assert register(server, url)[0] == 400  # not signed
        assert register(server, url, "&s3_sse_kms=true")[0] == 200
        ask(server, "management", "DELETE", "/models/linear")
        status, body = register(server, "s3://bucket/absent.mar")
        assert (status, body["type"]) == (400, "DownloadArchiveException")
        assert empty(server)
    with serve(tmp_path, AWS_ENDPOINT_URL_S3=host.url,
               **{**KEYS, "AWS_SECRET_ACCESS_KEY": "other"}) as server:
        status, body = register(server, "s3://bucket/linear.mar")
        assert status == 400 and "AWS_SECRET_ACCESS_KEY" in body["message"]
        assert empty(server)


def test_workflows_and_their_nodes_are_fetched(host, tmp_path, built):
    war(built, "far", MODELS + f"  m1:\n    url: {host.url}/m/linear.mar\n"
        f"  m2:\n    url: {host.url}/m/other.mar\ndag:\n  m1: [m2]\n")
    host.files["/m/far.war"] = (built / "far.war").read_bytes()
    with serve(tmp_path) as server:
        status, body = register(server, host.url + "/m/far.war", "",
                                "workflows")
        assert status == 200, body
        assert ask(server, "inference", "POST", "/wfpredict/far", *ROW) == (
            200, [7, 11, 15])
        ask(server, "management", "DELETE", "/workflows/far")
        assert empty(server)
        status, body = register(server, host.url + "/m/absent.war", "",
                                "workflows")
        assert (status, body["type"]) == (400, "DownloadArchiveException")
        # Its nodes are of the store, where they are not.
        status, body = register(server, host.url + "/m/chain.war", "",
                                "workflows")
        assert (status, body["type"]) == (500, "WorkflowException")
        assert empty(server)


def test_the_start_fetches_too(host, tmp_path):
    with serve(tmp_path, "--models",
               f"mine={host.url}/m/linear.mar") as server:
        assert predicts(server, "mine")


def test_a_slow_download_holds_up_neither_requests_nor_the_end(host, tmp_path):
    host.gate = threading.Event()  # behind the first 1000 bytes
    host.files["/m/large.mar"] = bytes(100_000)
    with serve(tmp_path) as server:
        (tmp_path / "store" / "linear.onnx").write_bytes(
            (GOLDEN / "linear.onnx").read_bytes())
        assert register(server, "linear.onnx")[0] == 200
        answers = []
        waiting = [threading.Thread(target=lambda: answers.append(register(
            server, host.url + "/m/large.mar"))) for _ in range(4)]
        for each in waiting:
            each.start()
        until(lambda: len(host.requests) == 1)
        begun = time.monotonic()
        for _ in range(20):
            assert predicts(server, "linear")
        assert register(server, "absent.mar")[0] == 404
        assert time.monotonic() - begun < 10
        assert len(host.requests) == 1  # one at a time
        server.process.terminate()
        assert server.process.wait(30) == 0
        for each in waiting:
            each.join(30)
        assert not list(server.scratch.iterdir())
    host.gate.set()

"""TorchServe's users: the same requests as a real TorchServe got (its responses
stand in tests/golden/torchserve, with the differences and their reasons), and
the curl lines of its documentation as they stand there."""
import contextlib
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile

import pytest

from conftest import BINARY, REPO, Server

GOLDEN = REPO / "tests" / "golden" / "torchserve"


def modules():
    """The golden folder's own, whatever others of these names are loaded."""
    names = ("corpus", "replay", "differences", "archives")
    saved = {name: sys.modules.pop(name, None) for name in names}
    sys.path.insert(0, str(GOLDEN))
    try:
        return [__import__(name) for name in names]
    finally:
        sys.path.remove(str(GOLDEN))
        for name, module in saved.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


corpus, replay, differences, archives = modules()


@contextlib.contextmanager
def torchserve(*flags, env=None):
    """With ports of its own: http_port, management, metrics; no key is wanted."""
    server = Server("--profile", "torchserve", "--disable-token-auth", *flags,
                    "--http-port", "0", "--grpc-port", "0",
                    "--grpc-management-port", "0", "--management-port", "0",
                    "--metrics-port", "0", env=env)
    try:
        server.ports = {
            "inference": server.http_port,
            "management": next(
                json.loads(line)["management_port"] for line in server.lines
                if '"ready"' in line and "management_port" in line),
            "metrics": metrics_port(server)}
        yield server
    finally:
        server.stop()


def metrics_port(server):
    return next(json.loads(line)["metrics_port"] for line in server.lines
                if '"ready"' in line and "metrics_port" in line)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("store")
    archives.write_store(root, "onnx")
    return root


def ask(server, port, method, path, body=None, kind=None):
    """Status and JSON of the answer."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.ports[port]}{path}", body, method=method,
        headers={"Content-Type": kind} if kind else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


# ---- the corpus ----

@pytest.fixture(scope="module")
def answers(store):
    """TorchServe's, ours."""
    theirs = json.loads((GOLDEN / "answers.json").read_text())
    properties = store.parent / "config.properties"
    properties.write_text(
        f"model_store={store}\nload_models=linear.mar\n"
        "default_workers_per_model=1\ndisable_token_authorization=true\n"
        "enable_model_api=true\nvmargs=-Xmx512m\n")
    with torchserve("--ts-config", properties, "--ncs") as server:
        ours = replay.replay("127.0.0.1", server.ports, corpus.CASES)
        warnings = [json.loads(line) for line in server.lines
                    if "no effect" in line]
    assert any("vmargs" in line.get("why", "") for line in warnings)
    return theirs, ours


def test_responses_are_torchserves_but_for_the_listed_differences(answers):
    theirs, ours = answers
    assert list(theirs) == [case.name for case in corpus.CASES]
    unlisted = {
        name: (theirs[name], ours[name]) for name in theirs
        if ours[name] != theirs[name] and
        differences.reason(name, theirs[name], ours[name]) is None}
    assert not unlisted, "\n".join(map(str, unlisted.items()))


def test_every_listed_difference_is_one(answers):
    theirs, ours = answers
    for why, covers in differences.RULES:
        cases = {name for name in theirs if ours[name] != theirs[name] and
                 differences.reason(name, theirs[name], ours[name]) == why}
        assert cases, why
        if not callable(covers):
            assert cases == covers, why


def test_nothing_is_a_fault_of_the_server(answers):
    _, ours = answers
    assert not {name: answer for name, answer in ours.items()
                if answer["status"] == 500 or
                not isinstance(answer["status"], int)}


# ---- the lines of TorchServe's documentation ----

# As they stand there, but for {model} and {file}; a line's ports are replaced by
# those of the test, and nothing else.
LINES = [
    ("curl http://localhost:8080/ping", {"status": "Healthy"}),
    ("curl -X OPTIONS http://localhost:8080", dict),
    ("curl http://localhost:8080/predictions/linear -T row.bin",
     [3.0, -3.0, 1.5]),
    ('curl http://localhost:8080/predictions/linear -F "data=@row.bin"',
     [3.0, -3.0, 1.5]),
    ("curl http://localhost:8080/predictions/linear/1.0 -T row.bin",
     [3.0, -3.0, 1.5]),
    ('curl -H "Content-Type: application/json" --data @instances.json '
     "http://127.0.0.1:8080/v1/models/linear:predict",
     {"predictions": [[3.0, -3.0, 1.5]]}),
    ('curl -X POST  "http://localhost:8081/models?url=other.mar'
     '&initial_workers=0"',
     {"status": 'Model "other" Version: 1.0 registered with 0 initial workers. '
                "Use scale workers API to add workers for the model."}),
    ('curl -v -X PUT "http://localhost:8081/models/other?min_worker=3'
     '&synchronous=true"',
     {"status": "Workers scaled to 3 for model: other"}),
    ("curl http://localhost:8081/models/other", list),
    ("curl http://localhost:8081/models/other/all", list),
    ("curl http://localhost:8081/models/other/1.0", list),
    ("curl http://localhost:8081/models/other?customized=true", list),
    ('curl "http://localhost:8081/models"', {
        "models": [{"modelName": "linear", "modelUrl": "linear.mar"},
                   {"modelName": "other", "modelUrl": "other.mar"}]}),
    ('curl -v -X PUT "http://localhost:8081/models/other/1.0?min_worker=2'
     '&synchronous=true"',
     {"status": "Workers scaled to 2 for model: other, version: 1.0"}),
    ("curl -v -X PUT http://localhost:8081/models/other/1.0/set-default",
     {"status": 'Default version successfully updated for model "other" to '
                '"1.0"'}),
    ("curl -X DELETE http://localhost:8081/models/other/1.0",
     {"status": 'Model "other" unregistered'}),
    ('curl -v -X POST "http://localhost:8081/models?initial_workers=1'
     '&synchronous=true&url=other.mar"',
     {"status": 'Model "other" Version: 1.0 registered with 1 initial '
                "workers"}),
    ("curl -X OPTIONS http://localhost:8081", dict),
]


def test_lines_of_the_documentation(store, tmp_path):
    (tmp_path / "row.bin").write_bytes(struct.pack("<3f", 1, -2, .25))
    (tmp_path / "instances.json").write_text(
        json.dumps({"instances": [[1, -2, .25]]}))
    with torchserve("--start", "--ncs", "--model-store", store, "--models",
                    "linear=linear.mar", "--enable-model-api") as server:
        numbers = {"8080": "inference", "8081": "management"}
        for line, expected in LINES:
            real = re.sub(r":(808[01])",
                          lambda m: f":{server.ports[numbers[m[1]]]}", line)
            done = subprocess.run(shlex.split(real) + ["-sS"], cwd=tmp_path,
                                  capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, (line, done.stderr)
            answer = json.loads(done.stdout)
            if isinstance(expected, type):
                assert isinstance(answer, expected) and answer, line
            else:
                assert answer == expected, line
        metrics = subprocess.run(
            ["curl", "-sS", f"http://127.0.0.1:{server.ports['metrics']}/metrics"],
            capture_output=True, text=True, timeout=60).stdout
        assert re.search(r'ts_inference_requests_total\{.*model_name="linear".*'
                         r"\} [1-9]", metrics)


def test_requests_to_one_model_are_computed_together(store):
    """batch_size and max_batch_delay reach the batcher."""
    with torchserve("--model-store", store, "--enable-model-api") as server:
        status, _ = ask(server, "management", "POST",
                        "/models?url=linear.mar&initial_workers=1&batch_size=2"
                        "&max_batch_delay=60000")
        assert status == 200
        # Each waits for the other: alone it would take a minute.
        lines = [subprocess.Popen(
            ["curl", "-sS", "-m", "50", "-d", "[1, 2, 3]",
             f"http://127.0.0.1:{server.ports['inference']}/predictions/linear"],
            stdout=subprocess.PIPE) for _ in range(2)]
        assert [json.loads(each.communicate()[0]) for each in lines] == \
            [[3, 5, 7]] * 2


def test_what_clients_send_besides(store):
    """Of TorchServe's published collections of requests: words without a value,
    and bytes that curl --data-binary calls a form."""
    with torchserve("--model-store", store, "--models",
                    "linear.mar") as server:
        assert ask(server, "management", "GET",
                   "/models?limit=&next_page_token=")[0] == 200
        row = struct.pack("<3f", .0625, 1, 2)
        assert b"=" in row
        assert ask(server, "inference", "POST", "/predictions/linear", row,
                   "application/x-www-form-urlencoded") == (200, [1.125, 3, 5])


def test_a_deadline_that_is_none_is_refused(store):
    with torchserve("--model-store", store, "--models", "linear.mar") as server:
        asked = urllib.request.Request(
            f"http://127.0.0.1:{server.ports['inference']}/predictions/linear",
            b"[1, 2, 3]", {"X-Request-Timeout-Ms": "soon"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked, timeout=60)
        assert refused.value.code == 400
        assert "X-Request-Timeout-Ms" in refused.value.read().decode()


def test_every_change_is_in_the_audit_log(store, tmp_path):
    audit = tmp_path / "audit.jsonl"
    with torchserve("--model-store", store, "--models", "linear.mar",
                    "--enable-model-api", "--audit-log-file", audit) as server:
        for method, path in (("GET", "/models"),
                             ("PUT", "/models/linear?min_worker=1"),
                             ("DELETE", "/models/linear"),
                             ("DELETE", "/models/linear")):
            ask(server, "management", method, path)
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(line["action"], line["result"]) for line in lines] == [
        ("PUT /models/linear", "202"), ("DELETE /models/linear", "200"),
        ("DELETE /models/linear", "404")]


def test_models_are_not_registered_unless_it_is_allowed(store):
    with torchserve("--model-store", store, "--models", "linear.mar") as server:
        for method, path in (("POST", "/models?url=other.mar"),
                             ("DELETE", "/models/linear")):
            status, body = ask(server, "management", method, path)
            assert (status, body["type"]) == (405, "MethodNotAllowedException")


def test_variables_win_where_the_file_allows_them(store, tmp_path):
    config = tmp_path / "config.properties"
    config.write_text("enable_envvars_config=true\nmodel_store=/absent\n"
                      "load_models=linear.mar\n")
    with torchserve(env={"TS_CONFIG_FILE": str(config),
                         "TS_MODEL_STORE": str(store),
                         "TS_DEFAULT_RESPONSE_TIMEOUT": "7"}) as server:
        _, [model] = ask(server, "management", "GET", "/models/linear")
        assert model["responseTimeout"] == 7


# ---- archives ----

def archive(path, **files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in files.items():
            out.writestr(name, data)


def manifest(**model):
    return json.dumps({"model": {"modelName": "m", "modelVersion": "1.0",
                                 "serializedFile": "linear.onnx",
                                 "handler": "base_handler", **model}})


BAD = {
    "torchscript": (manifest(serializedFile="m.pt"), {"m.pt": b"\x80pickle"},
                    "torch.export.save"),
    "python": (manifest(handler="mine.py"), {"mine.py": b"print()"},
               "handler=base_handler"),
    "escape": (manifest(), {"../outside": b"x"}, ""),
    "absolute": (manifest(), {"/tmp/outside": b"x"}, ""),
    "folder": (manifest(serializedFile="../../etc/passwd"), {}, "without a folder"),
    "missing": (manifest(serializedFile="absent.onnx"), {}, "absent.onnx"),
    "graph": (manifest(serializedFile="broken.onnx"), {"broken.onnx": b"no"}, ""),
    "bomb": (manifest(), {"zeros": b"\0" * (80 << 20)}, "unpack"),
    "list": ("[]", {}, "model"),
    "yaml": (manifest(configFile="c.yaml"), {"c.yaml": "batchSize: many"},
             "batchSize"),
}


def until(holds):
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_bad_archives_are_refused_and_nothing_is_left(tmp_path):
    store, scratch = tmp_path / "store", tmp_path / "scratch"
    store.mkdir()
    scratch.mkdir()
    graph = (GOLDEN / "linear.onnx").read_bytes()
    for name, (text, files, _) in BAD.items():
        archive(store / f"{name}.mar", **{"linear.onnx": graph,
                                          "MAR-INF/MANIFEST.json": text, **files})
    with torchserve("--model-store", store, "--enable-model-api",
                    env={"TMPDIR": str(scratch)}) as server:
        for name, (_, _, word) in BAD.items():
            status, body = ask(server, "management", "POST",
                               f"/models?url={name}.mar&initial_workers=1")
            assert status == 400, (name, body)
            assert word in body["message"], (name, body)
        assert ask(server, "management", "GET", "/models")[1] == {"models": []}
        until(lambda: not list(scratch.iterdir()))
        status, _ = ask(server, "management", "POST",
                        "/models?url=python.mar&handler=base_handler"
                        "&initial_workers=1")
        assert status == 200
        assert ask(server, "management", "PUT",
                   "/models/m?min_worker=10000")[0] == 400
        assert ask(server, "inference", "POST", "/predictions/m", b"[1, 2, 3]",
                   "application/json") == (200, [3, 5, 7])
        until(lambda: len(list(scratch.iterdir())) == 1)
        ask(server, "management", "DELETE", "/models/m")
    assert not list(scratch.iterdir())


def test_an_archive_migrates(tmp_path):
    archive(tmp_path / "m.mar",
            **{"linear.onnx": (GOLDEN / "linear.onnx").read_bytes(),
               "MAR-INF/MANIFEST.json": manifest(configFile="c.yaml"),
               "c.yaml": "batchSize: 4\nmaxBatchDelay: 20\nparallelType: pp\n",
               "notes.txt": "x"})
    done = subprocess.run([BINARY, "migrate", "m.mar"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "'parallelType'" in done.stdout and "'notes.txt'" in done.stdout
    text = (tmp_path / "migrated" / "m" / "config.yaml").read_text()
    assert "max_batch_size: 4\nmax_queue_delay: 20ms\n" in text
    server = Server("--model-repository", tmp_path / "migrated")
    try:
        assert b'"ready":true' in server.get("/v2/models/m/ready")
    finally:
        server.stop()


def test_a_torchscript_archive_migrates_as_far_as_it_can(tmp_path):
    archive(tmp_path / "old.mar",
            **{"m.pt": b"\x80", "mine.py": b"print()",
               "index_to_name.json": '{"0": "cat"}',
               "MAR-INF/MANIFEST.json": manifest(
                   serializedFile="m.pt", handler="image_classifier")})
    done = subprocess.run([BINARY, "migrate", "old.mar"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "torch.export.save" in done.stdout
    folder = tmp_path / "migrated" / "m"
    assert "task: classify" in (folder / "config.yaml").read_text()
    assert sorted(os.listdir(folder)) == ["config.yaml", "index_to_name.json"]


@pytest.mark.skipif(shutil.which("torch-model-archiver") is None,
                    reason="torch-model-archiver is not installed")
def test_an_archive_of_the_real_archiver_is_served(tmp_path):
    subprocess.run(
        ["torch-model-archiver", "--model-name", "real", "--version", "1.0",
         "--serialized-file", str(GOLDEN / "linear.onnx"), "--handler",
         "base_handler", "--export-path", str(tmp_path)], check=True)
    with torchserve("--model-store", tmp_path, "--models", "all") as server:
        assert ask(server, "inference", "POST", "/predictions/real",
                   b"[1, 2, 3]", "application/json") == (200, [3, 5, 7])

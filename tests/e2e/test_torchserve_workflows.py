"""Workflows of TorchServe. Bodies of answers and errors are those that a real
TorchServe 0.12 gave for archives of the same specifications, whose model was
the same y = 2 x + 1."""
import contextlib
import json
import zipfile

import pytest

from test_torchserve import archives, ask, torchserve, until

MODELS = """models:
  min-workers: 1
  max-workers: 1
  batch-size: 1
  max-batch-delay: 50
  retry-attempts: 2
  timeout-ms: 50000
"""
M = {name: f"  {name}:\n    url: {url}.mar\n"
     for name, url in (("m1", "linear"), ("m2", "other"), ("m3", "linear2"),
                       ("sum", "sum"), ("gone", "absent"))}
CHAIN = MODELS + M["m1"] + M["m2"] + "dag:\n  m1: [m2]\n"


def manifest(name, **fields):
    return json.dumps({
        "createdOn": "01/01/2026 00:00:00", "runtime": "python",
        "archiverVersion": "0.2.4",
        "workflow": {"workflowName": name, "specFile": "spec.yaml",
                     "handler": "handler.py", **fields}})


def war(store, file, spec, text=None, name=None, **more):
    with zipfile.ZipFile(store / f"{file}.war", "w",
                         zipfile.ZIP_DEFLATED) as out:
        if text != "":
            out.writestr("WAR-INF/MANIFEST.json", text or manifest(name or file))
        if spec is not None:
            out.writestr("spec.yaml", spec)
        for path, data in more.items():
            out.writestr(path, data)


def field(key, value):
    """Of a protocol buffer; all numbers here are below 128."""
    if isinstance(value, int):
        return bytes([key << 3, value])
    value = value.encode() if isinstance(value, str) else value
    return bytes([key << 3 | 2, len(value)]) + value


def sum_of_two(path):
    """An archive whose ONNX graph adds the answers of the nodes m1 and m2."""
    shape = field(1, field(2, "batch")) + field(1, field(1, 3))
    kind = field(1, field(1, 1) + field(2, shape))
    m1, m2, y = (field(1, name) + field(2, kind) for name in ("m1", "m2", "y"))
    node = field(1, "m1") + field(1, "m2") + field(2, "y") + field(4, "Add")
    graph = (field(1, node) + field(2, "sum") + field(11, m1) + field(11, m2) +
             field(12, y))
    model = (field(1, 8) + bytes([7 << 3 | 2, len(graph) & 127 | 128,
                                  len(graph) >> 7]) + graph +
             field(8, field(2, 17)))
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("sum.onnx", model)
        out.writestr("MAR-INF/MANIFEST.json", archives.manifest(
            "sum", "1.0", "onnx", serializedFile="sum.onnx"))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("store")
    archives.write_store(root, "onnx")
    sum_of_two(root / "sum.mar")
    war(root, "chain", CHAIN)
    war(root, "again", CHAIN, name="chain")
    war(root, "fan", MODELS + M["m1"] + M["m2"] + M["m3"] +
        "dag:\n  m1: [m2, m3]\n")
    war(root, "diamond", MODELS + M["m3"] + M["m1"] + M["m2"] + M["sum"] +
        "dag:\n  m3: [m1, m2]\n  m1: [sum]\n  m2: [sum]\n")
    return root


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="module")
def server(store, scratch):
    with torchserve("--model-store", store, "--models", "linear.mar",
                    "--enable-model-api",
                    env={"TMPDIR": str(scratch)}) as running:
        yield running


def register(server, query):
    return ask(server, "management", "POST", f"/workflows?{query}")


@contextlib.contextmanager
def registered(server, name):
    assert register(server, f"url={name}.war") == (200, {
        "status": f"Workflow {name} has been registered and scaled "
                  "successfully."})
    try:
        yield
    finally:
        assert ask(server, "management", "DELETE", f"/workflows/{name}") == (
            200, {"status": f'Workflow "{name}" unregistered'})


def predict(server, name, body=b"[1, 2, 3]", kind="application/json"):
    return ask(server, "inference", "POST", f"/wfpredict/{name}", body, kind)


def models(server):
    return [each["modelName"] for each in
            ask(server, "management", "GET", "/models")[1]["models"]]


def test_nodes_predict_one_after_the_other(server):
    with registered(server, "chain"):
        assert predict(server, "chain") == (200, [7.0, 11.0, 15.0])
        form = (b"--b\r\nContent-Disposition: form-data; name=\"data\"\r\n\r\n"
                b"[1, 2, 3]\r\n--b--\r\n")
        assert predict(server, "chain", form,
                       "multipart/form-data; boundary=b") == (
            200, [7.0, 11.0, 15.0])


def test_several_last_nodes_answer_by_name(server):
    with registered(server, "fan"):
        assert predict(server, "fan") == (200, {"m2": [7.0, 11.0, 15.0],
                                                "m3": [7.0, 11.0, 15.0]})


def test_a_node_takes_several_answers_by_name(server):
    with registered(server, "diamond"):
        # 2 (2 x + 1) + 1, twice
        assert predict(server, "diamond") == (200, [14.0, 22.0, 30.0])


def test_workflows_are_listed_and_described(server):
    with registered(server, "fan"), registered(server, "chain"):
        get = lambda path: ask(server, "management", "GET", path)  # noqa: E731
        both = [{"workflowName": n, "workflowUrl": f"{n}.war"}
                for n in ("chain", "fan")]
        assert get("/workflows") == (200, {"workflows": both})
        assert get("/workflows?limit=1") == (
            200, {"nextPageToken": "1", "workflows": both[:1]})
        assert get("/workflows?limit=1&next_page_token=1") == (
            200, {"workflows": both[1:]})
        assert get("/workflows/chain") == (200, [{
            "workflowName": "chain", "workflowUrl": "chain.war",
            "minWorkers": 1, "maxWorkers": 1, "batchSize": 1,
            "maxBatchDelay": 50, "workflowDag": '{"m1":["m2"]}'}])
        assert models(server) == ["chain__m1", "chain__m2", "fan__m1",
                                  "fan__m2", "fan__m3", "linear"]
        _, [node] = get("/models/chain__m1")
        assert (node["minWorkers"], node["maxBatchDelay"]) == (1, 50)
    assert models(server) == ["linear"]


def test_a_workflow_may_have_another_name(server):
    assert register(server, "url=chain.war&workflow_name=mine"
                            "&response_timeout=7")[0] == 200
    assert predict(server, "mine") == (200, [7.0, 11.0, 15.0])
    assert ask(server, "management", "GET", "/models/mine__m2")[1][0][
        "responseTimeout"] == 7
    with registered(server, "chain"):
        assert register(server, "url=again.war") == (409, {
            "code": 409, "type": "ConflictStatusException",
            "message": "Workflow chain is already registered."})
    ask(server, "management", "DELETE", "/workflows/mine")
    assert models(server) == ["linear"]


def test_a_failing_node_ends_the_request(server):
    with registered(server, "chain"):
        status, body = predict(server, "chain", b'"words"')
        assert (status, body["type"]) == (400, "BadRequestException")
        assert body["message"].startswith("Error executing m1")
        assert predict(server, "chain") == (200, [7.0, 11.0, 15.0])
        ask(server, "management", "DELETE", "/models/chain__m2")
        status, body = predict(server, "chain")
        assert (status, body["type"]) == (404, "ModelNotFoundException")
        assert body["message"] == \
            "Error executing m2: Model not found: chain__m2"


MISSING = {"code": 404, "type": "WorkflowNotFoundException"}


def test_what_is_not_there(server):
    for ours in (predict(server, "absent"),
                 ask(server, "management", "GET", "/workflows/absent"),
                 ask(server, "management", "DELETE", "/workflows/absent")):
        assert ours == (404, {**MISSING, "message": "Workflow not found: "
                                                    "absent"})
    assert register(server, "url=absent.war") == (404, {
        **MISSING, "message": "Workflow not found in workflow store: "
                              "absent.war"})
    for url in ("../x.war", "/etc/passwd", ".", ""):
        assert register(server, f"url={url}")[0] == 404
    assert register(server, "name=x") == (400, {
        "code": 400, "type": "BadRequestException",
        "message": "Parameter url is required."})
    assert register(server, "url=http://127.0.0.1/x.war")[0] == 400
    assert ask(server, "management", "PUT", "/workflows/absent")[1][
        "type"] == "MethodNotAllowedException"


# name: (arguments of war, the type of the exception, a part of its message)
BAD = {
    "cycle": ((CHAIN + "  m2: [m1]\n",), "InvalidDAGException",
              "Not a valid DAG"),
    "knot": ((MODELS + M["m1"] + M["m2"] + M["m3"] +
              "dag:\n  m1: [m2]\n  m2: [m3]\n  m3: [m2]\n",),
             "InvalidDAGException", "Not a valid DAG"),
    "self": ((MODELS + M["m1"] + "dag:\n  m1: [m1]\n",), "InvalidDAGException",
             "Self loop exception"),
    "starts": ((MODELS + M["m1"] + M["m2"] + M["m3"] +
                "dag:\n  m1: [m3]\n  m2: [m3]\n",), "InvalidDAGException",
               "DAG should have only one start node"),
    "unknown": ((MODELS + M["m1"] + M["gone"] + "dag:\n  m1: [gone]\n",),
                "WorkflowException",
                "Workflow unknown has failed to register. Failures: [Workflow "
                "Node unknown__gone failed to register. Details: Model not "
                "found at: absent.mar"),
    "function": ((MODELS + M["m1"] + "dag:\n  m1: [post]\n",),
                 "WorkflowException", "Python function"),
    "nospec": ((None,), "InvalidWorkflowException", "no spec.yaml"),
    "nodag": ((MODELS + M["m1"],), "InvalidWorkflowException", "dag"),
    "yaml": (("{[",), "InvalidWorkflowException", "YAML"),
    "list": (("[]",), "InvalidWorkflowException", "models"),
    "empty": (("",), "InvalidWorkflowException", "models"),
    "number": ((CHAIN.replace("timeout-ms: 50000", "timeout-ms: soon"),),
               "InvalidWorkflowException", "models.timeout-ms is 'soon'"),
    "word": ((CHAIN.replace("timeout-ms", "timeout"),),
             "InvalidWorkflowException", "models.timeout"),
    "nourl": ((CHAIN.replace("url: other.mar", "min-workers: 1"),),
              "InvalidWorkflowException", "models.m2.url"),
    "nodes": (("dag:\n" + "".join(f"  n{i}: [n{i + 1}]\n"
                                  for i in range(70)),),
              "InvalidWorkflowException", "64"),
    "slash": (("dag:\n  ../x: [y]\n",), "InvalidWorkflowException", "'../x'"),
    "workers": ((CHAIN.replace("max-workers: 1", "max-workers: 1000"),),
                "WorkflowException", "max_workers"),
    "nomanifest": ((CHAIN, ""), "InvalidWorkflowException",
                   "WAR-INF/MANIFEST.json"),
    "badmanifest": ((CHAIN, "{"), "InvalidWorkflowException", ""),
    "noentry": ((CHAIN, "{}"), "InvalidWorkflowException",
                "Missing Workflow entry in manifest file."),
    "noname": ((CHAIN, manifest("")), "InvalidWorkflowException",
               "workflow.workflowName is not defined"),
    "specpath": ((CHAIN, manifest("w", specFile="../../etc/passwd")),
                 "InvalidWorkflowException", "without a folder"),
    "badname": ((CHAIN, manifest("../w")), "InvalidWorkflowException",
                "without a folder"),
}


def test_bad_archives_are_refused_and_nothing_is_left(server, store, scratch):
    until(lambda: len(list(scratch.iterdir())) == 1)
    for name, (arguments, kind, word) in BAD.items():
        war(store, name, *arguments)
    war(store, "escape", CHAIN, **{"../outside": b"x"})
    war(store, "bomb", CHAIN, zeros=b"\0" * (80 << 20))
    (store / "text.war").write_text("no archive")
    for name in ("escape", "bomb", "text"):
        status, body = register(server, f"url={name}.war")
        assert (status, body["type"]) == (400, "InvalidWorkflowException"), body
    for name, (_, kind, word) in BAD.items():
        status, body = register(server, f"url={name}.war")
        code = 500 if kind == "WorkflowException" else 400
        assert (status, body["code"], body["type"]) == (code, code, kind), body
        assert word in body["message"], (name, body)
    assert ask(server, "management", "GET", "/workflows")[1] == \
        {"workflows": []}
    assert models(server) == ["linear"]
    # The archives of models that were registered on the way, too.
    until(lambda: len(list(scratch.iterdir())) == 1)
    assert not (scratch.parent / "outside").exists()


def test_workflows_are_not_registered_unless_it_is_allowed(store, tmp_path):
    (tmp_path / "wf").mkdir()
    war(tmp_path / "wf", "w", CHAIN)
    with torchserve("--model-store", store, "--models",
                    "linear.mar") as server:
        for method, path in (("POST", "/workflows?url=chain.war"),
                             ("DELETE", "/workflows/chain")):
            status, body = ask(server, "management", method, path)
            assert (status, body["type"]) == (405, "MethodNotAllowedException")
    with torchserve("--model-store", store, "--workflow-store",
                    tmp_path / "wf", "--models", "linear.mar",
                    "--enable-model-api") as server:
        assert register(server, "url=chain.war")[0] == 404
        assert register(server, "url=w.war")[0] == 200
        assert predict(server, "w") == (200, [7.0, 11.0, 15.0])

"""Requests to TorchServe's REST APIs, right and wrong, in an order: what they
ask of, what is sent, and of which port.

Both a real TorchServe and Millrace serve the archives that archives.py writes:
`linear` (y = 2 x + 1 of FP32 [batch, 3]) in versions 1.0 and 2.0, `other`, the
same, and broken ones. `linear` of version 1.0 is loaded at the start.
"""
import json
import struct
from dataclasses import dataclass, field


@dataclass
class Case:
    name: str
    port: str  # inference | management | metrics
    method: str
    path: str
    body: bytes = b""
    headers: dict = field(default_factory=dict)


CASES = []
JSON = "application/json"


def add(port, method, path, body=b"", kind="", note="", **headers):
    name = f"{port}: {method} {path}" + (f" ({note})" if note else "")
    assert all(case.name != name for case in CASES), name
    if not isinstance(body, bytes):
        body, kind = json.dumps(body).encode(), kind or JSON
    if kind:
        headers["Content-Type"] = kind
    CASES.append(Case(name, port, method, path, body,
                      {key.replace("_", "-"): str(value)
                       for key, value in headers.items()}))


def ask(method, path, body=b"", kind="", note="", **headers):
    add("inference", method, path, body, kind, note, **headers)


def manage(method, path, body=b"", kind="", note="", **headers):
    add("management", method, path, body, kind, note, **headers)


def multipart(*parts):
    """(name, file name or None, type or None, bytes) each."""
    text = b""
    for name, file, kind, data in parts:
        text += f'--mill\r\nContent-Disposition: form-data; name="{name}"'.encode()
        text += f'; filename="{file}"'.encode() if file else b""
        text += f"\r\nContent-Type: {kind}".encode() if kind else b""
        text += b"\r\n\r\n" + data + b"\r\n"
    return text + b"--mill--\r\n"


MULTIPART = "multipart/form-data; boundary=mill"
FORM = "application/x-www-form-urlencoded"
ROW = [1.0, -2.0, 0.25]
FLOATS = struct.pack("<3f", *ROW)
LINEAR = "/predictions/linear"

# ---- the server ----
for port in ("inference", "management"):
    for method in ("GET", "POST", "PUT", "DELETE"):
        if (port, method) != ("management", "GET"):
            add(port, method, "/ping")
    add(port, "OPTIONS", "/")
    for path in ("/", "/nothing", "/models/linear/1.0/nothing/more",
                 "/predictions", "/predictions/", "/api-description",
                 "/explanations", "/v1", "/metrics"):
        add(port, "GET", path)
ask("GET", "/ping?x=1")
ask("OPTIONS", "/predictions/linear")
ask("HEAD", "/ping")

# ---- predictions ----
ask("POST", LINEAR, ROW)
ask("PUT", LINEAR, ROW)
ask("POST", LINEAR + "/1.0", ROW)
ask("POST", LINEAR, ROW, note="with charset",
    kind="application/json; charset=utf-8")
ask("POST", LINEAR, [1, 2, 3], note="integers")
ask("POST", LINEAR, [ROW, ROW], note="two rows")
ask("POST", LINEAR, [ROW], note="one row in a list")
ask("POST", LINEAR, json.dumps(ROW).encode(), note="no type")
ask("POST", LINEAR, json.dumps(ROW).encode(), "text/plain", note="as text")
ask("POST", LINEAR, json.dumps(ROW).encode(), "application/octet-stream",
    note="as bytes")
ask("POST", LINEAR, FLOATS, "application/octet-stream", note="raw floats")
ask("PUT", LINEAR, FLOATS, note="raw floats, as curl -T")
ask("POST", LINEAR, multipart(("data", "row.bin", "application/octet-stream",
                               FLOATS)), MULTIPART, note="multipart file")
ask("POST", LINEAR, multipart(("data", "row.json", JSON,
                               json.dumps(ROW).encode())), MULTIPART,
    note="multipart json")
ask("POST", LINEAR, multipart(("data", None, None,
                               json.dumps(ROW).encode())), MULTIPART,
    note="multipart field")
ask("POST", LINEAR, multipart(("body", None, None,
                               json.dumps(ROW).encode())), MULTIPART,
    note="multipart field called body")
ask("POST", LINEAR, b"data=%5B1%2C2%2C3%5D", FORM, note="form")
ask("POST", LINEAR, b"body=%5B1%2C2%2C3%5D", FORM, note="form with body")
ask("GET", LINEAR + "?data=%5B1%2C2%2C3%5D")
ask("POST", LINEAR + "?data=%5B1%2C2%2C3%5D", note="in the query")
ask("POST", LINEAR, ROW, note="with a request id", x_request_id="mine")
ask("POST", LINEAR, b"[1, 2", JSON, note="JSON cut short")
ask("POST", LINEAR, ["a", "b", "c"], note="texts")
ask("POST", LINEAR, b"", JSON, note="no body")
ask("POST", LINEAR, b"abcde", "application/octet-stream",
    note="bytes that are no floats")
ask("POST", LINEAR, {"wrong": ROW}, note="another key")
ask("POST", LINEAR, [[1, 2, 3], [1]], note="ragged")
for name in ("absent", "LINEAR", "linear.mar", "a b".replace(" ", "%20"),
             "%2e%2e", "x" * 300):
    ask("POST", f"/predictions/{name}", ROW)
for version in ("9.9", "1", "latest", "v1"):
    ask("POST", f"{LINEAR}/{version}", ROW)
ask("POST", LINEAR + "/1.0/behind", ROW)
ask("POST", LINEAR + "/", ROW)
ask("DELETE", LINEAR)
ask("POST", "/explanations/absent", ROW)
ask("POST", "/explanations/linear/9.9", ROW)
ask("GET", "/v1/models/absent")
ask("POST", "/v1/models/absent:predict", {"instances": [ROW]})
ask("POST", "/invocations", ROW)
ask("POST", "/wfpredict/absent", ROW)
ask("POST", "/models?url=other.mar", note="on the port of inference")
manage("POST", LINEAR, ROW, note="on the port of management")

# ---- listing and describing ----
for query in ("", "?limit=1", "?limit=0", "?limit=-1", "?limit=x",
              "?limit=1000", "?limit=101", "?next_page_token=0",
              "?next_page_token=1", "?next_page_token=-1",
              "?next_page_token=x", "?limit=1&next_page_token=5"):
    manage("GET", "/models" + query)
manage("GET", "/models/")
for path in ("linear", "linear/1.0", "linear/all", "linear/9.9", "absent",
             "absent/1.0", "absent/all", "linear?customized=true",
             "linear/1.0?customized=true", "linear?customized=false",
             "linear/1.0/behind"):
    manage("GET", "/models/" + path)

# ---- registering ----
manage("POST", "/models")
for query in ("url=", "url=absent.mar", "url=../linear.mar",
              "url=/etc/passwd", "url=store/linear.mar", "url=text.mar",
              "url=nomanifest.mar", "url=badmanifest.mar", "url=noname.mar",
              "url=gone.mar", "url=file%3A///etc/passwd", "url=linear.mar",
              "url=ftp%3A//localhost/x.mar", "url=other",
              "url=other.mar&batch_size=x", "url=other.mar&batch_size=0",
              "url=other.mar&batch_size=-1", "url=other.mar&max_batch_delay=x",
              "url=other.mar&max_batch_delay=-1",
              "url=other.mar&initial_workers=x",
              "url=other.mar&response_timeout=x",
              "url=other.mar&runtime=COBOL"):
    manage("POST", "/models?" + query)
    if "other" in query and query != "url=other":
        manage("DELETE", "/models/other", note="after " + query)
manage("POST", "/models?url=other.mar&initial_workers=0")
manage("GET", "/models/other", note="without workers")
manage("GET", "/models", note="with another")
manage("GET", "/models?limit=1", note="with another")
manage("GET", "/models?limit=1&next_page_token=1", note="with another")
ask("POST", "/predictions/other", ROW, note="without workers")
ask("GET", "/ping", note="with a model without workers")
manage("POST", "/models?url=other.mar", note="again")
manage("POST", "/models?url=other.mar&model_name=other", note="again")
manage("POST", "/models?url=linear.mar&model_name=other",
       note="another archive of that name")
manage("DELETE", "/models/other", note="without workers")
manage("DELETE", "/models/other", note="which is gone")
manage("GET", "/models/other", note="which is gone")
ask("POST", "/predictions/other", ROW, note="which is gone")
manage("POST", "/models?url=other.mar&initial_workers=1&synchronous=true"
       "&batch_size=4&max_batch_delay=20&response_timeout=60&startup_timeout=90")
manage("GET", "/models/other", note="with a worker")
ask("POST", "/predictions/other", ROW, note="with a worker")
manage("DELETE", "/models/other/1.0", note="with a worker")
manage("POST", "/models?url=other.mar&initial_workers=1&synchronous=false")
ask("POST", "/predictions/other", ROW, note="once it is there")
manage("POST", "/models?url=other.mar&model_name=third&initial_workers=1"
       "&synchronous=true")
ask("POST", "/predictions/third", ROW)
manage("GET", "/models/third")
manage("GET", "/models?limit=2", note="with three")
manage("GET", "/models?limit=2&next_page_token=2", note="with three")
manage("DELETE", "/models/third")
manage("POST", "/models?url=other.mar&model_name=a%20b")
manage("DELETE", "/models/a%20b")

# ---- scaling ----
for query in ("min_worker=x", "max_worker=x", "min_worker=-1",
              "min_worker=2&max_worker=1", "max_worker=0", "min_worker=1&timeout=x"):
    manage("PUT", "/models/other?" + query)
    manage("PUT", "/models/other?min_worker=1&max_worker=1&synchronous=true",
           note="after " + query)
manage("PUT", "/models/other", note="no words")
manage("PUT", "/models/absent?min_worker=1")
manage("PUT", "/models/other/9.9?min_worker=1")
manage("PUT", "/models/other?min_worker=2&synchronous=true")
manage("GET", "/models/other", note="with two workers")
manage("PUT", "/models/other/1.0?min_worker=1&max_worker=2&synchronous=true")
manage("PUT", "/models/other?min_worker=1&max_worker=1")
manage("GET", "/models/other", note="with one worker again")
manage("PUT", "/models/other?min_worker=0&synchronous=true")
manage("GET", "/models/other", note="scaled to none")
ask("POST", "/predictions/other", ROW, note="scaled to none")
manage("PUT", "/models/other?min_worker=1&synchronous=true")
ask("POST", "/predictions/other", ROW, note="scaled up again")

# ---- versions ----
manage("POST", "/models?url=linear2.mar&initial_workers=1&synchronous=true")
manage("GET", "/models/linear/all", note="of two versions")
manage("GET", "/models/linear", note="of two versions")
ask("POST", LINEAR + "/2.0", ROW)
manage("PUT", "/models/linear/2.0/set-default")
manage("GET", "/models/linear", note="after set-default")
manage("PUT", "/models/linear/9.9/set-default")
manage("PUT", "/models/absent/1.0/set-default")
manage("PUT", "/models/linear/set-default")
manage("GET", "/models/linear/2.0/set-default")
manage("DELETE", "/models/linear/2.0", note="which is the default")
manage("DELETE", "/models/linear/9.9")
manage("DELETE", "/models/linear/1.0")
manage("GET", "/models/linear/all", note="after version 1.0 left")
ask("POST", LINEAR + "/1.0", ROW, note="which left")
ask("POST", LINEAR, ROW, note="by version 2.0")
manage("DELETE", "/models/linear")
manage("DELETE", "/models/other", note="at the end")
manage("DELETE", "/models/absent")
manage("GET", "/models", note="at the end")
ask("GET", "/ping", note="at the end")

# ---- methods, workflows ----
for method in ("PUT", "DELETE", "PATCH"):
    manage(method, "/models")
manage("POST", "/models/other", note="no such method")
manage("PATCH", "/models/other")
manage("GET", "/workflows/absent")
manage("GET", "/token?type=management")
add("metrics", "GET", "/nothing")
add("metrics", "POST", "/metrics")

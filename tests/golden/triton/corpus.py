"""Requests of the KServe v2 protocol, right and wrong, in an order: what they
ask of, what is sent, and which parts of a response say the same.

Both a real Triton and Millrace serve the models that `write_repository` writes:
`identity` (FP32 [batch, any]), `simple` (sum and difference of INT32
[batch, 16]) and an identity for each other type.
"""
import gzip
import json
import struct
import zlib
from dataclasses import dataclass, field

TYPES = {"BOOL": "B", "UINT8": "B", "UINT16": "H", "UINT32": "I",
         "UINT64": "Q", "INT8": "b", "INT16": "h", "INT32": "i",
         "INT64": "q", "FP32": "f", "FP64": "d"}
VALUES = {"BOOL": [True, False, True], "UINT8": [0, 7, 255],
          "UINT16": [0, 7, 65535], "UINT32": [0, 7, 2**32 - 1],
          "UINT64": [0, 7, 2**64 - 1], "INT8": [-128, 0, 127],
          "INT16": [-2**15, 0, 2**15 - 1], "INT32": [-2**31, 0, 2**31 - 1],
          "INT64": [-2**63, 0, 2**63 - 1], "FP32": [-1.5, 0.0, 3.25],
          "FP64": [-1.5, 0.0, 1e300]}


@dataclass
class Case:
    name: str
    method: str
    path: str
    body: bytes = b""
    headers: dict = field(default_factory=dict)


CASES = []


def add(name, method, path, body=b"", **headers):
    assert all(case.name != name for case in CASES), name
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    CASES.append(Case(name, method, path, body,
                      {key.replace("_", "-"): str(value)
                       for key, value in headers.items()}))


# ---- pieces ----
IDENTITY = "/v2/models/identity/infer"
SIMPLE = "/v2/models/simple/infer"
FLOATS = {"name": "INPUT0", "shape": [1, 3], "datatype": "FP32",
          "data": [1.5, -2.0, 0.25]}


def changed(tensor=FLOATS, **fields):
    """The tensor with other fields; None leaves one out."""
    return {key: value for key, value in {**tensor, **fields}.items()
            if value is not None}


def ask(*inputs, **fields):
    return {"inputs": list(inputs), **fields}


def ints(name, values=range(16), rows=1):
    return {"name": name, "shape": [rows, 16], "datatype": "INT32",
            "data": list(values) * rows}


def binary(name, path, head, *tensors, length=None, tail=b"", **headers):
    """Tensors behind the JSON, as the binary extension has them."""
    text = json.dumps(head).encode()
    size = len(text) if length is None else length
    add(name, "POST", path, text + b"".join(tensors) + tail,
        **{"Inference-Header-Content-Length": size, **headers})


def packed(datatype, values):
    return struct.pack(f"<{len(values)}{TYPES[datatype]}", *values)


def in_binary(tensor, size):
    return changed(tensor, data=None, parameters={"binary_data_size": size})


# ---- health and metadata ----
for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/identity/ready",
             "/v2/models/identity/versions/1/ready"):
    add(f"get {path}", "GET", path)
    for method in ("POST", "PUT", "DELETE"):
        add(f"{method} {path}", method, path)
for path in ("/v2", "/v2/models/identity", "/v2/models/identity/versions/1",
             "/v2/models/simple", "/v2/models/identity/config",
             "/v2/models/identity/versions/1/config",
             "/v2/models/simple/config"):
    add(f"get {path}", "GET", path)
    for method in ("POST", "PUT", "DELETE"):
        add(f"{method} {path}", method, path)
for model in ("absent", "identity%20", "IDENTITY"):
    for end in ("", "/config", "/stats", "/ready", "/versions/1",
                "/versions/1/ready", "/versions/1/config"):
        add(f"get {model}{end}", "GET", f"/v2/models/{model}{end}")
for version in ("2", "0", "01", "99999999999999999999"):
    for end in ("", "/ready", "/config", "/stats"):
        add(f"get version {version}{end}", "GET",
            f"/v2/models/identity/versions/{version}{end}")
for path in ("/v2/", "/v2/health", "/v2/health/", "/v2/health/started",
             "/v2/models/", "/v2/models/identity/", "/v2/models/identity/x",
             "/v2/models/identity/versions", "/v2/models/identity/versions/",
             "/v2/models/identity/versions/x", "/v2/nothing", "/v3", "/",
             "/v2/models/identity/versions/1/x", "/v2/repository",
             "/v2/repository/models/identity"):
    add(f"get path {path}", "GET", path)

# ---- infer: what is right ----
add("infer", "POST", IDENTITY, ask(FLOATS))
add("infer of a version", "POST", "/v2/models/identity/versions/1/infer",
    ask(FLOATS))
add("infer with an id", "POST", IDENTITY, ask(FLOATS, id="abc"))
add("infer with an empty id", "POST", IDENTITY, ask(FLOATS, id=""))
add("infer with an id of 300 letters", "POST", IDENTITY,
    ask(FLOATS, id="x" * 300))
add("infer of nested data", "POST", IDENTITY,
    ask(changed(data=[[1.5, -2.0, 0.25]])))
add("infer of two rows", "POST", IDENTITY,
    ask(changed(shape=[2, 2], data=[1, 2, 3, 4])))
add("infer of two nested rows", "POST", IDENTITY,
    ask(changed(shape=[2, 2], data=[[1, 2], [3, 4]])))
add("infer of integers for FP32", "POST", IDENTITY, ask(changed(data=[1, 2, 3])))
add("infer of an empty row", "POST", IDENTITY, ask(changed(shape=[1, 0], data=[])))
add("infer of the wanted output", "POST", IDENTITY,
    ask(FLOATS, outputs=[{"name": "OUTPUT0"}]))
add("infer with an empty list of outputs", "POST", IDENTITY,
    ask(FLOATS, outputs=[]))
add("infer with empty parameters", "POST", IDENTITY, ask(FLOATS, parameters={}))
add("infer with parameters of our own", "POST", IDENTITY,
    ask(FLOATS, parameters={"a": 1, "b": "c", "d": True}))
add("infer with a tensor's parameters", "POST", IDENTITY,
    ask(changed(parameters={"a": 1})))
add("simple", "POST", SIMPLE, ask(ints("INPUT0"), ints("INPUT1")))
add("simple, inputs in another order", "POST", SIMPLE,
    ask(ints("INPUT1"), ints("INPUT0", range(16, 32))))
add("simple, one output", "POST", SIMPLE,
    ask(ints("INPUT0"), ints("INPUT1"), outputs=[{"name": "OUTPUT1"}]))
add("simple, outputs in another order", "POST", SIMPLE,
    ask(ints("INPUT0"), ints("INPUT1"),
        outputs=[{"name": "OUTPUT1"}, {"name": "OUTPUT0"}]))
add("simple, eight rows", "POST", SIMPLE,
    ask(ints("INPUT0", rows=8), ints("INPUT1", rows=8)))
for kind in ("application/json", "application/octet-stream", "text/plain",
             "application/x-www-form-urlencoded"):
    add(f"infer as {kind}", "POST", IDENTITY, ask(FLOATS), Content_Type=kind)
for datatype in TYPES:
    name = f"/v2/models/identity_{datatype.lower()}/infer"
    if datatype == "FP32":
        name = IDENTITY
    tensor = {"name": "INPUT0", "shape": [1, 3], "datatype": datatype}
    raw = packed(datatype, VALUES[datatype])
    add(f"json {datatype}", "POST", name,
        ask({**tensor, "data": VALUES[datatype]}))
    binary(f"binary {datatype}", name,
           ask(in_binary(tensor, len(raw)),
               outputs=[{"name": "OUTPUT0",
                         "parameters": {"binary_data": True}}]), raw)
    binary(f"binary {datatype} to json", name,
           ask(in_binary(tensor, len(raw))), raw)
    add(f"json {datatype} to binary", "POST", name,
        ask({**tensor, "data": VALUES[datatype]},
            parameters={"binary_data_output": True}))
    binary(f"binary {datatype}, a byte short", name,
           ask(in_binary(tensor, len(raw) - 1)), raw[:-1])
    add(f"{datatype} called INT4", "POST", name,
        ask({**tensor, "datatype": "INT4", "data": VALUES[datatype]}))
    add(f"{datatype} of text", "POST", name,
        ask({**tensor, "data": ["a", "b", "c"]}))
for algorithm, squeeze in (("gzip", gzip.compress), ("deflate", zlib.compress)):
    body = json.dumps(ask(FLOATS)).encode()
    add(f"infer in {algorithm}", "POST", IDENTITY, squeeze(body),
        Content_Encoding=algorithm)
    add(f"infer in {algorithm}, broken", "POST", IDENTITY, squeeze(body)[:-6],
        Content_Encoding=algorithm)
add("infer in an unknown encoding", "POST", IDENTITY, ask(FLOATS),
    Content_Encoding="br")

# ---- infer: what is wrong ----
for name, body in {
        "no body": b"", "no json": b"hello", "half json": b'{"inputs":',
        "a list": b"[]", "a number": b"1", "null": b"null", "empty": b"{}",
        "two values": b"{} {}", "bom": b"\xef\xbb\xbf{}",
        "not utf-8": b'{"inputs":"\xff"}'}.items():
    add(f"infer of {name}", "POST", IDENTITY, body)
for name, fields in {
        "inputs null": {"inputs": None}, "inputs empty": {"inputs": []},
        "inputs an object": {"inputs": {}}, "inputs a number": {"inputs": 1},
        "inputs of numbers": {"inputs": [1]},
        "inputs of an empty object": {"inputs": [{}]},
        "id a number": ask(FLOATS, id=1), "id null": ask(FLOATS, id=None),
        "id an object": ask(FLOATS, id={}),
        "parameters a list": ask(FLOATS, parameters=[]),
        "parameters a text": ask(FLOATS, parameters="a"),
        "a parameter null": ask(FLOATS, parameters={"a": None}),
        "a parameter a list": ask(FLOATS, parameters={"a": [1]}),
        "a parameter an object": ask(FLOATS, parameters={"a": {}}),
        "outputs an object": ask(FLOATS, outputs={}),
        "outputs of numbers": ask(FLOATS, outputs=[1]),
        "outputs without name": ask(FLOATS, outputs=[{}]),
        "an absent output": ask(FLOATS, outputs=[{"name": "Y"}]),
        "an output's name a number": ask(FLOATS, outputs=[{"name": 1}]),
        "an output twice": ask(FLOATS, outputs=[{"name": "OUTPUT0"}] * 2),
        "an input twice": ask(FLOATS, FLOATS),
        "an unknown field": ask(FLOATS, more=1),
        "priority text": ask(FLOATS, parameters={"priority": "high"}),
        "timeout text": ask(FLOATS, parameters={"timeout": "1"}),
        "binary_data_output a number":
            ask(FLOATS, parameters={"binary_data_output": 1}),
        "sequence_id of a stateless model":
            ask(FLOATS, parameters={"sequence_id": 5}),
}.items():
    add(f"infer with {name}", "POST", IDENTITY, fields)
for name, tensor in {
        "no name": changed(name=None), "another name": changed(name="X"),
        "an empty name": changed(name=""), "a name in small letters":
            changed(name="input0"), "a name that is a number": changed(name=1),
        "no shape": changed(shape=None), "an empty shape": changed(shape=[]),
        "a shape of text": changed(shape=["1", "3"]),
        "a shape of fractions": changed(shape=[1.0, 3.0]),
        "a negative shape": changed(shape=[-1, 3]),
        "a shape of zero rows": changed(shape=[0, 3], data=[]),
        "a shape that is a number": changed(shape=3),
        "one axis": changed(shape=[3]), "three axes": changed(shape=[1, 1, 3]),
        "more rows than the limit":
            changed(shape=[65, 1], data=[0] * 65),
        "a huge shape": changed(shape=[2**31, 2**31]),
        "a shape that overflows": changed(shape=[2**62, 8]),
        "a shape beyond 64 bits": changed(shape=[2**65, 1]),
        "no datatype": changed(datatype=None),
        "another datatype": changed(datatype="INT32", data=[1, 2, 3]),
        "an unknown datatype": changed(datatype="FLOAT"),
        "a datatype in small letters": changed(datatype="fp32"),
        "a datatype that is a number": changed(datatype=32),
        "BYTES": changed(datatype="BYTES", data=["a", "b", "c"]),
        "no data": changed(data=None), "data null": {**FLOATS, "data": None},
        "data that is a number": changed(data=1),
        "data that is text": changed(data="abc"),
        "data that is an object": changed(data={}),
        "too little data": changed(data=[1, 2]),
        "too much data": changed(data=[1, 2, 3, 4]),
        "data nested otherwise": changed(shape=[2, 2], data=[[1], [2, 3, 4]]),
        "data nested too deep": changed(data=[[[1], [2], [3]]]),
        "data with null": changed(data=[1, None, 3]),
        "data with text": changed(data=[1, "2", 3]),
        "data with truth": changed(data=[1, True, 3]),
        "data beyond FP32": changed(data=[1, 1e300, 3]),
        "parameters that are a list": changed(parameters=[]),
        "binary size without binary": in_binary(FLOATS, 12),
        "binary size as text": changed(parameters={"binary_data_size": "12"}),
        "a negative binary size": changed(parameters={"binary_data_size": -1}),
        "an absent region":
            changed(data=None,
                    parameters={"shared_memory_region": "absent",
                                "shared_memory_byte_size": 12}),
}.items():
    add(f"an input with {name}", "POST", IDENTITY, ask(tensor))
for name, text in {
        "NaN": "NaN", "infinity": "Infinity", "1e999": "1e999", "01": "01",
        "+1": "+1", ".5": ".5", "hex": "0x10"}.items():
    add(f"data with {name}", "POST", IDENTITY,
        (json.dumps(ask(FLOATS)).replace("0.25", text)).encode())
for name, tensor in {
        "beyond INT32": ints("INPUT0", [2**31] + [0] * 15),
        "below INT32": ints("INPUT0", [-2**31 - 1] + [0] * 15),
        "fractions": ints("INPUT0", [0.5] + [0] * 15),
        "fractions that are whole": ints("INPUT0", [1.0] + [0] * 15),
        "nine rows": ints("INPUT0", rows=9),
        "two rows of one": ints("INPUT0", rows=2),
        "fifteen": {**ints("INPUT0", range(15)), "shape": [1, 15]}}.items():
    add(f"simple with {name}", "POST", SIMPLE, ask(tensor, ints("INPUT1")))
add("simple without its second input", "POST", SIMPLE, ask(ints("INPUT0")))
add("simple with a third input", "POST", SIMPLE,
    ask(ints("INPUT0"), ints("INPUT1"), ints("INPUT2")))
for path in ("/v2/models/absent/infer", "/v2/models/identity/versions/2/infer",
             "/v2/models/identity/versions/x/infer", "/v2/models//infer",
             "/v2/models/identity/infer/", "/v2/models/identity/infers"):
    add(f"infer at {path}", "POST", path, ask(FLOATS))
for method in ("GET", "PUT", "DELETE", "PATCH"):
    add(f"{method} infer", method, IDENTITY)

# ---- binary tensors ----
RAW = packed("FP32", [1.5, -2.0, 0.25])
HEAD = ask(in_binary(FLOATS, 12))
binary("binary, header length 0 of a raw tensor", IDENTITY, HEAD, RAW, length=0)
add("raw tensor", "POST", IDENTITY, RAW, Inference_Header_Content_Length=0,
    Content_Type="application/octet-stream")
add("raw tensor of a row and a half", "POST", IDENTITY, RAW + b"\0\0",
    Inference_Header_Content_Length=0)
add("raw tensor for two inputs", "POST", SIMPLE, bytes(64),
    Inference_Header_Content_Length=0)
for length in ("-1", "x", "1", "1000000", "99999999999999999999"):
    binary(f"binary, header length {length}", IDENTITY, HEAD, RAW,
           length=length)
binary("binary, bytes left over", IDENTITY, HEAD, RAW, tail=b"\0\0\0\0")
binary("binary, bytes missing", IDENTITY, HEAD, RAW[:8])
binary("binary, none of the bytes", IDENTITY, HEAD)
binary("binary, size too small", IDENTITY, ask(in_binary(FLOATS, 8)), RAW)
binary("binary, size too large", IDENTITY, ask(in_binary(FLOATS, 16)), RAW,
       tail=bytes(4))
binary("binary and data", IDENTITY,
       ask(changed(parameters={"binary_data_size": 12})), RAW)
pair = packed("INT32", range(16))
both = ask(in_binary(ints("INPUT0"), 64), in_binary(ints("INPUT1"), 64))
binary("binary, two inputs", SIMPLE, both, pair, pair)
binary("binary, first of two", SIMPLE,
       ask(in_binary(ints("INPUT0"), 64), ints("INPUT1")), pair)
binary("binary, second of two", SIMPLE,
       ask(ints("INPUT0"), in_binary(ints("INPUT1"), 64)), pair)
binary("binary, all outputs", SIMPLE,
       {**both, "parameters": {"binary_data_output": True}}, pair, pair)
binary("binary, one of two outputs", SIMPLE,
       {**both, "outputs": [{"name": "OUTPUT0",
                             "parameters": {"binary_data": True}},
                            {"name": "OUTPUT1"}]}, pair, pair)
binary("binary, all but one output", SIMPLE,
       {**both, "parameters": {"binary_data_output": True},
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": False}},
                    {"name": "OUTPUT1"}]}, pair, pair)

# ---- classification ----
for name, parameters in {"best": {"classification": 1},
                         "best two": {"classification": 2},
                         "more than there are": {"classification": 9},
                         "none": {"classification": 0},
                         "text": {"classification": "1"},
                         "best in binary": {"classification": 1,
                                            "binary_data": True}}.items():
    add(f"classification, {name}", "POST", IDENTITY,
        ask(FLOATS, outputs=[{"name": "OUTPUT0", "parameters": parameters}]))
add("classification of two rows", "POST", IDENTITY,
    ask(changed(shape=[2, 2], data=[1, 2, 4, 3]),
        outputs=[{"name": "OUTPUT0", "parameters": {"classification": 2}}]))

# ---- statistics, settings, shared memory ----
for path in ("/v2/models/stats", "/v2/models/identity/stats",
             "/v2/models/identity/versions/1/stats", "/v2/trace/setting",
             "/v2/models/identity/trace/setting", "/v2/logging",
             "/v2/systemsharedmemory/status",
             "/v2/systemsharedmemory/region/absent/status",
             "/v2/cudasharedmemory/status"):
    add(f"get {path}", "GET", path)
    add(f"DELETE {path}", "DELETE", path)
for name, body in {
        "nothing": {}, "a level": {"log_verbose_level": 1},
        "a wrong level": {"log_verbose_level": "a"},
        "a switch": {"log_info": True}, "a wrong switch": {"log_info": 1},
        "an unknown setting": {"log_nothing": True},
        "no json": "x", "its own file": {"log_file": "/tmp/x"},
        "a format": {"log_format": "ISO8601"},
        "a wrong format": {"log_format": "x"}}.items():
    add(f"logging with {name}", "POST", "/v2/logging", body)
add("logging as it was", "POST", "/v2/logging",
    {"log_verbose_level": 0, "log_format": "default"})
for name, body in {
        "nothing": {}, "a level": {"trace_level": ["OFF"]},
        "a rate": {"trace_rate": "500"}, "a number": {"trace_rate": 500},
        "an unknown setting": {"trace_nothing": "1"}}.items():
    add(f"trace with {name}", "POST", "/v2/trace/setting", body)
REGION = "/v2/systemsharedmemory/region"
add("register an absent region", "POST", f"{REGION}/a/register",
    {"key": "/millrace_absent", "offset": 0, "byte_size": 16})
for name, body in {"no key": {"byte_size": 16}, "no size": {"key": "/x"},
                   "nothing": {}, "no json": "x",
                   "a text as size": {"key": "/x", "byte_size": "1"},
                   "a negative size": {"key": "/x", "byte_size": -1}}.items():
    add(f"register with {name}", "POST", f"{REGION}/a/register", body)
add("unregister an absent region", "POST", f"{REGION}/a/unregister")
add("unregister all", "POST", "/v2/systemsharedmemory/unregister")

# ---- repository ----
for name, body in {"nothing": b"", "an object": {}, "ready": {"ready": True},
                   "all": {"ready": False}, "text": {"ready": "yes"},
                   "no json": b"x"}.items():
    add(f"index of {name}", "POST", "/v2/repository/index", body)
add("get index", "GET", "/v2/repository/index")
add("load an absent model", "POST", "/v2/repository/models/absent/load")
add("unload an absent model", "POST", "/v2/repository/models/absent/unload")
add("load what is loaded", "POST", "/v2/repository/models/simple/load")
add("load with a wrong body", "POST", "/v2/repository/models/simple/load", b"x")
add("load with wrong parameters", "POST", "/v2/repository/models/simple/load",
    {"parameters": []})
add("load with a wrong config", "POST", "/v2/repository/models/simple/load",
    {"parameters": {"config": "{"}})
add("simple still answers", "POST", SIMPLE, ask(ints("INPUT0"), ints("INPUT1")))
add("unload", "POST", "/v2/repository/models/simple/unload")
add("ready, unloaded", "GET", "/v2/models/simple/ready")
add("metadata, unloaded", "GET", "/v2/models/simple")
add("config, unloaded", "GET", "/v2/models/simple/config")
add("stats, unloaded", "GET", "/v2/models/simple/stats")
add("infer, unloaded", "POST", SIMPLE, ask(ints("INPUT0"), ints("INPUT1")))
add("unload again", "POST", "/v2/repository/models/simple/unload")
add("load again", "POST", "/v2/repository/models/simple/load")
add("ready again", "GET", "/v2/models/simple/ready")
add("infer again", "POST", SIMPLE, ask(ints("INPUT0"), ints("INPUT1")))
for method in ("GET", "PUT", "DELETE"):
    add(f"{method} load", method, "/v2/repository/models/simple/load")

# ---- generate, of a model that makes no text ----
for end in ("generate", "generate_stream"):
    add(f"{end} of an absent model", "POST", f"/v2/models/absent/{end}",
        {"text_input": "a"})
    add(f"get {end}", "GET", f"/v2/models/identity/{end}")
    add(f"{end} without json", "POST", f"/v2/models/identity/{end}", b"x")

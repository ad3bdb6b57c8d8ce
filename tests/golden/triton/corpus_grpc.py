"""The corpus of gRPC: calls of inference.GRPCInferenceService, right and wrong,
built from tritonclient's messages."""
from dataclasses import dataclass

from tritonclient.grpc import service_pb2 as pb

from corpus import TYPES, VALUES, packed


@dataclass
class Call:
    name: str
    method: str
    request: object


CALLS = []


def add(name, method, request):
    assert all(call.name != name for call in CALLS), name
    CALLS.append(Call(name, method, request))


# ---- pieces ----
FIELDS = {"BOOL": "bool_contents", "UINT8": "uint_contents",
          "UINT16": "uint_contents", "UINT32": "uint_contents",
          "UINT64": "uint64_contents", "INT8": "int_contents",
          "INT16": "int_contents", "INT32": "int_contents",
          "INT64": "int64_contents", "FP32": "fp32_contents",
          "FP64": "fp64_contents"}


def tensor(name="INPUT0", shape=(1, 3), datatype="FP32", field=None, values=()):
    made = pb.ModelInferRequest().InferInputTensor(
        name=name, shape=shape, datatype=datatype)
    if field is not None:
        getattr(made.contents, field).extend(values)
    return made


def infer(*inputs, model="identity", raw=(), outputs=(), **fields):
    request = pb.ModelInferRequest(model_name=model, inputs=inputs,
                                   raw_input_contents=raw, **fields)
    for output in outputs:
        made = request.outputs.add(name=output[0])
        for key, value in (output[1] if len(output) > 1 else {}).items():
            put(made.parameters, key, value)
    return request


def put(parameters, key, value):
    kind = {bool: "bool_param", int: "int64_param", str: "string_param"}
    setattr(parameters[key], kind[type(value)], value)


def with_parameters(request, **values):
    for key, value in values.items():
        put(request.parameters, key, value)
    return request


RAW = packed("FP32", [1.5, -2.0, 0.25])
PAIR = packed("INT32", range(16))
A = tensor("INPUT0", (1, 16), "INT32")
B = tensor("INPUT1", (1, 16), "INT32")

# ---- health, metadata, configuration, statistics ----
add("live", "ServerLive", pb.ServerLiveRequest())
add("ready", "ServerReady", pb.ServerReadyRequest())
add("server metadata", "ServerMetadata", pb.ServerMetadataRequest())
for model in ("identity", "simple", "absent", ""):
    for version in ("", "1", "2", "x"):
        about = dict(name=model, version=version)
        what = f"of '{model}' version '{version}'"
        add(f"model ready {what}", "ModelReady", pb.ModelReadyRequest(**about))
        add(f"metadata {what}", "ModelMetadata",
            pb.ModelMetadataRequest(**about))
        add(f"config {what}", "ModelConfig", pb.ModelConfigRequest(**about))
        add(f"statistics {what}", "ModelStatistics",
            pb.ModelStatisticsRequest(**about))

# ---- infer: what is right ----
for datatype in TYPES:
    model = "identity" if datatype == "FP32" else \
        f"identity_{datatype.lower()}"
    raw = packed(datatype, VALUES[datatype])
    add(f"raw {datatype}", "ModelInfer",
        infer(tensor(datatype=datatype), model=model, raw=[raw]))
    add(f"typed {datatype}", "ModelInfer",
        infer(tensor(datatype=datatype, field=FIELDS[datatype],
                     values=VALUES[datatype]), model=model))
    add(f"raw {datatype}, a byte short", "ModelInfer",
        infer(tensor(datatype=datatype), model=model, raw=[raw[:-1]]))
    add(f"typed {datatype}, one missing", "ModelInfer",
        infer(tensor(datatype=datatype, field=FIELDS[datatype],
                     values=VALUES[datatype][:2]), model=model))
    other = "bytes_contents"
    add(f"typed {datatype} in another field", "ModelInfer",
        infer(tensor(datatype=datatype, field=other, values=[b"a"] * 3),
              model=model))
add("with an id", "ModelInfer", infer(tensor(), raw=[RAW], id="abc"))
add("of a version", "ModelInfer",
    infer(tensor(), raw=[RAW], model_version="1"))
add("of the wanted output", "ModelInfer",
    infer(tensor(), raw=[RAW], outputs=[("OUTPUT0",)]))
add("simple", "ModelInfer", infer(A, B, model="simple", raw=[PAIR, PAIR]))
add("simple, one output", "ModelInfer",
    infer(A, B, model="simple", raw=[PAIR, PAIR], outputs=[("OUTPUT1",)]))
add("simple, inputs turned", "ModelInfer",
    infer(B, A, model="simple", raw=[PAIR, PAIR]))
for count in (1, 2, 9, 0):
    add(f"classification of {count}", "ModelInfer",
        infer(tensor(), raw=[RAW],
              outputs=[("OUTPUT0", {"classification": count})]))
add("classification as text", "ModelInfer",
    infer(tensor(), raw=[RAW],
          outputs=[("OUTPUT0", {"classification": "1"})]))
add("parameters of our own", "ModelInfer",
    with_parameters(infer(tensor(), raw=[RAW]), a=1, b="c", d=True))
add("a priority", "ModelInfer",
    with_parameters(infer(tensor(), raw=[RAW]), priority=0))
add("a priority as text", "ModelInfer",
    with_parameters(infer(tensor(), raw=[RAW]), priority="high"))
add("a timeout", "ModelInfer",
    with_parameters(infer(tensor(), raw=[RAW]), timeout=10_000_000))
add("a timeout as text", "ModelInfer",
    with_parameters(infer(tensor(), raw=[RAW]), timeout="1"))

# ---- infer: what is wrong ----
for name, request in {
        "nothing": pb.ModelInferRequest(),
        "no inputs": infer(),
        "an absent model": infer(tensor(), raw=[RAW], model="absent"),
        "an absent version":
            infer(tensor(), raw=[RAW], model_version="2"),
        "a version that is no number":
            infer(tensor(), raw=[RAW], model_version="x"),
        "another input": infer(tensor(name="X"), raw=[RAW]),
        "an input without name": infer(tensor(name=""), raw=[RAW]),
        "an input twice": infer(tensor(), tensor(), raw=[RAW, RAW]),
        "a second input missing": infer(A, model="simple", raw=[PAIR]),
        "a third input":
            infer(A, B, tensor("INPUT2", (1, 16), "INT32"), model="simple",
                  raw=[PAIR] * 3),
        "another output": infer(tensor(), raw=[RAW], outputs=[("Y",)]),
        "an output without name":
            infer(tensor(), raw=[RAW], outputs=[("",)]),
        "another datatype": infer(tensor(datatype="INT32"), raw=[RAW]),
        "an unknown datatype": infer(tensor(datatype="FLOAT"), raw=[RAW]),
        "no datatype": infer(tensor(datatype=""), raw=[RAW]),
        "BYTES": infer(tensor(datatype="BYTES"), raw=[RAW]),
        "no shape": infer(tensor(shape=()), raw=[RAW]),
        "one axis": infer(tensor(shape=(3,)), raw=[RAW]),
        "three axes": infer(tensor(shape=(1, 1, 3)), raw=[RAW]),
        "a negative size": infer(tensor(shape=(-1, 3)), raw=[RAW]),
        "zero rows": infer(tensor(shape=(0, 3)), raw=[b""]),
        "too many rows": infer(tensor(shape=(65, 1)), raw=[bytes(65 * 4)]),
        "a shape that overflows": infer(tensor(shape=(2**62, 8)), raw=[RAW]),
        "another size": infer(tensor("INPUT0", (1, 15), "INT32"), B,
                              model="simple", raw=[PAIR[:60], PAIR]),
        "rows of one and two":
            infer(tensor("INPUT0", (2, 16), "INT32"), B, model="simple",
                  raw=[PAIR * 2, PAIR]),
        "raw contents missing": infer(A, B, model="simple", raw=[PAIR]),
        "raw contents left over": infer(tensor(), raw=[RAW, RAW]),
        "raw and typed":
            infer(tensor(field="fp32_contents", values=[1, 2, 3]), raw=[RAW]),
        "one raw, one typed":
            infer(A, tensor("INPUT1", (1, 16), "INT32", "int_contents",
                            range(16)), model="simple", raw=[PAIR]),
        "INT8 out of range":
            infer(tensor(datatype="INT8", field="int_contents",
                         values=[1, 300, 2]), model="identity_int8"),
        "UINT16 out of range":
            infer(tensor(datatype="UINT16", field="uint_contents",
                         values=[1, 70000, 2]), model="identity_uint16"),
}.items():
    add(f"infer with {name}", "ModelInfer", request)
shared = tensor()
put(shared.parameters, "shared_memory_region", "absent")
put(shared.parameters, "shared_memory_byte_size", 12)
add("infer with an absent region", "ModelInfer", infer(shared))

# ---- shared memory, settings ----
for name in ("", "absent"):
    add(f"regions '{name}'", "SystemSharedMemoryStatus",
        pb.SystemSharedMemoryStatusRequest(name=name))
    add(f"cuda regions '{name}'", "CudaSharedMemoryStatus",
        pb.CudaSharedMemoryStatusRequest(name=name))
    add(f"unregister '{name}'", "SystemSharedMemoryUnregister",
        pb.SystemSharedMemoryUnregisterRequest(name=name))
    add(f"unregister cuda '{name}'", "CudaSharedMemoryUnregister",
        pb.CudaSharedMemoryUnregisterRequest(name=name))
add("register what is not there", "SystemSharedMemoryRegister",
    pb.SystemSharedMemoryRegisterRequest(name="a", key="/millrace_absent",
                                         byte_size=16))
add("log settings", "LogSettings", pb.LogSettingsRequest())
for key, kind, value in (("log_verbose_level", "uint32_param", 1),
                         ("log_info", "bool_param", True),
                         ("log_info", "string_param", "a"),
                         ("log_format", "string_param", "x"),
                         ("log_format", "string_param", "default"),
                         ("log_file", "string_param", "/tmp/x"),
                         ("log_verbose_level", "string_param", "1"),
                         ("log_nothing", "bool_param", True)):
    settings = pb.LogSettingsRequest()
    setattr(settings.settings[key], kind, value)
    add(f"log settings {key} {value!r}", "LogSettings", settings)
quiet = pb.LogSettingsRequest()
quiet.settings["log_verbose_level"].uint32_param = 0
add("log settings as they were", "LogSettings", quiet)
add("trace settings", "TraceSetting", pb.TraceSettingRequest())

# ---- repository ----
add("index", "RepositoryIndex", pb.RepositoryIndexRequest())
add("index of what is ready", "RepositoryIndex",
    pb.RepositoryIndexRequest(ready=True))
add("load an absent model", "RepositoryModelLoad",
    pb.RepositoryModelLoadRequest(model_name="absent"))
add("load what is loaded", "RepositoryModelLoad",
    pb.RepositoryModelLoadRequest(model_name="simple"))
wrong = pb.RepositoryModelLoadRequest(model_name="simple")
wrong.parameters["config"].string_param = "{"
add("load with a wrong config", "RepositoryModelLoad", wrong)
add("unload", "RepositoryModelUnload",
    pb.RepositoryModelUnloadRequest(model_name="simple"))
add("infer, unloaded", "ModelInfer",
    infer(A, B, model="simple", raw=[PAIR, PAIR]))
add("unload again", "RepositoryModelUnload",
    pb.RepositoryModelUnloadRequest(model_name="simple"))
add("load again", "RepositoryModelLoad",
    pb.RepositoryModelLoadRequest(model_name="simple"))
add("infer again", "ModelInfer", infer(A, B, model="simple", raw=[PAIR, PAIR]))

"""Runs a handler that was written for TorchServe:

    external:
      command: [python3, -m, millrace_torchserve, handler.py]

The file has a class with initialize(context) and handle(data, context), or
preprocess, inference and postprocess (TorchServe's BaseHandler need not be
there), or a function handle(data, context); "handler.py:work" names another
function. As with TorchServe, a function is called once with None for data
before the first request. `data` is a list with one dict for each item; what is
returned is a list of as many items: dicts and lists become JSON, str and bytes
are sent as they are.

In the folder of an archive, its manifest and its YAML file (where the
interpreter has PyYAML) are the context's.
"""
import importlib
import importlib.util
import inspect
import json
import os
import socket
import sys
import time
import types

import numpy as np

import millrace_handler


class Metric:
    """What add_metric_to_cache gives: one name, unit and list of dimensions."""

    def __init__(self, metrics, name, unit, dimension_names):
        self.metrics, self.metric_name, self.unit = metrics, name, unit
        self.dimension_names = dimension_names or []

    def add_or_update(self, value, dimension_values=(), request_id=None):
        self.metrics.write(self.metric_name, value, self.unit, list(
            zip(self.dimension_names, dimension_values)))


class Metrics:
    """Each value that a handler tells is a line in TorchServe's format,
    Name.Unit:value|#Dimension:..|#hostname:..,timestamp:.., of `file` or, without
    one, of the server's log."""
    UNITS = {"ms": "Milliseconds", "s": "Seconds", "percent": "Percent",
             "count": "Count", "MB": "Megabytes", "GB": "Gigabytes",
             "kB": "Kilobytes", "B": "Bytes", "": "unit", None: "unit"}

    def __init__(self, model, file=None):
        self.model, self.cache = model, {}
        self.file = file

    def write(self, name, value, unit, dimensions):
        if not isinstance(value, (int, float)):
            raise ValueError(f"the metric {name} is {value!r}, no number")
        named = ",".join(f"{key}:{of}" for key, of in dimensions)
        now = time.time()
        line = (f"{name}.{self.UNITS.get(unit, unit)}:{value}|#{named}|#hostname:"
                f"{socket.gethostname()},timestamp:{int(now)}")
        if self.file is None:
            print(line, flush=True)
            return
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now))
        # By its name each time: the server may have put another one there.
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(f"{stamp},{int(now * 1000) % 1000:03d} - {line}\n")

    def of_model(self, name, value, unit, dimensions):
        pairs = [(d.name, d.value) for d in dimensions or []]
        for key, of in (("ModelName", self.model), ("Level", "Model")):
            if key not in dict(pairs):
                pairs.append((key, of))
        self.write(name, value, unit, pairs)

    def add_metric(self, name, value, unit="", idx=None, dimensions=(),
                   metric_type=None):
        self.of_model(name, value, unit, dimensions)

    def add_counter(self, name, value, idx=None, dimensions=()):
        if value < 0:
            raise ValueError(f"the counter {name} cannot become smaller")
        self.of_model(name, value, "count", dimensions)

    def add_time(self, name, value, idx=None, unit="ms", dimensions=(),
                 metric_type=None):
        self.of_model(name, value, unit, dimensions)

    def add_size(self, name, value, idx=None, unit="MB", dimensions=(),
                 metric_type=None):
        self.of_model(name, value, unit, dimensions)

    def add_percent(self, name, value, idx=None, dimensions=(),
                    metric_type=None):
        self.of_model(name, value, "percent", dimensions)

    def add_error(self, name, value, dimensions=()):
        self.write(name, value, "", [(d.name, d.value) for d in dimensions] +
                   [("Level", "Error")])

    def add_metric_to_cache(self, metric_name, unit, dimension_names=(),
                            metric_type=None):
        self.cache[metric_name] = Metric(self, metric_name, unit,
                                         list(dimension_names))
        return self.cache[metric_name]

    def get_metric(self, metric_name, metric_type=None):
        return self.cache[metric_name]


def manifest_of(file, model_name):
    """That of the archive whose folder this is, else one that is made up."""
    try:
        with open("MAR-INF/MANIFEST.json", encoding="utf-8") as text:
            return json.load(text)
    except FileNotFoundError:
        return {"model": {
            "modelName": model_name,
            "modelVersion": os.environ["MILLRACE_VERSION"],
            "handler": os.path.basename(file), "serializedFile": next(
                (n for n in sorted(os.listdir("."))
                 if n.endswith((".pt", ".pt2", ".pth", ".onnx"))), "")}}


def yaml_of(manifest):
    name = manifest["model"].get("configFile")
    if not name:
        return {}
    try:
        import yaml
    except ImportError:
        print(f"{name} is not read: this interpreter has no PyYAML", flush=True)
        return {}
    with open(name, encoding="utf-8") as text:
        return yaml.safe_load(text) or {}


class Headers(dict):
    """Names are in lower case, and may be asked for in any."""

    def get(self, name, default=None):
        return super().get(name.lower(), default)


class TorchServeContext:
    def __init__(self, file, metrics_file=None):
        self.model_name = os.environ["MILLRACE_MODEL"]
        self.manifest = manifest_of(file, self.model_name)
        self.system_properties = {"model_dir": os.getcwd(), "gpu_id": None,
                                  "batch_size": 1, "server_name": "MMS",
                                  "server_version": "0.12.0"}
        self.model_yaml_config = yaml_of(self.manifest)
        self.metrics = Metrics(self.model_name, metrics_file)
        self.begin(Headers())
        self.request_ids = {0: "0"}

    def get_request_id(self, idx=0):
        return str(idx)

    def get_request_header(self, idx, key):
        return self.headers[idx].get(key)

    def get_all_request_header(self, idx):
        return self.headers[idx]

    def send_part(self, answers):
        """What TorchServe calls an intermediate response."""
        if len(answers) != 1:
            raise ValueError("an intermediate response is a list of 1 answer")
        self.millrace.part({"output": np.frombuffer(
            encoded(answers[0]), np.uint8)})

    def set_response_content_type(self, idx, value):
        self.content_type = value

    def set_response_status(self, code=200, phrase="", idx=0):
        self.status = (int(code), phrase)

    def get_response_status(self, idx):
        return self.status

    def set_response_header(self, idx, key, value):
        self.response_headers[key] = str(value)

    def get_response_headers(self, idx):
        return self.response_headers

    def begin(self, headers):
        """A request: what was set for the one before it is forgotten."""
        self.headers = [headers]
        self.content_type = None
        self.status = (200, "")
        self.response_headers = {}

    def http_hints(self):
        """What handlers/external/http_hints.h reads."""
        hints = {}
        if self.status[0] != 200:
            hints["status"] = self.status[0]
        if self.response_headers:
            hints["headers"] = self.response_headers
        return hints


def encoded(answer):
    if isinstance(answer, str):
        return answer.encode()
    if isinstance(answer, (bytes, bytearray)):
        return bytes(answer)
    return json.dumps(answer, default=lambda v: v.tolist()).encode()


def send_intermediate_predict_response(ret, req_id_map, message, code,
                                       context=None):
    """In place of TorchServe's function of that name."""
    context.send_part(ret)


def offer_intermediate_responses():
    """Handlers import that function of one of two modules of the package ts: of
    its own where it is installed, else of ones that are made up."""
    word = send_intermediate_predict_response.__name__
    if not any(word in open(name, encoding="utf-8", errors="replace").read()
               for name in os.listdir(".") if name.endswith(".py")):
        return  # the package is large
    for name in ("ts.protocol.otf_message_handler", "ts.handler_utils.utils"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                module = sys.modules.setdefault(
                    ".".join(parts[:end]), types.ModuleType(parts[end - 1]))
        setattr(module, word, send_intermediate_predict_response)


def entry_of(path):
    """The function handle(data, context) of a file, and its initialize."""
    path, _, function = path.partition(":")
    if not path.endswith(".py"):
        path += ".py"
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    offer_intermediate_responses()
    spec = importlib.util.spec_from_file_location("handler", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["handler"] = module  # as an import would: pickles look there
    spec.loader.exec_module(module)
    if function and not callable(getattr(module, function, None)):
        raise SystemExit(f"{path} has no function {function}(data, context)")
    entry = getattr(module, function or "handle", None)
    if entry is not None:
        # TorchServe lets a function prepare itself so.
        return entry, getattr(module, "initialize",
                              lambda context: entry(None, context))
    classes = [c for _, c in inspect.getmembers(module, inspect.isclass)
               if c.__module__ == "handler" and hasattr(c, "initialize")]
    if len(classes) != 1:
        raise SystemExit(f"{path} has {len(classes)} classes with initialize; "
                         "one is wanted, or a function handle(data, context)")
    service = classes[0]()
    if hasattr(service, "handle"):
        return service.handle, service.initialize

    def handle(data, context):
        return service.postprocess(
            service.inference(service.preprocess(data)))
    return handle, service.initialize


class Adapter(millrace_handler.Handler):
    # Of KServe v2, by numpy's names.
    DATATYPES = {"bool": "BOOL", "float16": "FP16", "float32": "FP32",
                 "float64": "FP64", **{
                     f"{kind}{bits}": f"{kind.upper()}{bits}"
                     for kind in ("int", "uint") for bits in (8, 16, 32, 64)}}

    def __init__(self, path, metrics_file=None):
        self.context = TorchServeContext(path.partition(":")[0], metrics_file)
        self.entry, self.start = entry_of(path)

    def initialize(self, context):
        self.context.millrace = context  # context.millrace.call(model, inputs)
        if self.start is not None:
            self.start(self.context)

    def handle(self, inputs, context):
        is_task = self.is_task = context.parameters.get("task", False)
        explain = context.parameters.get("explain", False)
        headers = Headers(context.parameters.get("headers", {}))
        # As TorchServe's BaseHandler asks for them.
        for name in ("explain", "describe"):
            headers.pop(name, None)
            if context.parameters.get(name, False):
                headers[name] = "True"
        self.context.begin(headers)
        envelope = context.parameters.get("envelope")
        if envelope is not None:
            body = json.loads(bytes(inputs["body"]))
            return self.encoded(
                (self.instances if envelope == "instances" else
                 self.tensors)(body, explain))
        kinds = context.parameters.get("content_types") or [None] * len(inputs)
        item = {}
        for (name, array), kind in zip(inputs.items(), kinds):
            value = array.tobytes() if is_task else array
            if kind == "application/json":
                value = json.loads(value)
            item["body" if name == "data" and kind == "application/json"
                 else name] = value
        answer, = self.answers_to([item])
        if isinstance(answer, dict) and not is_task and answer and all(
                isinstance(v, np.ndarray) for v in answer.values()):
            return answer  # tensors by name
        return self.encoded(answer)

    def answers_to(self, items):
        answers = self.entry(items, self.context)
        if not isinstance(answers, (list, tuple)) or \
                len(answers) != len(items):
            raise ValueError(f"the handler must return a list of {len(items)} "
                             "answers, one for each item")
        return list(answers)

    def instances(self, body, explain):
        """KServe v1: each instance is an item."""
        items = body.get("instances") if isinstance(body, dict) else None
        if not isinstance(items, list) or not items:
            raise ValueError("the body must be a JSON object with a list of "
                             "instances")
        self.context.headers *= len(items)
        return {"explanations" if explain else "predictions":
                self.answers_to(items)}

    def tensors(self, body, explain):
        """KServe v2: each input is an item."""
        inputs = body.get("inputs") if isinstance(body, dict) else None
        if not isinstance(inputs, list) or not inputs or not all(
                isinstance(i, dict) and "data" in i for i in inputs):
            raise ValueError("the body must be a JSON object with a list of "
                             "inputs, each with data")
        self.context.headers *= len(inputs)
        outputs = []
        for item, answer in zip(inputs, self.answers_to(inputs)):
            array = np.asarray(answer).reshape(-1)
            kind = self.DATATYPES.get(array.dtype.name, "BYTES")
            outputs.append({"name": item.get("name", ""), "datatype": kind,
                            "shape": list(array.shape),
                            "data": array.tolist()})
        answer = {"id": body["id"]} if "id" in body else {}
        model = self.context.manifest["model"]
        return {**answer, "model_name": self.context.model_name,
                "model_version": model.get("modelVersion", ""),
                "outputs": outputs}

    def encoded(self, answer):
        name = self.context.content_type or "output"
        answers = {name: np.frombuffer(encoded(answer), np.uint8)}
        hints = self.context.http_hints()
        if hints and self.is_task:
            answers["millrace.http"] = np.frombuffer(encoded(hints), np.uint8)
        return answers


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit("usage: millrace_torchserve HANDLER.py [METRICS_FILE]")
    millrace_handler.serve(Adapter(*sys.argv[1:]))

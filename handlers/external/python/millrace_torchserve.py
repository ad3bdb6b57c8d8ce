"""Runs a handler that was written for TorchServe:

    external:
      command: [python3, -m, millrace_torchserve, handler.py]

The file has a class with initialize(context) and handle(data, context), or
preprocess, inference and postprocess (TorchServe's BaseHandler need not be
there), or a function handle(data, context). `data` is a list with one dict for
each item; what is returned is a list of as many items: dicts and lists become
JSON, str and bytes are sent as they are.
"""
import importlib.util
import inspect
import json
import os
import sys

import numpy as np

import millrace_handler


class Metrics:
    """Names of TorchServe's metrics that handlers call; nothing is counted."""

    def __getattr__(self, _):
        return lambda *args, **kwargs: None


class TorchServeContext:
    def __init__(self, path):
        self.model_name = os.environ["MILLRACE_MODEL"]
        self.manifest = {"model": {
            "modelName": self.model_name,
            "modelVersion": os.environ["MILLRACE_VERSION"],
            "handler": os.path.basename(path), "serializedFile": next(
                (n for n in sorted(os.listdir("."))
                 if n.endswith((".pt", ".pt2", ".pth", ".onnx"))), "")}}
        self.system_properties = {"model_dir": os.getcwd(), "gpu_id": None,
                                  "batch_size": 1, "server_name": "MMS",
                                  "server_version": "0.12.0"}
        self.model_yaml_config, self.metrics = {}, Metrics()
        self.headers = [{}]

    def get_request_id(self, idx=0):
        return str(idx)

    def get_request_header(self, idx, key):
        return self.headers[idx].get(key)

    def get_all_request_header(self, idx):
        return self.headers[idx]

    def set_response_content_type(self, idx, value):
        self.content_type = value

    def set_response_header(self, idx, key, value):
        """Headers of answers are the server's."""


def entry_of(path):
    """The function handle(data, context) of a file, and its initialize."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("handler", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if hasattr(module, "handle"):
        return module.handle, getattr(module, "initialize", None)
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
    def __init__(self, path):
        self.context = TorchServeContext(path)
        self.entry, self.start = entry_of(path)

    def initialize(self, context):
        self.context.millrace = context  # context.millrace.call(model, inputs)
        if self.start is not None:
            self.start(self.context)

    def handle(self, inputs, context):
        self.context.content_type = None
        is_task = context.parameters.get("task", False)
        types = context.parameters.get("content_types") or [None] * len(inputs)
        item = {}
        for (name, array), kind in zip(inputs.items(), types):
            value = array.tobytes() if is_task else array
            if kind == "application/json":
                value = json.loads(value)
            item["body" if name == "data" and kind == "application/json"
                 else name] = value
        answers = self.entry([item], self.context)
        if not isinstance(answers, (list, tuple)) or len(answers) != 1:
            raise ValueError("the handler must return a list of 1 answer, one "
                             "for each item")
        answer = answers[0]
        if isinstance(answer, dict) and not is_task and answer and all(
                isinstance(v, np.ndarray) for v in answer.values()):
            return answer  # tensors by name
        if isinstance(answer, str):
            answer = answer.encode()
        elif not isinstance(answer, (bytes, bytearray)):
            answer = json.dumps(answer, default=lambda v: v.tolist()).encode()
        name = self.context.content_type or "output"
        return {name: np.frombuffer(bytes(answer), np.uint8)}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: millrace_torchserve HANDLER.py")
    millrace_handler.serve(Adapter(sys.argv[1]))

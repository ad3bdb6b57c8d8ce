"""Base of an external handler: the standard library and numpy alone.

    class Twice(millrace_handler.Handler):
        inputs, outputs = {"x": ("FP32", [-1])}, {"y": ("FP32", [-1])}

        def handle(self, inputs, context):
            return {"y": 2 * inputs["x"]}

    millrace_handler.serve(Twice())
"""
import json
import os

import millrace_wire as wire


class Handler:
    inputs, outputs = {}, {}  # name: (datatype, shape), -1: any size. None: any.

    def initialize(self, context):
        """Called once, before the first request."""

    def handle(self, inputs, context):
        """Arrays by name in and out; those of BYTES hold bytes objects."""
        raise NotImplementedError


class Context(wire.Connection):
    """The request's `parameters`, and what else the server offers."""
    model, version = map(os.environ.get, ("MILLRACE_MODEL", "MILLRACE_VERSION"))
    id, parameters = 0, {}

    def call(self, model, inputs, outputs=(), version=""):
        """Arrays that another model gives for these: of `outputs`, or of all."""
        self.send(kind=wire.CALL, id=self.id, tensors=self.tensors(inputs),
                  outputs=outputs, model=model, version=version)
        result = next(self.messages)
        if result["error"]:
            raise RuntimeError(result["error"][0].decode())
        return self.arrays(result)

    def part(self, outputs):
        """Sends arrays before the answer."""
        self.send(kind=wire.PART, id=self.id, tensors=self.tensors(outputs))


def serve(handler):
    """Answers requests, one at a time, until the server ends the process."""
    context = Context()
    handler.initialize(context)
    context.send_ready(handler.inputs, handler.outputs)
    for request in context.messages:
        context.id = request["id"]
        try:
            context.parameters = json.loads(b"".join(request["parameters"]) or "{}")
            outputs = handler.handle(context.arrays(request), context)
            context.respond(tensors=context.tensors(outputs, request))
        except Exception as error:  # is the answer to this request alone
            context.respond(error=wire.text_of(error))

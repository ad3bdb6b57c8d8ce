"""Base of an external handler: standard library and numpy alone.

    class Twice(millrace_handler.Handler):
        inputs, outputs = {"x": ("FP32", [-1])}, {"y": ("FP32", [-1])}
        def handle(self, inputs, context):
            return {"y": 2 * inputs["x"]}
    millrace_handler.serve(Twice())
"""
import json, mmap, os, socket, struct  # noqa: E401
import numpy as np
TYPES = {"BOOL": "?", "FP16": "f2", "FP32": "f4", "FP64": "f8", **{
    f"{k}INT{8 * n}": f"{'u' if k else 'i'}{n}" for k in ("", "U") for n in (1, 2, 4, 8)}}
NAMES = {np.dtype(code): name for name, code in TYPES.items()}
READY, REQUEST, RESPONSE, CALL, RESULT, PART = 1, 2, 3, 4, 5, 6
class Handler:
    inputs, outputs = {}, {}  # name: (datatype, shape); none: any
    def initialize(self, context): """Once, before the first request."""
    def handle(self, inputs, context): """Arrays by name in, arrays by name out."""
def varint(bytes_, at):  # what protocol buffers write numbers as
    value = shift = 0
    while True:
        byte, at = bytes_[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128: return (value if value < 1 << 63 else value - (1 << 64)), at
        shift += 7
def number(value):
    out, value = bytearray(), value & (1 << 64) - 1
    while value > 127: out.append(value & 127 | 128); value >>= 7
    return bytes(out) + bytes([value])
def field(key, value):
    if isinstance(value, int): return number(key << 3) + number(value)
    value = value.encode() if isinstance(value, str) else bytes(value)
    return number(key << 3 | 2) + number(len(value)) + value
def fields(bytes_):
    found, at = {}, 0
    while at < len(bytes_):
        key, at = varint(bytes_, at)
        value, at = varint(bytes_, at)
        if key & 7: value, at = bytes_[at:at + value], at + value
        found.setdefault(key >> 3, []).append(value)
    return found
class Context:
    """`parameters` of the request; `call` asks another model of the server, `part` sends arrays before the answer."""
    def __init__(self):
        self.model, self.version = os.environ["MILLRACE_MODEL"], os.environ["MILLRACE_VERSION"]
        self.socket, self.memory = socket.socket(fileno=3), mmap.mmap(4, 0)
        self.parameters, self.calls, self.space, self.request = {}, 0, (0, 0), 0
    def call(self, model, inputs, outputs=(), version=""):
        self.calls += 1
        self.send(field(1, CALL) + field(2, self.calls) + field(8, model) + field(9, version) + b"".join(
            field(3, self.pack(n, a)) for n, a in inputs.items()) + b"".join(field(5, n) for n in outputs))
        answer = fields(self.receive())
        if 6 in answer: raise RuntimeError(bytes(answer[6][0]).decode())
        return self.arrays(answer)
    def part(self, outputs):
        self.send(field(1, PART) + field(2, self.request) + b"".join(field(3, self.pack(n, a)) for n, a in outputs.items()))
    def exactly(self, size):
        data = bytearray(size); view = memoryview(data)
        while view: view = view[self.socket.recv_into(view) or os._exit(0):]
        return data
    def receive(self): return self.exactly(struct.unpack("<I", self.exactly(4))[0])
    def send(self, message): self.socket.sendall(struct.pack("<I", len(message)) + message)
    def arrays(self, message):
        out = {}
        for tensor in map(fields, message.get(3, [])):
            shape, packed = [], b"".join(bytes(s) for s in tensor.get(3, []))
            while packed: size, at = varint(packed, 0); shape.append(size); packed = packed[at:]
            begin, size = tensor.get(5, [0])[0], tensor.get(6, [0])[0]
            data = memoryview(self.memory)[begin:begin + size] if size else tensor.get(4, [b""])[0]
            out[bytes(tensor[1][0]).decode()] = np.frombuffer(data, TYPES[bytes(tensor[2][0]).decode()]).reshape(shape)
        return out
    def pack(self, name, array, shared=False):
        array = np.asarray(array); data = array.tobytes(); begin, left = self.space
        head = field(1, name) + field(2, NAMES[array.dtype]) + field(3, b"".join(map(number, array.shape)))
        if not shared or not 16384 < len(data) <= left: return head + field(4, data)
        self.memory[begin:begin + len(data)] = data; used = -len(data) % 64 + len(data)
        self.space = begin + used, left - used
        return head + field(5, begin) + field(6, len(data))
def ports(key, tensors):
    return b"".join(field(key, field(1, n) + field(2, t) + field(3, b"".join(map(number, s)))) for n, (t, s) in tensors.items())
def serve(handler):
    context = Context()
    handler.initialize(context)
    context.send(field(1, READY) + ports(4, handler.inputs) + ports(3, handler.outputs))
    while True:
        message = fields(context.receive())
        context.space = message.get(10, [0])[0], message.get(11, [0])[0]
        context.request = message[2][0]
        context.parameters = json.loads(bytes(message[7][0])) if message.get(7) else {}
        try:
            wanted = {bytes(n).decode() for n in message.get(5, [])}
            reply = b"".join(field(3, context.pack(n, a, True)) for n, a in handler.handle(
                context.arrays(message), context).items() if not wanted or n in wanted)
        except Exception as error:  # of this request alone
            reply = field(6, f"{type(error).__name__}: {error}")
        context.send(field(1, RESPONSE) + field(2, message[2][0]) + reply)

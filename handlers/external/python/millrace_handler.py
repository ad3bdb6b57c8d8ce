"""Base of an external handler: standard library and numpy alone. A tensor of BYTES is an array of bytes objects.

    class Twice(millrace_handler.Handler):
        inputs, outputs = {"x": ("FP32", [-1])}, {"y": ("FP32", [-1])}
        def handle(self, inputs, context):
            return {"y": 2 * inputs["x"]}
    millrace_handler.serve(Twice())
"""
import collections, io, itertools, json, mmap, os, socket, struct  # noqa: E401
import numpy as np
READY, REQUEST, RESPONSE, CALL, RESULT, PART = range(1, 7)  # of handler.proto; a message is {field: [values]}
class Handler:
    inputs, outputs = {}, {}  # name: (datatype, shape); none: any
    def initialize(self, context): """Once, before the first request."""
    def handle(self, inputs, context): """Arrays by name in, arrays by name out."""
def number(value):  # as protocol buffers write it
    return bytes([value]) if 0 <= value < 128 else bytes([value & 127 | 128]) + number(value >> 7 & (1 << 57) - 1)
def read_number(stream):
    byte = stream.read(1)[0]
    return byte if byte < 128 else byte & 127 | read_number(stream) << 7
def encoded(value): return value if isinstance(value, bytes) else str(value).encode()
def packed(message):
    return b"".join(number(key << 3) + number(v) if isinstance(v, int) else number(key << 3 | 2) + number(
        len(data := encoded(v))) + data for key, values in message.items() for v in values)
def unpacked(data):
    message, stream = collections.defaultdict(list), io.BytesIO(data)
    while stream.tell() < len(data):
        key, value = read_number(stream), read_number(stream)
        message[key >> 3].append(stream.read(value) if key & 7 else value)
    return message
def framed(data): return struct.pack("<I", len(data)) + data  # messages, and the elements of BYTES
def frames(stream):
    while size := stream.read(4): yield stream.read(*struct.unpack("<I", size))
def head(name, datatype, shape): return {1: [name], 2: [datatype], 3: [b"".join(map(number, shape))]}
class Context:
    """`parameters` of the request; `call` asks another model of the server, `part` sends arrays before the answer."""
    def __init__(self):
        self.model, self.version = os.environ["MILLRACE_MODEL"], os.environ["MILLRACE_VERSION"]
        self.socket, self.memory, self.calls = socket.socket(fileno=3), mmap.mmap(4, 0), itertools.count(1)
        self.messages, self.parameters = map(unpacked, frames(self.socket.makefile("rb"))), {}
    def call(self, model, inputs, outputs=(), version=""):
        self.send({1: [CALL], 2: [next(self.calls)], 3: self.pack(inputs), 5: outputs, 8: [model], 9: [version]})
        answer = next(self.messages)
        if answer[6]: raise RuntimeError(answer[6][0].decode())
        return self.arrays(answer)
    def part(self, outputs): self.send({1: [PART], 2: [self.request], 3: self.pack(outputs)})
    def send(self, message): self.socket.sendall(framed(packed(message)))
    def arrays(self, message):
        arrays = {}
        for tensor in map(unpacked, message[3]):
            datatype, begin, size = tensor[2][0].decode(), sum(tensor[5]), sum(tensor[6])
            data = memoryview(self.memory)[begin:begin + size] if size else bytearray(b"".join(tensor[4]))
            array = np.array([*frames(io.BytesIO(data))], object) if datatype == "BYTES" else \
                np.frombuffer(data, datatype.lower().replace("fp", "float"))
            sizes = io.BytesIO(b"".join(tensor[3]))  # a byte below 128 ends each
            arrays[tensor[1][0].decode()] = array.reshape([read_number(sizes) for b in sizes.getvalue() if b < 128])
        return arrays
    def pack(self, arrays, begin=0, left=0):  # large ones to `begin` of the memory, where `left` bytes are free
        for name, array in zip(arrays, map(np.asarray, arrays.values())):
            is_text = array.dtype.kind in "OSU"
            data = b"".join(framed(encoded(v)) for v in array.flat) if is_text else \
                array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
            place = {4: [data]}
            if 16384 < len(data) <= left:
                self.memory[begin:begin + len(data)], place = data, {5: [begin], 6: [len(data)]}
                begin, left = begin + len(data), left - len(data)
            datatype = "BYTES" if is_text else array.dtype.name.upper().replace("FLOAT", "FP")
            yield packed({**head(name, datatype, array.shape), **place})
def serve(handler):
    context = Context()
    handler.initialize(context)
    inputs, outputs = ([packed(head(n, *of)) for n, of in p.items()] for p in (handler.inputs, handler.outputs))
    context.send({1: [READY], 3: outputs, 4: inputs})
    for request in context.messages:
        context.request, context.parameters = request[2][0], json.loads(b"".join(request[7]) or "{}")
        try:
            outputs = handler.handle(context.arrays(request), context)
            reply = {3: [*context.pack(outputs, sum(request[10]), sum(request[11]))]}
        except Exception as error:  # of this request alone
            reply = {6: [f"{type(error).__name__}: {error}"]}
        context.send({1: [RESPONSE], 2: [context.request], **reply})

"""What an external handler and the server send each other: messages of
handler.proto as {field: [values]}, whose tensors are arrays of numpy."""
import collections
import io
import mmap
import socket
import struct

import numpy as np

# The kinds of a message, its fields and those of a tensor, all counted from 1.
READY, REQUEST, RESPONSE, CALL, RESULT, PART = range(1, 7)
MESSAGE = ("kind", "id", "tensors", "inputs", "outputs", "error", "parameters",
           "model", "version", "space_offset", "space_bytes")
TENSOR = ("name", "datatype", "shape", "data", "shared_offset", "shared_bytes")
SHARED_FROM = 16384  # bytes; larger tensors go through the shared memory
MOST_BYTES = 64 << 20  # of a message
MOST_ERROR = 1 << 16  # characters


class Connection:
    """The socket to the server, and the memory that is shared with it."""

    def __init__(self):
        self.socket, self.memory = socket.socket(fileno=3), mmap.mmap(4, 0)
        stream = self.socket.makefile("rb")
        self.messages = (unpacked(data, MESSAGE) for data in frames(stream))

    def send(self, **message):
        """ValueError where it is too large: nothing of it was sent."""
        data = packed(message, MESSAGE)
        if len(data) > MOST_BYTES:
            raise ValueError(f"the message has {len(data)} bytes but may have "
                             f"{MOST_BYTES}; raise shared_memory of the handler, "
                             "or send less at once")
        self.socket.sendall(framed(data))

    def respond(self, **answer):
        self.send(kind=RESPONSE, id=self.id, **answer)

    def send_ready(self, inputs, outputs):
        """With {name: (datatype, shape)}, which become tensors without values."""
        self.send(kind=READY, inputs=[tensor_of(n, *of) for n, of in inputs.items()],
                  tensors=[tensor_of(n, *of) for n, of in outputs.items()])

    def arrays(self, message):
        """Its tensors by name; those in the memory are seen there, not copied."""
        return dict(array_of(unpacked(tensor, TENSOR), self.memory)
                    for tensor in message["tensors"])

    def tensors(self, arrays, request=None):
        """Of arrays by name. Large ones go to the memory that the request lends,
        while they fit."""
        begin = sum(request["space_offset"]) if request else 0
        left = sum(request["space_bytes"]) if request else 0
        tensors = []
        for name, array in arrays.items():
            datatype, shape, data = bytes_of(np.asarray(array))
            place = {"data": data}
            if SHARED_FROM < len(data) <= left:
                self.memory[begin:begin + len(data)] = data
                place = {"shared_offset": begin, "shared_bytes": len(data)}
                begin, left = begin + len(data), left - len(data)
            tensors.append(tensor_of(name, datatype, shape, **place))
        return tensors


def text_of(error):
    """Bytes of its text, which may be a client's: any characters, any length."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # its own fault
        text = type(error).__name__
    return text[:MOST_ERROR].encode(errors="backslashreplace")


def tensor_of(name, datatype, shape, **place):
    return packed({"name": name, "datatype": datatype,
                   "shape": b"".join(map(varint, shape)), **place}, TENSOR)


def bytes_of(array):
    """Datatype, shape and bytes of an array."""
    if array.dtype.kind in "OSU":
        data = b"".join(framed(encoded(element)) for element in array.flat)
        return "BYTES", array.shape, data
    datatype = array.dtype.name.upper().replace("FLOAT", "FP")
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return datatype, array.shape, array.tobytes()


def array_of(tensor, memory):
    """Name and array of a tensor."""
    begin, size = sum(tensor["shared_offset"]), sum(tensor["shared_bytes"])
    data = (memoryview(memory)[begin:begin + size] if size
            else bytearray(b"".join(tensor["data"])))
    datatype = tensor["datatype"][0].decode()
    if datatype == "BYTES":
        array = np.array([*frames(io.BytesIO(data))], object)
    elif datatype == "BF16":
        raise ValueError("numpy has no BF16")
    else:
        array = np.frombuffer(data, datatype.lower().replace("fp", "float"))
    sizes, shape = io.BytesIO(b"".join(tensor["shape"])), []
    while sizes.tell() < len(sizes.getvalue()):
        shape.append(read_varint(sizes))
    return tensor["name"][0].decode(), array.reshape(shape)


def packed(message, fields):
    """The bytes of {field: value or list of values}."""
    parts = []
    for field, values in message.items():
        key = fields.index(field) + 1 << 3
        for value in values if isinstance(values, (list, tuple)) else [values]:
            if isinstance(value, int):
                parts += varint(key), varint(value)
            else:
                data = encoded(value)
                parts += varint(key | 2), varint(len(data)), data
    return b"".join(parts)


def unpacked(data, fields):
    """{field: [values]} of a message's bytes; a field that they lack has none."""
    message, stream = collections.defaultdict(list), io.BytesIO(data)
    names = dict(enumerate(fields, 1))  # others are of a later version
    while stream.tell() < len(data):
        key, value = read_varint(stream), read_varint(stream)
        message[names.get(key >> 3)].append(stream.read(value) if key & 7 else value)
    return message


def varint(number):
    """As protocol buffers write an integer: 7 bits a byte, the lowest first."""
    if 0 <= number < 128:
        return bytes([number])
    return bytes([number & 127 | 128]) + varint(number >> 7 & (1 << 57) - 1)


def read_varint(stream):
    byte = stream.read(1)[0]
    return byte if byte < 128 else byte & 127 | read_varint(stream) << 7


def encoded(value):
    return value if isinstance(value, bytes) else str(value).encode()


def framed(data):
    """Behind its length, as messages and the elements of BYTES stand."""
    return struct.pack("<I", len(data)) + data


def frames(stream):
    while size := stream.read(4):
        yield stream.read(*struct.unpack("<I", size))

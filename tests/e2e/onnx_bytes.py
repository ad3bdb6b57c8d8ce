"""ONNX files by hand, for tests that need versions of a model that differ:
protocol buffers of onnx.proto, written field by field."""
import struct


def _varint(value):
    out = b""
    while value > 0x7f:
        out += bytes([value & 0x7f | 0x80])
        value >>= 7
    return out + bytes([value])


def _field(number, value):
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    if isinstance(value, str):
        value = value.encode()
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _port(name, sizes, kind=1):  # FLOAT
    dims = b"".join(
        _field(1, _field(2, size) if isinstance(size, str) else _field(1, size))
        for size in sizes)
    tensor = _field(1, kind) + _field(2, dims)
    return _field(1, name) + _field(2, _field(1, tensor))


def _node(op, inputs, output):
    return (b"".join(_field(1, each) for each in inputs)
            + _field(2, output) + _field(4, op))


def _model(graph):
    return _field(1, 8) + _field(7, graph) + _field(8, _field(2, 13))


def channel_means(side):
    """pixels FP32 [n, 3, side, side] -> the mean of each channel [n, 3]."""
    return _model(_field(1, _node("GlobalAveragePool", ["pixels"], "means"))
                  + _field(1, _node("Flatten", ["means"], "logits"))
                  + _field(2, "channel_means")
                  + _field(11, _port("pixels", ["n", 3, side, side]))
                  + _field(12, _port("logits", ["n", 3])))


def affine(scale, offset=0.0, size=3):
    """x FP32 [n, size] -> y = x * scale + offset."""
    def constant(name, value):
        return (_field(2, 1) + _field(8, name)
                + _field(9, struct.pack("<f", value)))

    graph = (_field(1, _node("Mul", ["x", "scale"], "scaled"))
             + _field(1, _node("Add", ["scaled", "offset"], "y"))
             + _field(2, "affine")
             + _field(5, constant("scale", scale))
             + _field(5, constant("offset", offset))
             + _field(11, _port("x", ["n", size]))
             + _field(12, _port("y", ["n", size])))
    return _model(graph)


def rows_of_table(rows, columns, location, kind=1):
    """ids INT64 [n] -> y [n, columns], rows of a table that is all of the file
    `location` beside the model. `kind`: 1 of FP32, 10 of FP16."""
    where = _field(1, "location") + _field(2, location)
    table = (_field(1, rows) + _field(1, columns) + _field(2, kind)
             + _field(8, "table") + _field(13, where) + _field(14, 1))
    graph = (_field(1, _node("Gather", ["table", "ids"], "y"))
             + _field(2, "rows_of_table")
             + _field(5, table)
             + _field(11, _port("ids", ["n"], kind=7))
             + _field(12, _port("y", ["n", columns], kind)))
    return _model(graph)


def sum_of_sequence():
    """INPUT, STATE_IN INT32 [n, 1], CORRID STRING [n, 1] -> OUTPUT and
    STATE_OUT, their sum, and ID, the CORRID."""
    one = ["n", 1]
    graph = (_field(1, _node("Add", ["INPUT", "STATE_IN"], "STATE_OUT"))
             + _field(1, _node("Identity", ["STATE_OUT"], "OUTPUT"))
             + _field(1, _node("Identity", ["CORRID"], "ID"))
             + _field(2, "sum_of_sequence")
             + _field(11, _port("INPUT", one, kind=6))
             + _field(11, _port("STATE_IN", one, kind=6))
             + _field(11, _port("CORRID", one, kind=8))
             + _field(12, _port("OUTPUT", one, kind=6))
             + _field(12, _port("STATE_OUT", one, kind=6))
             + _field(12, _port("ID", one, kind=8)))
    return _model(graph)

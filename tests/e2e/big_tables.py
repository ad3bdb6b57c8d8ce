"""Copies of small models whose tables have many more rows, all zeros but those
that the small ones have: sparse files, which take no room on the disk."""
import json
import struct
import zipfile
import zlib


def _zip64(*values):
    return struct.pack(f"<HH{len(values)}Q", 1, 8 * len(values), *values)


def write_sparse_zip(path, entries):
    """Stored entries of (name, bytes, size), in ZIP64; behind its bytes, an
    entry is a hole. The checksums of those with a hole are 0."""
    large = 0xffffffff
    directory = b""
    with open(path, "wb") as file:
        for name, data, size in entries:
            name = name.encode()
            crc = zlib.crc32(data) if size == len(data) else 0
            offset = file.tell()
            sizes = _zip64(size, size)
            pad = -(offset + 30 + len(name) + len(sizes) + 4) % 64
            extra = sizes + struct.pack("<HH", 0x4246, pad) + bytes(pad)
            file.write(struct.pack("<IHHHHHIIIHH", 0x04034b50, 45, 0, 0, 0, 0,
                                   crc, large, large, len(name), len(extra)))
            file.write(name + extra + data)
            file.seek(size - len(data), 1)
            extra = _zip64(size, size, offset)
            directory += struct.pack(
                "<IHHHHHHIIIHHHHHII", 0x02014b50, 45, 45, 0, 0, 0, 0, crc,
                large, large, len(name), len(extra), 0, 0, 0, 0, large)
            directory += name + extra
        begin = file.tell()
        file.write(directory)
        end = file.tell()
        count = len(entries)
        file.write(struct.pack("<IQHHIIQQQQ", 0x06064b50, 44, 45, 45, 0, 0,
                               count, count, len(directory), begin))
        file.write(struct.pack("<IIQI", 0x07064b50, 0, end, 1))
        file.write(struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, 0xffff, 0xffff,
                               large, large, 0))


def _with_rows(meta, rows):
    """The meta of a table with so many rows, and how many bytes it has."""
    columns = meta["sizes"][1]["as_int"]
    meta["sizes"][0]["as_int"] = rows
    return rows * columns * {7: 4, 6: 2, 1: 1}[meta["dtype"]]


def grow_pt2(source, path, tables, rows):
    """A copy of an export whose weights of these names have `rows` rows."""
    with zipfile.ZipFile(source) as small:
        data = {name: small.read(name) for name in small.namelist()}
    sizes = {name: len(value) for name, value in data.items()}
    root = next(iter(data)).split("/")[0]
    config_name = f"{root}/data/weights/model_weights_config.json"
    program_name = f"{root}/models/model.json"
    config = json.loads(data[config_name])
    program = json.loads(data[program_name])
    values = program["graph_module"]["graph"]["tensor_values"]
    for table in tables:
        entry = config["config"][table]
        file = f"{root}/data/weights/{entry['path_name']}"
        sizes[file] = _with_rows(entry["tensor_meta"], rows)
        prefix = "p_" if entry["is_param"] else "b_"
        _with_rows(values[prefix + table.replace(".", "_")], rows)
    for name, value in ((config_name, config), (program_name, program)):
        data[name] = json.dumps(value).encode()
        sizes[name] = len(data[name])
    write_sparse_zip(path, [(name, value, sizes[name])
                            for name, value in data.items()])

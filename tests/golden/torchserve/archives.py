"""The archives of the corpus as a model store: Python handlers on numpy for
TorchServe, ONNX with a built-in handler's name for Millrace.

    archives.py      writes linear.onnx anew; needs the package onnx
"""
import json
import pathlib
import zipfile

HERE = pathlib.Path(__file__).parent
HANDLER = """
import json
import numpy as np


class LinearHandler:
    def initialize(self, context):
        self.initialized = True

    def handle(self, data, context):
        answers = []
        for request in data:
            value = request.get("data")
            value = request.get("body") if value is None else value
            if isinstance(value, (bytes, bytearray)):
                try:
                    value = json.loads(bytes(value))
                except ValueError:
                    value = np.frombuffer(bytes(value), "<f4")
            elif isinstance(value, str):
                value = json.loads(value)
            answers.append((np.asarray(value, np.float32) * 2 + 1).tolist())
        return answers
"""


def manifest(name, version, kind, **fields):
    model = {"modelName": name, "modelVersion": version,
             "serializedFile": "linear.onnx",
             "handler": "handler.py" if kind == "python" else "base_handler",
             **fields}
    return json.dumps({"createdOn": "23/11/2026 22:54:20", "runtime": "python",
                       "model": {k: v for k, v in model.items() if v},
                       "archiverVersion": "0.12.0"}, indent=2)


def write(path, text, kind, **more):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        if kind == "python":
            archive.writestr("handler.py", HANDLER)
        archive.write(HERE / "linear.onnx", "linear.onnx")
        if text is not None:
            archive.writestr("MAR-INF/MANIFEST.json", text)
        for name, data in more.items():
            archive.writestr(name, data)


def write_store(root, kind):
    """kind: "python" (for TorchServe) or "onnx" (for Millrace)."""
    root = pathlib.Path(root)
    write(root / "linear.mar", manifest("linear", "1.0", kind), kind)
    write(root / "linear2.mar", manifest("linear", "2.0", kind), kind)
    write(root / "other.mar", manifest("other", "1.0", kind), kind)
    write(root / "nomanifest.mar", None, kind)
    write(root / "badmanifest.mar", "{", kind)
    write(root / "noname.mar", manifest("", "1.0", kind), kind)
    write(root / "gone.mar",
          manifest("gone", "1.0", kind, handler="absent.py"), kind)
    (root / "text.mar").write_text("no archive")


def main():
    from onnx import TensorProto, helper, numpy_helper
    import numpy as np
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 3])
             for n in ("x", "y")]
    numbers = [numpy_helper.from_array(np.array(v, np.float32), n)
               for n, v in (("two", 2), ("one", 1))]
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "two"], ["twice"]),
         helper.make_node("Add", ["twice", "one"], ["y"])], "linear",
        ports[:1], ports[1:], numbers)
    model = helper.make_model(graph,
                              opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    (HERE / "linear.onnx").write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()

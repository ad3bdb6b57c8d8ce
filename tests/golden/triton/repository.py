"""The models of the corpus as a repository: ONNX files for Millrace, Python for
Triton, the same config.pbtxt for both but for the backend.

    repository.py      writes models/*.onnx anew; needs the package onnx
"""
import pathlib
import shutil

from corpus import TYPES

MODELS = pathlib.Path(__file__).parent / "models"
INPUTS = ["INPUT0", "INPUT1"]
OUTPUTS = ["OUTPUT0", "OUTPUT1"]
IDENTITY = """
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceResponse([pb.Tensor(
            "OUTPUT0", pb.get_input_tensor_by_name(r, "INPUT0").as_numpy())])
            for r in requests]
"""
SIMPLE = """
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        replies = []
        for r in requests:
            a, b = (pb.get_input_tensor_by_name(r, n).as_numpy()
                    for n in ("INPUT0", "INPUT1"))
            replies.append(pb.InferenceResponse(
                [pb.Tensor("OUTPUT0", a + b), pb.Tensor("OUTPUT1", a - b)]))
        return replies
"""


def identity_of(datatype):
    return "identity" if datatype == "FP32" else f"identity_{datatype.lower()}"


def config(name, kind, datatype, inputs, outputs, dims, rows, more=""):
    how = 'backend: "python"' if kind == "python" else \
        'platform: "onnxruntime_onnx"'
    def tensors(names):
        return ", ".join(f'{{ name: "{n}" data_type: TYPE_{datatype} '
                         f"dims: [ {dims} ] }}" for n in names)
    return (f'name: "{name}"\n{how}\nmax_batch_size: {rows}\n'
            f"input [ {tensors(inputs)} ]\noutput [ {tensors(outputs)} ]\n"
            f"{more}")


def onnx_model(datatype, inputs, nodes, outputs, dim):
    from onnx import TensorProto, helper
    # TensorProto calls them FLOAT and DOUBLE.
    kind = {"FP32": TensorProto.FLOAT, "FP64": TensorProto.DOUBLE}.get(
        datatype) or getattr(TensorProto, datatype)
    def ports(names):
        return [helper.make_tensor_value_info(n, kind, ["batch", dim])
                for n in names]
    graph = helper.make_graph(
        [helper.make_node(op, ins, outs) for op, ins, outs in nodes], "corpus",
        ports(inputs), ports(outputs))
    model = helper.make_model(graph,
                              opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model.SerializeToString()


def write_repository(root, kind):
    """kind: "python" (for Triton) or "onnx" (for Millrace)."""
    def put(name, text, code):
        folder = pathlib.Path(root) / name / "1"
        folder.mkdir(parents=True)
        (folder.parent / "config.pbtxt").write_text(text)
        if kind == "python":
            (folder / "model.py").write_text(code)
        else:
            shutil.copy(MODELS / f"{name}.onnx", folder / "model.onnx")

    for datatype in TYPES:
        name = identity_of(datatype)
        put(name,
            config(name, kind, datatype, ["INPUT0"], ["OUTPUT0"], "-1", 64,
                   "dynamic_batching { }\n"), IDENTITY)
    put("simple", config("simple", kind, "INT32", INPUTS, OUTPUTS, "16", 8),
        SIMPLE)


def main():
    MODELS.mkdir(exist_ok=True)
    for datatype in TYPES:
        (MODELS / f"{identity_of(datatype)}.onnx").write_bytes(
            onnx_model(datatype, ["INPUT0"],
                       [("Identity", ["INPUT0"], ["OUTPUT0"])], ["OUTPUT0"],
                       "n"))
    (MODELS / "simple.onnx").write_bytes(
        onnx_model("INT32", INPUTS, [("Add", INPUTS, ["OUTPUT0"]),
                                     ("Sub", INPUTS, ["OUTPUT1"])], OUTPUTS,
                   16))


if __name__ == "__main__":
    main()

"""The models of lengths.sh that are not there yet, into the given folder."""
import pathlib
import sys
import warnings

import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from transformers import T5Config, T5EncoderModel


class Encoder(torch.nn.Module):
    """The first result alone, as a tensor."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask):
        return self.model(input_ids=ids, attention_mask=mask,
                          return_dict=False)[0]


def write_t5(path):
    """The sizes of t5-small, weights at random: only time is measured."""
    torch.manual_seed(0)
    model = T5EncoderModel(T5Config(d_model=512, d_kv=64, d_ff=2048,
                                    num_layers=6, num_heads=8)).eval()
    ids = torch.ones(2, 16, dtype=torch.int64)
    names = ["input_ids", "attention_mask", "y"]
    torch.onnx.export(
        Encoder(model), (ids, torch.ones_like(ids)), str(path),
        input_names=names[:2], output_names=names[2:], opset_version=17,
        dynamic_axes={name: {0: "batch", 1: "length"} for name in names},
        dynamo=False)


def main():
    warnings.filterwarnings("ignore")
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "minilm.ts.onnx").exists():
        sys.exit("run tests/bench/graph.sh --export --models minilm first")
    if not (folder / "t5_encoder.onnx").exists():
        write_t5(folder / "t5_encoder.onnx")
    for model, made in [("minilm.ts", "minilm.dynamic"),
                        ("t5_encoder", "t5_encoder.dynamic")]:
        if not (folder / f"{made}.onnx").exists():
            quantize_dynamic(folder / f"{model}.onnx", folder / f"{made}.onnx",
                             weight_type=QuantType.QInt8)


main()

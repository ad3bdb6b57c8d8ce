#!/usr/bin/env python3
"""Writes model.gguf into folders beside it that are named: the same encoder
under the names and keys that llama.cpp's converter gives them.

    python3 tests/data/encoders/make_gguf.py bert_embed nomic_embed

Made with gguf 0.19.0, numpy 2.
"""
import json
import pathlib
import sys

import gguf
import numpy
from safetensors.numpy import load_file

HERE = pathlib.Path(__file__).parent
ARCHITECTURES = {"bert": gguf.MODEL_ARCH.BERT,
                 "nomic_bert": gguf.MODEL_ARCH.NOMIC_BERT}
# "##x" loses its mark, other words get one, tokens in brackets stay.
PIECE = "\u2581"


def tokenizer(folder, out):
    root = json.loads((folder / "tokenizer.json").read_text())
    vocab = root["model"]["vocab"]
    tokens, kinds = [], []
    for token, _ in sorted(vocab.items(), key=lambda item: item[1]):
        special = token.startswith("[") and token.endswith("]")
        kinds.append(3 if special else 1)
        tokens.append(token if special else token[2:]
                      if token.startswith("##") else PIECE + token)
    out.add_tokenizer_model("bert")
    out.add_tokenizer_pre("default")
    out.add_token_list(tokens)
    out.add_token_types(kinds)
    out.add_unk_token_id(vocab["[UNK]"])
    out.add_sep_token_id(vocab["[SEP]"])
    out.add_pad_token_id(vocab["[PAD]"])
    out.add_bos_token_id(vocab["[CLS]"])


def write(folder):
    config = json.loads((folder / "config.json").read_text())
    arch = ARCHITECTURES[config["model_type"]]
    out = gguf.GGUFWriter(folder / "model.gguf", gguf.MODEL_ARCH_NAMES[arch])
    out.add_name(folder.name)
    layers = config["num_hidden_layers"]
    out.add_block_count(layers)
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_layer_norm_eps(config["layer_norm_eps"])
    out.add_causal_attention(False)
    out.add_pooling_type(gguf.PoolingType.MEAN)
    if "rope_parameters" in config:
        out.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    tokenizer(folder, out)
    names = gguf.get_tensor_name_map(arch, layers)
    for name, weight in load_file(folder / "model.safetensors").items():
        name = name.removeprefix("bert.")
        ours = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert ours is not None, name
        out.add_tensor(ours, weight.astype(numpy.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    (folder / "model.gguf").chmod(0o644)


def write_decoder(folder):
    """With what llama.cpp's converter says of texts that become vectors."""
    import make_tiny_hf_gguf as decoders
    keys, tensors = decoders.keys, decoders.tensors

    def more_keys(config, out):
        keys(config, out)
        out.add_pooling_type(gguf.PoolingType.LAST)
        out.add_add_eos_token(True)

    def whole_names(of):
        for name, weight in tensors(of):
            yield "model." + name.removeprefix("model."), weight

    decoders.keys, decoders.tensors = more_keys, whole_names
    decoders.write(folder)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    for each in sys.argv[1:]:
        kind = json.loads((HERE / each / "config.json").read_text())
        (write if kind["model_type"] in ARCHITECTURES else write_decoder)(
            HERE / each)

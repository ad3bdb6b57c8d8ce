#!/usr/bin/env python3
"""Writes model.gguf into the folders tests/data/hf_* that are named: the same
weights as the folder's safetensors, under the names and keys that the package
gguf knows, so that golden.json is true of both.

    python3 tests/data/make_tiny_hf_gguf.py hf_granite...

Made with gguf 0.19.0, numpy 2.
"""
import json
import pathlib
import struct
import sys

import gguf
import numpy

DATA = pathlib.Path(__file__).parent
ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA, "mistral": gguf.MODEL_ARCH.LLAMA,
    "granite": gguf.MODEL_ARCH.GRANITE, "smollm3": gguf.MODEL_ARCH.SMOLLM3,
    "olmo2": gguf.MODEL_ARCH.OLMO2, "phi3": gguf.MODEL_ARCH.PHI3,
    "starcoder2": gguf.MODEL_ARCH.STARCODER2, "gpt2": gguf.MODEL_ARCH.GPT2,
    "mixtral": gguf.MODEL_ARCH.LLAMA, "qwen2_moe": gguf.MODEL_ARCH.QWEN2MOE,
    "olmoe": gguf.MODEL_ARCH.OLMOE, "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
}
# Families whose pairs to rotate stand side by side in GGUF files.
PAIRS = {"llama", "mistral", "granite", "smollm3", "mixtral"}


def tensors(folder):
    data = (folder / "model.safetensors").read_bytes()
    size, = struct.unpack("<Q", data[:8])
    for name, about in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = about["data_offsets"]
        assert about["dtype"] == "F16", name
        yield name, numpy.frombuffer(
            data[8 + size + begin:8 + size + end],
            dtype=numpy.float16).reshape(about["shape"])


def paired(weight, heads):
    rows = weight.shape[0]
    return (weight.reshape(heads, 2, rows // heads // 2, *weight.shape[1:])
            .swapaxes(1, 2).reshape(weight.shape))


def tokenizer(folder, out):
    root = json.loads((folder / "tokenizer.json").read_text())
    vocab = root["model"]["vocab"]
    added = {t["id"]: t for t in root["added_tokens"]}
    names = {i: t for t, i in vocab.items()}
    names.update({i: t["content"] for i, t in added.items()})
    tokens = [names[i] for i in range(len(names))]
    kinds = [1 if i not in added else 3 if added[i]["special"] else 4
             for i in range(len(tokens))]
    out.add_token_list(tokens)
    if root["model"].get("byte_fallback"):
        # SentencePiece: scores instead of merges.
        golden = json.loads((DATA.parent / "golden" / "text" /
                             "sentence_pieces.json").read_text())
        scores = [c for c in golden["cases"] if c["gguf"]][0]["gguf"]["scores"]
        out.add_tokenizer_model("llama")
        out.add_token_scores(scores + [0.0] * (len(tokens) - len(scores)))
        out.add_token_types([6 if t.startswith("<0x") else k
                             for t, k in zip(tokens, kinds)])
        out.add_add_bos_token(False)
        out.add_eos_token_id(tokens.index("<|end|>"))
        return
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_types(kinds)
    out.add_token_merges([m if isinstance(m, str) else " ".join(m)
                          for m in root["model"]["merges"]])
    out.add_eos_token_id(tokens.index("<|end|>"))


def rope(config, head_dim, out):
    about = config.get("rope_parameters") or {}
    if "rope_theta" in about:
        out.add_rope_freq_base(about["rope_theta"])
    dims = int(head_dim * about.get("partial_rotary_factor", 1))
    if config["model_type"] != "gpt2":
        out.add_rope_dimension_count(dims)
    kind = about.get("rope_type")
    if kind in ("yarn", "longrope"):
        out.add_rope_scaling_orig_ctx_len(
            about["original_max_position_embeddings"])
    if kind == "yarn":
        out.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        out.add_rope_scaling_factor(about["factor"])
    if kind == "longrope":
        ratio = (config["max_position_embeddings"] /
                 about["original_max_position_embeddings"])
        out.add_rope_scaling_attn_factors(
            numpy.sqrt(1 + numpy.log(ratio) / numpy.log(
                about["original_max_position_embeddings"])))
        for name in ("long", "short"):
            out.add_tensor(f"rope_factors_{name}.weight", numpy.array(
                about[name + "_factor"], dtype=numpy.float32))


def keys(config, out):
    def of(*names, otherwise=None):
        for name in names:
            if config.get(name) is not None:
                return config[name]
        return otherwise

    hidden, heads = of("hidden_size", "n_embd"), of("num_attention_heads",
                                                    "n_head")
    head_dim = of("head_dim", otherwise=hidden // heads)
    out.add_block_count(of("num_hidden_layers", "n_layer"))
    out.add_context_length(of("max_position_embeddings", "n_positions"))
    out.add_embedding_length(hidden)
    out.add_feed_forward_length(of("intermediate_size", "n_inner",
                                   otherwise=4 * hidden))
    out.add_head_count(heads)
    out.add_head_count_kv(of("num_key_value_heads", otherwise=heads))
    if config.get("head_dim"):
        out.add_key_length(head_dim)
        out.add_value_length(head_dim)
    if config.get("rms_norm_eps"):
        out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    else:
        out.add_layer_norm_eps(of("norm_epsilon", "layer_norm_epsilon"))
    window = config.get("sliding_window")
    if window and config.get("use_sliding_window", True):
        out.add_sliding_window(window)
    if config["model_type"] == "granite":
        out.add_attention_scale(config["attention_multiplier"])
        out.add_embedding_scale(config["embedding_multiplier"])
        out.add_residual_scale(config["residual_multiplier"])
        out.add_logit_scale(config["logits_scaling"])
    experts = of("num_local_experts", "num_experts")
    if experts:
        out.add_expert_count(experts)
        out.add_expert_used_count(config["num_experts_per_tok"])
    if config.get("moe_intermediate_size"):
        out.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if config.get("shared_expert_intermediate_size"):
        out.add_expert_shared_feed_forward_length(
            config["shared_expert_intermediate_size"])
    rope(config, head_dim, out)


def write(folder):
    config = json.loads((folder / "config.json").read_text())
    kind = config["model_type"]
    arch = ARCHITECTURES[kind]
    out = gguf.GGUFWriter(folder / "model.gguf", gguf.MODEL_ARCH_NAMES[arch])
    out.add_name(folder.name)
    keys(config, out)
    tokenizer(folder, out)
    layers = config.get("num_hidden_layers") or config["n_layer"]
    names = gguf.get_tensor_name_map(arch, layers)
    experts = {}
    for name, weight in tensors(folder):
        if kind in PAIRS and "q_proj" in name:
            weight = paired(weight, config["num_attention_heads"])
        if kind in PAIRS and "k_proj" in name:
            weight = paired(weight, config["num_key_value_heads"])
        if kind == "gpt2" and ".h." in name and weight.ndim == 2:
            weight = weight.T
        if ".experts." in name:
            before, after = name.split(".experts.")
            number, after = after.split(".", 1)
            experts.setdefault(f"{before}.experts.{after}", {})[
                int(number)] = weight
            continue
        add(out, names, name, weight)
    for name, each in experts.items():
        add(out, names, name, numpy.stack([each[i] for i in sorted(each)]))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    (folder / "model.gguf").chmod(0o644)


def add(out, names, name, weight):
    # A layer without experts has llama's names.
    suffixes = (".weight", ".bias")
    ours = (names.get_name(name, try_suffixes=suffixes) or
            gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 9).get_name(
                name, try_suffixes=suffixes))
    assert ours is not None, name
    weight = numpy.ascontiguousarray(weight)
    out.add_tensor(ours, weight.astype(numpy.float32)
                   if weight.ndim == 1 or weight.shape[0] == 1 else weight)


if __name__ == "__main__":
    for each in sys.argv[1:]:
        write(DATA / each)

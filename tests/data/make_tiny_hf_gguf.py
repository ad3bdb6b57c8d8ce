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
    "ministral": gguf.MODEL_ARCH.LLAMA,
    "granite": gguf.MODEL_ARCH.GRANITE, "smollm3": gguf.MODEL_ARCH.SMOLLM3,
    "olmo2": gguf.MODEL_ARCH.OLMO2, "phi3": gguf.MODEL_ARCH.PHI3,
    "starcoder2": gguf.MODEL_ARCH.STARCODER2, "gpt2": gguf.MODEL_ARCH.GPT2,
    "mixtral": gguf.MODEL_ARCH.LLAMA, "qwen2_moe": gguf.MODEL_ARCH.QWEN2MOE,
    "olmoe": gguf.MODEL_ARCH.OLMOE, "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
    "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3,
    "gemma2": gguf.MODEL_ARCH.GEMMA2, "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
    "llama4_text": gguf.MODEL_ARCH.LLAMA4,
    "gpt_neox": gguf.MODEL_ARCH.GPTNEOX, "gpt_oss": gguf.MODEL_ARCH.GPT_OSS,
}
# Families whose pairs to rotate stand side by side in GGUF files.
PAIRS = {"llama", "mistral", "ministral", "granite", "smollm3", "mixtral"}


# BF16 stays bits of 16 until it is written.
DTYPES = {"F16": numpy.float16, "F32": numpy.float32, "BF16": numpy.uint16,
          "U8": numpy.uint8}


def tensors(folder):
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        size, = struct.unpack("<Q", data[:8])
        for name, about in json.loads(data[8:8 + size]).items():
            if name == "__metadata__":
                continue
            begin, end = about["data_offsets"]
            yield name, numpy.frombuffer(
                data[8 + size + begin:8 + size + end],
                dtype=DTYPES[about["dtype"]]).reshape(about["shape"])


def floats(weight):
    if weight.dtype != numpy.uint16:
        return weight.astype(numpy.float32)
    return (weight.astype(numpy.uint32) << 16).view(numpy.float32)


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
    out.add_tokenizer_pre("llama-bpe" if folder.name == "hf_llama" else "qwen2")
    if "<|bos|>" in tokens and folder.name == "hf_llama":
        out.add_bos_token_id(tokens.index("<|bos|>"))
        out.add_add_bos_token(True)
    out.add_token_types(kinds)
    out.add_token_merges([m if isinstance(m, str) else " ".join(m)
                          for m in root["model"]["merges"]])
    out.add_eos_token_id(tokens.index("<|end|>"))


def llama3_factors(about, head_dim):
    """What divides each pair's frequency (Llama 3.1)."""
    wave = 2 * numpy.pi * about["rope_theta"] ** (
        numpy.arange(0, head_dim, 2) / head_dim)
    low, high = about["low_freq_factor"], about["high_freq_factor"]
    turns = about["original_max_position_embeddings"] / wave
    smooth = numpy.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / about["factor"] + smooth)).astype(numpy.float32)


def rope(config, head_dim, out):
    about = config.get("rope_parameters") or {}
    if "sliding_attention" in about:  # the sliding base is the family's
        out.add_float32("gemma3.rope.freq_base_swa",
                        about["sliding_attention"]["rope_theta"])
        about = about["full_attention"]
    if "rope_theta" in about:
        out.add_rope_freq_base(about["rope_theta"])
    dims = int(head_dim * about.get("partial_rotary_factor", 1))
    if config["model_type"] != "gpt2":
        out.add_rope_dimension_count(dims)
    kind = about.get("rope_type")
    if kind in ("yarn", "longrope"):
        out.add_rope_scaling_orig_ctx_len(
            about["original_max_position_embeddings"])
    if kind == "linear":
        out.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        out.add_rope_scaling_factor(about["factor"])
    if kind == "llama3":
        out.add_tensor("rope_freqs.weight", llama3_factors(about, head_dim))
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


def llama4(config, out):
    out.add_expert_feed_forward_length(config["intermediate_size"])
    out.add_interleave_moe_layer_step(config["interleave_moe_layer_step"])
    # Keys of ours: llama.cpp knows the values of the published models.
    out.add_uint32("llama4.attention.chunk_size",
                   config["attention_chunk_size"])
    out.add_float32("llama4.attention.temperature_length",
                    config["floor_scale"])
    out.add_float32("llama4.attention.temperature_scale", config["attn_scale"])


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
    out.add_feed_forward_length(of("intermediate_size_mlp", "intermediate_size",
                                   "n_inner", otherwise=4 * hidden))
    out.add_head_count(heads)
    out.add_head_count_kv(of("num_key_value_heads", otherwise=heads))
    if config.get("head_dim"):
        out.add_key_length(head_dim)
        out.add_value_length(head_dim)
    if config.get("rms_norm_eps"):
        out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    else:
        out.add_layer_norm_eps(of("norm_epsilon", "layer_norm_epsilon",
                                  "layer_norm_eps"))
    window = config.get("sliding_window")
    if window and config.get("use_sliding_window", True):
        out.add_sliding_window(window)
    if config["model_type"] == "ministral":
        out.add_array("llama.attention.sliding_window_pattern",
                      [t == "sliding_attention" for t in config["layer_types"]])
    if config["model_type"] == "gpt_neox":
        out.add_parallel_residual(config["use_parallel_residual"])
    if config["model_type"] == "gpt_oss":
        out.add_expert_feed_forward_length(config["intermediate_size"])
    if config["model_type"] == "llama4_text":
        llama4(config, out)
    if config["model_type"] == "gemma2":
        out.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        out.add_final_logit_softcapping(config["final_logit_softcapping"])
    if config["model_type"].startswith("gemma"):
        # A key of ours: llama.cpp takes it from the model's size.
        out.add_float32(out.arch + ".attention.query_pre_attn_scalar",
                        config["query_pre_attn_scalar"])
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
    # Scales come before the blocks that they belong to.
    for name, weight in sorted(tensors(folder), key=lambda t: (
            not t[0].endswith("_scales"), t[0])):
        if kind in PAIRS and "q_proj" in name:
            weight = paired(weight, config["num_attention_heads"])
        if kind in PAIRS and "k_proj" in name:
            weight = paired(weight, config["num_key_value_heads"])
        if kind == "gpt2" and ".h." in name and weight.ndim == 2:
            weight = weight.T
        if "query_key_value" in name:
            heads = config["num_attention_heads"]
            weight = (weight.reshape(heads, 3, -1, *weight.shape[1:])
                      .swapaxes(0, 1).reshape(weight.shape))
        if kind.startswith("gemma") and "norm" in name:
            weight = floats(weight) + 1
        if name.endswith(".sinks"):
            name += ".weight"
        if kind == "llama4_text" and ".experts." in name:
            llama4_experts(out, name, weight)
            continue
        if kind == "gpt_oss" and ".experts." in name:
            gpt_oss_experts(out, name, weight, config)
            continue
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


def llama4_experts(out, name, weight):
    """Rows of inputs; gates are the first half of the outputs."""
    layer, part = name.split(".")[2], name.split(".")[-1]
    rows = weight.swapaxes(1, 2)
    half = rows.shape[1] // 2
    cuts = {"down": rows} if part == "down_proj" else {
        "gate": rows[:, :half], "up": rows[:, half:]}
    for which, cut in cuts.items():
        out.add_tensor(f"blk.{layer}.ffn_{which}_exps.weight",
                       numpy.ascontiguousarray(cut))


def gpt_oss_experts(out, name, weight, config):
    """Gates and ups apart; MXFP4 in blocks of a scale and 16 bytes, values i
    and i + 16 in byte i."""
    if name.endswith("_scales"):
        gpt_oss_experts.scales[name] = weight
        return
    layer, part = name.split(".")[2], name.split(".")[-1]
    both = part.startswith("gate_up_proj")
    rows = {"gate": slice(0, None, 2), "up": slice(1, None, 2)} if both else {
        "down": slice(None)}
    for which, cut in rows.items():
        ours = f"blk.{layer}.ffn_{which}_exps."
        if part.endswith("_bias"):
            out.add_tensor(ours + "bias", floats(weight[:, cut]))
        elif part.endswith("_blocks"):
            scales = gpt_oss_experts.scales[name[:-6] + "scales"][:, cut]
            codes = weight[:, cut]
            low, high = codes & 15, codes >> 4
            codes = numpy.stack([low, high], -1).reshape(*codes.shape[:-1], 32)
            packed = codes[..., :16] | codes[..., 16:] << 4
            packed = numpy.concatenate([scales[..., None], packed], -1)
            out.add_tensor(ours + "weight", numpy.ascontiguousarray(
                packed.reshape(*packed.shape[:2], -1)),
                raw_dtype=gguf.GGMLQuantizationType.MXFP4)
        else:
            out.add_tensor(ours + "weight", numpy.ascontiguousarray(
                weight.swapaxes(1, 2)[:, cut]))


gpt_oss_experts.scales = {}


def add(out, names, name, weight):
    # A layer without experts has llama's names.
    suffixes = (".weight", ".bias")
    ours = (names.get_name(name, try_suffixes=suffixes) or
            gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 9).get_name(
                name, try_suffixes=suffixes))
    assert ours is not None, name
    weight = numpy.ascontiguousarray(weight)
    if weight.ndim == 1 or weight.shape[0] == 1:
        out.add_tensor(ours, floats(weight))
    elif weight.dtype == numpy.uint16:
        out.add_tensor(ours, weight.view(numpy.uint8),
                       raw_dtype=gguf.GGMLQuantizationType.BF16)
    else:
        out.add_tensor(ours, weight)


if __name__ == "__main__":
    for each in sys.argv[1:]:
        write(DATA / each)

#!/usr/bin/env python3
"""Writes a GGUF of random weights in a real shape, to time a family beside its
peers. Its texts are nonsense; times do not depend on them.

    python3 tests/bench/llm/random_gguf.py gemma3 build/bench/gemma3.gguf
    python3 tests/bench/llm/random_gguf.py qwen3moe build/bench/moe.gguf
    python3 tests/bench/llm/random_gguf.py qwen3-8b build/bench/8b.gguf Q4_K
    python3 tests/bench/llm/random_gguf.py qwen2.5-0.5b build/bench/qwen2.gguf

gemma3: Gemma 3 270M's layers (18, 640 wide, windows of 512), Q8_0, with an
embedding of 40,960 rows instead of 262,144. qwen3moe: 12 layers, 1024 wide, 32
experts of 512 of which a token uses 4, Q4_0. qwen3: the same layers with one
dense feed-forward of the 4 experts' size. qwen3-0.6b, qwen3-8b: those models
whole, in the type named or Q8_0, with a context of 131,072. qwen2.5-0.5b,
qwen2.5-1.5b, llama-3.2-1b: those models whole, in the type named or Q4_0. Made with
gguf 0.19.0.
"""
import sys

import gguf
import numpy

SHAPES = {
    "gemma3": dict(layers=18, hidden=640, ffn=2048, heads=4, kv_heads=1,
                   head_dim=256, window=512, kind="Q8_0"),
    "qwen3moe": dict(layers=12, hidden=1024, ffn=512, heads=16, kv_heads=4,
                     head_dim=64, experts=32, used=4, kind="Q4_0"),
    "qwen3": dict(layers=12, hidden=1024, ffn=2048, heads=16, kv_heads=4,
                  head_dim=64, kind="Q4_0"),
    "qwen3-0.6b": dict(arch="qwen3", layers=28, hidden=1024, ffn=3072, heads=16,
                       kv_heads=8, head_dim=128, kind="Q8_0", vocab=151936,
                       context=131072),
    "qwen3-8b": dict(arch="qwen3", layers=36, hidden=4096, ffn=12288, heads=32,
                     kv_heads=8, head_dim=128, kind="Q8_0", vocab=151936,
                     context=131072),
    "qwen2.5-0.5b": dict(arch="qwen2", layers=24, hidden=896, ffn=4864, heads=14,
                         kv_heads=2, head_dim=64, kind="Q4_0", vocab=151936),
    "qwen2.5-1.5b": dict(arch="qwen2", layers=28, hidden=1536, ffn=8960, heads=12,
                         kv_heads=2, head_dim=128, kind="Q4_0", vocab=151936),
    "llama-3.2-1b": dict(arch="llama", layers=16, hidden=2048, ffn=8192, heads=32,
                         kv_heads=8, head_dim=64, kind="Q4_0", vocab=128256),
}


def tokens(out, vocab):
    """Bytes, then nonsense; byte-level BPE."""
    letters = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in letters]
    texts = [chr(b) for b in letters] + [chr(256 + i) for i in range(len(rest))]
    texts.append(texts[0] + texts[1])  # of the one merge that there is
    texts += [f"word{i}" for i in range(len(texts), vocab - 1)] + ["<|end|>"]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list(texts)
    out.add_token_types([1] * (vocab - 1) + [3])
    out.add_token_merges([f"{texts[0]} {texts[1]}"])
    out.add_eos_token_id(vocab - 1)


def random_blocks(rng, rows, width, kind):
    """Rows of a K type, which gguf does not make from floats: any bits, scales
    such that the weights are of about width ** -0.5."""
    block = {"Q4_K": 144, "Q6_K": 210}[kind.name]
    data = rng.integers(0, 256, (rows, width // 256, block), dtype=numpy.uint8)
    d = numpy.float16(width ** -0.5 / 256)
    if kind.name == "Q4_K":
        data[:, :, :4] = numpy.array([d, 8 * d], numpy.float16).view(numpy.uint8)
    else:
        data[:, :, 208:] = numpy.array([d], numpy.float16).view(numpy.uint8)
    return data.reshape(rows, -1)


def main(name, path, kind=None):
    s = SHAPES[name]
    arch = getattr(gguf.MODEL_ARCH, s.get("arch", name).upper())
    kind = getattr(gguf.GGMLQuantizationType, kind or s["kind"])
    vocab = s.get("vocab", 40960)
    out = gguf.GGUFWriter(path, s.get("arch", name))
    out.add_name(name + " random")
    out.add_block_count(s["layers"])
    out.add_context_length(s.get("context", 8192))
    out.add_embedding_length(s["hidden"])
    out.add_feed_forward_length(s["ffn"])
    out.add_head_count(s["heads"])
    out.add_head_count_kv(s["kv_heads"])
    out.add_key_length(s["head_dim"])
    out.add_value_length(s["head_dim"])
    out.add_layer_norm_rms_eps(1e-6)
    out.add_rope_freq_base(10000.0)
    if "window" in s:
        out.add_sliding_window(s["window"])
    if "experts" in s:
        out.add_expert_count(s["experts"])
        out.add_expert_used_count(s["used"])
        out.add_expert_feed_forward_length(s["ffn"])
    tokens(out, vocab)
    rng = numpy.random.default_rng(1)

    def matrix(tensor, *shape, quantized=kind):
        # One random block of rows, repeated: drawing is slow, times are the same.
        rows = int(numpy.prod(shape[:-1]))
        if quantized.name.endswith("_K"):
            data = random_blocks(rng, min(rows, 256), shape[-1], quantized)
        else:
            some = rng.standard_normal((min(rows, 256), shape[-1]),
                                       dtype=numpy.float32) * shape[-1] ** -0.5
            data = gguf.quants.quantize(some, quantized)
        data = numpy.resize(data, (rows, data.shape[-1]))
        out.add_tensor(tensor, numpy.ascontiguousarray(
            data.reshape(*shape[:-1], data.shape[-1])), raw_dtype=quantized)

    def norm(tensor, size):
        out.add_tensor(tensor, numpy.ones(size, numpy.float32))

    def bias(tensor, size):
        out.add_tensor(tensor, numpy.zeros(size, numpy.float32))

    hidden, d = s["hidden"], s["head_dim"]
    matrix("token_embd.weight", vocab, hidden,
           quantized=gguf.GGMLQuantizationType.Q8_0)
    norm("output_norm.weight", hidden)
    for i in range(s["layers"]):
        blk = f"blk.{i}."
        norm(blk + "attn_norm.weight", hidden)
        norm(blk + "ffn_norm.weight", hidden)
        if arch in (gguf.MODEL_ARCH.QWEN3, gguf.MODEL_ARCH.QWEN3MOE,
                    gguf.MODEL_ARCH.GEMMA3):
            norm(blk + "attn_q_norm.weight", d)
            norm(blk + "attn_k_norm.weight", d)
        if arch == gguf.MODEL_ARCH.GEMMA3:
            norm(blk + "post_attention_norm.weight", hidden)
            norm(blk + "post_ffw_norm.weight", hidden)
        matrix(blk + "attn_q.weight", s["heads"] * d, hidden)
        matrix(blk + "attn_k.weight", s["kv_heads"] * d, hidden)
        matrix(blk + "attn_v.weight", s["kv_heads"] * d, hidden)
        matrix(blk + "attn_output.weight", hidden, s["heads"] * d)
        if arch == gguf.MODEL_ARCH.QWEN2:
            bias(blk + "attn_q.bias", s["heads"] * d)
            bias(blk + "attn_k.bias", s["kv_heads"] * d)
            bias(blk + "attn_v.bias", s["kv_heads"] * d)
        suffix, experts = ("_exps", (s["experts"],)) if "experts" in s else (
            "", ())
        if experts:
            out.add_tensor(blk + "ffn_gate_inp.weight", rng.standard_normal(
                (s["experts"], hidden), dtype=numpy.float32))
        matrix(f"{blk}ffn_gate{suffix}.weight", *experts, s["ffn"], hidden)
        matrix(f"{blk}ffn_up{suffix}.weight", *experts, s["ffn"], hidden)
        matrix(f"{blk}ffn_down{suffix}.weight", *experts, hidden, s["ffn"])
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

#!/usr/bin/env python3
"""The GGUF's weights, dequantised, as a transformers folder (safetensors + tokenizer)."""
import argparse
import os

ap = argparse.ArgumentParser()
ap.add_argument("model")
ap.add_argument("--out", required=True)
ap.add_argument("--dtype", default="bfloat16")
a = ap.parse_args()
d, f = os.path.split(os.path.abspath(a.model))
import torch  # noqa: E402
from tokenizers import pre_tokenizers  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM  # noqa: E402

m = AutoModelForCausalLM.from_pretrained(d, gguf_file=f, dtype=torch.float32)
# transformers refuses to save a model that came from a GGUF: move the weights to a plain one
c = {k: v for k, v in m.config.to_dict().items() if k not in ("quantization_config", "_name_or_path")}
plain = LlamaForCausalLM(LlamaConfig(**c))
plain.load_state_dict(m.state_dict())
plain.to(getattr(torch, a.dtype)).save_pretrained(a.out)
tok = AutoTokenizer.from_pretrained(d, gguf_file=f)
tok.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([   # see golden/make_golden.py
    pre_tokenizers.Digits(individual_digits=True),
    pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True)])
tok.save_pretrained(a.out)

#!/usr/bin/env python3
"""Writes the folders tests/data/lora_*: random LoRA adapters of tiny models
(tests/data/hf_*), as PEFT saves them, with a golden.json of the logits that the
adapted model gives; and the first of them as a GGUF file, too.

    python3 tests/data/make_lora.py

Made with peft 0.21.2, transformers 5.23.0, torch 2.15.0 and gguf 0.19.0; the
logits are f32 arithmetic on the CPU.
"""
import json
import pathlib
import shutil

import gguf
import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

OUT = pathlib.Path(__file__).parent
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
       "down_proj"]
FUSED = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]
POSITIONS = (0, 5, 40, 69)


def make(name, base, seed, **config):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(
        OUT / base, dtype=torch.float32, attn_implementation="eager")
    tokens = json.loads((OUT / base / "golden.json").read_text())["tokens"]
    ids = torch.tensor([tokens])
    with torch.no_grad():
        plain = model(ids).logits[0]
    adapted = get_peft_model(model, LoraConfig(
        task_type="CAUSAL_LM", init_lora_weights=False, **config)).eval()
    with torch.no_grad():
        for key, value in adapted.named_parameters():
            if "lora_" in key:
                value.copy_(torch.randn_like(value) * 0.2)
        logits = adapted(ids).logits[0]
    shutil.rmtree(OUT / name, ignore_errors=True)
    adapted.save_pretrained(OUT / name)
    (OUT / name / "README.md").unlink(missing_ok=True)
    path = OUT / name / "adapter_config.json"
    saved = json.loads(path.read_text())
    saved["base_model_name_or_path"] = base
    path.write_text(json.dumps(saved, indent=1, sort_keys=True) + "\n")
    (OUT / name / "golden.json").write_text(json.dumps({
        "base": base, "tokens": tokens,
        "logits": {str(p): [round(float(x), 6) for x in logits[p]]
                   for p in POSITIONS if p < len(tokens)}}) + "\n")
    print(name, "differs by", float((logits - plain).abs().max()))
    return adapted.config


def interleave(rows, heads):
    """Rows of q and k as llama's GGUF files have them."""
    return (rows.reshape(heads, 2, rows.shape[0] // heads // 2, rows.shape[1])
            .swapaxes(1, 2).reshape(rows.shape))


def to_gguf(name, config):
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down"}
    saved = json.loads((OUT / name / "adapter_config.json").read_text())
    writer = gguf.GGUFWriter(str(OUT / name / "adapter.gguf"), "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(saved["lora_alpha"]))
    tensors = load_file(OUT / name / "adapter_model.safetensors")
    for key, value in tensors.items():
        words = key.removeprefix("base_model.model.model.layers.").split(".")
        matrix = ".".join(words[1:3])
        is_b = words[3] == "lora_B"
        if is_b and matrix.endswith("q_proj"):
            value = interleave(value, config.num_attention_heads)
        if is_b and matrix.endswith("k_proj"):
            value = interleave(value, config.num_key_value_heads)
        writer.add_tensor(
            f"blk.{words[0]}.{names[matrix]}.weight.lora_{'b' if is_b else 'a'}",
            np.ascontiguousarray(value, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


to_gguf("lora_llama", make("lora_llama", "hf_llama_yarn", 1, r=4,
                           lora_alpha=6, target_modules=ALL))
make("lora_phi3", "hf_phi3", 2, r=3, lora_alpha=4, use_rslora=True,
     target_modules=FUSED)
make("lora_gpt2", "hf_gpt2", 3, r=2, lora_alpha=2, fan_in_fan_out=True,
     target_modules=["c_attn", "c_fc", "c_proj"])
# Only some matrices, of one layer.
make("lora_qwen2", "hf_qwen2", 4, r=5, lora_alpha=10,
     target_modules=["q_proj", "v_proj", "down_proj"], layers_to_transform=[1])

#!/usr/bin/env python3
"""Writes tests/data/hf_idefics3/model.gguf and mmproj.gguf: the language model
and the encoder of images of the folder's safetensors, as two GGUF files with the
names and keys of llama.cpp, so that golden.json is true of them, too.

    python3 tests/data/make_tiny_mmproj.py

Made with gguf 0.19.0, numpy 2.
"""
import json

import gguf
import make_tiny_hf_gguf as text
import numpy

FOLDER = text.DATA / "hf_idefics3"
CONFIG = json.loads((FOLDER / "config.json").read_text())
LAYERS = CONFIG["vision_config"]["num_hidden_layers"]


def finish(out, path):
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    path.chmod(0o644)


def write_text():
    config = CONFIG["text_config"]
    path = FOLDER / "model.gguf"
    out = gguf.GGUFWriter(path, "llama")
    out.add_name(FOLDER.name)
    text.keys(config, out)
    text.tokenizer(FOLDER, out)
    out.kv_data[0].pop("tokenizer.ggml.pre")
    out.add_tokenizer_pre("llama-bpe")
    out.add_add_bos_token(False)
    out.add_chat_template((FOLDER / "chat_template.jinja").read_text())
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA,
                                     config["num_hidden_layers"])
    for name, weight in text.tensors(FOLDER):
        if "vision_model" in name or "connector" in name:
            continue
        if "q_proj" in name:
            weight = text.paired(weight, config["num_attention_heads"])
        if "k_proj" in name:
            weight = text.paired(weight, config["num_key_value_heads"])
        text.add(out, names, name.replace("model.text_model.", "model."),
                 weight)
    finish(out, path)


def write_mmproj():
    vision = CONFIG["vision_config"]
    images = json.loads((FOLDER / "processor_config.json").read_text())[
        "image_processor"]
    path = FOLDER / "mmproj.gguf"
    out = gguf.GGUFWriter(path, "clip")
    out.add_type("mmproj")
    out.add_name(FOLDER.name)
    out.add_clip_has_vision_encoder(True)
    out.add_clip_projector_type("idefics3")
    out.add_vision_projection_dim(CONFIG["text_config"]["hidden_size"])
    out.add_vision_image_size(vision["image_size"])
    out.add_vision_patch_size(vision["patch_size"])
    out.add_vision_embedding_length(vision["hidden_size"])
    out.add_vision_feed_forward_length(vision["intermediate_size"])
    out.add_vision_block_count(LAYERS)
    out.add_vision_head_count(vision["num_attention_heads"])
    out.add_vision_image_mean(images["image_mean"])
    out.add_vision_image_std(images["image_std"])
    out.add_vision_attention_layernorm_eps(vision["layer_norm_eps"])
    out.add_vision_projector_scale_factor(CONFIG["scale_factor"])
    out.add_vision_use_gelu(True)
    out.add_vision_preproc_image_size(images["size"]["longest_edge"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, LAYERS)
    for name, weight in text.tensors(FOLDER):
        if "vision_model" not in name and "connector" not in name:
            continue
        ours = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert ours is not None, name
        # Embeddings, norms and biases are kept in f32 there.
        if weight.ndim == 1 or ".embeddings." in name:
            weight = weight.astype(numpy.float32)
        out.add_tensor(ours, numpy.ascontiguousarray(weight))
    finish(out, path)


if __name__ == "__main__":
    write_text()
    write_mmproj()

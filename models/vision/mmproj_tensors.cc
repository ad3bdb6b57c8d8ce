#include "models/vision/mmproj_tensors.h"

#include <utility>

namespace millrace::models::vision {
namespace {

constexpr encoder::GgufName kNames[] = {
    {"model.vision_model.embeddings.patch_embedding", "v.patch_embd"},
    {"model.vision_model.embeddings.position_embedding", "v.position_embd"},
    {"model.vision_model.encoder.layers.#.layer_norm1", "v.blk.#.ln1"},
    {"model.vision_model.encoder.layers.#.layer_norm2", "v.blk.#.ln2"},
    {"model.vision_model.encoder.layers.#.self_attn.q_proj", "v.blk.#.attn_q"},
    {"model.vision_model.encoder.layers.#.self_attn.k_proj", "v.blk.#.attn_k"},
    {"model.vision_model.encoder.layers.#.self_attn.v_proj", "v.blk.#.attn_v"},
    {"model.vision_model.encoder.layers.#.self_attn.out_proj",
     "v.blk.#.attn_out"},
    {"model.vision_model.encoder.layers.#.mlp.fc1", "v.blk.#.ffn_up"},
    {"model.vision_model.encoder.layers.#.mlp.fc2", "v.blk.#.ffn_down"},
    {"model.vision_model.post_layernorm", "v.post_ln"},
    {"model.connector.modality_projection.proj", "mm.model.fc"},
};

}  // namespace

std::unique_ptr<const encoder::EncoderTensors> MmprojTensors(
    std::shared_ptr<const GgufFile> file) {
  return encoder::MakeGgufTensors(std::move(file), kNames);
}

}  // namespace millrace::models::vision

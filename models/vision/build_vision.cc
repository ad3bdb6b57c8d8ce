// A pre-norm transformer over patches (Zhai et al. 2023, SigLIP) without its
// pooling head, then the pixel shuffle of Laurençon et al. 2024 (Idefics3):
// scale x scale patches become one row, which a matrix projects.
#include "models/vision/build_vision.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/encoder/graph_writer.h"

namespace millrace::models::vision {
namespace {

using encoder::GraphWriter;
using graph::Graph;
using graph::ValueId;

const std::string kModel = "model.vision_model.";

class Builder {
 public:
  Builder(const VisionConfig& config, const encoder::EncoderTensors& tensors)
      : config_(config), w_(tensors) {}

  StatusOr<Graph> Build() {
    ASSIGN_OR_RETURN(ValueId x, Embeddings());
    for (int64_t i = 0; i < config_.layers; ++i) {
      ASSIGN_OR_RETURN(x, Layer(i, x));
    }
    ASSIGN_OR_RETURN(x, w_.Norm(kModel + "post_layernorm", x, config_.hidden,
                                config_.epsilon));
    ASSIGN_OR_RETURN(x, Connector(x));
    w_.graph().AddOutput("rows", x);
    w_.graph().outputs.back().dims = {{.size = 1},
                                      {.size = config_.rows_per_tile()},
                                      {.size = config_.text_hidden}};
    RETURN_IF_ERROR(w_.graph().Validate());
    return std::move(w_.graph());
  }

 private:
  StatusOr<ValueId> Embeddings() {
    const std::string at = kModel + "embeddings.";
    const int64_t side = config_.patches_per_side();
    const ValueId pixels = w_.graph().AddInput("pixel_values", DType::kF32,
                                               {{.size = 1},
                                                {.size = 3},
                                                {.size = config_.tile},
                                                {.size = config_.tile}});
    ASSIGN_OR_RETURN(
        const ValueId kernel,
        w_.Weight(at + "patch_embedding.weight",
                  {config_.hidden, 3, config_.patch, config_.patch}));
    ASSIGN_OR_RETURN(const ValueId bias,
                     w_.Weight(at + "patch_embedding.bias", {config_.hidden}));
    const ValueId patches = w_.Op(
        "Conv", {pixels, kernel, bias},
        {{"strides", std::vector<int64_t>{config_.patch, config_.patch}}});
    const ValueId rows =
        w_.Op("Transpose",
              {w_.Op("Reshape",
                     {patches, w_.Ints({1, config_.hidden, side * side})})},
              {{"perm", std::vector<int64_t>{0, 2, 1}}});
    ASSIGN_OR_RETURN(const ValueId table,
                     w_.Weight(at + "position_embedding.weight",
                               {side * side, config_.hidden}));
    // A tile is as large as the table: patch i has row i. (The reference finds
    // the row by the patch's place in f32, which gives the same for the sizes
    // of published models, and for some others two patches one row.)
    return w_.Op("Add", {rows, table});
  }

  StatusOr<ValueId> Layer(int64_t i, ValueId x) {
    const std::string at = kModel + "encoder.layers." + std::to_string(i) + ".";
    const int64_t hidden = config_.hidden;
    ASSIGN_OR_RETURN(const ValueId normed,
                     w_.Norm(at + "layer_norm1", x, hidden, config_.epsilon));
    const auto heads = [&](const char* name) -> StatusOr<ValueId> {
      ASSIGN_OR_RETURN(const ValueId y, w_.Dense(at + "self_attn." + name,
                                                 normed, hidden, hidden));
      return w_.SplitHeads(y, config_.heads, hidden / config_.heads);
    };
    ASSIGN_OR_RETURN(const ValueId q, heads("q_proj"));
    ASSIGN_OR_RETURN(const ValueId k, heads("k_proj"));
    ASSIGN_OR_RETURN(const ValueId v, heads("v_proj"));
    const ValueId mixed = w_.Op("Attention", {q, k, v});
    ASSIGN_OR_RETURN(const ValueId projected,
                     w_.Dense(at + "self_attn.out_proj",
                              w_.JoinHeads(mixed, hidden), hidden, hidden));
    const ValueId attended = w_.Op("Add", {projected, x});
    ASSIGN_OR_RETURN(const ValueId again, w_.Norm(at + "layer_norm2", attended,
                                                  hidden, config_.epsilon));
    ASSIGN_OR_RETURN(
        const ValueId wide,
        w_.Dense(at + "mlp.fc1", again, config_.intermediate, hidden));
    ASSIGN_OR_RETURN(
        const ValueId narrow,
        w_.Dense(at + "mlp.fc2", w_.Activation(config_.activation, wide),
                 hidden, config_.intermediate));
    return w_.Op("Add", {narrow, attended});
  }

  // Patches of a square of scale x scale stand one after the other in a row:
  // line by line, each line's from left to right.
  StatusOr<ValueId> Connector(ValueId x) {
    const int64_t scale = config_.scale;
    const int64_t side = config_.patches_per_side() / scale;
    const int64_t hidden = config_.hidden;
    const ValueId squares =
        w_.Op("Transpose",
              {w_.Op("Reshape",
                     {x, w_.Ints({1, side, scale, side, scale * hidden})})},
              {{"perm", std::vector<int64_t>{0, 1, 3, 2, 4}}});
    const int64_t inputs = scale * scale * hidden;
    const ValueId rows =
        w_.Op("Reshape", {squares, w_.Ints({1, side * side, inputs})});
    return w_.Dense("model.connector.modality_projection.proj", rows,
                    config_.text_hidden, inputs, /*bias=*/false);
  }

  const VisionConfig& config_;
  GraphWriter w_;
};

}  // namespace

StatusOr<Graph> BuildVision(const VisionConfig& config,
                            const encoder::EncoderTensors& tensors) {
  return Builder(config, tensors).Build();
}

}  // namespace millrace::models::vision

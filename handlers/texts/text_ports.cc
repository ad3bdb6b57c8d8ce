#include "handlers/texts/text_ports.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <string_view>
#include <utility>

namespace millrace::handlers {
namespace {

using models::DType;
using models::Tensor;
using models::TensorSpec;
using Kind = TextPorts::Kind;

constexpr std::pair<std::string_view, Kind> kNames[] = {
    {"input_ids", Kind::kIds},     {"attention_mask", Kind::kMask},
    {"input_mask", Kind::kMask},   {"token_type_ids", Kind::kTypes},
    {"segment_ids", Kind::kTypes}, {"position_ids", Kind::kPositions},
};
// What graphs call the results that a task reads, the best first.
constexpr std::string_view kVectors[] = {"sentence_embedding",
                                         "last_hidden_state",
                                         "token_embeddings", "hidden_states"};
constexpr std::string_view kScores[] = {"logits", "scores"};

constexpr int64_t kLeastLength = 8;

std::optional<Kind> KindOf(std::string_view name) {
  for (const auto& [known, kind] : kNames) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

// What the task needs of an output.
std::string_view WantedOf(config::TaskKind task) {
  if (task == config::TaskKind::kEmbed) {
    return "FP32 [texts, tokens, size] or [texts, size]";
  }
  return task == config::TaskKind::kTokenClassify
             ? "FP32 [texts, tokens, labels]"
             : "FP32 [texts, classes]";
}

bool Fits(const TensorSpec& spec, config::TaskKind task) {
  if (spec.dtype != DType::kF32) return false;
  if (!spec.rank_known) return true;
  const bool of_tokens = task == config::TaskKind::kEmbed ||
                         task == config::TaskKind::kTokenClassify;
  return (spec.dims.size() == 2 && task != config::TaskKind::kTokenClassify) ||
         (spec.dims.size() == 3 && of_tokens);
}

StatusOr<std::string> FindOutput(const TensorHandler& graph,
                                 config::TaskKind task) {
  const std::span<const std::string_view> names =
      task == config::TaskKind::kEmbed
          ? std::span<const std::string_view>(kVectors)
          : std::span<const std::string_view>(kScores);
  for (const std::string_view name : names) {
    for (const TensorSpec& spec : graph.outputs()) {
      if (spec.name == name && Fits(spec, task)) return spec.name;
    }
  }
  std::string found;
  for (const TensorSpec& spec : graph.outputs()) {
    if (Fits(spec, task)) return spec.name;
    found += (found.empty() ? "'" : ", '") + spec.name + "' " + spec.text;
  }
  return InvalidArgument("no output of the graph is " +
                         std::string(WantedOf(task)) +
                         ", which the task needs; it has " + found)
      .At("task");
}

template <typename T>
void FillRow(Kind kind, const models::EncoderInput& input, int64_t length,
             int32_t pad_id, T* row) {
  const auto tokens = static_cast<int64_t>(input.ids.size());
  for (int64_t i = 0; i < length; ++i) {
    const bool is_token = i < tokens;
    const auto at = static_cast<size_t>(i);
    switch (kind) {
      case Kind::kIds:
        row[i] = is_token ? input.ids[at] : pad_id;
        break;
      case Kind::kMask:
        row[i] = is_token ? 1 : 0;
        break;
      case Kind::kTypes:
        row[i] = is_token ? input.type_ids[at] : 0;
        break;
      case Kind::kPositions:
        row[i] = static_cast<T>(i);
        break;
    }
  }
}

}  // namespace

StatusOr<TextPorts> TextPorts::Find(const TensorHandler& graph,
                                    config::TaskKind kind) {
  TextPorts out;
  bool has_ids = false;
  for (const TensorSpec& spec : graph.inputs()) {
    const std::optional<Kind> input = KindOf(spec.name);
    if (!input) {
      return InvalidArgument("the graph's input '" + spec.name +
                             "' is none that a text can fill: input_ids, "
                             "attention_mask, token_type_ids, position_ids");
    }
    const bool is_integer =
        spec.dtype == DType::kI64 || spec.dtype == DType::kI32;
    if (!is_integer || !spec.rank_known || spec.dims.size() != 2 ||
        spec.dims[0] > 1) {
      return InvalidArgument("the graph's input '" + spec.name + "' is " +
                             spec.text +
                             " but must be integers [texts, tokens]");
    }
    if (spec.dims[1] > 0) out.fixed_length = spec.dims[1];
    has_ids = has_ids || *input == Kind::kIds;
    out.has_mask = out.has_mask || *input == Kind::kMask;
    out.inputs.push_back({*input, spec.name, spec.dtype});
  }
  if (!has_ids) {
    return InvalidArgument(
        "the graph has no input 'input_ids', which a task "
        "over texts fills");
  }
  if (out.fixed_length > 0 && !out.has_mask) {
    return InvalidArgument(
        "the graph takes texts of " + std::to_string(out.fixed_length) +
        " tokens and has no attention_mask that would hide padding; export "
        "it with one, or with an open length");
  }
  ASSIGN_OR_RETURN(out.output, FindOutput(graph, kind));
  return out;
}

int64_t TextPorts::PaddedLength(int64_t tokens, int64_t max_tokens) const {
  if (fixed_length > 0) return fixed_length;
  if (!has_mask) return tokens;
  const auto power =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(tokens)));
  const int64_t step = std::max(kLeastLength, power / 8);
  return std::min((tokens + step - 1) / step * step,
                  std::max(max_tokens, tokens));
}

std::vector<NamedTensor> TextPorts::Fill(
    const std::vector<models::EncoderInput>& texts,
    const std::vector<size_t>& items, int64_t length, int32_t pad_id) const {
  std::vector<NamedTensor> out;
  const auto num_rows = static_cast<int64_t>(items.size());
  for (const Input& input : inputs) {
    Tensor tensor = Tensor::Make(input.dtype, {num_rows, length});
    for (int64_t r = 0; r < num_rows; ++r) {
      const models::EncoderInput& text = texts[items[static_cast<size_t>(r)]];
      if (input.dtype == DType::kI64) {
        FillRow(input.kind, text, length, pad_id,
                tensor.data<int64_t>() + r * length);
      } else {
        FillRow(input.kind, text, length, pad_id,
                tensor.data<int32_t>() + r * length);
      }
    }
    out.push_back({input.name, std::move(tensor)});
  }
  return out;
}

}  // namespace millrace::handlers

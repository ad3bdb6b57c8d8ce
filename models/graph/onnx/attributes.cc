#include "models/graph/onnx/attributes.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "models/graph/onnx/text.h"

namespace millrace::models::graph {
namespace {

using onnx::AttributeProto;

// ONNX gives one name one type in all operators, but for the few that are not
// here; operators may then read what they want without looking at types.
constexpr std::string_view kInts[] = {"axis",
                                      "group",
                                      "keepdims",
                                      "noop_with_empty_axes",
                                      "select_last_index",
                                      "batch_dims",
                                      "allowzero",
                                      "transA",
                                      "transB",
                                      "to",
                                      "saturate",
                                      "dtype",
                                      "output_dtype",
                                      "blocksize",
                                      "largest",
                                      "sorted",
                                      "hidden_size",
                                      "input_forget",
                                      "linear_before_reset",
                                      "layout",
                                      "ceil_mode",
                                      "count_include_pad",
                                      "storage_order",
                                      "exclusive",
                                      "reverse",
                                      "fmod",
                                      "upper",
                                      "detect_negative",
                                      "detect_positive",
                                      "num_outputs",
                                      "start",
                                      "end",
                                      "num_scan_inputs",
                                      "antialias",
                                      "exclude_outside",
                                      "align_corners",
                                      "block_size",
                                      "num_groups",
                                      "stash_type",
                                      "training_mode",
                                      "keep_dims",
                                      "batch_axis",
                                      "time_axis",
                                      "onesided",
                                      "inverse",
                                      "is_causal",
                                      "q_num_heads",
                                      "kv_num_heads",
                                      "num_heads",
                                      "interleaved",
                                      "rotary_embedding_dim",
                                      "center_point_box",
                                      "sampling_ratio",
                                      "output_height",
                                      "output_width",
                                      "ignore_index",
                                      "k",
                                      "size",
                                      "p",
                                      "new_axis",
                                      "spatial",
                                      "is_test",
                                      "broadcast",
                                      "simplified",
                                      "periodic",
                                      "output_datatype",
                                      "qk_matmul_output_mode",
                                      "softmax_precision",
                                      "offset_group"};
constexpr std::string_view kFloats[] = {
    "alpha", "beta",    "gamma",         "epsilon",       "momentum",
    "bias",  "lambd",   "clip",          "cubic_coeff_a", "extrapolation_value",
    "scale", "softcap", "spatial_scale", "ratio"};
constexpr std::string_view kTexts[] = {"mode",
                                       "direction",
                                       "auto_pad",
                                       "reduction",
                                       "equation",
                                       "approximate",
                                       "coordinate_transformation_mode",
                                       "nearest_mode",
                                       "keep_aspect_ratio_policy",
                                       "padding_mode",
                                       "rounding_mode"};
constexpr std::string_view kIntLists[] = {"kernel_shape",
                                          "pads",
                                          "strides",
                                          "dilations",
                                          "output_padding",
                                          "output_shape",
                                          "perm",
                                          "axes",
                                          "split",
                                          "starts",
                                          "ends",
                                          "scan_input_axes",
                                          "scan_output_axes",
                                          "scan_input_directions",
                                          "scan_output_directions",
                                          "repeats"};

bool Among(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::optional<AttributeProto::AttributeType> WantedType(std::string_view name) {
  if (Among(name, kInts)) return AttributeProto::INT;
  if (Among(name, kFloats)) return AttributeProto::FLOAT;
  if (Among(name, kTexts)) return AttributeProto::STRING;
  if (Among(name, kIntLists)) return AttributeProto::INTS;
  return std::nullopt;
}

// The oldest files leave the type out.
AttributeProto::AttributeType TypeOf(const AttributeProto& attribute) {
  if (attribute.type() != AttributeProto::UNDEFINED) return attribute.type();
  if (attribute.has_f()) return AttributeProto::FLOAT;
  if (attribute.has_i()) return AttributeProto::INT;
  if (attribute.has_s()) return AttributeProto::STRING;
  if (attribute.floats_size() > 0) return AttributeProto::FLOATS;
  if (attribute.ints_size() > 0) return AttributeProto::INTS;
  if (attribute.strings_size() > 0) return AttributeProto::STRINGS;
  return AttributeProto::UNDEFINED;
}

std::optional<AttrValue> ValueOf(const AttributeProto& attribute) {
  switch (TypeOf(attribute)) {
    case AttributeProto::FLOAT:
      return static_cast<double>(attribute.f());
    case AttributeProto::INT:
      return attribute.i();
    case AttributeProto::STRING:
      return attribute.s();
    case AttributeProto::FLOATS:
      return std::vector<double>(attribute.floats().begin(),
                                 attribute.floats().end());
    case AttributeProto::INTS:
      return std::vector<int64_t>(attribute.ints().begin(),
                                  attribute.ints().end());
    case AttributeProto::STRINGS:
      return std::vector<std::string>(attribute.strings().begin(),
                                      attribute.strings().end());
    default:
      return std::nullopt;
  }
}

}  // namespace

const AttributeProto* Resolve(const AttributeProto& attribute,
                              const AttributeScope& scope) {
  if (attribute.ref_attr_name().empty()) return &attribute;
  const auto given = scope.find(attribute.ref_attr_name());
  return given != scope.end() ? given->second : nullptr;
}

const AttributeProto* FindAttribute(const onnx::NodeProto& node,
                                    std::string_view name,
                                    const AttributeScope& scope) {
  for (const AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == name) return Resolve(attribute, scope);
  }
  return nullptr;
}

StatusOr<Attrs> AttrsOf(const onnx::NodeProto& node,
                        const AttributeScope& scope) {
  Attrs attrs;
  for (const AttributeProto& named : node.attribute()) {
    const AttributeProto* attribute = Resolve(named, scope);
    if (attribute == nullptr) continue;
    std::optional<AttrValue> value = ValueOf(*attribute);
    if (!value.has_value()) continue;
    const auto wanted =
        node.domain() == "ai.onnx.ml" ? std::nullopt : WantedType(named.name());
    if (wanted.has_value() && *wanted != TypeOf(*attribute)) {
      return InvalidArgument("attribute " + Quoted(named.name()) +
                             " is of another type than its name says");
    }
    attrs.Set(named.name(), *std::move(value));
  }
  return attrs;
}

}  // namespace millrace::models::graph

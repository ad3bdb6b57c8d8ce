#include "models/graph/fused_params.h"

#include <type_traits>

namespace millrace::models::graph {
namespace {

const LayerParams* LayerIn(const FusedParams& params) {
  return std::visit(
      [](const auto& of) -> const LayerParams* {
        if constexpr (std::is_base_of_v<LayerParams,
                                        std::decay_t<decltype(of)>>) {
          return &of;
        }
        return nullptr;
      },
      params.of);
}

}  // namespace

const LayerParams* FindLayerParams(const Attrs& attrs) {
  return attrs.fused() != nullptr ? LayerIn(*attrs.fused()) : nullptr;
}

const LayerParams& LayerParamsOf(const Attrs& attrs) {
  const LayerParams* layer = FindLayerParams(attrs);
  CHECK(layer != nullptr, "the node is a layer");
  return *layer;
}

int64_t GroupsOf(const Attrs& attrs) {
  LayerParamsOf(attrs);
  const auto* conv = std::get_if<ConvParams>(&attrs.fused()->of);
  return conv != nullptr ? conv->groups : 1;
}

LayerParams& EditLayerParams(Attrs& attrs) {
  LayerParamsOf(attrs);
  auto params = std::make_shared<FusedParams>(*attrs.fused());
  auto* edited = const_cast<LayerParams*>(LayerIn(*params));
  attrs.SetFused(std::move(params));
  return *edited;
}

}  // namespace millrace::models::graph

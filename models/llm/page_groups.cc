#include "models/llm/page_groups.h"

#include <algorithm>
#include <map>

namespace millrace::models {
namespace {

int32_t GroupsOf(size_t num_layers, int32_t layers_per_page) {
  return (static_cast<int32_t>(num_layers) + layers_per_page - 1) /
         layers_per_page;
}

// Layers by window, those that see all first.
using LayersByWindow = std::map<int32_t, std::vector<size_t>>;

// Pages times layers of a page that a completed sequence holds, places of
// layers that are not there included; 0: too many groups.
int64_t CostOf(const LayersByWindow& layers, int32_t layers_per_page,
               int32_t context) {
  int32_t num_groups = 0;
  int64_t cost = 0;
  for (const auto& [window, of_window] : layers) {
    const int32_t groups = GroupsOf(of_window.size(), layers_per_page);
    num_groups += groups;
    cost += int64_t{groups} * layers_per_page * MostPages(window, 1, context);
  }
  return num_groups > kMostPageGroups ? 0 : cost;
}

}  // namespace

PageGroups OnePageGroup(std::span<const int32_t> layer_windows) {
  PageGroups one;
  one.layers_per_page = static_cast<int32_t>(layer_windows.size());
  if (std::ranges::count(layer_windows, 0) == 0 && !layer_windows.empty()) {
    one.windows = {std::ranges::max(layer_windows)};
  }
  return one;
}

PageGroups GroupPages(std::span<const int32_t> layer_windows, int32_t context) {
  PageGroups one = OnePageGroup(layer_windows);
  LayersByWindow layers;
  for (size_t i = 0; i < layer_windows.size(); ++i) {
    const int32_t window = layer_windows[i];
    layers[window < context ? window : 0].push_back(i);
  }
  if (layers.size() < 2 || !layers.contains(0)) return one;

  const auto num_layers = static_cast<int32_t>(layer_windows.size());
  // What one group costs, less the tenth.
  int64_t least = num_layers * MostPages(0, 1, context) * 9 / 10;
  int32_t layers_per_page = 0;
  for (int32_t each = num_layers; each > 0; --each) {
    const int64_t cost = CostOf(layers, each, context);
    if (cost == 0 || cost >= least) continue;
    least = cost;
    layers_per_page = each;
  }
  if (layers_per_page == 0) return one;

  PageGroups groups{.windows = {},
                    .layers_per_page = layers_per_page,
                    .places = std::vector<KvPlace>(layer_windows.size())};
  for (const auto& [window, of_window] : layers) {
    const int32_t first = groups.count();
    for (size_t k = 0; k < of_window.size(); ++k) {
      const auto nth = static_cast<int32_t>(k);
      groups.places[of_window[k]] = {.layer = nth % layers_per_page,
                                     .group = first + nth / layers_per_page};
    }
    groups.windows.insert(groups.windows.end(),
                          GroupsOf(of_window.size(), layers_per_page), window);
  }
  return groups;
}

}  // namespace millrace::models

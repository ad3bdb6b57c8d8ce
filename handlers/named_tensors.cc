#include "handlers/named_tensors.h"

#include <optional>
#include <string_view>
#include <utility>

namespace millrace::handlers {
namespace {

using models::TensorSpec;

constexpr size_t kMostShown = 16;

// "x FP32 [batch, 3], mask BOOL [batch]", for messages.
std::string ListText(const std::vector<TensorSpec>& specs) {
  std::string text;
  for (size_t i = 0; i < specs.size() && i < kMostShown; ++i) {
    text += (i > 0 ? ", " : "") + specs[i].name + " " + specs[i].text;
  }
  if (specs.size() > kMostShown) {
    text += " and " + std::to_string(specs.size() - kMostShown) + " more";
  }
  return specs.empty() ? "none" : text;
}

std::optional<size_t> Find(const std::vector<TensorSpec>& specs,
                           std::string_view name) {
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name == name) return i;
  }
  return std::nullopt;
}

}  // namespace

StatusOr<std::vector<models::Tensor>> InputsInOrder(
    std::vector<NamedTensor> given, const std::vector<TensorSpec>& specs,
    const std::string& model) {
  std::vector<models::Tensor> ordered(specs.size());
  std::vector<bool> filled(specs.size());
  for (NamedTensor& input : given) {
    const std::optional<size_t> at = Find(specs, input.name);
    if (!at) {
      return InvalidArgument("input '" + input.name +
                             "' is not one of model '" + model +
                             "', which takes " + ListText(specs))
          .At(input.name);
    }
    if (filled[*at]) {
      return InvalidArgument("input '" + input.name +
                             "' is given twice; give it once")
          .At(input.name);
    }
    filled[*at] = true;
    ordered[*at] = std::move(input.tensor);
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    if (filled[i]) continue;
    return InvalidArgument("input '" + specs[i].name + "' is missing; model '" +
                           model + "' takes " + ListText(specs))
        .At(specs[i].name);
  }
  return ordered;
}

StatusOr<std::vector<size_t>> OutputsWanted(
    const std::vector<std::string>& names, const std::vector<TensorSpec>& specs,
    const std::string& model) {
  std::vector<size_t> wanted;
  std::vector<bool> taken(specs.size());
  for (const std::string& name : names) {
    const std::optional<size_t> at = Find(specs, name);
    if (!at) {
      return InvalidArgument("output '" + name + "' is not one of model '" +
                             model + "', which gives " + ListText(specs))
          .At(name);
    }
    if (taken[*at]) {
      return InvalidArgument("output '" + name +
                             "' is asked for twice; ask once")
          .At(name);
    }
    taken[*at] = true;
    wanted.push_back(*at);
  }
  for (size_t i = 0; names.empty() && i < specs.size(); ++i) {
    wanted.push_back(i);
  }
  return wanted;
}

std::string NamesOf(const std::vector<TensorSpec>& specs) {
  std::string names;
  for (const TensorSpec& spec : specs) {
    names += (names.empty() ? "'" : ", '") + spec.name + "'";
  }
  return names.empty() ? "none" : names;
}

Status CheckFits(const TensorSpec& spec, const models::Tensor& tensor,
                 const std::string& model) {
  const models::Shape& shape = tensor.shape();
  bool fits = tensor.dtype() == spec.dtype;
  if (spec.rank_known) {
    fits = fits && shape.rank() == static_cast<int>(spec.dims.size());
    for (size_t i = 0; fits && i < spec.dims.size(); ++i) {
      fits = spec.dims[i] < 0 || spec.dims[i] == shape[static_cast<int>(i)];
    }
  }
  if (fits) return OkStatus();
  return InvalidArgument("input '" + spec.name + "' is " +
                         models::TypeText(tensor.dtype(), shape) +
                         " but the model '" + model + "' takes " + spec.text)
      .At(spec.name);
}

}  // namespace millrace::handlers

#include "server/torchserve/tensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "models/tensor/strings.h"
#include "server/tensor_bytes.h"
#include "server/tensor_json.h"

namespace millrace::server::torchserve {
namespace {

using Json = nlohmann::ordered_json;
using models::Shape;
using models::TensorSpec;

constexpr JsonLimits kLimits = {.max_depth = 16, .max_values = 50'000'000};

// What nested lists look like along their first items.
std::vector<int64_t> DimsOf(const Json& value) {
  std::vector<int64_t> dims;
  const Json* at = &value;
  while (at->is_array() && dims.size() <= Shape::kMaxRank) {
    dims.push_back(static_cast<int64_t>(at->size()));
    if (at->empty()) break;
    at = &at->front();
  }
  return dims;
}

int64_t RowElements(const TensorSpec& spec) {
  int64_t count = 1;
  for (size_t i = 1; i < spec.dims.size(); ++i) {
    if (spec.dims[i] < 0) return -1;
    count *= spec.dims[i];
  }
  return count;
}

bool Fits(const std::vector<int64_t>& dims, const TensorSpec& spec) {
  if (dims.size() != spec.dims.size()) return false;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (spec.dims[i] >= 0 && spec.dims[i] != dims[i]) return false;
  }
  return true;
}

// `dims` as the graph takes them; says whether a batch of one was added.
StatusOr<Shape> ShapeFor(const TensorSpec& spec, std::vector<int64_t> dims,
                         bool& is_row) {
  std::vector<int64_t> as_row = dims;
  as_row.insert(as_row.begin(), 1);
  if (!spec.rank_known || Fits(dims, spec)) return Shape::Checked(dims);
  if (Fits(as_row, spec)) {
    is_row = true;
    return Shape::Checked(as_row);
  }
  // A flat list of a row's numbers.
  if (dims.size() == 1 && !spec.dims.empty() && dims[0] == RowElements(spec) &&
      dims[0] > 0) {
    is_row = true;
    as_row = spec.dims;
    as_row[0] = 1;
    return Shape::Checked(as_row);
  }
  std::string shown = "[";
  for (const int64_t size : dims) {
    shown += (shown.size() > 1 ? ", " : "") + std::to_string(size);
  }
  return BadInput(spec.name, "has the shape " + shown +
                                 "] but the model takes " + spec.text +
                                 ", or a row of it");
}

// Values in nested lists, whatever their shape.
int64_t NumLeaves(const Json& value) {
  if (!value.is_array()) return 1;
  int64_t count = 0;
  for (const Json& each : value) count += NumLeaves(each);
  return count;
}

StatusOr<models::Tensor> FromJson(const TensorSpec& spec, Json value,
                                  bool& is_row) {
  const std::vector<int64_t> dims = DimsOf(value);
  ASSIGN_OR_RETURN(const Shape shape, ShapeFor(spec, dims, is_row));
  // The reader takes memory for the whole shape, which only the first items
  // told.
  if (const int64_t count = NumLeaves(value); count != shape.num_elements()) {
    return BadInput(spec.name,
                    "has " + std::to_string(count) + " values but " +
                        std::to_string(shape.num_elements()) +
                        " by the lengths of its first lists; all lists must be "
                        "of one length");
  }
  if (spec.dtype == models::kString) {
    return StringsFromJson({spec.name, spec.dtype, shape},
                           value.is_array() ? value : Json::array({value}));
  }
  TensorReader reader({spec.name, spec.dtype, shape});
  // It takes a flat list, or one that is nested as the shape says.
  if (!value.is_array() || (is_row && dims.size() > 1)) {
    Json batch = Json::array();
    batch.push_back(std::move(value));
    value = std::move(batch);
  }
  RETURN_IF_ERROR(FeedArray(value, reader));
  return reader.Take();
}

StatusOr<models::Tensor> FromBytes(const TensorSpec& spec,
                                   const std::string& bytes, bool& is_row) {
  if (spec.dtype == models::kString) {
    return BadInput(spec.name, "is BYTES; send its strings as JSON");
  }
  const int64_t row = RowElements(spec) * models::DTypeBytes(spec.dtype);
  if (spec.dims.empty() || row <= 0) {
    return BadInput(spec.name,
                    "has sizes that differ between requests (" + spec.text +
                        "), so raw bytes do not tell its shape; send JSON");
  }
  const auto size = static_cast<int64_t>(bytes.size());
  if (size == 0 || size % row != 0) {
    return BadInput(spec.name, "has " + std::to_string(size) +
                                   " bytes that are no JSON, but a row of " +
                                   spec.text + " has " + std::to_string(row));
  }
  std::vector<int64_t> dims = spec.dims;
  dims[0] = size / row;
  is_row = dims[0] == 1;
  ASSIGN_OR_RETURN(const Shape shape, Shape::Checked(dims));
  return TensorFromBytes({spec.name, spec.dtype, shape}, bytes);
}

const TensorSpec* SpecNamed(const std::vector<TensorSpec>& specs,
                            const std::string& name) {
  for (const TensorSpec& spec : specs) {
    if (spec.name == name) return &spec;
  }
  const bool is_usual = name.empty() || name == "data" || name == "body" ||
                        name == "instances" || name == "inputs";
  return specs.size() == 1 && is_usual ? &specs.front() : nullptr;
}

Status NoSuchInput(const std::string& name,
                   const std::vector<TensorSpec>& specs) {
  std::string known;
  for (const TensorSpec& spec : specs) {
    known += (known.empty() ? "'" : ", '") + spec.name + "'";
  }
  return InvalidArgument("'" + Shortened(name, 100) +
                         "' is no input of the model; it has " + known);
}

class Collector {
 public:
  explicit Collector(const std::vector<TensorSpec>& specs) : specs_(specs) {}

  Status AddValue(const std::string& name, Json value) {
    if (name.empty() && value.is_object()) {
      for (auto& [key, member] : value.items()) {
        RETURN_IF_ERROR(AddValue(key, std::move(member)));
      }
      return OkStatus();
    }
    ASSIGN_OR_RETURN(const TensorSpec* spec, Take(name));
    bool is_row = false;
    ASSIGN_OR_RETURN(models::Tensor tensor,
                     FromJson(*spec, std::move(value), is_row));
    return Add(*spec, std::move(tensor), is_row);
  }

  Status AddPart(const handlers::TaskPart& part) {
    const size_t first = part.bytes.find_first_not_of(" \t\r\n");
    const bool may_be_json =
        first != std::string::npos &&
        std::string_view("[{-0123456789\"").find(part.bytes[first]) !=
            std::string_view::npos;
    const bool says_json = part.content_type == "application/json";
    if (says_json || may_be_json) {
      StatusOr<Json> value = ParseJson(part.bytes, kLimits);
      if (value.ok()) return AddValue(part.name, *std::move(value));
      if (says_json) return value.status();
    }
    ASSIGN_OR_RETURN(const TensorSpec* spec, Take(part.name));
    bool is_row = false;
    ASSIGN_OR_RETURN(models::Tensor tensor,
                     FromBytes(*spec, part.bytes, is_row));
    return Add(*spec, std::move(tensor), is_row);
  }

  StatusOr<PredictionInputs> Done() {
    for (const TensorSpec& spec : specs_) {
      const bool given =
          std::any_of(inputs_.tensors.begin(), inputs_.tensors.end(),
                      [&](const handlers::NamedTensor& each) {
                        return each.name == spec.name;
                      });
      if (!given) return BadInput(spec.name, "is missing (" + spec.text + ")");
    }
    return std::move(inputs_);
  }

 private:
  StatusOr<const TensorSpec*> Take(const std::string& name) const {
    const TensorSpec* spec = SpecNamed(specs_, name);
    if (spec == nullptr) return NoSuchInput(name, specs_);
    for (const handlers::NamedTensor& each : inputs_.tensors) {
      if (each.name == spec->name) {
        return BadInput(spec->name, "is given twice");
      }
    }
    return spec;
  }

  Status Add(const TensorSpec& spec, models::Tensor tensor, bool is_row) {
    inputs_.is_row |= is_row;
    inputs_.tensors.push_back({spec.name, std::move(tensor)});
    return OkStatus();
  }

  const std::vector<TensorSpec>& specs_;
  PredictionInputs inputs_;
};

}  // namespace

StatusOr<PredictionInputs> ReadTensors(std::vector<handlers::TaskPart> parts,
                                       const std::vector<TensorSpec>& specs) {
  Collector collector(specs);
  for (const handlers::TaskPart& part : parts) {
    RETURN_IF_ERROR(collector.AddPart(part));
  }
  return collector.Done();
}

StatusOr<PredictionInputs> ReadInstances(const Json& body,
                                         const std::vector<TensorSpec>& specs) {
  const auto at = body.is_object() ? body.find("instances") : body.end();
  if (!body.is_object() || at == body.end() || !at->is_array() || at->empty()) {
    return InvalidArgument(
               "the body must be a JSON object with a list of instances")
        .At("instances");
  }
  // Rows that are objects hold their inputs by name.
  Json columns = Json::object();  // no more members than the model has inputs
  for (const Json& row : *at) {
    if (!row.is_object()) {
      columns[""].push_back(row);
      continue;
    }
    for (const auto& [name, value] : row.items()) {
      if (SpecNamed(specs, name) == nullptr) return NoSuchInput(name, specs);
      columns[name].push_back(value);
    }
  }
  Collector collector(specs);
  for (auto& [name, column] : columns.items()) {
    if (column.size() != at->size()) {
      return InvalidArgument("the instances do not have the same inputs")
          .At("instances");
    }
    RETURN_IF_ERROR(collector.AddValue(name, std::move(column)));
  }
  return collector.Done();
}

StatusOr<std::string> TensorsJson(
    const std::vector<handlers::NamedTensor>& outputs, bool is_row) {
  std::string text = outputs.size() == 1 ? "" : "{";
  for (const handlers::NamedTensor& output : outputs) {
    if (outputs.size() > 1) {
      if (&output != &outputs.front()) text += ',';
      text += DumpJson(Json(output.name)) + ":";
    }
    const Shape& shape = output.tensor.shape();
    const bool strip = is_row && shape.rank() > 0 && shape[0] == 1;
    RETURN_IF_ERROR(
        AppendNested(output.name, output.tensor, strip ? 1 : 0, text));
  }
  if (outputs.size() != 1) text += '}';
  return text;
}

}  // namespace millrace::server::torchserve

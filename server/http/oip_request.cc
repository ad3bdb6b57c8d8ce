// Data go from the parser straight into their tensor where name, datatype and
// shape stand before them, as all clients send them; else they wait in the
// tree. No tensor is made before the text could hold its numbers.
#include "server/http/oip_request.h"

#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "config/base/json.h"
#include "handlers/json_fields.h"
#include "models/tensor/strings.h"
#include "server/http/oip_plain.h"
#include "server/tensor_bytes.h"
#include "server/tensor_json.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;
using handlers::FindField;

constexpr std::string_view kHeader = "inference-header-content-length";

Status Missing(const std::string& path) {
  return InvalidArgument(path + " is missing").At(path);
}

StatusOr<std::string> Text(const Json& object, const char* key,
                           const std::string& path) {
  const Json* value = FindField(object, key);
  const std::string full = path + "." + key;
  if (value == nullptr) return Missing(full);
  return handlers::AsString(*value, full);
}

StatusOr<TensorHead> ReadHead(const Json& object, const std::string& path) {
  ASSIGN_OR_RETURN(const std::string name, Text(object, "name", path));
  ASSIGN_OR_RETURN(const std::string datatype, Text(object, "datatype", path));
  const Json* shape = FindField(object, "shape");
  if (shape == nullptr) return Missing(path + ".shape");
  if (!shape->is_array()) {
    return handlers::WrongType(path + ".shape", "a list of sizes", *shape);
  }
  if (shape->size() > models::Shape::kMaxRank) {
    return BadInput(name, "has " + std::to_string(shape->size()) +
                              " dimensions but at most " +
                              std::to_string(models::Shape::kMaxRank) +
                              " are supported");
  }
  std::vector<int64_t> dims;
  for (size_t i = 0; i < shape->size(); ++i) {
    ASSIGN_OR_RETURN(
        const int64_t size,
        handlers::AsInt((*shape)[i], path + ".shape[" + std::to_string(i) + "]",
                        {.min = 0}));
    dims.push_back(size);
  }
  return ReadTensorHead(name, datatype, dims);
}

bool SameHead(const TensorHead& a, const TensorHead& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape;
}

class BodyReader {
 public:
  BodyReader(std::string_view json, std::string_view tail,
             const SharedRegions& regions)
      : json_(json),
        tail_(tail),
        regions_(regions),
        request_bytes_(json.size() + tail.size()),
        elements_left_(json.size() / 2 + 1) {}

  StatusOr<InferBody> Read() {
    ASSIGN_OR_RETURN(const Json root, Parse());
    if (!root.is_object()) {
      return InvalidArgument("the body must be a JSON object, not " +
                             handlers::Shown(root));
    }
    InferBody body;
    ASSIGN_OR_RETURN(body.id, handlers::ReadString(root, "id"));
    RETURN_IF_ERROR(ReadParameters(root, body));
    RETURN_IF_ERROR(ReadInputs(root, body));
    RETURN_IF_ERROR(ReadOutputs(root, body));
    return body;
  }

 private:
  StatusOr<Json> Parse() {
    StatusOr<Json> root = ParseJson(
        json_, {},
        [this](const Json& top, const Json& object, std::string_view key) {
          return Pick(top, object, key);
        });
    if (root.ok() || readers_.empty()) return root;
    const Status& status = root.status();
    const TensorReader& last = *readers_.rbegin()->second;
    if (last.done() || !status.field().empty()) return root;
    const bool literal =
        status.message().find("invalid literal") != std::string_view::npos;
    return BadInput(last.head().name,
                    "has unreadable data: " + std::string(status.message()) +
                        (literal ? "; JSON knows no NaN and no Infinity, which "
                                   "binary data can carry"
                                 : ""));
  }

  StatusOr<JsonArraySink*> Pick(const Json& root, const Json& object,
                                std::string_view key) {
    if (key != "data") return nullptr;
    const Json* inputs = FindField(root, "inputs");
    if (inputs == nullptr || !inputs->is_array() || inputs->empty() ||
        &inputs->back() != &object) {
      return nullptr;
    }
    for (const char* needed : {"name", "datatype", "shape"}) {
      if (FindField(object, needed) == nullptr) return nullptr;
    }
    const size_t index = inputs->size() - 1;
    ASSIGN_OR_RETURN(TensorHead head, ReadHead(object, PathOf(index)));
    if (head.dtype == models::kString) return nullptr;  // read as a tree
    ASSIGN_OR_RETURN(std::unique_ptr<TensorReader> reader,
                     MakeReader(std::move(head)));
    return (readers_[index] = std::move(reader)).get();
  }

  StatusOr<std::unique_ptr<TensorReader>> MakeReader(TensorHead head) {
    const int64_t wanted = head.shape.num_elements();
    if (wanted > elements_left_) {
      return BadInput(head.name, "has shape " + head.shape.ToString() +
                                     ", which is more elements than the body "
                                     "holds");
    }
    elements_left_ -= wanted;
    return std::make_unique<TensorReader>(std::move(head));
  }

  static std::string PathOf(size_t index) {
    return "inputs[" + std::to_string(index) + "]";
  }

  Status ReadInputs(const Json& root, InferBody& body) {
    ASSIGN_OR_RETURN(const Json* inputs, handlers::ReadArray(root, "inputs"));
    if (inputs == nullptr) return Missing("inputs");
    for (size_t i = 0; i < inputs->size(); ++i) {
      const Json& input = (*inputs)[i];
      if (!input.is_object()) {
        return handlers::WrongType(PathOf(i), "an object", input);
      }
      ASSIGN_OR_RETURN(TensorHead head, ReadHead(input, PathOf(i)));
      ASSIGN_OR_RETURN(models::Tensor tensor, ReadInput(input, i, head));
      body.request.inputs.push_back({std::move(head.name), std::move(tensor)});
    }
    if (tail_.empty()) return OkStatus();
    return InvalidArgument(
        std::to_string(tail_.size()) +
        " bytes are left behind the tensors; binary_data_size of the inputs "
        "must add up to all bytes behind the JSON");
  }

  StatusOr<models::Tensor> ReadInput(const Json& input, size_t index,
                                     const TensorHead& head) {
    ASSIGN_OR_RETURN(const Json* parameters,
                     handlers::ReadObject(input, "parameters"));
    std::optional<int64_t> binary_bytes;
    if (parameters != nullptr) {
      ASSIGN_OR_RETURN(
          binary_bytes,
          handlers::ReadInt(*parameters, "binary_data_size", {.min = 0}));
    }
    const Json* data = FindField(input, "data");
    ASSIGN_OR_RETURN(const auto span, ReadSpan(parameters));
    if (span.has_value()) {
      if (data != nullptr || binary_bytes.has_value()) {
        return BadInput(head.name,
                        "has a shared_memory_region beside other data");
      }
      ASSIGN_OR_RETURN(const std::string bytes,
                       regions_.Read(*span, request_bytes_));
      return TensorFromBytes(head, bytes);
    }
    if (binary_bytes.has_value()) return TakeBytes(head, *binary_bytes, data);
    if (data == nullptr) {
      return BadInput(head.name,
                      "has neither data nor the parameter binary_data_size");
    }
    if (const auto found = readers_.find(index); found != readers_.end()) {
      if (SameHead(found->second->head(), head)) return found->second->Take();
      return BadInput(head.name,
                      "is described twice; say name, datatype and shape once");
    }
    if (head.dtype == models::kString) return StringsFromJson(head, *data);
    if (!data->is_array()) {
      return handlers::WrongType(PathOf(index) + ".data", "a list", *data);
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<TensorReader> reader,
                     MakeReader(head));
    RETURN_IF_ERROR(FeedArray(*data, *reader));
    return reader->Take();
  }

  StatusOr<models::Tensor> TakeBytes(const TensorHead& head, int64_t num_bytes,
                                     const Json* data) {
    if (data != nullptr) {
      return BadInput(head.name, "has both data and binary_data_size");
    }
    if (num_bytes > static_cast<int64_t>(tail_.size())) {
      return BadInput(head.name, "has a binary_data_size of " +
                                     std::to_string(num_bytes) + " but only " +
                                     std::to_string(tail_.size()) +
                                     " bytes are left of the body");
    }
    const std::string_view bytes =
        tail_.substr(0, static_cast<size_t>(num_bytes));
    tail_.remove_prefix(bytes.size());
    return TensorFromBytes(head, bytes);
  }

  // Those without a meaning here are left alone.
  static Status ReadParameters(const Json& root, InferBody& body) {
    ASSIGN_OR_RETURN(const Json* parameters,
                     handlers::ReadObject(root, "parameters"));
    if (parameters == nullptr) return OkStatus();
    for (const auto& [key, value] : parameters->items()) {
      if (!value.is_primitive() || value.is_null()) {
        return handlers::WrongType("parameters." + key,
                                   "a string, a number or a bool", value);
      }
    }
    body.parameters = std::make_shared<const Json>(*parameters);
    ASSIGN_OR_RETURN(const auto binary,
                     handlers::ReadBool(*parameters, "binary_data_output"));
    body.binary = binary.value_or(false);
    ASSIGN_OR_RETURN(const auto timeout_us,
                     handlers::ReadInt(*parameters, "timeout", {.min = 0}));
    if (timeout_us.value_or(0) > 0) {
      body.request.timeout = std::chrono::microseconds(*timeout_us);
    }
    ASSIGN_OR_RETURN(const auto priority,
                     handlers::ReadInt(*parameters, "priority",
                                       {.min = 0, .max = INT32_MAX}));
    body.request.priority = static_cast<int32_t>(priority.value_or(0));
    ASSIGN_OR_RETURN(const auto batch_statistics,
                     handlers::ReadBool(*parameters, "batch_statistics"));
    body.batch_statistics = batch_statistics.value_or(false);
    return ReadSequence(*parameters, body.sequence);
  }

  static Status ReadSequence(const Json& parameters,
                             handlers::SequencePlace& sequence) {
    if (const Json* id = FindField(parameters, "sequence_id");
        id != nullptr && id->is_string()) {
      sequence.id = id->get<std::string>();
    } else if (id != nullptr && id->is_number_integer() &&
               (id->is_number_unsigned() || id->get<int64_t>() >= 0)) {
      sequence.id = id->get<uint64_t>();
    } else if (id != nullptr) {
      return handlers::WrongType("parameters.sequence_id",
                                 "a whole number or a string", *id);
    }
    ASSIGN_OR_RETURN(const auto start,
                     handlers::ReadBool(parameters, "sequence_start"));
    ASSIGN_OR_RETURN(const auto end,
                     handlers::ReadBool(parameters, "sequence_end"));
    sequence.start = start.value_or(false);
    sequence.end = end.value_or(false);
    return OkStatus();
  }

  static Status ReadOutputs(const Json& root, InferBody& body) {
    ASSIGN_OR_RETURN(const Json* outputs, handlers::ReadArray(root, "outputs"));
    if (outputs == nullptr) return OkStatus();
    for (size_t i = 0; i < outputs->size(); ++i) {
      const Json& output = (*outputs)[i];
      const std::string path = "outputs[" + std::to_string(i) + "]";
      if (!output.is_object()) {
        return handlers::WrongType(path, "an object", output);
      }
      ASSIGN_OR_RETURN(const std::string name, Text(output, "name", path));
      ASSIGN_OR_RETURN(const Json* parameters,
                       handlers::ReadObject(output, "parameters"));
      OutputForm& form = body.forms[name];
      ASSIGN_OR_RETURN(form.shared, ReadSpan(parameters));
      if (parameters != nullptr) {
        ASSIGN_OR_RETURN(form.binary,
                         handlers::ReadBool(*parameters, "binary_data"));
        ASSIGN_OR_RETURN(const auto classes,
                         handlers::ReadInt(*parameters, "classification",
                                           {.min = 0, .max = INT32_MAX}));
        form.classes = classes.value_or(0);
      }
      if (form.shared.has_value() && form.classes > 0) {
        return InvalidArgument("output '" + name +
                               "' asks for classification in shared memory, "
                               "which is not supported; leave one of them out")
            .At(name);
      }
      body.request.outputs.push_back(name);
    }
    // Of outputs that are named, each says for itself.
    if (!outputs->empty()) body.binary = false;
    return OkStatus();
  }

  // shared_memory_region with its size and offset; none without a region.
  static StatusOr<std::optional<SharedSpan>> ReadSpan(const Json* parameters) {
    if (parameters == nullptr) return std::optional<SharedSpan>();
    ASSIGN_OR_RETURN(const auto region,
                     handlers::ReadString(*parameters, "shared_memory_region"));
    if (!region.has_value()) return std::optional<SharedSpan>();
    ASSIGN_OR_RETURN(
        const auto bytes,
        handlers::ReadInt(*parameters, "shared_memory_byte_size", {.min = 0}));
    if (!bytes.has_value()) return Missing("shared_memory_byte_size");
    ASSIGN_OR_RETURN(
        const auto offset,
        handlers::ReadInt(*parameters, "shared_memory_offset", {.min = 0}));
    return std::optional<SharedSpan>(
        SharedSpan{*region, static_cast<uint64_t>(offset.value_or(0)),
                   static_cast<uint64_t>(*bytes)});
  }

  const std::string_view json_;
  std::string_view tail_;
  const SharedRegions& regions_;
  uint64_t request_bytes_;  // with what was read of regions
  int64_t elements_left_;   // that the text could hold
  std::map<size_t, std::unique_ptr<TensorReader>> readers_;  // by input
};

}  // namespace

StatusOr<InferBody> ReadInferBody(std::string_view body,
                                  std::optional<size_t> json_bytes,
                                  const SharedRegions& regions) {
  const size_t end = json_bytes.value_or(body.size());
  const std::string_view json = body.substr(0, end);
  const std::string_view tail = body.substr(end);
  if (auto plain = ReadPlainInfer(json, tail)) return *std::move(plain);
  return BodyReader(json, tail, regions).Read();
}

bool MayNameRegion(std::string_view json) {
  return json.find("shared_memory_region") != std::string_view::npos ||
         json.find("\\u") != std::string_view::npos;
}

StatusOr<InferBody> ReadRawBody(std::string_view body,
                                const std::vector<models::TensorSpec>& inputs,
                                std::string_view what) {
  const auto refused = [what](const std::string& why) {
    return InvalidArgument(std::string(what) + " " + why +
                           "; send the JSON that describes the tensors")
        .At("Inference-Header-Content-Length");
  };
  if (inputs.size() != 1) {
    return refused("takes a model of one input, and this one has " +
                   std::to_string(inputs.size()));
  }
  const models::TensorSpec& spec = inputs.front();
  TensorHead head{.name = spec.name, .dtype = spec.dtype, .shape = {}};
  std::vector<int64_t> dims = spec.dims;
  if (!dims.empty() && dims[0] < 0) dims[0] = 1;
  if (spec.dtype == models::kString) {
    return refused("takes an input of numbers, and this one is BYTES");
  }
  int64_t known = DTypeBytes(spec.dtype);
  std::optional<size_t> open;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] >= 0) {
      known *= dims[i];
    } else if (open.has_value() || !spec.rank_known) {
      return refused("takes an input of at most one size that varies");
    } else {
      open = i;
    }
  }
  const auto bytes = static_cast<int64_t>(body.size());
  if (open.has_value()) {
    if (known == 0 || bytes % known != 0) {
      return refused("must have a multiple of " + std::to_string(known) +
                     " bytes but has " + std::to_string(bytes));
    }
    dims[*open] = bytes / known;
  }
  ASSIGN_OR_RETURN(head.shape, models::Shape::Checked(dims));
  InferBody read;
  read.binary = true;
  ASSIGN_OR_RETURN(models::Tensor tensor, TensorFromBytes(head, body));
  read.request.inputs.push_back({std::move(head.name), std::move(tensor)});
  return read;
}

StatusOr<std::optional<size_t>> ReadJsonBytes(const HttpRequest& request,
                                              size_t body_bytes) {
  if (!request.HasHeader(kHeader)) return std::optional<size_t>();
  const std::string_view text = request.Header(kHeader);
  size_t value = 0;
  const auto [end, ec] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size() ||
      value > body_bytes) {
    return InvalidArgument("Inference-Header-Content-Length is '" +
                           std::string(text) +
                           "' but must be a number of bytes within the body, "
                           "which has " +
                           std::to_string(body_bytes))
        .At("Inference-Header-Content-Length");
  }
  return std::optional<size_t>(value);
}

}  // namespace millrace::server::http

// Narrow integers share one typed field of the message, so their values are
// checked against the range of the narrow type.
#include "server/grpc/tensor_codec.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "models/tensor/strings.h"
#include "models/tensor/travel_bytes.h"
#include "open_inference_grpc.pb.h"
#include "server/classification.h"
#include "server/grpc/text_codec.h"
#include "server/tensor_bytes.h"

namespace millrace::server {
namespace {

using Contents = inference::InferTensorContents;
using models::DType;
using models::Tensor;

template <typename T, typename Field>
StatusOr<Tensor> FromField(const TensorHead& head, const Field& field) {
  const int64_t wanted = head.shape.num_elements();
  if (field.size() != wanted) {
    return BadInput(head.name, "has " + std::to_string(field.size()) +
                                   " values in the contents of its datatype "
                                   "but " +
                                   TypeText(head.dtype, head.shape) +
                                   " takes " + std::to_string(wanted));
  }
  Tensor tensor = Tensor::Make(head.dtype, head.shape);
  for (int i = 0; i < field.size(); ++i) {
    const auto value = field[i];
    if constexpr (std::is_integral_v<T> && sizeof(T) < sizeof(value)) {
      if (!std::in_range<T>(value)) {
        return BadInput(head.name, "is " + std::to_string(value) +
                                       " at element " + std::to_string(i) +
                                       ", which is out of the range of " +
                                       std::string(DTypeName(head.dtype)));
      }
    }
    tensor.data<T>()[i] = static_cast<T>(value);
  }
  return tensor;
}

StatusOr<Tensor> FromTexts(const TensorHead& head, const Contents& contents) {
  const int64_t wanted = head.shape.num_elements();
  if (contents.bytes_contents_size() != wanted) {
    return BadInput(head.name,
                    "has " + std::to_string(contents.bytes_contents_size()) +
                        " values in bytes_contents but " +
                        TypeText(head.dtype, head.shape) + " takes " +
                        std::to_string(wanted));
  }
  return models::MakeStrings(head.shape, std::vector<std::string_view>(
                                             contents.bytes_contents().begin(),
                                             contents.bytes_contents().end()));
}

StatusOr<Tensor> FromContents(const TensorHead& head,
                              const Contents& contents) {
  if (head.dtype == models::kString) return FromTexts(head, contents);
  switch (head.dtype) {
    case DType::kBool:
      return FromField<bool>(head, contents.bool_contents());
    case DType::kU8:
      return FromField<uint8_t>(head, contents.uint_contents());
    case DType::kU16:
      return FromField<uint16_t>(head, contents.uint_contents());
    case DType::kU32:
      return FromField<uint32_t>(head, contents.uint_contents());
    case DType::kU64:
      return FromField<uint64_t>(head, contents.uint64_contents());
    case DType::kI8:
      return FromField<int8_t>(head, contents.int_contents());
    case DType::kI16:
      return FromField<int16_t>(head, contents.int_contents());
    case DType::kI32:
      return FromField<int32_t>(head, contents.int_contents());
    case DType::kI64:
      return FromField<int64_t>(head, contents.int64_contents());
    case DType::kF32:
      return FromField<float>(head, contents.fp32_contents());
    case DType::kF64:
      return FromField<double>(head, contents.fp64_contents());
    case DType::kF16:
    case DType::kBF16:
      break;
  }
  return BadInput(head.name, "is " + std::string(DTypeName(head.dtype)) +
                                 ", which only travels raw; send all tensors "
                                 "in raw_input_contents");
}

template <typename T, typename Field>
void ToField(const Tensor& tensor, Field* field) {
  const T* values = tensor.data<T>();
  field->Reserve(static_cast<int>(tensor.num_elements()));
  for (int64_t i = 0; i < tensor.num_elements(); ++i) field->Add(values[i]);
}

void ToContents(const Tensor& tensor, Contents* contents) {
  if (tensor.dtype() == models::kString) {
    for (const std::string_view text : models::StringsIn(tensor)) {
      contents->add_bytes_contents(std::string(text));
    }
    return;
  }
  switch (tensor.dtype()) {
    case DType::kBool:
      return ToField<bool>(tensor, contents->mutable_bool_contents());
    case DType::kU8:
      return ToField<uint8_t>(tensor, contents->mutable_uint_contents());
    case DType::kU16:
      return ToField<uint16_t>(tensor, contents->mutable_uint_contents());
    case DType::kU32:
      return ToField<uint32_t>(tensor, contents->mutable_uint_contents());
    case DType::kU64:
      return ToField<uint64_t>(tensor, contents->mutable_uint64_contents());
    case DType::kI8:
      return ToField<int8_t>(tensor, contents->mutable_int_contents());
    case DType::kI16:
      return ToField<int16_t>(tensor, contents->mutable_int_contents());
    case DType::kI32:
      return ToField<int32_t>(tensor, contents->mutable_int_contents());
    case DType::kI64:
      return ToField<int64_t>(tensor, contents->mutable_int64_contents());
    case DType::kF32:
      return ToField<float>(tensor, contents->mutable_fp32_contents());
    case DType::kF64:
      return ToField<double>(tensor, contents->mutable_fp64_contents());
    case DType::kF16:
    case DType::kBF16:
      break;
  }
  CHECK(false, "half floats make an answer raw");
}

bool OnlyRaw(const handlers::NamedTensor& output) {
  return output.tensor.dtype() == DType::kF16 ||
         output.tensor.dtype() == DType::kBF16;
}

void Describe(const models::TensorSpec& spec,
              inference::ModelMetadataResponse::TensorMetadata* tensor) {
  tensor->set_name(spec.name);
  tensor->set_datatype(std::string(DTypeName(spec.dtype)));
  for (const int64_t size : spec.dims) tensor->add_shape(size);
  if (!spec.rank_known) tensor->add_shape(-1);
}

using Parameters =
    google::protobuf::Map<std::string, inference::InferParameter>;

StatusOr<std::optional<uint64_t>> ReadWhole(const Parameters& parameters,
                                            const std::string& name) {
  using inference::InferParameter;
  const auto found = parameters.find(name);
  if (found == parameters.end()) return std::optional<uint64_t>();
  const InferParameter& value = found->second;
  if (value.parameter_choice_case() == InferParameter::kUint64Param) {
    return std::optional<uint64_t>(value.uint64_param());
  }
  if (value.parameter_choice_case() != InferParameter::kInt64Param ||
      value.int64_param() < 0) {
    return InvalidArgument("parameter '" + name +
                           "' is not a whole number from 0 on")
        .At(name);
  }
  return std::optional<uint64_t>(static_cast<uint64_t>(value.int64_param()));
}

// shared_memory_region with its size and offset; none without a region.
StatusOr<std::optional<SharedSpan>> ReadSpan(const Parameters& parameters) {
  const auto region = parameters.find("shared_memory_region");
  if (region == parameters.end()) return std::optional<SharedSpan>();
  ASSIGN_OR_RETURN(const auto bytes,
                   ReadWhole(parameters, "shared_memory_byte_size"));
  ASSIGN_OR_RETURN(const auto offset,
                   ReadWhole(parameters, "shared_memory_offset"));
  if (!bytes.has_value()) {
    return InvalidArgument("shared_memory_byte_size is missing")
        .At("shared_memory_byte_size");
  }
  return std::optional<SharedSpan>(
      SharedSpan{region->second.string_param(), offset.value_or(0), *bytes});
}

void EncodeClasses(const Classes& classes, bool raw,
                   inference::ModelInferResponse::InferOutputTensor* output,
                   inference::ModelInferResponse* response) {
  output->set_datatype("BYTES");
  for (const int64_t size : classes.shape) output->add_shape(size);
  if (raw) {
    response->add_raw_output_contents(PackTexts(classes.texts));
    return;
  }
  for (const std::string& text : classes.texts) {
    output->mutable_contents()->add_bytes_contents(text);
  }
}

Status ReadSequence(const Parameters& parameters,
                    handlers::SequencePlace& sequence) {
  using inference::InferParameter;
  if (const auto id = parameters.find("sequence_id");
      id != parameters.end() &&
      id->second.parameter_choice_case() == InferParameter::kStringParam) {
    sequence.id = id->second.string_param();
  } else {
    ASSIGN_OR_RETURN(const auto number, ReadWhole(parameters, "sequence_id"));
    sequence.id = number.value_or(0);
  }
  for (const auto& [name, flag] : {std::pair("sequence_start", &sequence.start),
                                   std::pair("sequence_end", &sequence.end)}) {
    const auto found = parameters.find(name);
    if (found == parameters.end()) continue;
    if (found->second.parameter_choice_case() != InferParameter::kBoolParam) {
      return InvalidArgument(std::string("parameter '") + name +
                             "' is not a bool")
          .At(name);
    }
    *flag = found->second.bool_param();
  }
  return OkStatus();
}

// Those without a meaning here are left alone.
Status ReadParameters(const inference::ModelInferRequest& request,
                      TensorCall& call) {
  using inference::InferParameter;
  const auto& parameters = request.parameters();
  if (const auto found = parameters.find("priority");
      found != parameters.end()) {
    const InferParameter& value = found->second;
    const bool is_unsigned =
        value.parameter_choice_case() == InferParameter::kUint64Param;
    if (!is_unsigned &&
        value.parameter_choice_case() != InferParameter::kInt64Param) {
      return InvalidArgument("parameter 'priority' is not a whole number")
          .At("priority");
    }
    const uint64_t level = is_unsigned
                               ? value.uint64_param()
                               : static_cast<uint64_t>(value.int64_param());
    if (level > INT32_MAX) {
      return InvalidArgument("parameter 'priority' must be from 0 to " +
                             std::to_string(INT32_MAX))
          .At("priority");
    }
    call.request.priority = static_cast<int32_t>(level);
  }
  if (const auto found = parameters.find("batch_statistics");
      found != parameters.end()) {
    if (found->second.parameter_choice_case() != InferParameter::kBoolParam) {
      return InvalidArgument("parameter 'batch_statistics' is not a bool")
          .At("batch_statistics");
    }
    call.batch_statistics = found->second.bool_param();
  }
  return ReadSequence(parameters, call.sequence);
}

}  // namespace

StatusOr<TensorCall> DecodeTensors(const inference::ModelInferRequest& request,
                                   const SharedRegions& regions) {
  TensorCall call;
  call.raw = request.raw_input_contents_size() > 0;
  RETURN_IF_ERROR(CheckForm(request, true));
  ASSIGN_OR_RETURN(call.request.timeout, ReadTimeout(request));
  RETURN_IF_ERROR(ReadParameters(request, call));
  int num_raw = 0;
  // With what was read of regions; known once one is named.
  std::optional<uint64_t> request_bytes;
  for (const auto& input : request.inputs()) {
    ASSIGN_OR_RETURN(TensorHead head,
                     ReadTensorHead(input.name(), input.datatype(),
                                    {input.shape().data(),
                                     static_cast<size_t>(input.shape_size())}));
    ASSIGN_OR_RETURN(const auto span, ReadSpan(input.parameters()));
    StatusOr<Tensor> tensor = BadInput(input.name(), "has no data");
    if (span.has_value()) {
      if (!request_bytes) request_bytes = request.ByteSizeLong();
      ASSIGN_OR_RETURN(const std::string bytes,
                       regions.Read(*span, *request_bytes));
      tensor = TensorFromBytes(head, bytes);
    } else if (!call.raw) {
      tensor = FromContents(head, input.contents());
    } else if (num_raw < request.raw_input_contents_size()) {
      tensor = TensorFromBytes(head, request.raw_input_contents(num_raw++));
    }
    RETURN_IF_ERROR(tensor.status());
    call.request.inputs.push_back({std::move(head.name), *std::move(tensor)});
  }
  // Results of what came in shared memory are small or go there, too.
  call.raw = call.raw || request_bytes.has_value();
  for (const auto& output : request.outputs()) {
    OutputForm& form = call.forms[output.name()];
    ASSIGN_OR_RETURN(form.shared, ReadSpan(output.parameters()));
    ASSIGN_OR_RETURN(const auto classes,
                     ReadWhole(output.parameters(), "classification"));
    form.classes = static_cast<int64_t>(
        std::min<uint64_t>(classes.value_or(0), INT32_MAX));
    if (form.shared.has_value() && form.classes > 0) {
      return InvalidArgument("output '" + output.name() +
                             "' asks for classification in shared memory, "
                             "which is not supported; leave one of them out")
          .At(output.name());
    }
    call.request.outputs.push_back(output.name());
  }
  return call;
}

Status EncodeTensors(const handlers::TensorResponse& result, bool raw,
                     const OutputForms& forms, const SharedRegions& regions,
                     inference::ModelInferResponse* response) {
  const std::vector<handlers::NamedTensor>& outputs = result.outputs;
  raw = raw || std::any_of(outputs.begin(), outputs.end(), OnlyRaw);
  for (const handlers::NamedTensor& each : outputs) {
    const auto named = forms.find(each.name);
    const OutputForm form = named != forms.end() ? named->second : OutputForm{};
    auto* output = response->add_outputs();
    output->set_name(each.name);
    if (form.classes > 0) {
      RETURN_IF_ERROR(CheckClassified(each.name, each.tensor));
      EncodeClasses(Classify(each.tensor, form.classes), raw, output, response);
      continue;
    }
    output->set_datatype(std::string(DTypeName(each.tensor.dtype())));
    for (const int64_t size : each.tensor.shape()) output->add_shape(size);
    if (form.shared.has_value()) {
      const models::TravelBytes travel(each.tensor);
      RETURN_IF_ERROR(regions.Write(*form.shared, travel.view()));
      auto& parameters = *output->mutable_parameters();
      parameters["shared_memory_region"].set_string_param(form.shared->region);
      parameters["shared_memory_offset"].set_int64_param(
          static_cast<int64_t>(form.shared->offset));
      parameters["shared_memory_byte_size"].set_int64_param(
          static_cast<int64_t>(form.shared->byte_size));
      // Clients count raw contents by outputs.
      if (raw) response->add_raw_output_contents();
    } else if (raw) {
      const models::TravelBytes travel(each.tensor);
      response->add_raw_output_contents(std::string(travel.view()));
    } else {
      ToContents(each.tensor, output->mutable_contents());
    }
  }
  return OkStatus();
}

void EncodeBatch(const handlers::BatchFacts& batch,
                 inference::ModelInferResponse* response) {
  auto& parameters = *response->mutable_parameters();
  parameters["batch_closed"].set_string_param(batch.closed);
  parameters["batch_size"].set_int64_param(batch.rows);
  parameters["batch_requests"].set_int64_param(batch.requests);
  parameters["queue_ns"].set_int64_param(batch.queue.count());
  parameters["compute_input_ns"].set_int64_param(batch.compute_input.count());
  parameters["compute_infer_ns"].set_int64_param(batch.compute_infer.count());
  parameters["compute_output_ns"].set_int64_param(batch.compute_output.count());
}

void DescribeTensors(const handlers::TensorHandler& handler,
                     inference::ModelMetadataResponse* metadata) {
  for (const models::TensorSpec& spec : handler.inputs()) {
    Describe(spec, metadata->add_inputs());
  }
  for (const models::TensorSpec& spec : handler.outputs()) {
    Describe(spec, metadata->add_outputs());
  }
}

}  // namespace millrace::server

// Narrow integers share one typed field of the message, so their values are
// checked against the range of the narrow type.
#include "server/grpc/tensor_codec.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "open_inference_grpc.pb.h"
#include "server/grpc/infer_codec.h"
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

StatusOr<Tensor> FromContents(const TensorHead& head,
                              const Contents& contents) {
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
  return OkStatus();
}

}  // namespace

StatusOr<TensorCall> DecodeTensors(
    const inference::ModelInferRequest& request) {
  TensorCall call;
  call.raw = request.raw_input_contents_size() > 0;
  RETURN_IF_ERROR(CheckForm(request));
  ASSIGN_OR_RETURN(call.request.timeout, ReadTimeout(request));
  RETURN_IF_ERROR(ReadParameters(request, call));
  for (int i = 0; i < request.inputs_size(); ++i) {
    const auto& input = request.inputs(i);
    if (input.parameters().count("shared_memory_region") != 0) {
      return BadInput(input.name(),
                      "lies in shared memory, which is not supported; send its "
                      "bytes in the request");
    }
    ASSIGN_OR_RETURN(TensorHead head,
                     ReadTensorHead(input.name(), input.datatype(),
                                    {input.shape().data(),
                                     static_cast<size_t>(input.shape_size())}));
    StatusOr<Tensor> tensor =
        call.raw ? TensorFromBytes(head, request.raw_input_contents(i))
                 : FromContents(head, input.contents());
    RETURN_IF_ERROR(tensor.status());
    call.request.inputs.push_back({std::move(head.name), *std::move(tensor)});
  }
  for (const auto& output : request.outputs()) {
    for (const char* name : {"shared_memory_region", "classification"}) {
      if (output.parameters().count(name) == 0) continue;
      return InvalidArgument("output '" + output.name() + "' asks for '" +
                             name + "', which is not supported; leave it out")
          .At(output.name());
    }
    call.request.outputs.push_back(output.name());
  }
  return call;
}

void EncodeTensors(const handlers::TensorResponse& result, bool raw,
                   inference::ModelInferResponse* response) {
  const std::vector<handlers::NamedTensor>& outputs = result.outputs;
  raw = raw || std::any_of(outputs.begin(), outputs.end(), OnlyRaw);
  for (const handlers::NamedTensor& each : outputs) {
    auto* output = response->add_outputs();
    output->set_name(each.name);
    output->set_datatype(std::string(DTypeName(each.tensor.dtype())));
    for (const int64_t size : each.tensor.shape()) output->add_shape(size);
    if (raw) {
      response->add_raw_output_contents(std::string(BytesOf(each.tensor)));
    } else {
      ToContents(each.tensor, output->mutable_contents());
    }
  }
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

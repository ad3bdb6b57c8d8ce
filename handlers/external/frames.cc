#include "handlers/external/frames.h"

#include <cstring>
#include <utility>

#include "config/base/utf8.h"
#include "handler.pb.h"
#include "models/tensor/dtype.h"
#include "models/tensor/strings.h"
#include "models/tensor/travel_bytes.h"

namespace millrace::handlers {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr size_t kMaxNameBytes = 1024;

Status Wrong(const std::string& why) {
  return InvalidArgument("the handler sent " + why);
}

StatusOr<models::DType> TypeOf(const handler::Tensor& tensor) {
  const auto dtype = models::DTypeFromName(tensor.datatype());
  if (dtype.has_value()) return *dtype;
  return Wrong("tensor '" + Shortened(tensor.name(), 100) +
               "' with datatype '" + Shortened(tensor.datatype(), 20) +
               "'; expected one such as FP32");
}

void Clean(std::string& text) {
  if (!IsValidUtf8(text)) text = ReplaceInvalidUtf8(text);
}

void CleanTexts(handler::Message& message) {
  for (handler::Tensor& tensor : *message.mutable_tensors()) {
    Clean(*tensor.mutable_name());
  }
  for (handler::Tensor& tensor : *message.mutable_inputs()) {
    Clean(*tensor.mutable_name());
  }
  for (std::string& name : *message.mutable_outputs()) Clean(name);
  Clean(*message.mutable_error());
  Clean(*message.mutable_model());
  Clean(*message.mutable_version());
}

}  // namespace

void FrameReader::Add(std::string_view bytes) {
  // What was read is dropped when it is more than what is left.
  if (begin_ > bytes_.size() / 2) {
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
  bytes_.append(bytes);
}

StatusOr<bool> FrameReader::Next(handler::Message* message) {
  const size_t left = bytes_.size() - begin_;
  if (left < kLengthBytes) return false;
  uint32_t length = 0;
  std::memcpy(&length, bytes_.data() + begin_, kLengthBytes);
  if (length > kMaxFrameBytes) {
    return Wrong("a message of " + std::to_string(length) +
                 " bytes, but one may have " + std::to_string(kMaxFrameBytes));
  }
  if (left - kLengthBytes < length) return false;
  const char* begin = bytes_.data() + begin_ + kLengthBytes;
  begin_ += kLengthBytes + length;
  if (!message->ParseFromArray(begin, static_cast<int>(length))) {
    return Wrong("bytes that are no message of handler.proto");
  }
  CleanTexts(*message);
  return true;
}

StatusOr<std::string> Framed(const handler::Message& message) {
  const size_t size = message.ByteSizeLong();
  if (size > kMaxFrameBytes) {
    return InvalidArgument("the message for the handler has " +
                           std::to_string(size) + " bytes but may have " +
                           std::to_string(kMaxFrameBytes) +
                           "; raise shared_memory of the handler");
  }
  const auto length = static_cast<uint32_t>(size);
  std::string bytes(kLengthBytes + size, '\0');
  std::memcpy(bytes.data(), &length, kLengthBytes);
  message.SerializeToArray(bytes.data() + kLengthBytes, static_cast<int>(size));
  return bytes;
}

StatusOr<NamedTensor> TensorFrom(const handler::Tensor& tensor,
                                 std::span<const std::byte> shared,
                                 uint64_t shared_begin) {
  ASSIGN_OR_RETURN(const models::DType dtype, TypeOf(tensor));
  const std::string name = tensor.name().substr(0, kMaxNameBytes);
  const std::vector<int64_t> dims(tensor.shape().begin(), tensor.shape().end());
  StatusOr<models::Shape> shape = models::Shape::Checked(dims);
  if (!shape.ok()) {
    return Wrong("tensor '" + name + "' with a wrong shape: " +
                 std::string(shape.status().message()));
  }
  const char* bytes = tensor.data().data();
  uint64_t size = tensor.data().size();
  if (tensor.shared_bytes() > 0) {
    size = tensor.shared_bytes();
    if (tensor.shared_offset() < shared_begin ||
        tensor.shared_offset() - shared_begin > shared.size() ||
        size > shared.size() - (tensor.shared_offset() - shared_begin)) {
      return Wrong("tensor '" + name +
                   "' outside of the shared memory it may write to");
    }
    bytes = reinterpret_cast<const char*>(shared.data()) +
            (tensor.shared_offset() - shared_begin);
  }
  if (dtype == models::kString) {
    StatusOr<models::Tensor> strings =
        models::StringsFromBytes(*shape, {bytes, static_cast<size_t>(size)});
    if (strings.ok()) return NamedTensor{name, *std::move(strings)};
    return Wrong("tensor '" + name + "', which " +
                 std::string(strings.status().message()));
  }
  const auto wanted = static_cast<uint64_t>(shape->num_elements()) *
                      static_cast<uint64_t>(DTypeBytes(dtype));
  if (size != wanted) {
    return Wrong("tensor '" + name + "' with " + std::to_string(size) +
                 " bytes, but " + models::TypeText(dtype, *shape) + " has " +
                 std::to_string(wanted));
  }
  NamedTensor copy{name, models::Tensor::Make(dtype, *shape)};
  if (size > 0) std::memcpy(copy.tensor.bytes(), bytes, size);
  if (dtype == models::DType::kBool) {
    for (uint64_t i = 0; i < size; ++i) {
      copy.tensor.data<uint8_t>()[i] = bytes[i] != 0 ? 1 : 0;
    }
  }
  return copy;
}

StatusOr<models::TensorSpec> SpecFrom(const handler::Tensor& tensor) {
  models::TensorSpec spec;
  spec.name = tensor.name();
  if (spec.name.empty() || spec.name.size() > kMaxNameBytes) {
    return Wrong("an input or output without a name");
  }
  ASSIGN_OR_RETURN(spec.dtype, TypeOf(tensor));
  if (tensor.shape_size() > models::Shape::kMaxRank) {
    return Wrong("'" + spec.name + "' with " +
                 std::to_string(tensor.shape_size()) + " dimensions");
  }
  spec.text = std::string(models::DTypeName(spec.dtype)) + " [";
  for (const int64_t size : tensor.shape()) {
    if (size < -1) return Wrong("'" + spec.name + "' with a size below -1");
    spec.text += (spec.dims.empty() ? "" : ",") + std::to_string(size);
    spec.dims.push_back(size);
  }
  spec.text += "]";
  return spec;
}

void SetHead(const std::string& name, const models::Tensor& tensor,
             handler::Tensor* message) {
  message->set_name(name);
  message->set_datatype(std::string(models::DTypeName(tensor.dtype())));
  for (const int64_t size : tensor.shape()) message->add_shape(size);
}

}  // namespace millrace::handlers

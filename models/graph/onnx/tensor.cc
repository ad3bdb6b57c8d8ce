// Small numbers travel in int32_data whatever their type; 16-bit floats stand
// there as their bits.
#include "models/graph/onnx/tensor.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/graph/onnx/external.h"
#include "models/graph/onnx/text.h"
#include "models/graph/onnx_dtype.h"
#include "models/tensor/strings.h"

namespace millrace::models::graph {
namespace {

// Below, bytes are copied to where they are aligned and packed.
constexpr size_t kBorrowedBytes = 4096;

Status Bad(const onnx::TensorProto& proto, const std::string& why) {
  return InvalidArgument("tensor " + Quoted(proto.name()) + " " + why);
}

// A byte of a bool is 0 or 1 from here on.
void Normalise(Tensor* tensor) {
  if (tensor->dtype() != DType::kBool) return;
  std::byte* bytes = tensor->bytes();
  std::transform(bytes, bytes + tensor->num_bytes(), bytes, [](std::byte b) {
    return b == std::byte{0} ? std::byte{0} : std::byte{1};
  });
}

Tensor Copied(DType dtype, const Shape& shape, const void* bytes) {
  Tensor tensor = Tensor::Make(dtype, shape);
  if (const auto size = static_cast<size_t>(tensor.num_bytes()); size > 0) {
    std::memcpy(tensor.bytes(), bytes, size);
  }
  Normalise(&tensor);
  return tensor;
}

Tensor InFile(DType dtype, const Shape& shape, std::span<const std::byte> bytes,
              const std::shared_ptr<const MappedFile>& file) {
  if (bytes.size() < kBorrowedBytes || dtype == DType::kBool) {
    return Copied(dtype, shape, bytes.data());
  }
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  const bool aligned = address % static_cast<uintptr_t>(DTypeBytes(dtype)) == 0;
  return (aligned ? Tensor::Borrow : Tensor::Late)(dtype, shape, bytes.data(),
                                                   file, file.get());
}

template <typename To, typename Field>
StatusOr<Tensor> FromField(const onnx::TensorProto& proto, DType dtype,
                           const Shape& shape, const Field& field) {
  if (field.size() != shape.num_elements()) {
    return Bad(proto, "holds " + std::to_string(field.size()) +
                          " numbers, but is " + TypeText(dtype, shape));
  }
  Tensor tensor = Tensor::Make(dtype, shape);
  std::transform(field.begin(), field.end(), tensor.data<To>(),
                 [](auto value) { return static_cast<To>(value); });
  Normalise(&tensor);
  return tensor;
}

StatusOr<Tensor> FromFields(const onnx::TensorProto& proto, DType dtype,
                            const Shape& shape) {
  const auto from = [&]<typename To>(const auto& field) {
    return FromField<To>(proto, dtype, shape, field);
  };
  switch (dtype) {
    case DType::kF32:
      return from.operator()<float>(proto.float_data());
    case DType::kF64:
      return from.operator()<double>(proto.double_data());
    case DType::kI64:
      return from.operator()<int64_t>(proto.int64_data());
    case DType::kU64:
      return from.operator()<uint64_t>(proto.uint64_data());
    case DType::kU32:
      return from.operator()<uint32_t>(proto.uint64_data());
    case DType::kI32:
      return from.operator()<int32_t>(proto.int32_data());
    case DType::kF16:
    case DType::kBF16:
    case DType::kU16:
    case DType::kI16:
      return from.operator()<uint16_t>(proto.int32_data());
    case DType::kU8:
    case DType::kI8:
    case DType::kBool:
      break;
  }
  return from.operator()<uint8_t>(proto.int32_data());
}

StatusOr<Tensor> Strings(const onnx::TensorProto& proto, const Shape& shape) {
  if (proto.string_data_size() != shape.num_elements()) {
    return Bad(proto, "holds " + std::to_string(proto.string_data_size()) +
                          " strings, but is " + TypeText(kString, shape));
  }
  return MakeStrings(shape,
                     std::vector<std::string_view>(proto.string_data().begin(),
                                                   proto.string_data().end()));
}

StatusOr<Tensor> External(const onnx::TensorProto& proto, DType dtype,
                          const Shape& shape, ExternalFiles* files) {
  if (files == nullptr) {
    return Bad(proto, "has external data, which are not allowed here");
  }
  ASSIGN_OR_RETURN(
      const ExternalFiles::Piece piece,
      files->Find(proto, shape.num_elements() * DTypeBytes(dtype)));
  return InFile(dtype, shape, piece.bytes, piece.file);
}

}  // namespace

StatusOr<Tensor> TakeTensor(onnx::TensorProto* proto, ExternalFiles* files,
                            const LateBytes& late) {
  const std::optional<DType> dtype = DTypeFromOnnx(proto->data_type());
  if (!dtype.has_value()) {
    return Unimplemented("tensor " + Quoted(proto->name()) + " is of " +
                         OnnxTypeName(proto->data_type()) +
                         ", which is not supported");
  }
  const std::vector<int64_t> dims(proto->dims().begin(), proto->dims().end());
  auto shape = Shape::Checked(dims);
  if (!shape.ok()) {
    return shape.status().Prefixed("tensor " + Quoted(proto->name()));
  }
  if (*dtype == kString) return Strings(*proto, *shape);
  if (proto->data_location() == onnx::TensorProto::EXTERNAL) {
    return External(*proto, *dtype, *shape, files);
  }
  if (!late.bytes.has_value() && !proto->has_raw_data()) {
    return FromFields(*proto, *dtype, *shape);
  }
  const std::string& raw = proto->raw_data();
  const size_t given = late.bytes.has_value() ? late.bytes->size() : raw.size();
  if (static_cast<int64_t>(given) !=
      shape->num_elements() * DTypeBytes(*dtype)) {
    return Bad(*proto, "holds " + std::to_string(given) + " bytes, but is " +
                           TypeText(*dtype, *shape));
  }
  if (late.bytes.has_value()) {
    if (late.file == nullptr) {
      return Copied(*dtype, *shape, late.bytes->data());
    }
    return InFile(*dtype, *shape, *late.bytes, late.file);
  }
  if (raw.size() < kBorrowedBytes || *dtype == DType::kBool) {
    return Copied(*dtype, *shape, raw.data());
  }
  const auto kept =
      std::shared_ptr<const std::string>(proto->release_raw_data());
  return Tensor::Borrow(*dtype, *shape,
                        reinterpret_cast<const std::byte*>(kept->data()), kept);
}

}  // namespace millrace::models::graph

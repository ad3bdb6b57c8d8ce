// Reads a GGUF front to back with one bounds-checked cursor. Sizes are compared
// by subtraction from what is left of the file, never by adding to an offset,
// so that no sum can overflow; and an array of strings is walked once here, so
// that later walks need no checks.
#include "models/files/gguf.h"

#include <cstring>
#include <limits>
#include <string>
#include <utility>

namespace millrace::models {
namespace {

int64_t ScalarBytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kUint8:
    case GgufValueType::kInt8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kUint16:
    case GgufValueType::kInt16:
      return 2;
    case GgufValueType::kUint32:
    case GgufValueType::kInt32:
    case GgufValueType::kFloat32:
      return 4;
    case GgufValueType::kUint64:
    case GgufValueType::kInt64:
    case GgufValueType::kFloat64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
  return 0;
}

template <typename T>
T LoadAs(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

std::string Quoted(std::string_view name) {
  std::string out = "'";
  for (const char c : name.substr(0, 100)) {
    out += c >= 32 && c < 127 ? c : '?';
  }
  return out + "'";
}

class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes)
      : data_(reinterpret_cast<const char*>(bytes.data()), bytes.size()) {}

  int64_t position() const { return position_; }
  int64_t left() const {
    return static_cast<int64_t>(data_.size()) - position_;
  }

  StatusOr<std::string_view> Take(int64_t n, const char* what) {
    if (n < 0 || n > left()) {
      return DataLoss("the file ends inside " + std::string(what) +
                      " at byte " + std::to_string(position_) + " (" +
                      std::to_string(n) + " bytes wanted, " +
                      std::to_string(left()) +
                      " left); it is truncated or corrupt");
    }
    const std::string_view out =
        data_.substr(static_cast<size_t>(position_), static_cast<size_t>(n));
    position_ += n;
    return out;
  }
  template <typename T>
  StatusOr<T> Read(const char* what) {
    ASSIGN_OR_RETURN(const std::string_view bytes, Take(sizeof(T), what));
    return LoadAs<T>(bytes.data());
  }
  // A count or length, refused when above the limit.
  StatusOr<int64_t> ReadCount(const char* what, int64_t limit) {
    ASSIGN_OR_RETURN(const uint64_t n, Read<uint64_t>(what));
    if (n > static_cast<uint64_t>(limit)) {
      return InvalidArgument(std::string(what) + " at byte " +
                             std::to_string(position_ - 8) + " is " +
                             std::to_string(n) + ", the limit is " +
                             std::to_string(limit));
    }
    return static_cast<int64_t>(n);
  }
  StatusOr<std::string_view> ReadString(const char* what, int64_t limit) {
    ASSIGN_OR_RETURN(const int64_t n, ReadCount(what, limit));
    return Take(n, what);
  }

 private:
  std::string_view data_;
  int64_t position_ = 0;
};

StatusOr<GgufValueType> CheckedType(uint32_t number, std::string_view key) {
  if (number > static_cast<uint32_t>(GgufValueType::kFloat64)) {
    return InvalidArgument("key " + Quoted(key) + " has the unknown type " +
                           std::to_string(number));
  }
  return static_cast<GgufValueType>(number);
}

StatusOr<GgufValue> ReadValue(Cursor& cursor, std::string_view key,
                              const GgufFile::Limits& limits) {
  GgufValue value{};
  value.count = 1;
  ASSIGN_OR_RETURN(const uint32_t number, cursor.Read<uint32_t>("a key"));
  ASSIGN_OR_RETURN(value.type, CheckedType(number, key));
  if (value.type == GgufValueType::kString) {
    ASSIGN_OR_RETURN(value.bytes, cursor.ReadString("a string value",
                                                    limits.max_string_bytes));
    return value;
  }
  if (value.type != GgufValueType::kArray) {
    ASSIGN_OR_RETURN(value.bytes,
                     cursor.Take(ScalarBytes(value.type), "a value"));
    return value;
  }
  ASSIGN_OR_RETURN(const uint32_t element, cursor.Read<uint32_t>("an array"));
  ASSIGN_OR_RETURN(value.element_type, CheckedType(element, key));
  ASSIGN_OR_RETURN(value.count, cursor.ReadCount("the length of an array",
                                                 limits.max_array_count));
  if (value.element_type == GgufValueType::kArray) {
    return Unimplemented("key " + Quoted(key) +
                         " is an array of arrays, which is not supported");
  }
  if (value.element_type != GgufValueType::kString) {
    // max_array_count * 8 is far from overflow.
    ASSIGN_OR_RETURN(
        value.bytes,
        cursor.Take(value.count * ScalarBytes(value.element_type), "an array"));
    return value;
  }
  Cursor ahead = cursor;
  for (int64_t i = 0; i < value.count; ++i) {
    RETURN_IF_ERROR(
        ahead.ReadString("an array of strings", limits.max_string_bytes)
            .status());
  }
  ASSIGN_OR_RETURN(
      value.bytes,
      cursor.Take(ahead.position() - cursor.position(), "an array of strings"));
  return value;
}

// A tensor's header; the offset of its data comes back beside it.
StatusOr<std::pair<GgufTensor, int64_t>> ReadTensor(
    Cursor& cursor, const GgufFile::Limits& limits) {
  GgufTensor tensor{};
  ASSIGN_OR_RETURN(tensor.name,
                   cursor.ReadString("a tensor's name", limits.max_name_bytes));
  const std::string name = "tensor " + Quoted(tensor.name);
  ASSIGN_OR_RETURN(const uint32_t dims, cursor.Read<uint32_t>("a tensor"));
  if (dims < 1 || dims > 4) {
    return InvalidArgument(name + " has " + std::to_string(dims) +
                           " dimensions, 1 to 4 are allowed");
  }
  tensor.num_dims = static_cast<int32_t>(dims);
  tensor.dims = {1, 1, 1, 1};
  tensor.num_elements = 1;
  constexpr int64_t kMaxElements = int64_t{1} << 50;
  for (uint32_t i = 0; i < dims; ++i) {
    ASSIGN_OR_RETURN(const uint64_t n, cursor.Read<uint64_t>("a tensor"));
    if (n < 1 || n > static_cast<uint64_t>(kMaxElements) ||
        static_cast<int64_t>(n) > kMaxElements / tensor.num_elements) {
      return InvalidArgument(name + " has an impossible dimension of " +
                             std::to_string(n));
    }
    tensor.dims[i] = static_cast<int64_t>(n);
    tensor.num_elements *= tensor.dims[i];
  }
  ASSIGN_OR_RETURN(const uint32_t number, cursor.Read<uint32_t>("a tensor"));
  const GgmlTypeInfo* info = FindGgmlType(number);
  if (info == nullptr) {
    return InvalidArgument(name + " has the unknown type " +
                           std::to_string(number));
  }
  tensor.type = info->type;
  if (tensor.dims[0] % info->block_values != 0) {
    return InvalidArgument(name + " has rows of " +
                           std::to_string(tensor.dims[0]) + " values, but " +
                           std::string(info->name) + " comes in blocks of " +
                           std::to_string(info->block_values));
  }
  tensor.row_bytes = tensor.dims[0] / info->block_values * info->block_bytes;
  ASSIGN_OR_RETURN(const uint64_t offset, cursor.Read<uint64_t>("a tensor"));
  if (offset > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return InvalidArgument(name + " has an impossible offset of " +
                           std::to_string(offset));
  }
  return std::pair(tensor, static_cast<int64_t>(offset));
}

StatusOr<int64_t> IntegerAt(GgufValueType type, const char* p) {
  switch (type) {
    case GgufValueType::kUint8:
    case GgufValueType::kBool:
      return int64_t{LoadAs<uint8_t>(p)};
    case GgufValueType::kInt8:
      return int64_t{LoadAs<int8_t>(p)};
    case GgufValueType::kUint16:
      return int64_t{LoadAs<uint16_t>(p)};
    case GgufValueType::kInt16:
      return int64_t{LoadAs<int16_t>(p)};
    case GgufValueType::kUint32:
      return int64_t{LoadAs<uint32_t>(p)};
    case GgufValueType::kInt32:
      return int64_t{LoadAs<int32_t>(p)};
    case GgufValueType::kInt64:
      return LoadAs<int64_t>(p);
    case GgufValueType::kUint64: {
      const auto value = LoadAs<uint64_t>(p);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return InvalidArgument("the value " + std::to_string(value) +
                               " is too great");
      }
      return static_cast<int64_t>(value);
    }
    default:
      return InvalidArgument("no integer");
  }
}

Status Absent(std::string_view key) {
  return NotFound("the file has no key " + Quoted(key));
}

Status Mistyped(std::string_view key, const GgufValue& value,
                std::string_view wanted) {
  std::string is(GgufValueTypeName(value.type));
  if (value.type == GgufValueType::kArray) {
    is += " of " + std::string(GgufValueTypeName(value.element_type));
  }
  return InvalidArgument("key " + Quoted(key) + " has type " + is +
                         "; expected " + std::string(wanted));
}

bool IsInteger(GgufValueType type) {
  return ScalarBytes(type) > 0 && type != GgufValueType::kBool &&
         type != GgufValueType::kFloat32 && type != GgufValueType::kFloat64;
}

}  // namespace

std::string_view GgufValueTypeName(GgufValueType type) {
  static constexpr std::string_view kNames[] = {
      "uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
      "bool",  "string", "array",  "uint64", "int64",  "float64"};
  return kNames[static_cast<uint32_t>(type)];
}

StatusOr<GgufFile> GgufFile::Open(const std::string& path,
                                  const Limits& limits) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  StatusOr<GgufFile> file = Parse(mapped.bytes(), limits);
  if (!file.ok()) return file.status().Prefixed("'" + path + "'");
  file->file_ = std::move(mapped);
  return file;
}

StatusOr<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes,
                                   const Limits& limits) {
  Cursor cursor(bytes);
  GgufFile file;
  file.bytes_ = bytes;
  ASSIGN_OR_RETURN(const std::string_view magic, cursor.Take(4, "the header"));
  if (magic != "GGUF") {
    return InvalidArgument(
        "this is no GGUF file: its first four bytes are not 'GGUF'");
  }
  ASSIGN_OR_RETURN(const uint32_t version, cursor.Read<uint32_t>("the header"));
  if (version != 2 && version != 3) {
    const bool big_endian = version != 0 && (version & 0xffffu) == 0;
    return Unimplemented(
        big_endian ? std::string("the file is big-endian GGUF; convert it to "
                                 "little-endian")
                   : "GGUF version " + std::to_string(version) +
                         " is not supported (2 and 3 are); convert the model "
                         "again with a newer tool");
  }
  file.version_ = static_cast<int32_t>(version);
  ASSIGN_OR_RETURN(
      const int64_t num_tensors,
      cursor.ReadCount("the number of tensors", limits.max_tensors));
  ASSIGN_OR_RETURN(const int64_t num_keys,
                   cursor.ReadCount("the number of keys", limits.max_keys));

  for (int64_t i = 0; i < num_keys; ++i) {
    GgufKey key{};
    ASSIGN_OR_RETURN(key.name,
                     cursor.ReadString("a key's name", limits.max_name_bytes));
    ASSIGN_OR_RETURN(key.value, ReadValue(cursor, key.name, limits));
    if (!file.key_index_.emplace(key.name, file.keys_.size()).second) {
      return InvalidArgument("key " + Quoted(key.name) + " appears twice");
    }
    file.keys_.push_back(key);
  }
  ASSIGN_OR_RETURN(const int64_t alignment, file.Int("general.alignment", 32));
  if (alignment < 8 || alignment > limits.max_alignment ||
      (alignment & (alignment - 1)) != 0) {
    return InvalidArgument("general.alignment is " + std::to_string(alignment) +
                           ", a power of two from 8 to " +
                           std::to_string(limits.max_alignment) +
                           " is allowed");
  }

  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < num_tensors; ++i) {
    ASSIGN_OR_RETURN(auto tensor, ReadTensor(cursor, limits));
    if (!file.tensor_index_.emplace(tensor.first.name, file.tensors_.size())
             .second) {
      return InvalidArgument("tensor " + Quoted(tensor.first.name) +
                             " appears twice");
    }
    file.tensors_.push_back(tensor.first);
    offsets.push_back(tensor.second);
  }

  const int64_t data_start =
      (cursor.position() + alignment - 1) / alignment * alignment;
  const int64_t data_bytes = file.file_bytes() - data_start;
  for (size_t i = 0; i < file.tensors_.size(); ++i) {
    GgufTensor& tensor = file.tensors_[i];
    const std::string name = "tensor " + Quoted(tensor.name);
    if (offsets[i] % alignment != 0) {
      return InvalidArgument(name + " starts at offset " +
                             std::to_string(offsets[i]) +
                             ", which is no multiple of the alignment " +
                             std::to_string(alignment));
    }
    // Elements are at most 2^50 and a block of values never takes more than 8
    // bytes a value: no overflow.
    const int64_t size =
        tensor.num_elements / tensor.dims[0] * tensor.row_bytes;
    if (data_bytes < 0 || offsets[i] > data_bytes ||
        size > data_bytes - offsets[i]) {
      return DataLoss(name + " (" + std::to_string(size) + " bytes at offset " +
                      std::to_string(offsets[i]) +
                      ") lies outside the file of " +
                      std::to_string(file.file_bytes()) +
                      " bytes; it is truncated or corrupt: fetch it again");
    }
    tensor.data = bytes.subspan(static_cast<size_t>(data_start + offsets[i]),
                                static_cast<size_t>(size));
  }
  return file;
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

const GgufValue* GgufFile::FindKey(std::string_view name) const {
  const auto it = key_index_.find(name);
  return it == key_index_.end() ? nullptr : &keys_[it->second].value;
}

StatusOr<int64_t> GgufFile::Int(std::string_view key) const {
  const GgufValue* value = FindKey(key);
  if (value == nullptr) return Absent(key);
  if (!IsInteger(value->type)) return Mistyped(key, *value, "an integer");
  StatusOr<int64_t> out = IntegerAt(value->type, value->bytes.data());
  if (!out.ok()) return out.status().Prefixed("key " + Quoted(key));
  return out;
}

StatusOr<double> GgufFile::Float(std::string_view key) const {
  const GgufValue* value = FindKey(key);
  if (value == nullptr) return Absent(key);
  if (value->type == GgufValueType::kFloat32) {
    return static_cast<double>(LoadAs<float>(value->bytes.data()));
  }
  if (value->type == GgufValueType::kFloat64) {
    return LoadAs<double>(value->bytes.data());
  }
  if (!IsInteger(value->type)) return Mistyped(key, *value, "a number");
  ASSIGN_OR_RETURN(const int64_t integer, Int(key));
  return static_cast<double>(integer);
}

StatusOr<bool> GgufFile::Bool(std::string_view key) const {
  const GgufValue* value = FindKey(key);
  if (value == nullptr) return Absent(key);
  if (value->type != GgufValueType::kBool) {
    return Mistyped(key, *value, "a bool");
  }
  return value->bytes[0] != 0;
}

StatusOr<std::string_view> GgufFile::String(std::string_view key) const {
  const GgufValue* value = FindKey(key);
  if (value == nullptr) return Absent(key);
  if (value->type != GgufValueType::kString) {
    return Mistyped(key, *value, "a string");
  }
  return value->bytes;
}

StatusOr<int64_t> GgufFile::Int(std::string_view key, int64_t otherwise) const {
  if (FindKey(key) == nullptr) return otherwise;
  return Int(key);
}
StatusOr<double> GgufFile::Float(std::string_view key, double otherwise) const {
  if (FindKey(key) == nullptr) return otherwise;
  return Float(key);
}
StatusOr<bool> GgufFile::Bool(std::string_view key, bool otherwise) const {
  if (FindKey(key) == nullptr) return otherwise;
  return Bool(key);
}
StatusOr<std::string_view> GgufFile::String(std::string_view key,
                                            std::string_view otherwise) const {
  if (FindKey(key) == nullptr) return otherwise;
  return String(key);
}

StatusOr<std::vector<std::string_view>> GgufFile::Strings(
    std::string_view key) const {
  const GgufValue* value = FindKey(key);
  if (value == nullptr) return Absent(key);
  if (value->type != GgufValueType::kArray ||
      value->element_type != GgufValueType::kString) {
    return Mistyped(key, *value, "an array of strings");
  }
  std::vector<std::string_view> out;
  out.reserve(static_cast<size_t>(value->count));
  std::string_view rest = value->bytes;
  for (int64_t i = 0; i < value->count; ++i) {
    const auto length = static_cast<size_t>(LoadAs<uint64_t>(rest.data()));
    out.push_back(rest.substr(8, length));
    rest.remove_prefix(8 + length);
  }
  return out;
}

StatusOr<std::vector<int64_t>> GgufFile::Ints(std::string_view key) const {
  const GgufValue* value = FindKey(key);
  if (value == nullptr) return Absent(key);
  if (value->type != GgufValueType::kArray ||
      !(IsInteger(value->element_type))) {
    return Mistyped(key, *value, "an array of integers");
  }
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(value->count));
  const int64_t step = ScalarBytes(value->element_type);
  for (int64_t i = 0; i < value->count; ++i) {
    StatusOr<int64_t> element =
        IntegerAt(value->element_type, value->bytes.data() + i * step);
    if (!element.ok()) return element.status().Prefixed("key " + Quoted(key));
    out.push_back(*element);
  }
  return out;
}

StatusOr<std::vector<float>> GgufFile::Floats(std::string_view key) const {
  const GgufValue* value = FindKey(key);
  if (value == nullptr) return Absent(key);
  if (value->type != GgufValueType::kArray ||
      value->element_type != GgufValueType::kFloat32) {
    return Mistyped(key, *value, "an array of float32");
  }
  std::vector<float> out(static_cast<size_t>(value->count));
  if (!out.empty()) {
    std::memcpy(out.data(), value->bytes.data(), out.size() * sizeof(float));
  }
  return out;
}

StatusOr<std::vector<double>> GgufFile::Doubles(std::string_view key) const {
  const GgufValue* value = FindKey(key);
  if (value == nullptr) return Absent(key);
  if (value->type != GgufValueType::kArray ||
      value->element_type != GgufValueType::kFloat64) {
    ASSIGN_OR_RETURN(const std::vector<float> floats, Floats(key));
    return std::vector<double>(floats.begin(), floats.end());
  }
  std::vector<double> out(static_cast<size_t>(value->count));
  if (!out.empty()) {
    std::memcpy(out.data(), value->bytes.data(), out.size() * sizeof(double));
  }
  return out;
}

}  // namespace millrace::models

// GGUF, the file format of quantised language models: versions 2 and 3,
// little-endian. Reading it trusts nothing: every offset, count, length, type
// and alignment is checked before use.
//
//   ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open("model.gguf"));
//   ASSIGN_OR_RETURN(int64_t layers, file.Int("llama.block_count"));
//   const GgufTensor* norm = file.FindTensor("output_norm.weight");
//
// Strings and tensor data are views into the mapping and live as long as the
// object (or the bytes given to Parse). Immutable; thread-safe.
// Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "config/base/status.h"
#include "models/files/file_tensor.h"
#include "models/memory/mapped_file.h"

namespace millrace::models {

// Numbers as in the file.
enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
std::string_view GgufValueTypeName(GgufValueType type);

// One metadata value. `bytes` holds a scalar, the characters of a string, or
// the elements of an array one after the other as in the file.
struct GgufValue {
  GgufValueType type;
  GgufValueType element_type;  // of an array
  int64_t count = 1;           // elements of an array
  std::string_view bytes;
};

struct GgufKey {
  std::string_view name;
  GgufValue value;
};

using GgufTensor = FileTensor;

class GgufFile {
 public:
  struct Limits {
    int64_t max_keys = 1 << 16;
    int64_t max_tensors = 1 << 16;
    int64_t max_name_bytes = 1 << 10;     // of a key or a tensor
    int64_t max_string_bytes = 16 << 20;  // of a value
    int64_t max_array_count = 1 << 24;
    int64_t max_alignment = 1 << 16;
  };

  // Errors name the path and the place in the file.
  static StatusOr<GgufFile> Open(const std::string& path) {
    return Open(path, Limits{});
  }
  static StatusOr<GgufFile> Open(const std::string& path, const Limits& limits);
  // The bytes are borrowed and must outlive the object.
  static StatusOr<GgufFile> Parse(std::span<const std::byte> bytes) {
    return Parse(bytes, Limits{});
  }
  static StatusOr<GgufFile> Parse(std::span<const std::byte> bytes,
                                  const Limits& limits);

  int32_t version() const { return version_; }
  int64_t file_bytes() const { return static_cast<int64_t>(bytes_.size()); }
  const std::vector<GgufKey>& keys() const { return keys_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const MappedFile* mapping() const { return file_ ? &*file_ : nullptr; }

  const GgufTensor* FindTensor(std::string_view name) const;
  const GgufValue* FindKey(std::string_view name) const;  // null: absent

  // A value by key. NOT_FOUND when absent; INVALID_ARGUMENT when it has
  // another type or does not fit. With `otherwise`, absent gives that.
  StatusOr<int64_t> Int(std::string_view key) const;
  StatusOr<double> Float(std::string_view key) const;
  StatusOr<bool> Bool(std::string_view key) const;
  StatusOr<std::string_view> String(std::string_view key) const;
  StatusOr<int64_t> Int(std::string_view key, int64_t otherwise) const;
  StatusOr<double> Float(std::string_view key, double otherwise) const;
  StatusOr<bool> Bool(std::string_view key, bool otherwise) const;
  StatusOr<std::string_view> String(std::string_view key,
                                    std::string_view otherwise) const;
  StatusOr<std::vector<std::string_view>> Strings(std::string_view key) const;
  // Arrays of any integer type.
  StatusOr<std::vector<int64_t>> Ints(std::string_view key) const;
  // Arrays of float32.
  StatusOr<std::vector<float>> Floats(std::string_view key) const;
  // Arrays of float32 or float64.
  StatusOr<std::vector<double>> Doubles(std::string_view key) const;

 private:
  GgufFile() = default;

  std::optional<MappedFile> file_;  // empty when the bytes are borrowed
  std::span<const std::byte> bytes_;
  int32_t version_ = 0;
  std::vector<GgufKey> keys_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> key_index_;
  std::unordered_map<std::string_view, size_t> tensor_index_;
};

}  // namespace millrace::models

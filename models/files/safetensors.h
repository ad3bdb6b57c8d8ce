// safetensors, the file format of Hugging Face weights: the length of a JSON
// header (8 bytes, little-endian), the header, then the tensors' bytes. Reading
// it trusts nothing: every length, type, shape and offset is checked before
// use, and the data must be covered by tensors without gap or overlap.
//
//   ASSIGN_OR_RETURN(auto file, SafetensorsFile::Open("model.safetensors"));
//   const SafetensorsTensor* norm = file.FindTensor("model.norm.weight");
//
// Tensor data are views into the mapping and live as long as the object (or the
// bytes given to Parse). Immutable; thread-safe.
// Source: https://github.com/huggingface/safetensors, section "Format".
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "config/base/status.h"
#include "models/memory/mapped_file.h"

namespace millrace::models {

struct SafetensorsTensor {
  std::string name;
  std::string_view dtype;      // "BF16", as in the file; one of a fixed table
  std::vector<int64_t> shape;  // the last is contiguous; empty: a scalar
  int64_t num_elements;
  std::span<const std::byte> data;
};

class SafetensorsFile {
 public:
  struct Limits {
    int64_t max_header_bytes = 100'000'000;
    int64_t max_tensors = 1 << 20;
    int64_t max_dimensions = 16;
  };

  // Errors name the path and the tensor.
  static StatusOr<SafetensorsFile> Open(const std::string& path) {
    return Open(path, Limits{});
  }
  static StatusOr<SafetensorsFile> Open(const std::string& path,
                                        const Limits& limits);
  // The bytes are borrowed and must outlive the object.
  static StatusOr<SafetensorsFile> Parse(std::span<const std::byte> bytes) {
    return Parse(bytes, Limits{});
  }
  static StatusOr<SafetensorsFile> Parse(std::span<const std::byte> bytes,
                                         const Limits& limits);

  int64_t file_bytes() const { return static_cast<int64_t>(bytes_.size()); }
  // In the order of their data.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  const SafetensorsTensor* FindTensor(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const {
    return metadata_;
  }
  const MappedFile* mapping() const { return file_ ? &*file_ : nullptr; }

 private:
  SafetensorsFile() = default;

  std::optional<MappedFile> file_;  // empty when the bytes are borrowed
  std::span<const std::byte> bytes_;
  std::vector<SafetensorsTensor> tensors_;
  std::unordered_map<std::string_view, size_t> index_;  // views of names
  std::map<std::string, std::string> metadata_;
};

}  // namespace millrace::models

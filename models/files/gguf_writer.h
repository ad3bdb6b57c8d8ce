// Writes a GGUF file, version 3: keys and the header are collected in memory,
// tensors are borrowed and go to disk one after the other.
//
//   GgufWriter writer;
//   writer.AddString("general.architecture", "llama");
//   writer.AddTensor("norm", GgmlType::kF32, {576}, bytes);
//   RETURN_IF_ERROR(writer.Write("model.gguf"));
//
// Names are used once each; that is the caller's business. One thread.
// Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "models/tensor/quant.h"

namespace millrace::models {

class GgufWriter {
 public:
  // Tensors stand at multiples of `alignment` in the file, a power of two.
  explicit GgufWriter(uint32_t alignment = 32);

  void AddString(std::string_view key, std::string_view value);
  void AddBool(std::string_view key, bool value);
  void AddInt(std::string_view key, int64_t value);
  void AddFloat(std::string_view key, double value);
  void AddInts(std::string_view key, std::span<const int64_t> values);
  void AddFloats(std::string_view key, std::span<const float> values);
  void AddDoubles(std::string_view key, std::span<const double> values);
  void AddStrings(std::string_view key, std::span<const std::string> values);
  // `data` lives until Write.
  void AddTensor(std::string_view name, GgmlType type,
                 std::span<const int64_t> dims,
                 std::span<const std::byte> data);

  // Replaces the file when all of it is written, never before.
  // FAILED_PRECONDITION names the path and why the system refused.
  Status Write(const std::string& path) const;

 private:
  void BeginKey(std::string_view key, uint32_t type);

  const uint32_t alignment_;
  uint64_t num_keys_ = 0;
  std::string keys_;
  std::string infos_;  // of tensors
  uint64_t data_bytes_ = 0;
  std::vector<std::span<const std::byte>> tensors_;
};

}  // namespace millrace::models

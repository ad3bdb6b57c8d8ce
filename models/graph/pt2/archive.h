// The .pt2 archive: which entry is the program, which file holds which tensor.
//
//   ASSIGN_OR_RETURN(const auto archive, Pt2Archive::Open(path, limits));
//   ASSIGN_OR_RETURN(Tensor w, archive->Weight("conv1.weight"));
//
// A tensor that lies dense and aligned in the file is borrowed from the mapping
// and keeps it alive; others are copied.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "config/base/status.h"
#include "models/files/zip.h"
#include "models/graph/import.h"
#include "models/graph/pt2/program.h"
#include "models/memory/mapped_file.h"
#include "models/tensor/tensor.h"

namespace millrace::models::graph::pt2 {

class Pt2Archive {
 public:
  static StatusOr<std::shared_ptr<Pt2Archive>> Open(const std::string& path,
                                                    const ImportLimits& limits);
  // Borrows the bytes; for tests and fuzzers.
  static StatusOr<std::shared_ptr<Pt2Archive>> Parse(
      std::span<const std::byte> bytes, const ImportLimits& limits);

  const Program& program() const { return program_; }
  // Parameters and buffers; constants and buffers that are not persistent.
  StatusOr<Tensor> Weight(const std::string& key);
  StatusOr<Tensor> Constant(const std::string& key);

 private:
  using Config = std::unordered_map<std::string, StoredTensor>;

  Pt2Archive(const ImportLimits& limits, ZipFile zip)
      : limits_(limits), zip_(std::move(zip)) {}
  Status Read();
  StatusOr<std::string> Text(std::string_view name, int64_t max_bytes) const;
  StatusOr<std::string> ModelName() const;
  StatusOr<Config> ReadConfig(const std::string& name) const;
  StatusOr<Tensor> Load(const Config& config, const char* folder,
                        const std::string& key);

  const ImportLimits limits_;
  std::shared_ptr<const MappedFile> file_;  // kept alive by tensors, too
  ZipFile zip_;
  std::string root_;  // "resnet50/"
  Program program_;
  Config weights_;
  Config constants_;
  int64_t loaded_bytes_ = 0;
};

}  // namespace millrace::models::graph::pt2

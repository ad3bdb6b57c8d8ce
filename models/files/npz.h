// numpy's files of arrays: .npy holds one, .npz (a ZIP archive) several by
// name. Versions 1 to 3 are read; arrays in Fortran order become row-major.
//
//   ASSIGN_OR_RETURN(const std::vector<NamedTensor> inputs,
//                    ReadNpz("inputs.npz"));
//
// Element types are those of Tensor but BF16, which numpy has not: it is
// written as FP32. Structured, string, complex and big-endian arrays are
// refused by name.
// Source: numpy.lib.format, "Format Version 1.0" to "3.0".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/tensor/tensor.h"

namespace millrace::models {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

struct NpzLimits {
  int64_t max_bytes = int64_t{4} << 30;  // of all arrays together
  int64_t max_arrays = 4096;
};

// In the order of the archive. Errors name path and array.
StatusOr<std::vector<NamedTensor>> ReadNpz(const std::string& path,
                                           const NpzLimits& limits = {});
StatusOr<std::vector<NamedTensor>> ParseNpz(std::span<const std::byte> bytes,
                                            const NpzLimits& limits = {});
StatusOr<Tensor> ParseNpy(std::span<const std::byte> bytes,
                          const NpzLimits& limits = {});

Status WriteNpz(const std::string& path,
                const std::vector<NamedTensor>& arrays);

}  // namespace millrace::models

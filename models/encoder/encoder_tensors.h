// The weights of an encoder under the names that its folder gives them,
// wherever they come from: files of safetensors, or a GGUF, whose own names are
// mapped and whose quantised matrices become f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "models/encoder/encoder_config.h"
#include "models/files/gguf.h"
#include "models/tensor/dtype.h"

namespace millrace::models::encoder {

struct EncoderTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // the last is contiguous
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> keep;  // holds the bytes
};

class EncoderTensors {
 public:
  virtual ~EncoderTensors() = default;

  virtual bool Has(const std::string& name) const = 0;
  // Rows of a matrix; 0 where it is missing.
  virtual int64_t Rows(const std::string& name) const = 0;
  // INVALID_ARGUMENT where it is missing, UNIMPLEMENTED for its type.
  virtual StatusOr<EncoderTensor> Read(const std::string& name) const = 0;
  // How the file spells it.
  virtual std::string Spelt(const std::string& name) const { return name; }
};

// model.safetensors, or the files that model.safetensors.index.json lists.
StatusOr<std::unique_ptr<const EncoderTensors>> OpenFolderTensors(
    const std::string& folder);
std::unique_ptr<const EncoderTensors> MakeGgufTensors(
    std::shared_ptr<const GgufFile> file, Family family);

// A tensor's name in a folder and in a GGUF; "#" is a layer's number.
// ".weight" and ".bias" may follow.
struct GgufName {
  std::string_view folder;
  std::string_view gguf;
};
// `names` must outlive the object.
std::unique_ptr<const EncoderTensors> MakeGgufTensors(
    std::shared_ptr<const GgufFile> file, std::span<const GgufName> names);

}  // namespace millrace::models::encoder

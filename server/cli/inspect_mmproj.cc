#include "server/cli/inspect_mmproj.h"

#include <memory>
#include <utility>

#include "models/files/gguf.h"
#include "models/vision/build_vision.h"
#include "models/vision/mmproj.h"
#include "models/vision/mmproj_tensors.h"

namespace millrace::server {

namespace vision = models::vision;

bool IsMmprojFile(const std::string& path) {
  const auto file = models::GgufFile::Open(path);
  return file.ok() && vision::IsMmproj(*file);
}

StatusOr<std::string> DescribeMmproj(const std::string& path) {
  ASSIGN_OR_RETURN(models::GgufFile opened, models::GgufFile::Open(path));
  const auto file = std::make_shared<const models::GgufFile>(std::move(opened));
  ASSIGN_OR_RETURN(const vision::VisionConfig config,
                   vision::ReadMmproj(*file));
  RETURN_IF_ERROR(
      vision::BuildVision(config, *vision::MmprojTensors(file)).status());
  return std::to_string(config.layers) + " layers, tiles of " +
         std::to_string(config.tile) + " x " + std::to_string(config.tile) +
         " pixels, " + std::to_string(config.rows_per_tile()) +
         " tokens a tile, for a language model whose rows have " +
         std::to_string(config.text_hidden) + " numbers";
}

}  // namespace millrace::server

// Images of a chat, as their files, to rows of a language model. One image is
// computed at a time, tile by tile, on a thread of its own with a team of
// cores:
//
//   ASSIGN_OR_RETURN(auto encoder, ImageEncoder::Load(folder, {.cpus = cpus}));
//   encoder->Encode(files, {.deadline = deadline, .stop = stop},
//                   [](auto images) { ... });
//
// Each tile goes through the same plan alone, so that its rows are the same
// bits whatever else is computed. The last images are kept.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "config/topology.h"
#include "models/vision/image_tiles.h"
#include "models/vision/vision_config.h"

namespace millrace::models::vision {

// The file of an image.
struct ImageFile {
  std::shared_ptr<const std::string> bytes;
  std::string field;  // of the request, for messages
};

struct EncodedImage {
  // Unique while the encoder lives; the same for the same file, as long as it
  // is kept.
  int32_t number = 0;
  TileGrid grid;
  // [grid.count()][rows_per_tile][text_hidden]; shared with prompts.
  std::shared_ptr<const std::vector<float>> rows;
};
using EncodedImages = std::vector<std::shared_ptr<const EncodedImage>>;

struct ImageEncoderOptions {
  config::CpuSet cpus = {};  // empty: one worker, not pinned
  int64_t max_pixels = int64_t{32} << 20;
  // Rows of images that are kept, in bytes; the last one always is.
  int64_t kept_bytes = int64_t{256} << 20;
};

struct EncodeWait {
  Clock::Time deadline = kNever;  // of the real clock
  std::stop_token stop = {};
  // Rows of all images together at most, as many as the model has context: more
  // are refused before they are computed.
  int64_t max_rows = INT64_MAX;
  std::string model = {};  // for messages
};

// Thread-safe.
class ImageEncoder {
 public:
  using Done = std::function<void(StatusOr<EncodedImages>)>;

  // Whether the folder of a language model has an encoder of images.
  static bool IsIn(const std::string& folder);
  // Errors name the file and in it the key or tensor.
  static StatusOr<std::unique_ptr<ImageEncoder>> Load(
      const std::string& folder, const ImageEncoderOptions& options);
  // Of a GGUF file of its own (mmproj.h). `image_token`: of the language
  // model's tokenizer.
  static StatusOr<std::unique_ptr<ImageEncoder>> LoadMmproj(
      const std::string& path, int32_t image_token,
      const ImageEncoderOptions& options);
  // Calls what still waits with UNAVAILABLE.
  virtual ~ImageEncoder() = default;

  virtual const VisionConfig& config() const = 0;

  // Into which tiles an image is cut. It is decoded on the calling thread, and
  // refused for what Encode refuses a file for.
  virtual StatusOr<TileGrid> GridOfFile(const ImageFile& file) const = 0;

  // Calls `done` once, from the encoder's thread, where it must be short.
  // INVALID_ARGUMENT at the field of a file that is no image, is too large or
  // has too many rows; DEADLINE_EXCEEDED and CANCELLED: `wait` ended before.
  // Callers bound how many wait.
  virtual void Encode(std::vector<ImageFile> files, EncodeWait wait,
                      Done done) = 0;
};

}  // namespace millrace::models::vision

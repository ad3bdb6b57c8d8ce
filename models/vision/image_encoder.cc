#include "models/vision/image_encoder.h"

#include <openssl/evp.h>

#include <array>
#include <deque>
#include <filesystem>
#include <list>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "config/base/log.h"
#include "config/base/mutex.h"
#include "config/base/out_of_memory.h"
#include "config/base/read_file.h"
#include "models/encoder/encoder_tensors.h"
#include "models/graph/execution_context.h"
#include "models/graph/passes/passes.h"
#include "models/image/decode.h"
#include "models/llm/prompt_embeddings.h"
#include "models/tensor/tensor.h"
#include "models/vision/build_vision.h"
#include "models/vision/mmproj.h"
#include "models/vision/mmproj_tensors.h"

namespace millrace::models::vision {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxConfigBytes = size_t{8} << 20;

using Digest = std::array<uint8_t, 32>;

Digest Sha256Of(const std::string& bytes) {
  Digest digest{};
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(),
             nullptr);
  return digest;
}

std::span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

class Impl final : public ImageEncoder {
 public:
  Impl(VisionConfig config, const ImageEncoderOptions& options,
       std::unique_ptr<graph::ExecutionContext> context)
      : config_(std::move(config)),
        options_(options),
        context_(std::move(context)),
        thread_([this] { Loop(); }) {}

  ~Impl() override {
    {
      MutexLock lock(mu_);
      closed_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
    for (Job& job : jobs_) {
      job.done(Unavailable("the model is being unloaded"));
    }
  }

  const VisionConfig& config() const override { return config_; }

  StatusOr<TileGrid> GridOfFile(const ImageFile& file) const override {
    ASSIGN_OR_RETURN(const RgbImage decoded, Decode(file));
    return GridOf(decoded.width, decoded.height, config_);
  }

  void Encode(std::vector<ImageFile> files, EncodeWait wait,
              Done done) override {
    MutexLock lock(mu_);
    jobs_.push_back({std::move(files), std::move(wait), std::move(done)});
    changed_.NotifyAll();
  }

 private:
  struct Job {
    std::vector<ImageFile> files;
    EncodeWait wait;
    Done done;
  };
  struct Kept {
    Digest digest;
    std::shared_ptr<const EncodedImage> image;
  };

  // The team of a graph has one caller, which it pins: this thread.
  void Loop() {
    if (Status named = config::PinThisThread({}, "images"); !named.ok()) {
      LogWarning("the thread of images has no name",
                 {{"status", named.ToString()}});
    }
    while (true) {
      Job job;
      {
        MutexLock lock(mu_);
        while (!closed_ && jobs_.empty()) changed_.Wait(mu_);
        if (closed_) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      EncodedImages images;
      Status status = CatchOutOfMemory([&] { return EncodeAll(job, &images); });
      if (status.ok()) {
        job.done(std::move(images));
      } else {
        job.done(std::move(status));
      }
    }
  }

  Status CheckWanted(const EncodeWait& wait) {
    {
      MutexLock lock(mu_);
      if (closed_) return Unavailable("the model is being unloaded");
    }
    if (wait.stop.stop_requested()) return Cancelled("the client is gone");
    if (Clock::Real().Now() >= wait.deadline) {
      return DeadlineExceeded(
          "the request's deadline passed before its images were encoded");
    }
    return OkStatus();
  }

  Status EncodeAll(const Job& job, EncodedImages* out) {
    int64_t rows = 0;
    for (const ImageFile& file : job.files) {
      RETURN_IF_ERROR(CheckWanted(job.wait));
      const Digest digest = Sha256Of(*file.bytes);
      if (auto image = FindKept(digest)) {
        RETURN_IF_ERROR(CountRows(image->grid, file, job.wait, &rows));
        out->push_back(std::move(image));
        continue;
      }
      ASSIGN_OR_RETURN(const RgbImage decoded, Decode(file));
      RETURN_IF_ERROR(CountRows(GridOf(decoded.width, decoded.height, config_),
                                file, job.wait, &rows));
      ASSIGN_OR_RETURN(auto image, Compute(decoded, job.wait));
      Keep({digest, image});
      out->push_back(std::move(image));
    }
    return OkStatus();
  }

  StatusOr<RgbImage> Decode(const ImageFile& file) const {
    StatusOr<RgbImage> decoded =
        DecodeImage(AsBytes(*file.bytes), {.max_pixels = options_.max_pixels});
    if (!decoded.ok()) return AtField(file, decoded.status());
    return decoded;
  }

  // INVALID_ARGUMENT for a format that is not read, too: it is the client's.
  static Status AtField(const ImageFile& file, const Status& status) {
    return InvalidArgument(file.field + ": " + std::string(status.message()))
        .At(file.field);
  }

  Status CountRows(const TileGrid& grid, const ImageFile& file,
                   const EncodeWait& wait, int64_t* rows) const {
    *rows += grid.count() * config_.rows_per_tile();
    if (*rows <= wait.max_rows) return OkStatus();
    return AtField(
        file, InvalidArgument(
                  "the images up to this one have " + std::to_string(*rows) +
                  " tokens but the context of model '" + wait.model + "' is " +
                  std::to_string(wait.max_rows) + "; send fewer images"));
  }

  StatusOr<std::shared_ptr<const EncodedImage>> Compute(
      const RgbImage& decoded, const EncodeWait& wait) {
    if (next_number_ > kMostImageNumber) {
      return ResourceExhausted(
          "this model has encoded as many images as it can tell apart; load "
          "it again");
    }
    const ImageTiles tiles(decoded, config_);
    auto image = std::make_shared<EncodedImage>();
    image->grid = tiles.grid();
    std::vector<float> rows;
    const auto per_tile =
        static_cast<size_t>(config_.rows_per_tile() * config_.text_hidden);
    rows.reserve(per_tile * static_cast<size_t>(tiles.grid().count()));
    Tensor pixels =
        Tensor::Make(DType::kF32, Shape({1, 3, config_.tile, config_.tile}));
    for (int64_t tile = 0; tile < tiles.grid().count(); ++tile) {
      tiles.Write(tile, pixels.data<float>());
      std::vector<Tensor> inputs;
      inputs.push_back(pixels.Share());
      ASSIGN_OR_RETURN(const std::vector<Tensor> outputs,
                       context_->Run(inputs, {.stopped = [&] {
                                       return CheckWanted(wait);
                                     }}));
      CHECK(static_cast<size_t>(outputs[0].num_elements()) == per_tile,
            "the graph's output has the rows of a tile");
      const float* values = outputs[0].data<float>();
      rows.insert(rows.end(), values, values + per_tile);
    }
    image->number = next_number_++;
    image->rows = std::make_shared<const std::vector<float>>(std::move(rows));
    return std::shared_ptr<const EncodedImage>(std::move(image));
  }

  std::shared_ptr<const EncodedImage> FindKept(const Digest& digest) {
    for (auto it = kept_.begin(); it != kept_.end(); ++it) {
      if (it->digest != digest) continue;
      kept_.splice(kept_.begin(), kept_, it);
      return kept_.front().image;
    }
    return nullptr;
  }

  void Keep(Kept kept) {
    const auto bytes = [](const Kept& each) {
      return static_cast<int64_t>(each.image->rows->size() * sizeof(float));
    };
    kept_bytes_ += bytes(kept);
    kept_.push_front(std::move(kept));
    while (kept_.size() > 1 && kept_bytes_ > options_.kept_bytes) {
      kept_bytes_ -= bytes(kept_.back());
      kept_.pop_back();
    }
  }

  // Constant after construction.
  const VisionConfig config_;
  const ImageEncoderOptions options_;

  // Owned by the thread.
  const std::unique_ptr<graph::ExecutionContext> context_;
  std::list<Kept> kept_;  // used last first
  int64_t kept_bytes_ = 0;
  int32_t next_number_ = 0;

  Mutex mu_;
  CondVar changed_;
  std::deque<Job> jobs_ GUARDED_BY(mu_);
  bool closed_ GUARDED_BY(mu_) = false;

  std::thread thread_;
};

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// The weights are copied or kept by the graph.
StatusOr<std::unique_ptr<ImageEncoder>> Create(
    VisionConfig config, const encoder::EncoderTensors& tensors,
    const std::string& path, const ImageEncoderOptions& options) {
  StatusOr<graph::Graph> graph = BuildVision(config, tensors);
  if (!graph.ok()) return graph.status().Prefixed("'" + path + "'");
  graph->name = "vision";
  graph::WidenHalves(*graph);
  graph::InstanceOptions instance;
  instance.cpus = options.cpus;
  instance.weight_cpus = options.cpus;
  ASSIGN_OR_RETURN(auto context,
                   graph::CreateInstance(*std::move(graph), instance));
  return std::unique_ptr<ImageEncoder>(
      std::make_unique<Impl>(std::move(config), options, std::move(context)));
}

}  // namespace

bool ImageEncoder::IsIn(const std::string& folder) {
  const fs::path path = fs::path(folder) / "config.json";
  if (!Exists(path)) return false;
  const auto text = ReadFileOf("model", path.string(), kMaxConfigBytes);
  return text.ok() && HasVision(*text);
}

StatusOr<std::unique_ptr<ImageEncoder>> ImageEncoder::Load(
    const std::string& folder, const ImageEncoderOptions& options) {
  const fs::path path = fs::path(folder);
  ASSIGN_OR_RETURN(
      const std::string config,
      ReadFileOf("model", (path / "config.json").string(), kMaxConfigBytes));
  std::string preprocessor;
  for (const char* name :
       {"preprocessor_config.json", "processor_config.json"}) {
    if (!Exists(path / name) || !preprocessor.empty()) continue;
    ASSIGN_OR_RETURN(preprocessor, ReadFileOf("model", (path / name).string(),
                                              kMaxConfigBytes));
  }
  StatusOr<VisionConfig> read = ReadVisionConfig(config, preprocessor);
  if (!read.ok()) {
    return read.status().Prefixed("the images of '" + folder + "'");
  }
  ASSIGN_OR_RETURN(const auto tensors, encoder::OpenFolderTensors(folder));
  return Create(*std::move(read), *tensors, folder, options);
}

StatusOr<std::unique_ptr<ImageEncoder>> ImageEncoder::LoadMmproj(
    const std::string& path, int32_t image_token,
    const ImageEncoderOptions& options) {
  ASSIGN_OR_RETURN(GgufFile opened, GgufFile::Open(path));
  const auto file = std::make_shared<const GgufFile>(std::move(opened));
  StatusOr<VisionConfig> read = ReadMmproj(*file);
  if (!read.ok()) return read.status().Prefixed("'" + path + "'");
  read->image_token = image_token;
  const auto tensors = MmprojTensors(file);
  return Create(*std::move(read), *tensors, path, options);
}

}  // namespace millrace::models::vision

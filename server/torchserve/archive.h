// A model archive of TorchServe: a .mar file (ZIP) or a folder of the same
// files, as torch-model-archiver makes them.
//
//   ASSIGN_OR_RETURN(auto archive, Archive::Open("store/m.mar", ""));
//   ... archive->model_path() ...        // an .onnx or .pt2 file
//
// Nothing in it is trusted, and nothing of it is run in this process: an
// archive whose work is done in Python or whose model is a pickle (TorchScript,
// .pt, .pth, .bin) is refused with a message that names the remedy, unless
// Python may run in processes of its own (`python`). Files of a .mar are
// unpacked into a folder that lives as long as the object. Immutable;
// thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "server/torchserve/unpack.h"

namespace millrace::server::torchserve {

// MAR-INF/MANIFEST.json. Names of files are names in the archive.
struct Manifest {
  std::string model_name;
  std::string model_version;
  std::string serialized_file;  // may be empty
  std::string model_file;       // Python; may be empty
  std::string handler;
  std::string config_file;  // may be empty
  std::string requirements_file;
};
// INVALID_ARGUMENT names the field.
StatusOr<Manifest> ParseManifest(std::string_view json);

// The keys of model-config.yaml that mean something here; others are listed.
struct ArchiveConfig {
  std::optional<int64_t> batch_size = {}, max_batch_delay_ms = {};
  std::optional<int64_t> min_workers = {}, max_workers = {};
  std::optional<int64_t> response_timeout_s = {}, startup_timeout_s = {};
  std::optional<int64_t> job_queue_size = {};
  // Of a model that keeps a state for each sequence of requests. The first is
  // Triton's sequence_batching as JSON, which a config.yaml has, too; empty:
  // none.
  std::string sequence_batching = {};
  std::optional<int64_t> sequence_max_idle_ms = {}, max_num_sequence = {};
  std::vector<std::string> without_effect = {};
};
StatusOr<ArchiveConfig> ParseArchiveConfig(const std::string& yaml);

// Whether a handler's name is one of those that need no Python.
bool IsBuiltIn(std::string_view handler);
// Whether these files and this handler can be served without Python; else
// FAILED_PRECONDITION with the remedy.
Status CheckServable(const Manifest& manifest);

class Archive {
 public:
  using Limits = UnpackLimits;

  // `handler` stands for the manifest's where it is not empty. `python`: a
  // handler in Python is taken, too; handler_status() tells whether it is
  // there. NOT_FOUND, INVALID_ARGUMENT (no archive, a wrong manifest),
  // FAILED_PRECONDITION.
  static StatusOr<std::shared_ptr<const Archive>> Open(
      const std::string& path, const std::string& handler, bool python);
  // The same without CheckServable: for tools that tell what is in it. Files of
  // Python and pickles stay packed unless `python`.
  static StatusOr<std::shared_ptr<const Archive>> Read(
      const std::string& path, const std::string& handler, const Limits& limits,
      bool python = false);
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  const Manifest& manifest() const { return manifest_; }
  const ArchiveConfig& config() const { return config_; }
  // INVALID_ARGUMENT: no handler in Python of this name can be run.
  const Status& handler_status() const { return handler_status_; }
  const std::string& folder() const { return folder_; }
  std::string model_path() const {
    return folder_ + "/" + manifest_.serialized_file;
  }
  // Names of all files, of those left packed, too.
  const std::vector<std::string>& files() const { return files_; }
  // As UnpackedFolder does it; a folder that is lent stays.
  void RemoveFiles() const {
    if (unpacked_ != nullptr) unpacked_->RemoveFiles();
  }

 private:
  Archive() = default;
  static StatusOr<std::shared_ptr<Archive>> ReadFiles(
      const std::string& path, const std::string& handler, const Limits& limits,
      bool python);
  Status ReadFolder();
  void FindHandler();

  Manifest manifest_;
  ArchiveConfig config_;
  Status handler_status_;
  std::string folder_;
  std::unique_ptr<const UnpackedFolder> unpacked_;  // null: `folder_` is lent
  std::vector<std::string> files_;
};

}  // namespace millrace::server::torchserve

// TorchServe's metrics as lines of two files, for agents that follow them
// (metrics_mode=log): ts_metrics.log of the server, model_metrics.log of its
// models.
//
//   2026-01-31T12:00:00,123 - Requests2XX.Count:1.0|#Level:Host|#hostname:h,…
//
// A file of 100 MiB is renamed (ts_metrics.log.1, one older one is kept). What
// cannot be written is left out, with one warning in the log.
//
// Thread-safe.
// Source: TorchServe 0.12, docs/metrics.md, ts/configs/metrics.yaml; the lines
// are those that a server of that version wrote.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "config/base/mutex.h"
#include "config/base/status.h"

namespace millrace::server::torchserve {

struct MetricLogOptions {
  std::string folder;          // empty: there is no such log
  int64_t interval_s = 60;     // between two readings of the machine
  bool system_metrics = true;  // of the machine
};

// One prediction that was answered.
struct PredictionTimes {
  double total_s = 0;    // since the request was read
  double queue_s = 0;    // of it, until the model began
  double compute_s = 0;  // of it, since then
  double answer_s = 0;   // of it, since the model's results were there
};

// Inside of a line: what separates its parts becomes '_'.
std::string MetricText(std::string_view text);
// "1.0", "0.25": as Java writes numbers, without exponents.
std::string MetricNumber(double value);

class MetricLog {
 public:
  // Makes the folder. FAILED_PRECONDITION: it cannot be written.
  static StatusOr<std::unique_ptr<MetricLog>> Open(MetricLogOptions options);
  ~MetricLog();
  MetricLog(const MetricLog&) = delete;
  MetricLog& operator=(const MetricLog&) = delete;

  void Responded(int http_status);
  // `version` as the request named it; empty: "default".
  void Requested(std::string_view model, std::string_view version);
  void Predicted(std::string_view model, std::string_view version,
                 std::string_view request_id, const PredictionTimes& times);
  void WorkersLoaded(std::string_view model, std::string_view version,
                     int64_t num_workers, double seconds);

  // Where handlers of other processes append lines of their own.
  const std::string& model_file() const { return model_.path; }

 private:
  struct File {
    std::string path;
    int fd = -1;
    int64_t size = 0;  // since it was opened or measured
  };
  using Dimensions = std::vector<std::pair<std::string_view, std::string>>;

  explicit MetricLog(MetricLogOptions options);
  std::string Line(std::string_view name, std::string_view unit, double value,
                   const Dimensions& dimensions,
                   std::string_view request_id = {}) const;
  void Write(File& file, const std::string& lines);
  Status OpenFile(File& file) REQUIRES(mu_);
  void Rotate(File& file) REQUIRES(mu_);
  void WriteHost(std::stop_token stop);

  const MetricLogOptions options_;
  const std::string hostname_;
  Mutex mu_;
  File server_;  // but for their paths: with mu_
  File model_;
  bool failing_ GUARDED_BY(mu_) = false;
  std::jthread host_;  // last: uses all of the above
};

}  // namespace millrace::server::torchserve

#include "server/torchserve/metric_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <stop_token>
#include <system_error>

#include "config/base/log.h"
#include "config/topology.h"
#include "server/host_usage.h"

namespace millrace::server::torchserve {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxFileBytes = int64_t{100} << 20;
constexpr int kFirstWorkerId = 9000;
constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGiB = 1024.0 * kMiB;

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

// "2026-01-31T12:00:00,123", local time: log4j's ISO8601.
std::string TimeText(std::chrono::system_clock::time_point now) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                      now.time_since_epoch())
                      .count() %
                  1000;
  std::tm local{};
  localtime_r(&seconds, &local);
  char text[64];
  const size_t size = std::strftime(text, sizeof text, "%FT%T", &local);
  std::snprintf(text + size, sizeof text - size, ",%03d", static_cast<int>(ms));
  return text;
}

std::string VersionText(std::string_view version) {
  return version.empty() ? "default" : MetricText(version);
}

}  // namespace

std::string MetricText(std::string_view text) {
  std::string safe(text.substr(0, 200));
  for (char& c : safe) {
    const bool separates = static_cast<unsigned char>(c) <= 0x20 || c == 0x7f ||
                           c == '|' || c == '#' || c == ',' || c == ':';
    if (separates) c = '_';
  }
  return safe;
}

std::string MetricNumber(double value) {
  if (!std::isfinite(value)) return "0.0";
  char text[400];
  const auto [end, ec] =
      std::to_chars(text, text + sizeof text, value, std::chars_format::fixed);
  if (ec != std::errc()) return "0.0";
  std::string number(text, end);
  if (number.find('.') == std::string::npos) number += ".0";
  return number;
}

MetricLog::MetricLog(MetricLogOptions options)
    : options_(std::move(options)),
      hostname_(MetricText(HostName())),
      server_{.path = options_.folder + "/ts_metrics.log"},
      model_{.path = options_.folder + "/model_metrics.log"} {}

StatusOr<std::unique_ptr<MetricLog>> MetricLog::Open(MetricLogOptions options) {
  std::error_code error;
  // Handlers run in folders of their own.
  options.folder = fs::absolute(options.folder, error).string();
  fs::create_directories(options.folder, error);
  std::unique_ptr<MetricLog> log(new MetricLog(std::move(options)));
  {
    MutexLock lock(log->mu_);
    RETURN_IF_ERROR(log->OpenFile(log->server_));
    RETURN_IF_ERROR(log->OpenFile(log->model_));
  }
  log->host_ = std::jthread(
      [log = log.get()](std::stop_token stop) { log->WriteHost(stop); });
  return log;
}

MetricLog::~MetricLog() {
  if (host_.joinable()) {
    host_.request_stop();
    host_.join();
  }
  for (const File* file : {&server_, &model_}) {
    if (file->fd >= 0) close(file->fd);
  }
}

Status MetricLog::OpenFile(File& file) {
  file.fd = open(file.path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC,
                 S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH);
  struct stat stat {};
  if (file.fd < 0 || fstat(file.fd, &stat) != 0) {
    return FailedPrecondition(
        "the metrics cannot be written to '" + file.path + "' (" +
        std::strerror(errno) +
        "); METRICS_LOCATION names another folder, and metrics_mode=prometheus "
        "leaves these files out");
  }
  file.size = stat.st_size;
  return OkStatus();
}

// The older one goes. Without its file, the next line tries to open it again.
void MetricLog::Rotate(File& file) {
  close(file.fd);
  std::error_code error;
  fs::rename(file.path, file.path + ".1", error);
  static_cast<void>(OpenFile(file).ok());
}

std::string MetricLog::Line(std::string_view name, std::string_view unit,
                            double value, const Dimensions& dimensions,
                            std::string_view request_id) const {
  const auto now = std::chrono::system_clock::now();
  std::string line = TimeText(now) + " - " + std::string(name) + "." +
                     std::string(unit) + ":" + MetricNumber(value) + "|#";
  for (size_t i = 0; i < dimensions.size(); ++i) {
    if (i > 0) line += ',';
    line += std::string(dimensions[i].first) + ":" + dimensions[i].second;
  }
  line += "|#hostname:" + hostname_;
  if (!request_id.empty()) line += ",requestID:" + MetricText(request_id);
  line += ",timestamp:" +
          std::to_string(std::chrono::system_clock::to_time_t(now)) + "\n";
  return line;
}

void MetricLog::Write(File& file, const std::string& lines) {
  MutexLock lock(mu_);
  if (file.fd < 0) static_cast<void>(OpenFile(file).ok());
  if (file.size >= kMaxFileBytes) Rotate(file);
  const ssize_t count = write(file.fd, lines.data(), lines.size());
  const bool failed = count != static_cast<ssize_t>(lines.size());
  if (failed && !failing_) {
    LogWarning("metrics are not written",
               {{"file", file.path}, {"error", std::strerror(errno)}});
  }
  failing_ = failed;
  file.size += std::max<ssize_t>(count, 0);
}

void MetricLog::Responded(int http_status) {
  const std::string_view name = http_status >= 500   ? "Requests5XX"
                                : http_status >= 400 ? "Requests4XX"
                                                     : "Requests2XX";
  Write(server_, Line(name, "Count", 1, {{"Level", "Host"}}));
}

void MetricLog::Requested(std::string_view model, std::string_view version) {
  Write(server_, Line("ts_inference_requests_total", "Count", 1,
                      {{"model_name", MetricText(model)},
                       {"model_version", VersionText(version)}}));
}

void MetricLog::Predicted(std::string_view model, std::string_view version,
                          std::string_view request_id,
                          const PredictionTimes& times) {
  constexpr double kMicro = 1e6, kMilli = 1e3;
  const Dimensions of_model = {{"model_name", MetricText(model)},
                               {"model_version", VersionText(version)}};
  Write(server_,
        Line("ts_inference_latency_microseconds", "Microseconds",
             times.total_s * kMicro, of_model) +
            Line("ts_queue_latency_microseconds", "Microseconds",
                 times.queue_s * kMicro, of_model) +
            Line("QueueTime", "Milliseconds",
                 std::floor(times.queue_s * kMilli), {{"Level", "Host"}}) +
            Line("WorkerThreadTime", "Milliseconds",
                 std::floor(times.answer_s * kMilli), {{"Level", "Host"}}));
  const Dimensions level = {{"ModelName", MetricText(model)},
                            {"Level", "Model"}};
  std::string lines;
  for (const char* name : {"HandlerTime", "PredictionTime"}) {
    // To two decimals.
    lines += Line(name, "ms", std::round(times.compute_s * 1e5) / 1e2, level,
                  request_id);
  }
  Write(model_, lines);
}

void MetricLog::WorkersLoaded(std::string_view model, std::string_view version,
                              int64_t num_workers, double seconds) {
  std::string lines;
  for (int64_t i = 0; i < num_workers; ++i) {
    lines +=
        Line("WorkerLoadTime", "Milliseconds", std::floor(seconds * 1e3),
             {{"WorkerName", "W-" + std::to_string(kFirstWorkerId + i) + "-" +
                                 MetricText(model) + "_" + MetricText(version)},
              {"Level", "Host"}});
  }
  if (!lines.empty()) Write(server_, lines);
}

void MetricLog::WriteHost(std::stop_token stop) {
  // Only a name for top -H: naming a thread cannot fail.
  static_cast<void>(config::PinThisThread({}, "metric-log"));
  HostUsageReader reader;
  std::mutex mu;
  std::condition_variable_any changed;
  std::unique_lock lock(mu);
  while (!stop.stop_requested()) {
    if (options_.system_metrics) {
      const HostUsage usage = reader.Read();
      const Dimensions host = {{"Level", "Host"}};
      Write(server_,
            Line("CPUUtilization", "Percent", usage.cpu * 100, host) +
                Line("DiskAvailable", "Gigabytes", usage.disk_available / kGiB,
                     host) +
                Line("DiskUsage", "Gigabytes", usage.disk_used() / kGiB, host) +
                Line("DiskUtilization", "Percent", usage.disk_share() * 100,
                     host) +
                Line("MemoryAvailable", "Megabytes",
                     usage.memory_available / kMiB, host) +
                Line("MemoryUsed", "Megabytes", usage.memory_used() / kMiB,
                     host) +
                Line("MemoryUtilization", "Percent", usage.memory_share() * 100,
                     host));
    }
    {
      // Handlers append to it, too.
      MutexLock files(mu_);
      struct stat stat {};
      if (fstat(model_.fd, &stat) == 0) model_.size = stat.st_size;
      if (model_.size >= kMaxFileBytes) Rotate(model_);
    }
    changed.wait_for(lock, stop, std::chrono::seconds(options_.interval_s),
                     [] { return false; });
  }
}

}  // namespace millrace::server::torchserve

// Brings a model into the cache.
//
//   ASSIGN_OR_RETURN(Pulled pulled, Pull("hf://org/repo", options));
//   serve(pulled.path);
//
// Variables: HF_ENDPOINT (a mirror), HF_TOKEN, AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION (or AWS_DEFAULT_REGION),
// AWS_ENDPOINT_URL_S3 (or AWS_ENDPOINT_URL), SSL_CERT_FILE, https_proxy,
// no_proxy. Processes that pull the same address take turns.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "config/base/status.h"
#include "server/pull/download.h"

namespace millrace::server {

struct PullOptions {
  std::filesystem::path cache;
  std::string sha256;   // of the file, 64 digits; empty: not checked
  std::string ca_file;  // PEM; empty: SSL_CERT_FILE, or the system's
  int64_t stall_s = 30;
  RetryPolicy retry;
  std::function<void(double)> progress;                // 0…1
  std::function<Status(const std::string&)> is_model;  // refuses what is none
};

struct Pulled {
  std::filesystem::path path;  // file or folder to serve
  bool was_there = false;
};

StatusOr<Pulled> Pull(const std::string& address, const PullOptions& options);

// Where an address stands in the cache, without any network. NOT_FOUND says how
// to pull it.
StatusOr<std::filesystem::path> PulledPath(const std::string& address,
                                           const std::filesystem::path& cache);

}  // namespace millrace::server

// An archive that a client names by an address: https://, http:// or, signed
// with AWS' variables, s3://. It lies in a folder of its own in TMPDIR, which
// leaves with the object.
//
//   ASSIGN_OR_RETURN(auto file, DownloadedArchive::Of(url, {.allowed = …}));
//   ... Archive::Open(file->path(), …) ...
//
// libcurl is opened by the first one.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::server::torchserve {

// "scheme://…": never a file of the store.
bool IsArchiveAddress(std::string_view url);

// The address as answers, errors and the log show it: "https://***@host/m.mar"
// for one with a user or a password, "?***" for a query, which may be a
// signature. The name of a file stays as it is.
std::string ShownAddress(const std::string& url);

// ALREADY_EXISTS as TorchServe says it of an archive that it has fetched
// before: INTERNAL, where `url` is an address. Other statuses as they are.
Status AsOfAddress(const std::string& url, const Status& status);

struct DownloadOptions {
  // Regular expressions, one of which the address must match as a whole; empty:
  // all may be fetched. Redirects are followed only where they are empty.
  std::vector<std::string> allowed = {};
  bool sign_for_s3 = false;  // an https address of S3 (s3_sse_kms)
  int64_t max_bytes = int64_t{16} << 30;
  int64_t timeout_s = 600;  // of all of it
  int64_t stall_s = 20;     // without a byte
  std::stop_token stop = {};
};

// Immutable; thread-safe.
class DownloadedArchive {
 public:
  // Blocks the calling thread. NOT_FOUND: the address may not be fetched (the
  // store alone has such archives); INVALID_ARGUMENT "download_failed": it
  // could not be; UNAVAILABLE: it was stopped.
  static StatusOr<std::unique_ptr<const DownloadedArchive>> Of(
      const std::string& url, const DownloadOptions& options);
  ~DownloadedArchive();
  DownloadedArchive(const DownloadedArchive&) = delete;
  DownloadedArchive& operator=(const DownloadedArchive&) = delete;

  const std::string& path() const { return path_; }

 private:
  DownloadedArchive() = default;

  std::string folder_;  // empty: there is none yet
  std::string path_;
};

}  // namespace millrace::server::torchserve

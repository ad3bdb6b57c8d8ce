// One file from one address into one path, in as many tries as it takes. What
// came stays in PATH.part when a try fails, and the next one, of this process
// or a later one, asks for the rest. The file stands at PATH only when its size
// and checksums are right.
//
// One process at a time for one path (the caller holds a lock).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "config/base/status.h"
#include "server/pull/transfer.h"

namespace millrace::server {

struct RetryPolicy {
  int64_t retries = 5;                          // in a row without progress
  int64_t first_delay_ms = 500;                 // doubles, up to 30 s
  std::function<void(const std::string&)> say;  // a sentence before each wait
};

// Says why and sleeps: for `delay_ms`, or as long as the server asked for.
void WaitToRetry(const RetryPolicy& policy, const Status& why,
                 int64_t delay_ms);

struct Expected {
  int64_t size = -1;     // -1: as the server says
  std::string sha256;    // empty: none known
  std::string git_sha1;  // of git's blob; empty: none known
};

struct Downloaded {
  bool not_modified = false;  // an If-None-Match header held
  std::string etag;
  std::string sha256;
  int64_t size = 0;
};

// `progress` gets the bytes that are in the file, and its size or -1.
StatusOr<Downloaded> DownloadFile(
    const TransferRequest& request, const std::filesystem::path& path,
    const Expected& expected, const RetryPolicy& policy,
    const std::function<void(int64_t, int64_t)>& progress);

}  // namespace millrace::server

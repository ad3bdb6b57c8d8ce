// The request of one file by its address, with what identifies us: for S3 the
// signature of AWS_ACCESS_KEY_ID and its fellows.
//
// Pure functions but for the variables that they read.
#pragma once

#include <cstdint>
#include <string>

#include "config/base/status.h"
#include "server/pull/source.h"
#include "server/pull/transfer.h"

namespace millrace::server {

// A variable of the environment, else the other one, else "".
std::string PullVariable(const char* name, const char* other = nullptr);
std::string WithoutSlash(std::string url);

struct TransferOptions {
  std::string ca_file = {};  // PEM; empty: SSL_CERT_FILE, or the system's
  int64_t stall_s = 30;
};

// Of any URL, unsigned. Messages name the source.
TransferRequest PlainRequest(const Source& source, std::string url,
                             const TransferOptions& options);
// Of a file at https, http or S3. INVALID_ARGUMENT: half of AWS' keys are set.
StatusOr<TransferRequest> FileRequest(const Source& source,
                                      const TransferOptions& options);
// Signs it for S3, where there are keys. Redirects are not followed any more.
Status Sign(TransferRequest& request);

}  // namespace millrace::server

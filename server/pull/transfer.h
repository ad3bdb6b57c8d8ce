// One HTTP request by libcurl, which is opened when it is first needed: the
// server runs without it, and a process that pulls nothing loads none of what
// it brings along (Kerberos, LDAP, SSH).
//
// Redirects are followed; what identifies us (tokens, signatures, passwords)
// goes to the first host only. Proxies are those of https_proxy and no_proxy.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::server {

struct TransferRequest {
  std::string url;
  std::string what;  // for messages, without secrets
  std::vector<std::string> headers;
  // AWS Signature Version 4; empty: unsigned.
  std::string aws_region;
  std::string aws_key_id;
  std::string aws_secret;
  bool follow = true;
  int64_t offset = 0;     // first byte wanted
  std::string if_range;   // the rest only of this version, else all of another
  std::string ca_file;    // PEM; empty: the system's authorities
  int64_t stall_s = 30;   // without a byte for so long: broken
  int64_t timeout_s = 0;  // of all of it; 0: none
  std::stop_token stop = {};  // ends it with CANCELLED within a second or so
};

struct TransferReply {
  int status = 0;
  bool was_redirected = false;
  std::map<std::string, std::string> headers;  // of the last answer, lower case
  std::string linked_etag;  // X-Linked-Etag of the first answer, unquoted

  std::string Header(const std::string& name) const;
};

class TransferSink {
 public:
  virtual ~TransferSink() = default;
  // Before the first byte of a body with status 200 or 206.
  virtual Status Begin(const TransferReply& reply) = 0;
  virtual Status Write(std::string_view bytes) = 0;
};

// Reason of a status that may be another one when tried again.
inline constexpr std::string_view kTransient = "transient";

// 200, 206 and 304 are replies; all else is a status with the server's own word
// for it. A failure of the sink is returned as it is.
StatusOr<TransferReply> Transfer(const TransferRequest& request,
                                 TransferSink* sink);

}  // namespace millrace::server

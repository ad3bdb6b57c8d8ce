// TorchServe's three keys, made at the start and written to key_file.json in
// the working folder: for inference, for management, and one that renews the
// other two. The first two expire.
//
//   {"management": {"key": "…", "expiration time": "2026-01-31T12:00:00Z"},
//    "inference": {…}, "API": {"key": "…"}}
//
// Source: TorchServe 0.12, docs/token_authorization_api.md. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "config/base/mutex.h"
#include "config/base/status.h"
#include "server/auth.h"

namespace millrace::server::torchserve {

class Tokens {
 public:
  // Writes the file, readable by its owner alone, and hands the keys to `auth`,
  // which outlives this. FAILED_PRECONDITION where the file cannot be written.
  static StatusOr<std::unique_ptr<Tokens>> Create(std::string path,
                                                  std::chrono::seconds lifetime,
                                                  Auth* auth);
  // The file goes with the server.
  ~Tokens() { RemoveFile(); }
  void RemoveFile();

  // UNAUTHENTICATED unless it is "Bearer API-KEY".
  Status CheckApiKey(std::string_view authorization) const;
  // Makes a new key of the type "inference" or "management"; the old one is
  // refused from then on. Gives {"status": "…"}. INVALID_ARGUMENT for another
  // type.
  StatusOr<std::string> Renew(std::string_view type);

 private:
  struct Token {
    std::string key;
    int64_t expires_unix = 0;
  };

  Tokens(std::string path, std::chrono::seconds lifetime, Auth* auth)
      : path_(std::move(path)), lifetime_(lifetime), auth_(*auth) {}
  StatusOr<Token> MakeToken() const;
  // The file first: a key that no client can read is not used.
  Status Publish(const Token& management, const Token& inference) REQUIRES(mu_);

  const std::string path_;
  const std::chrono::seconds lifetime_;
  Auth& auth_;
  std::string api_key_;  // constant once created
  mutable Mutex mu_;
  Token management_ GUARDED_BY(mu_);
  Token inference_ GUARDED_BY(mu_);
  bool is_written_ GUARDED_BY(mu_) = false;  // the file is this server's
};

}  // namespace millrace::server::torchserve

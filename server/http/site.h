// The context of the HTTP server that every route and connection shares.
// Shared, because work on the handler pool may outlive the sockets; its parts
// are thread-safe or never change.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "config/schema.h"
#include "server/http/listener.h"
#include "server/http/observer.h"
#include "server/http/response_store.h"

namespace millrace::server::http {

// Bodies of so many times the longest one may be in memory together; then new
// ones are answered 429, however many connections there are.
inline constexpr int64_t kMaxBodiesInMemory = 8;

struct Site : std::enable_shared_from_this<Site> {
  Site(const config::ServerSettings& given, const HttpServices& parts,
       std::span<const std::string_view> patterns)
      : settings(given),
        services(parts),
        observer(parts.metrics, parts.traces, patterns, given.access_log,
                 given.disable_access_log_for_endpoints) {}

  const config::ServerSettings settings;
  const HttpServices services;
  const Observer observer;
  mutable ResponseStore responses;  // of /v1/responses
  // Relaxed, for they only bound what they count.
  mutable std::atomic<int64_t> num_connections{0};
  mutable std::atomic<int64_t> num_sockets{0};
  mutable std::atomic<int64_t> body_bytes{0};  // received and not yet read
  // The server is about to stop: each answer ends its connection.
  mutable std::atomic<bool> leaving{false};
};

// The bytes of one request's body, counted for as long as it is kept. Shared
// by the connection, which fills it, and the route, which reads the body.
class BodyCharge {
 public:
  explicit BodyCharge(std::shared_ptr<const Site> site)
      : site_(std::move(site)) {}
  BodyCharge(const BodyCharge&) = delete;
  BodyCharge& operator=(const BodyCharge&) = delete;
  ~BodyCharge() {
    site_->body_bytes.fetch_sub(bytes_, std::memory_order_relaxed);
  }

  // False when there is no room for them.
  bool Add(int64_t bytes) {
    bytes_ += bytes;
    const int64_t all =
        site_->body_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    return all <= kMaxBodiesInMemory * site_->settings.http_max_input_bytes;
  }

 private:
  const std::shared_ptr<const Site> site_;
  int64_t bytes_ = 0;
};

}  // namespace millrace::server::http

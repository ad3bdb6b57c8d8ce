// What every route and connection sees of the server. Shared, because work on
// the handler pool may outlive the sockets; its parts are thread-safe or never
// change.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "config/schema.h"
#include "server/http/listener.h"
#include "server/http/observer.h"

namespace millrace::server::http {

struct Site : std::enable_shared_from_this<Site> {
  Site(const config::ServerSettings& given, const HttpServices& parts,
       std::span<const std::string_view> patterns)
      : settings(given),
        services(parts),
        observer(parts.metrics, patterns, given.access_log) {}

  const config::ServerSettings settings;
  const HttpServices services;
  const Observer observer;
  // Open connections; relaxed, for it only bounds them.
  mutable std::atomic<int64_t> num_connections{0};
};

}  // namespace millrace::server::http

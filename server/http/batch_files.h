// What the routes of files and of batches share.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "server/batches/batches.h"
#include "server/http/exchange.h"
#include "server/http/site.h"

namespace millrace::server::http {

// Never null; FAILED_PRECONDITION where the server has no folder for them.
StatusOr<Batches*> BatchesOf(const Site& site);
const std::string& TenantName(const Exchange& exchange);

// Seconds that a file shall be kept: 3600 to 2592000, counted from its making.
StatusOr<int64_t> ReadExpiry(std::string_view anchor, int64_t seconds,
                             const std::string& field);

// The page of a list that `?limit=&after=` asks for, each item's JSON behind
// its id.
struct ListItem {
  std::string id;
  std::string json;
};
StatusOr<std::string> PageJson(std::string_view query,
                               const std::vector<ListItem>& items,
                               int64_t usual_limit, int64_t most);

}  // namespace millrace::server::http

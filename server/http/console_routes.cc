// The console's files, and what it shows that no other route does: which core
// computes for which model.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "config/topology.h"
#include "server/console/console.h"
#include "server/http/message.h"
#include "server/http/routes.h"
#include "server/lifecycle/core_allocator.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

std::string_view TypeOf(std::string_view name) {
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  return "text/html; charset=utf-8";
}

}  // namespace

void ServeConsole(const Site&, const std::shared_ptr<Exchange>& exchange) {
  const auto& params = exchange->params();
  const std::string name = params.empty() ? "index.html" : params.front();
  for (const ConsoleFile& file : ConsoleFiles()) {
    if (file.name != name) continue;
    HttpResponse response;
    response.content_type = TypeOf(name);
    response.body = file.text;
    response.headers.emplace_back(
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'");
    response.headers.emplace_back("X-Content-Type-Options", "nosniff");
    response.headers.emplace_back("Referrer-Policy", "no-referrer");
    // Small, and another version of the server has other ones.
    response.headers.emplace_back("Cache-Control", "no-cache");
    return exchange->Send(std::move(response));
  }
  exchange->Send(ErrorResponse(NotFound("the console has no file '" +
                                        Shortened(name, 100) +
                                        "'; GET /console is its page")
                                   .Because("route_not_found")));
}

void ServeCores(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  Json cores = Json::array();
  const auto* topology = site.services.topology;
  const auto* allocator = site.services.cores;
  if (topology != nullptr && allocator != nullptr) {
    const std::vector<CoreHolder> holders = allocator->Holders();
    for (const config::Core& core : topology->cores()) {
      Json models = Json::array();
      for (const CoreHolder& holder : holders) {
        if (std::ranges::count(holder.cpus, core.cpus.front()) > 0) {
          models.push_back(holder.owner);
        }
      }
      cores.push_back({{"cpus", core.cpus},
                       {"socket", core.socket},
                       {"numa_node", core.numa_node},
                       {"l3_group", core.l3_group},
                       {"models", std::move(models)}});
    }
  }
  exchange->Send(
      JsonResponse(200, DumpJson(Json{{"cores", std::move(cores)}})));
}

}  // namespace millrace::server::http

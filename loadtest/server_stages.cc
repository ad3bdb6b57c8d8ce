#include "loadtest/server_stages.h"

#include <nlohmann/json.hpp>

#include "loadtest/endpoint.h"
#include "loadtest/fetch.h"

namespace millrace::loadtest {
namespace {

using Json = nlohmann::json;

constexpr const char* kStages[] = {"queue", "compute_input", "compute_infer",
                                   "compute_output"};

int64_t Int(const Json& object, const char* key) {
  const auto value = object.find(key);
  if (value == object.end() || !value->is_number_integer()) return 0;
  return value->get<int64_t>();
}

}  // namespace

ServerStages ParseServerStages(std::string_view text) {
  ServerStages stages;
  const Json body = Json::parse(text, nullptr, false);
  if (!body.is_object()) return stages;
  const auto versions = body.find("model_stats");
  if (versions == body.end() || !versions->is_array()) return stages;
  for (const Json& version : *versions) {
    if (!version.is_object()) continue;
    const auto statistics = version.find("inference_stats");
    if (statistics == version.end() || !statistics->is_object()) continue;
    for (const char* name : kStages) {
      const auto stage = statistics->find(name);
      if (stage == statistics->end() || !stage->is_object()) continue;
      stages[name].count += Int(*stage, "count");
      stages[name].ns += Int(*stage, "ns");
    }
  }
  return stages;
}

ServerStages ReadServerStages(const Options& options,
                              const std::string& model) {
  if (options.endpoint == EndpointType::kKserveGrpc) {
    return ReadGrpcStages(options, model);
  }
  if (options.endpoint != EndpointType::kKserve) return {};
  // The path of infer requests with another last part.
  std::string path =
      EndpointPath(EndpointType::kKserve, model, options.url.prefix);
  path.resize(path.rfind('/'));
  const StatusOr<FetchReply> reply = Fetch(options, "GET", path + "/stats");
  if (!reply.ok() || reply->status != 200) return {};
  return ParseServerStages(reply->body);
}

std::map<std::string, double> MeanStagesMs(const ServerStages& before,
                                           const ServerStages& after) {
  std::map<std::string, double> means;
  for (const auto& [name, total] : after) {
    const auto at = before.find(name);
    const StageTotal was = at == before.end() ? StageTotal() : at->second;
    const int64_t count = total.count - was.count;
    if (count <= 0) continue;
    means[name] = static_cast<double>(total.ns - was.ns) /
                  static_cast<double>(count) * 1e-6;
  }
  return means;
}

}  // namespace millrace::loadtest

#include "server/cli/live_topology.h"

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "server/cli/clean_text.h"

namespace millrace::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kSilence = std::chrono::seconds(10);
constexpr size_t kMaxAnswerBytes = size_t{16} << 20;

StatusOr<Json> Get(const HttpUrl& url, const std::string& api_key,
                   const std::string& path) {
  std::string body;
  bool too_long = false;
  HttpHooks hooks;
  hooks.on_body = [&](int, std::string_view bytes) {
    too_long = too_long || body.size() + bytes.size() > kMaxAnswerBytes;
    if (!too_long) body += bytes;
  };
  hooks.cancelled = [&] { return too_long; };
  const HttpCall call = {
      .target = path, .api_key = api_key, .silence_limit = kSilence};
  const StatusOr<int> status = Exchange(url, call, hooks);
  if (too_long) {
    return Unavailable(url.authority + " answered more than " +
                       std::to_string(kMaxAnswerBytes) + " bytes to " + path);
  }
  RETURN_IF_ERROR(status.status());
  if (*status != 200) {
    return Unavailable(url.authority + " answered " + std::to_string(*status) +
                       " to " + path + ": " + Shortened(body, 300));
  }
  return ParseJson(body);
}

// The array at `key`; an empty one where there is none.
const Json& List(const Json& object, const char* key) {
  static const Json none = Json::array();
  if (!object.is_object()) return none;
  const auto found = object.find(key);
  return found == object.end() || !found->is_array() ? none : *found;
}

std::string Number(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end() ||
      !found->is_number_integer()) {
    return "?";
  }
  return std::to_string(found->get<int64_t>());
}

std::string Shown(const Json& value) {
  return value.is_string() ? Clean(value.get<std::string>(), 200) : "?";
}

// "0 2", or `none` for an empty list.
std::string Joined(const Json& list, const char* separator, const char* none) {
  std::string text;
  for (const Json& each : list) {
    if (!text.empty()) text += separator;
    text += each.is_number_integer() ? std::to_string(each.get<int64_t>())
                                     : Shown(each);
  }
  return text.empty() ? none : text;
}

void PrintInstances(const Json& model) {
  const auto parameters =
      model.is_object() ? model.find("parameters") : model.end();
  if (!model.is_object() || parameters == model.end()) return;
  int number = 0;
  for (const Json& place : List(*parameters, "instances")) {
    std::printf("  %s version %s, instance %d: cpus %s, NUMA nodes %s\n",
                Shown(model.value("name", Json())).c_str(),
                Shown(model.value("version", Json())).c_str(), number++,
                Joined(List(place, "cpus"), " ", "any (not pinned)").c_str(),
                Joined(List(place, "numa_nodes"), " ", "any").c_str());
  }
}

}  // namespace

Status PrintLiveTopology(const HttpUrl& url, const std::string& api_key) {
  ASSIGN_OR_RETURN(const Json cores, Get(url, api_key, "/debug/cores"));
  ASSIGN_OR_RETURN(const Json models, Get(url, api_key, "/v2/models/stats"));
  if (!cores.is_object() || !cores.contains("cores")) {
    return Unavailable(url.authority +
                       " tells no cores; is it a server of Millrace?");
  }
  std::printf("cores of %s and the models that compute on them:\n",
              url.authority.c_str());
  int number = 0;
  for (const Json& core : List(cores, "cores")) {
    std::printf(
        "  core %d: cpus %s, socket %s, NUMA node %s, L3 group %s: %s\n",
        number++, Joined(List(core, "cpus"), " ", "?").c_str(),
        Number(core, "socket").c_str(), Number(core, "numa_node").c_str(),
        Number(core, "l3_group").c_str(),
        Joined(List(core, "models"), ", ", "none").c_str());
  }
  std::printf("instances of graphs:\n");
  for (const Json& model : List(models, "model_stats")) PrintInstances(model);
  return OkStatus();
}

}  // namespace millrace::server

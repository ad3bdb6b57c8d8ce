// yaml-cpp reads the file, for JSON is YAML, too; unknown fields are errors, so
// that a misspelt limit is not an absent one.
#include "server/key_file.h"

#include <openssl/sha.h>
#include <sys/random.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <span>

#include "config/base/utf8.h"
#include "config/yaml.h"

namespace millrace::server {
namespace {

constexpr size_t kMaxFileBytes = 8 << 20;
constexpr size_t kMaxNameBytes = 64;
constexpr double kMostRequestsPerSecond = 1e6;
constexpr int64_t kMostTokens = int64_t{1} << 40;

Status Wrong(const std::string& where, std::string_view why) {
  return InvalidArgument("the file of keys is wrong at " + where + ": " +
                         std::string(why));
}

// Names stand in logs and metrics.
bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= kMaxNameBytes &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' ||
                  c == '@' || c == ':';
         });
}

Status CheckFields(const YAML::Node& map, const std::string& where,
                   std::initializer_list<std::string_view> known) {
  if (!map.IsMap()) return Wrong(where, "expected a map of fields");
  std::set<std::string> seen;
  for (const auto& field : map) {
    if (!field.first.IsScalar()) {
      return Wrong(where, "names of fields must be words");
    }
    const std::string& name = field.first.Scalar();
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      std::string all;
      for (const std::string_view each : known) {
        all.append(all.empty() ? "" : ", ").append(each);
      }
      return Wrong(where, "there is no field '" + Shortened(name, 64) +
                              "'; the fields are " + all);
    }
    if (!seen.insert(name).second) {
      return Wrong(where, "'" + name + "' stands there twice");
    }
  }
  return OkStatus();
}

StatusOr<std::string> Name(const YAML::Node& node, const std::string& where) {
  if (!node.IsScalar() || !IsName(node.Scalar())) {
    return Wrong(where, "expected a name: 1 to 64 letters, digits and -_.@:");
  }
  return node.Scalar();
}

template <typename T>
Status Number(const YAML::Node& map, const char* field, T least, T most,
              const std::string& where, T* value) {
  const YAML::Node node = map[field];
  if (!node.IsDefined()) return OkStatus();
  T read{};
  const bool is_number =
      node.IsScalar() && YAML::convert<T>::decode(node, read);
  if (!is_number || !(read >= least && read <= most)) {
    return Wrong(where + "." + field, "expected a number between " +
                                          std::to_string(least) + " and " +
                                          std::to_string(most));
  }
  *value = read;
  return OkStatus();
}

StatusOr<TenantLimits> ReadTenant(const YAML::Node& node,
                                  const std::string& where) {
  RETURN_IF_ERROR(
      CheckFields(node, where,
                  {"requests_per_second", "request_burst", "tokens_per_minute",
                   "max_concurrent_requests", "max_sessions", "priority",
                   "weight", "models"}));
  TenantLimits limits;
  RETURN_IF_ERROR(Number(node, "requests_per_second", 1e-6,
                         kMostRequestsPerSecond, where,
                         &limits.requests_per_second));
  RETURN_IF_ERROR(Number<int64_t>(node, "request_burst", 1, 1'000'000, where,
                                  &limits.request_burst));
  RETURN_IF_ERROR(Number<int64_t>(node, "tokens_per_minute", 1, kMostTokens,
                                  where, &limits.tokens_per_minute));
  RETURN_IF_ERROR(Number<int64_t>(node, "max_concurrent_requests", 1, 1'000'000,
                                  where, &limits.max_concurrent_requests));
  RETURN_IF_ERROR(Number<int64_t>(node, "max_sessions", 1, 1'000'000, where,
                                  &limits.max_sessions));
  int32_t priority = 0;
  RETURN_IF_ERROR(Number<int32_t>(node, "priority", -1'000'000, 1'000'000,
                                  where, &priority));
  if (node["priority"].IsDefined()) limits.priority = priority;
  RETURN_IF_ERROR(
      Number<int32_t>(node, "weight", 1, 1000, where, &limits.weight));
  if (limits.request_burst > 0 && limits.requests_per_second == 0) {
    return Wrong(where,
                 "request_burst has no effect without "
                 "requests_per_second");
  }
  if (const YAML::Node models = node["models"]; models.IsDefined()) {
    if (!models.IsSequence() || models.size() == 0) {
      return Wrong(where + ".models", "expected a list of model names");
    }
    for (const YAML::Node& model : models) {
      if (!model.IsScalar() || model.Scalar().empty()) {
        return Wrong(where + ".models", "expected a list of model names");
      }
      limits.models.push_back(model.Scalar());
    }
  }
  return limits;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool ReadDigest(std::string_view hex, Digest* digest) {
  if (hex.size() != 2 * digest->size()) return false;
  for (size_t i = 0; i < digest->size(); ++i) {
    const int high = HexDigit(hex[2 * i]);
    const int low = HexDigit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    (*digest)[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return true;
}

StatusOr<Scopes> ReadScopes(const YAML::Node& node, const std::string& where) {
  constexpr std::string_view kWanted =
      "expected a list of infer, manage and metrics";
  if (!node.IsDefined() || !node.IsSequence() || node.size() == 0) {
    return Wrong(where, kWanted);
  }
  Scopes scopes = 0;
  for (const YAML::Node& each : node) {
    const Scopes scope = each.IsScalar() ? ScopeOf(each.Scalar()) : Scopes{0};
    if (scope == 0) return Wrong(where, kWanted);
    scopes |= scope;
  }
  return scopes;
}

StatusOr<KeyEntry> ReadKey(const YAML::Node& node, const std::string& where,
                           const KeyFile& file) {
  RETURN_IF_ERROR(
      CheckFields(node, where, {"id", "sha256", "tenant", "scopes"}));
  KeyEntry entry;
  ASSIGN_OR_RETURN(entry.id, Name(node["id"], where + ".id"));
  const YAML::Node digest = node["sha256"];
  if (!digest.IsDefined() || !digest.IsScalar() ||
      !ReadDigest(digest.Scalar(), &entry.digest)) {
    return Wrong(where + ".sha256",
                 "expected 64 hexadecimal digits, as `millrace keys create` "
                 "prints them");
  }
  entry.tenant = kDefaultTenant;
  if (const YAML::Node tenant = node["tenant"]; tenant.IsDefined()) {
    ASSIGN_OR_RETURN(entry.tenant, Name(tenant, where + ".tenant"));
  }
  if (!file.tenants.contains(entry.tenant)) {
    return Wrong(where + ".tenant",
                 "there is no tenant '" + entry.tenant + "' among `tenants`");
  }
  ASSIGN_OR_RETURN(entry.scopes, ReadScopes(node["scopes"], where + ".scopes"));
  return entry;
}

StatusOr<KeyFile> Read(const YAML::Node& root) {
  RETURN_IF_ERROR(CheckFields(root, "its top", {"tenants", "keys"}));
  KeyFile file;
  file.tenants[std::string(kDefaultTenant)] = {};
  if (const YAML::Node tenants = root["tenants"]; tenants.IsDefined()) {
    if (!tenants.IsMap()) return Wrong("tenants", "expected a map by name");
    std::set<std::string> names;
    for (const auto& each : tenants) {
      ASSIGN_OR_RETURN(const std::string name, Name(each.first, "tenants"));
      if (!names.insert(name).second) {
        return Wrong("tenants", "'" + name + "' stands there twice");
      }
      ASSIGN_OR_RETURN(file.tenants[name],
                       ReadTenant(each.second, "tenants." + name));
    }
  }
  const YAML::Node keys = root["keys"];
  if (!keys.IsDefined()) return file;
  if (!keys.IsSequence()) return Wrong("keys", "expected a list");
  std::set<std::string> ids;
  std::set<Digest> digests;
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string where = "keys[" + std::to_string(i) + "]";
    ASSIGN_OR_RETURN(KeyEntry entry, ReadKey(keys[i], where, file));
    if (!ids.insert(entry.id).second) {
      return Wrong(where + ".id", "'" + entry.id + "' stands there twice");
    }
    if (!digests.insert(entry.digest).second) {
      return Wrong(where + ".sha256", "another entry has the same digest");
    }
    file.keys.push_back(std::move(entry));
  }
  return file;
}

}  // namespace

std::string_view ScopeName(Scope scope) {
  switch (scope) {
    case Scope::kInfer:
      return "infer";
    case Scope::kManage:
      return "manage";
    case Scope::kMetrics:
      return "metrics";
  }
  return "";
}

Scopes ScopeOf(std::string_view name) {
  for (const Scope scope : {Scope::kInfer, Scope::kManage, Scope::kMetrics}) {
    if (ScopeName(scope) == name) return static_cast<Scopes>(scope);
  }
  return 0;
}

Digest Sha256(std::string_view text) {
  Digest digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         digest.data());
  return digest;
}

std::string HexText(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const uint8_t byte : bytes) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

StatusOr<KeyFile> ParseKeyFile(std::string_view text) {
  if (text.size() > kMaxFileBytes) {
    return InvalidArgument(
        "the file of keys has " + std::to_string(text.size()) +
        " bytes but may have " + std::to_string(kMaxFileBytes));
  }
  try {
    return Read(config::LoadYaml(std::string(text)));
  } catch (const YAML::Exception& error) {
    return InvalidArgument("the file of keys is no YAML: line " +
                           std::to_string(error.mark.line + 1) + ", column " +
                           std::to_string(error.mark.column + 1) + ": " +
                           error.msg);
  }
}

StatusOr<std::string> NewKey() {
  constexpr char kAlphabet[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  uint8_t bytes[33] = {};  // the last one only fills the last character
  if (getrandom(bytes, 32, 0) != 32) {
    return Internal("the system gives no random bytes");
  }
  std::string key = "mr_";
  for (size_t bit = 0; bit < 256; bit += 6) {
    const unsigned pair = (unsigned{bytes[bit / 8]} << 8) | bytes[bit / 8 + 1];
    key.push_back(kAlphabet[(pair >> (10 - bit % 8)) & 63]);
  }
  return key;
}

}  // namespace millrace::server

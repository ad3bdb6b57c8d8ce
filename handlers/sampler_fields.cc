// Source: github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md,
// POST /completion.
#include "handlers/sampler_fields.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "handlers/json_fields.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxBreakers = 16;
constexpr size_t kMaxBreakerBytes = 40;

Status ReadBreakers(const Json& body, GenerateOptions& options) {
  constexpr const char* kField = "dry_sequence_breakers";
  ASSIGN_OR_RETURN(const Json* list, ReadArray(body, kField));
  if (list == nullptr) return OkStatus();
  if (list->size() > kMaxBreakers) {
    return InvalidArgument(
               std::string(kField) + " holds " + std::to_string(list->size()) +
               " strings but may hold at most " + std::to_string(kMaxBreakers))
        .At(kField);
  }
  std::vector<std::string>& breakers = options.dry_sequence_breakers.emplace();
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string path = kField + ("[" + std::to_string(i) + "]");
    ASSIGN_OR_RETURN(std::string text, AsString((*list)[i], path));
    if (text.empty() || text.size() > kMaxBreakerBytes) {
      return InvalidArgument(path + " has " + std::to_string(text.size()) +
                             " bytes but must have between 1 and " +
                             std::to_string(kMaxBreakerBytes))
          .At(path);
    }
    breakers.push_back(std::move(text));
  }
  return OkStatus();
}

}  // namespace

Status ReadSamplerFields(const Json& body, GenerateOptions& options) {
  ASSIGN_OR_RETURN(const auto length,
                   ReadInt(body, "dry_allowed_length", {0, INT32_MAX}));
  if (length) options.dry_allowed_length = static_cast<int32_t>(*length);
  ASSIGN_OR_RETURN(const auto last_n,
                   ReadInt(body, "dry_penalty_last_n", {-1, INT32_MAX}));
  if (last_n) options.dry_penalty_last_n = static_cast<int32_t>(*last_n);
  RETURN_IF_ERROR(ReadBreakers(body, options));
  ASSIGN_OR_RETURN(const auto mirostat, ReadInt(body, "mirostat", {0, 2}));
  options.mirostat = static_cast<int32_t>(mirostat.value_or(0));
  ASSIGN_OR_RETURN(const auto min_keep,
                   ReadInt(body, "min_keep", {0, INT32_MAX}));
  options.min_keep = static_cast<int32_t>(min_keep.value_or(0));
  return OkStatus();
}

}  // namespace millrace::handlers

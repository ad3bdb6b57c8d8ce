// The file of keys: any text is read or refused with a sentence, and what is
// read holds the rules that the server counts on.
#include <cstdlib>
#include <string_view>

#include "server/key_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::server;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto file = ParseKeyFile(text);
  if (!file.ok()) {
    if (file.status().message().empty()) std::abort();
    return 0;
  }
  if (!file->tenants.contains(std::string(kDefaultTenant))) std::abort();
  for (const KeyEntry& key : file->keys) {
    if (key.id.empty() || key.scopes == 0 || key.scopes > kAllScopes ||
        !file->tenants.contains(key.tenant)) {
      std::abort();
    }
  }
  for (const auto& [name, limits] : file->tenants) {
    if (limits.weight < 1 || !(limits.requests_per_second >= 0)) std::abort();
  }
  return 0;
}

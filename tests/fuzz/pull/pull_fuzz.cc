// Addresses of models, and lists of files of a Hugging Face repository (text
// that begins with '{'). No file may lead out of its folder, and none that is
// chosen is a pickle.
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/pull/hub.h"
#include "server/pull/source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::server;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.empty() || text.front() != '{') {
    const auto source = ParseSource(text);
    if (source.ok() && (!IsSafePath(source->cache_key) ||
                        source->cache_key.find('/') != std::string::npos ||
                        source->name.find('/') != std::string::npos ||
                        IsPickleName(source->name))) {
      std::abort();
    }
    return 0;
  }
  const auto listing = ParseHubListing(text);
  if (!listing.ok()) return 0;
  const auto source = ParseSource("hf://a/b");
  const auto chosen = ChooseFiles(*listing, *source);
  if (!chosen.ok()) return 0;
  for (const HubFile& file : *chosen) {
    if (!IsSafePath(file.path) || IsPickleName(file.path)) std::abort();
  }
  return 0;
}

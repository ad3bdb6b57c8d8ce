// What TorchServe's users hand over: manifests, model-config.yaml,
// config.properties, multipart bodies and queries. Any bytes are read or
// refused with a sentence. The first byte chooses the reader.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/http/torchserve_form.h"
#include "server/torchserve/archive.h"
#include "server/torchserve/profile.h"
#include "server/torchserve/properties.h"

namespace {

void Check(const millrace::Status& status) {
  if (!status.ok() && status.message().empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::server;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1,
                              size - 1);
  switch (data[0] % 5) {
    case 0: {
      const auto manifest = torchserve::ParseManifest(text);
      Check(manifest.status());
      if (!manifest.ok()) break;
      if (manifest->serialized_file.find('/') != std::string::npos) {
        std::abort();
      }
      Check(torchserve::CheckServable(*manifest));
      break;
    }
    case 1:
      Check(torchserve::ParseArchiveConfig(std::string(text)).status());
      break;
    case 2: {
      const auto properties = torchserve::ParseProperties(text);
      Check(properties.status());
      if (properties.ok()) Check(torchserve::ProfileOf(*properties).status());
      break;
    }
    case 3: {
      const auto parts =
          http::ReadParts("multipart/form-data; boundary=b", std::string(text));
      Check(parts.status());
      if (!parts.ok()) break;
      size_t bytes = 0;
      for (const auto& part : *parts) bytes += part.bytes.size();
      if (bytes > text.size()) std::abort();
      break;
    }
    default:
      Check(http::ParseFields(text).status());
  }
  return 0;
}

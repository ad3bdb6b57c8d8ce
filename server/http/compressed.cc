#include "server/http/compressed.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "server/http/content_coding.h"

namespace millrace::server::http {

void Compress(const HttpRequest& request, size_t least,
              HttpResponse& response) {
  if (response.body.size() < least || response.body.size() > kMostCodedBytes) {
    return;
  }
  const ContentCoding coding =
      ChooseContentCoding(request.Header("accept-encoding"));
  if (coding == ContentCoding::kIdentity) return;
  const bool is_coded = std::ranges::any_of(
      response.headers,
      [](const auto& header) { return header.first == "Content-Encoding"; });
  if (is_coded) return;
  StatusOr<std::string> encoded = Encoded(response.body, coding);
  if (!encoded.ok()) return;  // the body as it is will do
  response.body = *std::move(encoded);
  response.headers.emplace_back("Content-Encoding", ContentCodingName(coding));
  response.headers.emplace_back("Vary", "Accept-Encoding");
}

void CompressJson(const HttpRequest& request, HttpResponse& response) {
  const std::string_view type = response.content_type;
  if (type == "application/json" || type.starts_with("application/json;")) {
    Compress(request, kLeastCompressedJson, response);
  }
}

}  // namespace millrace::server::http

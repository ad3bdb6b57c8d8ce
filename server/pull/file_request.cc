#include "server/pull/file_request.h"

#include <cstdlib>
#include <utility>

#include "server/key_file.h"

namespace millrace::server {
namespace {

std::string Region() {
  const std::string region = PullVariable("AWS_REGION", "AWS_DEFAULT_REGION");
  return region.empty() ? "us-east-1" : region;
}

std::string S3Url(const Source& source) {
  const std::string endpoint =
      WithoutSlash(PullVariable("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"));
  const std::string key = "/" + PercentEncode(source.path);
  if (!endpoint.empty()) return endpoint + "/" + source.bucket + key;
  // A certificate for *.s3… fits no name with dots.
  const bool is_dotted = source.bucket.find('.') != std::string::npos;
  const std::string host = ".s3." + Region() + ".amazonaws.com";
  return is_dotted ? "https://" + host.substr(1) + "/" + source.bucket + key
                   : "https://" + source.bucket + host + key;
}

}  // namespace

std::string PullVariable(const char* name, const char* other) {
  const char* value = std::getenv(name);
  if ((value == nullptr || *value == '\0') && other != nullptr) {
    value = std::getenv(other);
  }
  return value == nullptr ? "" : value;
}

std::string WithoutSlash(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  return url;
}

TransferRequest PlainRequest(const Source& source, std::string url,
                             const TransferOptions& options) {
  TransferRequest request;
  request.url = std::move(url);
  request.what = source.text;
  request.ca_file =
      options.ca_file.empty() ? PullVariable("SSL_CERT_FILE") : options.ca_file;
  request.stall_s = options.stall_s;
  return request;
}

Status Sign(TransferRequest& request) {
  request.follow = false;  // a signature holds for one host
  request.aws_region = Region();
  request.aws_key_id = PullVariable("AWS_ACCESS_KEY_ID");
  request.aws_secret = PullVariable("AWS_SECRET_ACCESS_KEY");
  if (request.aws_key_id.empty() != request.aws_secret.empty()) {
    return InvalidArgument(
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY belong together, but "
        "only one of them is set");
  }
  if (request.aws_key_id.empty()) return OkStatus();
  // S3 needs the digest of the body, here of none, as a header, too.
  request.headers.push_back("x-amz-content-sha256: " + HexText(Sha256("")));
  const std::string token = PullVariable("AWS_SESSION_TOKEN");
  if (!token.empty()) {
    request.headers.push_back("x-amz-security-token: " + token);
  }
  return OkStatus();
}

StatusOr<TransferRequest> FileRequest(const Source& source,
                                      const TransferOptions& options) {
  if (source.kind != SourceKind::kS3) {
    return PlainRequest(source, source.url, options);
  }
  TransferRequest request = PlainRequest(source, S3Url(source), options);
  RETURN_IF_ERROR(Sign(request));
  return request;
}

}  // namespace millrace::server

#include "server/torchserve/archive_download.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <system_error>

#include "config/base/log.h"
#include "config/base/utf8.h"
#include "server/pull/file_request.h"
#include "server/pull/source.h"
#include "server/pull/transfer.h"
#include "server/torchserve/unpack.h"

namespace millrace::server::torchserve {
namespace {

namespace fs = std::filesystem;

// Backtracking grows with it.
constexpr size_t kMaxUrlBytes = 2000;

bool Matches(const std::string& url, const std::string& pattern) {
  try {
    return std::regex_match(
        url, std::regex(pattern, std::regex::ECMAScript | std::regex::icase));
  } catch (const std::regex_error&) {
    return false;
  }
}

Status CheckAllowed(const std::string& url, const DownloadOptions& options) {
  const bool allowed =
      url.size() <= kMaxUrlBytes &&
      (options.allowed.empty() ||
       std::any_of(
           options.allowed.begin(), options.allowed.end(),
           [&](const std::string& each) { return Matches(url, each); }));
  if (!allowed) {
    return NotFound("Given URL " + Shortened(ShownAddress(url), 300) +
                    " does not match any allowed URL(s)");
  }
  const bool fetched = url.starts_with("https://") ||
                       url.starts_with("http://") || url.starts_with("s3://");
  if (fetched) return OkStatus();
  return NotFound("Model not found at: " + Shortened(ShownAddress(url), 300) +
                  "; https://, http:// and s3:// are fetched, all else is the "
                  "name of a file or folder of the store");
}

Status Stopping() {
  return Unavailable("the server is shutting down; use another instance")
      .Because("draining");
}

class IntoFile : public TransferSink {
 public:
  IntoFile(const std::string& path, int64_t max_bytes)
      : path_(path), max_bytes_(max_bytes) {}

  Status Begin(const TransferReply& reply) override {
    file_.open(path_, std::ios::binary | std::ios::trunc);
    size_ = 0;
    return reply.status == 200
               ? OkStatus()
               : FailedPrecondition("a part was sent where all was asked for");
  }
  Status Write(std::string_view bytes) override {
    size_ += static_cast<int64_t>(bytes.size());
    if (size_ > max_bytes_) {
      return ResourceExhausted("it has more than " +
                               std::to_string(max_bytes_) +
                               " bytes, the most that are taken");
    }
    file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return Check();
  }
  Status End() {
    file_.flush();
    return Check();
  }

 private:
  Status Check() const {
    if (file_) return OkStatus();
    return ResourceExhausted("'" + path_ +
                             "' cannot be written; is the disk full?");
  }

  const std::string path_;
  const int64_t max_bytes_;
  std::ofstream file_;
  int64_t size_ = 0;
};

Status Fetch(const Source& source, const std::string& path,
             const DownloadOptions& options) {
  ASSIGN_OR_RETURN(TransferRequest request,
                   FileRequest(source, {.stall_s = options.stall_s}));
  if (options.sign_for_s3 && source.kind == SourceKind::kHttp) {
    RETURN_IF_ERROR(Sign(request));
  }
  // What a redirect names was not looked at.
  request.follow = request.follow && options.allowed.empty();
  request.timeout_s = options.timeout_s;
  request.stop = options.stop;
  IntoFile sink(path, options.max_bytes);
  RETURN_IF_ERROR(Transfer(request, &sink).status());
  return sink.End();
}

}  // namespace

bool IsArchiveAddress(std::string_view url) {
  return url.find("://") != std::string_view::npos;
}

Status AsOfAddress(const std::string& url, const Status& status) {
  if (status.code() != StatusCode::kAlreadyExists || !IsArchiveAddress(url)) {
    return status;
  }
  return Internal(status.message());
}

std::string ShownAddress(const std::string& url) {
  const size_t scheme = url.find("://");
  if (scheme == std::string::npos) return url;
  const size_t begin = scheme + 3;
  const size_t end = std::min(url.find_first_of("/?#", begin), url.size());
  const size_t query = std::min(url.find('?', end), url.size());
  const size_t at = url.substr(begin, end - begin).rfind('@');
  return url.substr(0, begin) +
         (at == std::string::npos
              ? url.substr(begin, query - begin)
              : "***" + url.substr(begin + at, query - begin - at)) +
         (query == url.size() ? "" : "?***");
}

StatusOr<std::unique_ptr<const DownloadedArchive>> DownloadedArchive::Of(
    const std::string& url, const DownloadOptions& options) {
  RETURN_IF_ERROR(CheckAllowed(url, options));
  if (options.stop.stop_requested()) return Stopping();
  const auto failed = [](const std::string& what, const Status& why) {
    return InvalidArgument("Failed to download archive from: " + what + " (" +
                           std::string(why.message()) + ")")
        .Because("download_failed");
  };
  const StatusOr<Source> source = ParseSource(url);
  if (!source.ok())
    return failed(Shortened(ShownAddress(url), 300), source.status());
  std::unique_ptr<DownloadedArchive> archive(new DownloadedArchive());
  ASSIGN_OR_RETURN(archive->folder_, MakeArchiveFolder());
  archive->path_ = archive->folder_ + "/" + source->name;
  const Status fetched = Fetch(*source, archive->path_, options);
  if (fetched.code() == StatusCode::kCancelled) return Stopping();
  // Without what a query may have signed, and without passwords.
  if (!fetched.ok()) return failed(source->text, fetched);
  return std::unique_ptr<const DownloadedArchive>(std::move(archive));
}

DownloadedArchive::~DownloadedArchive() {
  if (folder_.empty()) return;
  std::error_code error;
  fs::remove_all(folder_, error);
  if (error) LogWarning("folder not removed", {{"path", folder_}});
}

}  // namespace millrace::server::torchserve

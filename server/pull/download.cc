#include "server/pull/download.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <thread>
#include <utility>

#include "config/base/size_text.h"
#include "config/base/utf8.h"
#include "server/pull/part_file.h"

namespace millrace::server {
namespace {

// So much of a file counts as progress: tries are counted anew.
constexpr int64_t kProgressBytes = int64_t{1} << 20;
constexpr int64_t kMaxDelayMs = 30'000;
constexpr int64_t kLeastFreeBytes = int64_t{16} << 20;

int64_t NumberAfter(const std::string& text, size_t start) {
  int64_t value = -1;
  if (start < text.size()) {
    std::from_chars(text.data() + start, text.data() + text.size(), value);
  }
  return value;
}

// What If-Range may hold: a strong tag, or a date.
std::string VersionOf(const TransferReply& reply) {
  const std::string etag = reply.Header("etag");
  if (!etag.empty() && !etag.starts_with("W/")) return etag;
  return reply.Header("last-modified");
}

// The size of the whole file, -1 where the server does not tell.
int64_t WholeSize(const TransferReply& reply) {
  if (reply.status != 206) {
    return NumberAfter(reply.Header("content-length"), 0);
  }
  const std::string range = reply.Header("content-range");
  const size_t slash = range.find('/');
  return slash == std::string::npos ? -1 : NumberAfter(range, slash + 1);
}

class IntoPart : public TransferSink {
 public:
  IntoPart(const TransferRequest& request, const Expected& expected,
           const std::function<void(int64_t, int64_t)>& progress,
           PartFile* part)
      : request_(request),
        expected_(expected),
        progress_(progress),
        part_(part) {}

  Status Begin(const TransferReply& reply) override {
    if (const std::string coding = reply.Header("content-encoding");
        !coding.empty() && coding != "identity") {
      return FailedPrecondition(request_.what + " came with Content-Encoding " +
                                Shortened(coding, 40) +
                                ", which is not read; ask for it without");
    }
    const std::string range = reply.Header("content-range");
    const bool is_rest =
        reply.status == 206 && request_.offset > 0 &&
        NumberAfter(range, range.find_first_of("0123456789")) ==
            request_.offset;
    if (reply.status == 206 && !is_rest) {
      return DataLoss(request_.what + " was answered with another range (" +
                      Shortened(range, 80) + ") than byte " +
                      std::to_string(request_.offset) + " on");
    }
    if (!is_rest) RETURN_IF_ERROR(part_->Restart(VersionOf(reply)));
    size_ = WholeSize(reply);
    if (expected_.size >= 0 && size_ >= 0 && size_ != expected_.size) {
      return DataLoss(request_.what + " has " + std::to_string(size_) +
                      " bytes, but " + std::to_string(expected_.size) +
                      " are expected");
    }
    if (size_ < 0) size_ = expected_.size;
    return CheckRoom();
  }

  Status Write(std::string_view bytes) override {
    if (size_ >= 0 &&
        part_->size() + static_cast<int64_t>(bytes.size()) > size_) {
      return DataLoss(request_.what + " sends more than its " +
                      std::to_string(size_) + " bytes");
    }
    RETURN_IF_ERROR(part_->Append(bytes));
    progress_(part_->size(), size_);
    return OkStatus();
  }

  int64_t size() const { return size_; }

 private:
  Status CheckRoom() const {
    std::error_code error;
    const auto space =
        std::filesystem::space(part_->path().parent_path(), error);
    if (error || size_ < 0) return OkStatus();
    const int64_t needed = size_ - part_->size() + kLeastFreeBytes;
    if (space.available >= static_cast<uintmax_t>(needed)) return OkStatus();
    return ResourceExhausted(
        request_.what + " needs " + SizeText(needed) + " more, but " +
        SizeText(static_cast<int64_t>(space.available)) + " are free at '" +
        part_->path().parent_path().string() +
        "'; make room or set MILLRACE_CACHE to a larger disk");
  }

  const TransferRequest& request_;
  const Expected& expected_;
  const std::function<void(int64_t, int64_t)>& progress_;
  PartFile* const part_;
  int64_t size_ = -1;
};

Status WrongSum(const TransferRequest& request, const char* kind,
                const std::string& found, const std::string& expected) {
  return DataLoss(request.what + " has the " + kind + " " + found + ", but " +
                  expected + " is expected; nothing was kept")
      .Because("checksum");
}

// Into place, when it is what is expected; else it is removed.
StatusOr<Downloaded> Place(const TransferRequest& request,
                           const std::filesystem::path& path,
                           const Expected& expected, const TransferReply& reply,
                           PartFile* part) {
  Downloaded done;
  done.etag = reply.Header("etag");
  done.size = part->size();
  ASSIGN_OR_RETURN(done.sha256, part->Finish());
  Expected wanted = expected;
  // Hugging Face sends it with a redirect.
  if (wanted.sha256.empty() && reply.linked_etag.size() == 64) {
    wanted.sha256 = reply.linked_etag;
  }
  Status wrong;
  if (wanted.size >= 0 && done.size != wanted.size) {
    wrong = DataLoss(request.what + " has " + std::to_string(done.size) +
                     " bytes, but " + std::to_string(wanted.size) +
                     " are expected");
  } else if (!wanted.sha256.empty() && done.sha256 != wanted.sha256) {
    wrong = WrongSum(request, "SHA-256", done.sha256, wanted.sha256);
  } else if (!wanted.git_sha1.empty()) {
    ASSIGN_OR_RETURN(const std::string sha1, GitBlobOfFile(part->path()));
    if (sha1 != wanted.git_sha1) {
      wrong = WrongSum(request, "git blob", sha1, wanted.git_sha1);
    }
  }
  if (!wrong.ok()) {
    part->Remove();
    return wrong;
  }
  std::error_code error;
  std::filesystem::rename(part->path(), path, error);
  if (error) {
    return FailedPrecondition("'" + path.string() +
                              "' cannot be put in place: " + error.message());
  }
  return done;
}

// One try. `fresh` ignores what an earlier one left.
StatusOr<Downloaded> Try(TransferRequest request,
                         const std::filesystem::path& path,
                         const Expected& expected, bool fresh,
                         const std::function<void(int64_t, int64_t)>& progress,
                         int64_t* came) {
  PartFile part(path);
  RETURN_IF_ERROR(part.Open());
  const bool has_digest =
      !expected.sha256.empty() || !expected.git_sha1.empty();
  const bool is_too_long = expected.size >= 0 && part.size() > expected.size;
  // Bytes of an unknown version are only taken when a checksum will tell.
  if (part.size() > 0 &&
      (fresh || is_too_long || (!has_digest && part.version().empty()))) {
    RETURN_IF_ERROR(part.Restart(""));
  }
  if (part.size() > 0 && part.size() == expected.size && has_digest) {
    return Place(request, path, expected, {}, &part);
  }
  const int64_t before = part.size();
  request.offset = before;
  if (!has_digest) request.if_range = part.version();
  IntoPart sink(request, expected, progress, &part);
  StatusOr<TransferReply> reply = Transfer(request, &sink);
  *came = part.size() - before;
  // Nothing is left to send, or what we have is of something else.
  if (!reply.ok() && reply.status().code() == StatusCode::kOutOfRange) {
    RETURN_IF_ERROR(part.Restart(""));
    return reply.status().Because(kTransient);
  }
  if (!reply.ok()) {
    if (part.size() == 0) part.Remove();
    return reply.status();
  }
  if (reply->status == 304) {
    part.Remove();
    Downloaded done;
    done.not_modified = true;
    return done;
  }
  if (sink.size() >= 0 && part.size() < sink.size()) {
    return Unavailable(request.what + " was cut after " +
                       std::to_string(part.size()) + " bytes")
        .Because(kTransient);
  }
  return Place(request, path, expected, *reply, &part);
}

}  // namespace

void WaitToRetry(const RetryPolicy& policy, const Status& why,
                 int64_t delay_ms) {
  const int64_t wait_ms = std::max(delay_ms, why.retry_after_ms());
  if (policy.say) {
    char wait[32];
    std::snprintf(wait, sizeof wait, "%.1f s",
                  static_cast<double>(wait_ms) / 1000);
    policy.say(std::string(why.message()) + "; trying again in " + wait);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
}

StatusOr<Downloaded> DownloadFile(
    const TransferRequest& request, const std::filesystem::path& path,
    const Expected& expected, const RetryPolicy& policy,
    const std::function<void(int64_t, int64_t)>& progress) {
  bool fresh = false;
  int64_t failed = 0, delay_ms = policy.first_delay_ms;
  int64_t farthest = 0;  // bytes that some try had
  while (true) {
    std::error_code ignored;
    std::filesystem::path part = path;
    part += ".part";
    const bool was_begun = std::filesystem::exists(part, ignored);
    int64_t came = 0;
    StatusOr<Downloaded> done =
        Try(request, path, expected, fresh, progress, &came);
    if (done.ok()) return done;
    const Status& status = done.status();
    // What an earlier try left may be of another file: once more, from its
    // beginning.
    if (status.reason() == "checksum" && was_begun && !fresh) {
      fresh = true;
      continue;
    }
    fresh = false;
    if (status.reason() != kTransient) return status;
    // Bytes that came again, since they had been thrown away, are no progress.
    const auto have = std::filesystem::file_size(part, ignored);
    if (came >= kProgressBytes && !ignored &&
        static_cast<int64_t>(have) >= farthest + kProgressBytes) {
      farthest = static_cast<int64_t>(have);
      failed = 0;
      delay_ms = policy.first_delay_ms;
    }
    if (++failed > policy.retries) {
      return Status(status.code(),
                    std::string(status.message()) + "; given up after " +
                        std::to_string(failed) +
                        (failed == 1 ? " try" : " tries") +
                        ", pull again to go on from where it stopped");
    }
    WaitToRetry(policy, status, delay_ms);
    delay_ms = std::min(delay_ms * 2, kMaxDelayMs);
  }
}

}  // namespace millrace::server

#include "server/pull/pull.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "server/pull/cache_entry.h"
#include "server/pull/digest.h"
#include "server/pull/file_request.h"
#include "server/pull/hub.h"
#include "server/pull/source.h"

namespace millrace::server {
namespace {

// Between tries.
constexpr int64_t kMaxDelayMs = 30'000;

namespace fs = std::filesystem;

constexpr size_t kMaxListing = size_t{32} << 20;
constexpr char kEtagFile[] = "etag";
constexpr char kSumFile[] = "sha256";

std::string TextOf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Pickles of protocol 2 and newer begin with the opcode PROTO and its number.
bool IsPickle(const fs::path& path) {
  char head[2] = {};
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  std::ifstream(path, std::ios::binary).read(head, sizeof head);
  return head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
}

class IntoText : public TransferSink {
 public:
  Status Begin(const TransferReply&) override {
    text.clear();
    return OkStatus();
  }
  Status Write(std::string_view bytes) override {
    if (text.size() + bytes.size() > kMaxListing) {
      return ResourceExhausted("the list of files has more than 32 MiB");
    }
    text.append(bytes);
    return OkStatus();
  }
  std::string text;
};

// One pull of one address; the options live longer.
class Puller {
 public:
  Puller(Source source, const PullOptions& options)
      : source_(std::move(source)),
        options_(options),
        entry_(options.cache, source_.cache_key) {}

  StatusOr<Pulled> Run() {
    return source_.kind == SourceKind::kHub ? Hub() : OneFile();
  }

 private:
  void Say(const std::string& sentence) const {
    if (options_.retry.say) options_.retry.say(sentence);
  }

  TransferOptions Options() const {
    return {.ca_file = options_.ca_file, .stall_s = options_.stall_s};
  }

  Status Lock() {
    return entry_.Lock([this] {
      Say("another process pulls " + source_.text + "; waiting for it");
    });
  }

  // What the cache holds; `sha256` of one file, where it was given.
  StatusOr<Pulled> There() const { return Pulled{entry_.Current(), true}; }

  Status CheckModel(const fs::path& path) const {
    if (IsPickle(path)) {
      return InvalidArgument(source_.text +
                             " is a pickle, whatever its name says, and may "
                             "run any code; nothing was kept");
    }
    if (!options_.is_model) return OkStatus();
    Status refused = options_.is_model(path.string());
    return refused.ok() ? refused : refused.Prefixed(source_.text);
  }

  // ---- one file: https, s3, file ----

  StatusOr<Downloaded> CopyFile(const fs::path& path) const {
    std::error_code error;
    if (fs::is_directory(source_.path, error)) {
      return NotFound("'" + source_.path +
                      "' is a folder, which can be served where it stands");
    }
    if (!fs::is_regular_file(source_.path, error)) {
      return NotFound("there is no file '" + source_.path + "'");
    }
    fs::copy_file(source_.path, path, fs::copy_options::overwrite_existing,
                  error);
    if (error) {
      const std::string why = error.message();
      // A full disk may be an error of input and output here.
      const bool may_be_full = error != std::errc::permission_denied;
      fs::remove(path, error);
      return ResourceExhausted(
          "'" + source_.path + "' cannot be copied to '" + path.string() +
          "': " + why +
          (may_be_full ? "; make room or set MILLRACE_CACHE to a larger disk"
                       : ""));
    }
    Downloaded done;
    ASSIGN_OR_RETURN(done.sha256, Sha256OfFile(path));
    if (!options_.sha256.empty() && done.sha256 != options_.sha256) {
      fs::remove(path, error);
      return DataLoss(source_.text + " has the SHA-256 " + done.sha256 +
                      ", but " + options_.sha256 +
                      " is expected; nothing was kept");
    }
    options_.progress(1);
    return done;
  }

  // Whether the cached file has this checksum now.
  bool HasSum(const std::string& sha256) const {
    const fs::path current = entry_.Current();
    return !current.empty() &&
           TextOf(current.parent_path() / kSumFile) == sha256 &&
           HasBytes(current, sha256);
  }

  StatusOr<Pulled> OneFile() {
    if (!options_.sha256.empty() && HasSum(options_.sha256)) return There();
    RETURN_IF_ERROR(Lock());
    if (!options_.sha256.empty() && HasSum(options_.sha256)) return There();
    const fs::path current = entry_.Current();
    ASSIGN_OR_RETURN(const fs::path partial, entry_.Partial("file"));
    const fs::path path = partial / source_.name;
    StatusOr<Downloaded> done = Downloaded{};
    if (source_.kind == SourceKind::kFile) {
      done = CopyFile(path);
    } else {
      ASSIGN_OR_RETURN(TransferRequest request,
                       FileRequest(source_, Options()));
      const std::string etag =
          current.empty() ? "" : TextOf(current.parent_path() / kEtagFile);
      // Where a checksum is asked for, the cache does not have it.
      if (!etag.empty() && options_.sha256.empty()) {
        request.headers.push_back("If-None-Match: " + etag);
      }
      Expected expected;
      expected.sha256 = options_.sha256;
      done = DownloadFile(request, path, expected, options_.retry,
                          [this](int64_t have, int64_t size) {
                            if (size > 0) {
                              options_.progress(static_cast<double>(have) /
                                                static_cast<double>(size));
                            }
                          });
    }
    RETURN_IF_ERROR(done.status());
    if (done->not_modified) return There();
    if (const Status refused = CheckModel(path); !refused.ok()) {
      std::error_code ignored;
      fs::remove_all(partial, ignored);
      return refused;
    }
    std::ofstream(partial / kEtagFile) << done->etag;
    std::ofstream(partial / kSumFile) << done->sha256;
    const std::string version = done->sha256.substr(0, 16);
    RETURN_IF_ERROR(entry_.Place(
        partial, version, source_.name,
        HasBytes(entry_.Version(version) / source_.name, done->sha256)));
    return Pulled{entry_.Current(), false};
  }

  // ---- a repository of Hugging Face ----

  TransferRequest HubRequest(const std::string& path) const {
    std::string endpoint = WithoutSlash(PullVariable("HF_ENDPOINT"));
    if (endpoint.empty()) endpoint = "https://huggingface.co";
    TransferRequest request = PlainRequest(source_, endpoint + path, Options());
    if (const std::string token = PullVariable("HF_TOKEN"); !token.empty()) {
      request.headers.push_back("Authorization: Bearer " + token);
    }
    return request;
  }

  StatusOr<HubListing> Listing() const {
    const TransferRequest request =
        HubRequest("/api/models/" + source_.repo + "/revision/" +
                   source_.revision + "?blobs=true");
    int64_t delay_ms = options_.retry.first_delay_ms;
    for (int64_t tries = 1;; ++tries) {
      IntoText sink;
      const StatusOr<TransferReply> reply = Transfer(request, &sink);
      if (reply.ok()) {
        StatusOr<HubListing> listing = ParseHubListing(sink.text);
        if (!listing.ok()) return listing.status().Prefixed(source_.text);
        return listing;
      }
      if (reply.status().reason() != kTransient ||
          tries > options_.retry.retries) {
        return reply.status();
      }
      WaitToRetry(options_.retry, reply.status(), delay_ms);
      delay_ms = std::min<int64_t>(delay_ms * 2, kMaxDelayMs);
    }
  }

  StatusOr<Pulled> Hub() {
    if (!options_.sha256.empty() && source_.path.empty()) {
      return InvalidArgument(
          "--sha256 is of one file, but " + source_.text +
          " is a repository; name a file, or a commit as revision");
    }
    // A commit never changes.
    if (entry_.CurrentVersion() == source_.revision && Matches()) {
      return There();
    }
    ASSIGN_OR_RETURN(const HubListing listing, Listing());
    if (entry_.CurrentVersion() == listing.commit && Matches()) return There();
    ASSIGN_OR_RETURN(std::vector<HubFile> files, ChooseFiles(listing, source_));
    RETURN_IF_ERROR(Lock());
    if (entry_.CurrentVersion() == listing.commit && Matches()) return There();
    ASSIGN_OR_RETURN(const fs::path partial, entry_.Partial(listing.commit));
    const bool is_file =
        files.size() == 1 && !files[0].path.ends_with(".safetensors");
    const fs::path inner =
        is_file ? fs::path(files[0].path).filename() : fs::path(source_.name);
    RETURN_IF_ERROR(HubFiles(listing, files, partial / inner, is_file));
    if (const Status refused = CheckModel(partial / inner); !refused.ok()) {
      std::error_code ignored;
      fs::remove_all(partial, ignored);
      return refused;
    }
    if (!options_.sha256.empty()) {
      std::ofstream(partial / kSumFile) << options_.sha256;
    }
    const fs::path there = entry_.Version(listing.commit) / inner;
    RETURN_IF_ERROR(
        entry_.Place(partial, listing.commit, inner, Matches(there)));
    return Pulled{entry_.Current(), false};
  }

  // The checksum that is asked for is that of what stands there.
  bool Matches() const { return Matches(entry_.Current()); }
  bool Matches(fs::path path) const {
    if (options_.sha256.empty()) return true;
    std::error_code error;
    // A single safetensors file stands in a folder.
    if (fs::is_directory(path, error)) path /= source_.path;
    return HasBytes(path, options_.sha256);
  }

  static bool HasBytes(const fs::path& path, const std::string& sha256) {
    const StatusOr<std::string> found = Sha256OfFile(path);
    return found.ok() && *found == sha256;
  }

  Status HubFiles(const HubListing& listing, const std::vector<HubFile>& files,
                  const fs::path& target, bool is_file) const {
    int64_t total = 0, before = 0;
    for (const HubFile& file : files) total += std::max<int64_t>(file.size, 0);
    for (const HubFile& file : files) {
      const fs::path path = is_file ? target : target / file.path;
      std::error_code error;
      // Of a pull that was ended between two files, or before it was placed.
      if (fs::exists(path, error) &&
          (options_.sha256.empty() || HasBytes(path, options_.sha256))) {
        before += std::max<int64_t>(file.size, 0);
        continue;
      }
      fs::create_directories(path.parent_path(), error);
      if (error) {
        return FailedPrecondition("'" + path.parent_path().string() +
                                  "' cannot be made: " + error.message());
      }
      TransferRequest request =
          HubRequest("/" + source_.repo + "/resolve/" + listing.commit + "/" +
                     PercentEncode(file.path));
      if (!is_file) request.what += "/" + file.path;
      Expected expected{file.size, file.sha256, file.git_sha1};
      if (!options_.sha256.empty()) {
        if (!expected.sha256.empty() && expected.sha256 != options_.sha256) {
          return DataLoss(source_.text + " has the SHA-256 " + expected.sha256 +
                          " by its list of files, but " + options_.sha256 +
                          " is expected");
        }
        expected.sha256 = options_.sha256;
      }
      const auto progress = [&](int64_t have, int64_t) {
        if (total > 0) {
          options_.progress(static_cast<double>(before + have) /
                            static_cast<double>(total));
        }
      };
      RETURN_IF_ERROR(
          DownloadFile(request, path, expected, options_.retry, progress)
              .status());
      before += std::max<int64_t>(file.size, 0);
    }
    return OkStatus();
  }

  const Source source_;
  const PullOptions& options_;
  CacheEntry entry_;
};

}  // namespace

StatusOr<Pulled> Pull(const std::string& address, const PullOptions& options) {
  ASSIGN_OR_RETURN(Source source, ParseSource(address));
  PullOptions whole = options;
  if (!whole.progress) whole.progress = [](double) {};
  return Puller(std::move(source), whole).Run();
}

StatusOr<fs::path> PulledPath(const std::string& address,
                              const fs::path& cache) {
  ASSIGN_OR_RETURN(const Source source, ParseSource(address));
  const fs::path path = CacheEntry(cache, source.cache_key).Current();
  if (!path.empty()) return path;
  return NotFound(source.text + " is not in the cache (" + cache.string() +
                  "); run `millrace pull " + source.text +
                  "` before, or start with --pull");
}

}  // namespace millrace::server

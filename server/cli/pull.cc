// millrace pull: a model from a Hugging Face repository, a web server or an S3
// bucket into the cache, where `millrace serve ADDRESS` finds it.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "config/base/terminal.h"
#include "server/cli/args.h"
#include "server/cli/model_kind.h"
#include "server/cli/pull_models.h"
#include "server/cli/tool_model.h"
#include "server/pull/cache_entry.h"
#include "server/pull/digest.h"
#include "server/pull/pull.h"
#include "server/pull/source.h"

namespace millrace::server {
namespace {

constexpr FlagSpec kFlags[] = {
    {"sha256", "DIGEST", "what sha256sum prints of the file; else it fails"},
    {"cacert", "FILE",
     "PEM file of the authorities that servers' certificates are checked "
     "against (default: SSL_CERT_FILE, or the system's)"},
    {"retries", "N", "tries in a row without progress (default 5)"},
    {"retry-delay-ms", "MS",
     "wait before the first of them; doubles up to 30 s (default 500)"},
    {"stall-timeout", "SECONDS",
     "a server that sends nothing for so long is asked again (default 30)"},
};
constexpr VerbSpec kVerb = {
    "pull",
    "ADDRESS",
    "Brings a model into the cache and prints its path. ADDRESS is\n"
    "hf://org/repo[@revision][/file], https://host/file, s3://bucket/key or\n"
    "file:///path; `millrace serve ADDRESS` serves it from there.\n"
    "HF_TOKEN, HF_ENDPOINT (a mirror), AWS_ACCESS_KEY_ID, "
    "AWS_SECRET_ACCESS_KEY,\n"
    "AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL_S3 and https_proxy are "
    "read.",
    kFlags,
    1,
    1};

// A line of its own, also where the line of progress stands.
void Say(const std::string& sentence) {
  std::fprintf(stderr, "%s%s\n", ObeysEscapes(STDERR_FILENO) ? "\r\x1b[K" : "",
               sentence.c_str());
}

PullOptions DefaultOptions() {
  PullOptions options;
  options.cache = CacheFolder();
  options.progress = ProgressLines("pulling");
  options.retry.say = Say;
  options.is_model = [](const std::string& path) {
    return FileKindOf(path).status();
  };
  return options;
}

Status PullVerbBody(const ParsedArgs& args) {
  const std::string& address = args.positional()[0];
  PullOptions options = DefaultOptions();
  options.ca_file = args.Text("cacert", "");
  if (args.Has("sha256")) {
    ASSIGN_OR_RETURN(options.sha256,
                     ParseSha256("--sha256", args.Text("sha256", "")));
  }
  ASSIGN_OR_RETURN(options.retry.retries, args.Int("retries", 5, 0, 1000));
  ASSIGN_OR_RETURN(options.retry.first_delay_ms,
                   args.Int("retry-delay-ms", 500, 1, 60'000));
  ASSIGN_OR_RETURN(options.stall_s, args.Int("stall-timeout", 30, 1, 86'400));
  ASSIGN_OR_RETURN(const Pulled pulled, Pull(address, options));
  // Only the path on stdout, for scripts.
  std::printf("%s\n", pulled.path.c_str());
  std::fprintf(stderr, "%s\nnext: millrace serve %s\n",
               pulled.was_there ? "it is in the cache already"
                                : "it is in the cache now",
               address.c_str());
  return OkStatus();
}

}  // namespace

Status PullModels(bool may_pull, std::vector<config::ModelSettings>* models) {
  for (config::ModelSettings& model : *models) {
    if (!IsAddress(model.path)) continue;
    const std::filesystem::path cache = CacheFolder();
    StatusOr<std::filesystem::path> path = PulledPath(model.path, cache);
    if (!path.ok() && path.status().code() == StatusCode::kNotFound &&
        may_pull) {
      ASSIGN_OR_RETURN(const Pulled pulled, Pull(model.path, DefaultOptions()));
      path = pulled.path;
    }
    RETURN_IF_ERROR(path.status());
    model.path = path->string();
  }
  return OkStatus();
}

Status CheckSums(const std::vector<std::string>& sums,
                 const std::vector<config::ModelSettings>& models) {
  if (sums.empty()) return OkStatus();
  if (sums.size() != models.size()) {
    return InvalidArgument("--model-sha256 is given " +
                           std::to_string(sums.size()) + " times, but there " +
                           (models.size() == 1 ? "is " : "are ") +
                           std::to_string(models.size()) +
                           (models.size() == 1 ? " model" : " models") +
                           "; give one for each, in the same order");
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    ASSIGN_OR_RETURN(const std::string wanted,
                     ParseSha256("--model-sha256", sums[i]));
    std::error_code ignored;
    if (std::filesystem::is_directory(models[i].path, ignored)) {
      return InvalidArgument("--model-sha256 is of a file, but '" +
                             models[i].path + "' is a folder");
    }
    ASSIGN_OR_RETURN(const std::string found, Sha256OfFile(models[i].path));
    if (found != wanted) {
      return DataLoss("'" + models[i].path + "' has the SHA-256 " + found +
                      ", but --model-sha256 is " + wanted +
                      "; it is not served");
    }
  }
  return OkStatus();
}

const VerbSpec& PullVerb() { return kVerb; }
int RunPull(Args args) { return RunVerb(kVerb, args, PullVerbBody); }

}  // namespace millrace::server

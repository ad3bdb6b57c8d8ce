// millrace convert: a model with its weights as this CPU's kernels want them in
// memory, so that a start copies instead of re-laying.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "models/llm/model.h"
#include "server/cli/args.h"
#include "server/cli/model_kind.h"
#include "server/cli/tool_model.h"
#include "server/cli/verbs.h"

namespace millrace::server {
namespace {

constexpr FlagSpec kFlags[] = {kIsaFlag, kComputeFlag, kThreadsFlag};
constexpr VerbSpec kVerb = {
    "convert",
    "MODEL OUT",
    "Writes the model with its weights packed for this machine's kernels, "
    "which "
    "the\nnext start reads straight into huge pages: the same results, sooner. "
    "The file\nserves any machine whose kernels have the same packing; serve "
    "it "
    "with the same\n--compute-dtype.",
    kFlags,
    2,
    2};

Status Convert(const ParsedArgs& args) {
  const std::string& model = args.positional()[0];
  const std::string& out = args.positional()[1];
  RETURN_IF_ERROR(ExpectKind(model, FileKind::kLanguageModel, "convert"));
  std::error_code error;
  if (std::filesystem::equivalent(model, out, error)) {
    return InvalidArgument("'" + out +
                           "' is the model itself; name another file to write");
  }
  models::LlmOptions options;
  options.isa = args.Text("isa", options.isa);
  options.settings.compute_dtype =
      args.Text("compute-dtype", options.settings.compute_dtype);
  ASSIGN_OR_RETURN(const int64_t threads, args.Int("threads", 0, 0, 1024));
  ASSIGN_OR_RETURN(options.cpus, TeamFor(threads));
  options.progress = ProgressLine("packing");
  const auto began = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(models::ConvertLlm(model, out, options));
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - began;
  std::printf(
      "%s: %.1f MiB in %.2f s\n", out.c_str(),
      static_cast<double>(std::filesystem::file_size(out, error)) / (1 << 20),
      took.count());
  std::string flags;
  for (const std::string_view flag : {"isa", "compute-dtype"}) {
    if (!args.Has(flag)) continue;
    flags += " --" + std::string(flag) + " " + args.Text(flag, "");
  }
  std::printf("next: millrace serve %s%s\n", out.c_str(), flags.c_str());
  return OkStatus();
}

}  // namespace

const VerbSpec& ConvertVerb() { return kVerb; }
int RunConvert(Args args) { return RunVerb(kVerb, args, Convert); }

}  // namespace millrace::server

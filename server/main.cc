// millrace VERB ARGS…: looks the verb up and runs it.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "server/cli/verbs.h"
#include "server/version.h"

namespace millrace::server {
namespace {

struct Verb {
  std::string_view name;
  std::string_view help;
  int (*run)(Args);
};

constexpr Verb kVerbs[] = {
    {"serve", "serve models over REST and gRPC", RunServe},
    {"chat", "chat with a running server in the terminal", RunChat},
    {"health", "exit 0 if a running server is ready, else 1", RunHealth},
    {"inspect", "what a model file holds, servable or why not", RunInspect},
    {"topology", "which cores would be pinned to what", RunTopology},
    {"bench", "tokens per second beside the machine's limits", RunBench},
    {"convert", "write a model in the form that loads fastest", RunConvert},
    {"run", "run an ONNX or PyTorch graph on arrays of a file", RunGraph},
    {"quantize", "choose the ranges of a graph's layers, for int8",
     RunQuantize},
    {"profile", "where a graph's time goes, step by step", RunProfile},
    {"logits", "teacher-forced logits of a model", RunLogits},
};

int Usage(std::FILE* out, int code) {
  std::fprintf(out, "millrace %s: a model server\n\n",
               std::string(Version()).c_str());
  std::fprintf(out,
               "usage: millrace VERB [ARGS…], or millrace VERB --help\n\n");
  for (const Verb& verb : kVerbs) {
    std::fprintf(out, "  %-10s %s\n", std::string(verb.name).c_str(),
                 std::string(verb.help).c_str());
  }
  std::fprintf(out, "  %-10s %s\n", "--version", "the version");
  return code;
}

int Main(std::vector<std::string> args) {
  if (args.empty()) return Usage(stderr, 2);
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    return Usage(stdout, 0);
  }
  if (args[0] == "--version" || args[0] == "version") {
    std::printf("millrace %s\n", std::string(Version()).c_str());
    return 0;
  }
  for (const Verb& verb : kVerbs) {
    if (verb.name == args[0]) return verb.run(Args(args).subspan(1));
  }
  std::fprintf(stderr, "millrace: there is no verb '%s'\n\n", args[0].c_str());
  return Usage(stderr, 2);
}

}  // namespace
}  // namespace millrace::server

int main(int argc, char** argv) {
  return millrace::server::Main({argv + 1, argv + argc});
}

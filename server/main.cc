// millrace VERB ARGS…: looks the verb up and runs it.
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "config/base/nearest.h"
#include "models/grammar/compile_child.h"
#include "server/cli/verb_table.h"
#include "server/version.h"

namespace millrace::server {
namespace {

int Usage(std::FILE* out, int code) {
  std::fprintf(out, "millrace %s: a model server\n\n",
               std::string(Version()).c_str());
  std::fprintf(out,
               "usage: millrace VERB [ARGS…], or millrace VERB --help\n\n");
  for (const Verb& verb : Verbs()) {
    std::fprintf(out, "  %-11s %s\n", std::string(verb.name).c_str(),
                 std::string(verb.help).c_str());
  }
  std::fprintf(out, "  %-11s %s\n", "--version", "the version");
  return code;
}

const Verb* FindVerb(std::string_view name) {
  for (const Verb& verb : Verbs()) {
    if (verb.name == name) return &verb;
  }
  return nullptr;
}

// What a command line without a verb may have meant.
int NoVerb(const std::string& first) {
  std::vector<std::string_view> names;
  for (const Verb& verb : Verbs()) names.push_back(verb.name);
  const std::string near(Nearest(first, names));
  std::error_code ignored;
  std::string hint = "millrace --help lists them";
  if (first.starts_with("-") || std::filesystem::exists(first, ignored)) {
    hint = "to serve a model, say: millrace serve " + first;
  } else if (!near.empty()) {
    hint = "did you mean '" + near + "'?";
  }
  std::fprintf(stderr, "millrace: there is no verb '%s'; %s\n", first.c_str(),
               hint.c_str());
  return 2;
}

int Main(std::vector<std::string> args) {
  if (args.empty()) return Usage(stderr, 2);
  if (args[0] == "--version" || args[0] == "version" || args[0] == "-V" ||
      args[0] == "-v") {
    std::printf("millrace %s\n", std::string(Version()).c_str());
    return 0;
  }
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    if (args.size() == 1) return Usage(stdout, 0);
    // "help serve" is "serve --help".
    args = {args[1], "--help"};
  }
  // Not for people: the server starts it to compile a grammar of a client.
  if (args[0] == models::kCompileVerb) return models::RunCompileChild();
  const Verb* verb = FindVerb(args[0]);
  return verb != nullptr ? verb->run(Args(args).subspan(1)) : NoVerb(args[0]);
}

}  // namespace
}  // namespace millrace::server

int main(int argc, char** argv) {
  return millrace::server::Main({argv + 1, argv + argc});
}

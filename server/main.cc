// millrace VERB ARGS…: looks the verb up and runs it.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/nearest.h"
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

int Main(std::vector<std::string> args) {
  if (args.empty()) return Usage(stderr, 2);
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    return Usage(stdout, 0);
  }
  if (args[0] == "--version" || args[0] == "version") {
    std::printf("millrace %s\n", std::string(Version()).c_str());
    return 0;
  }
  for (const Verb& verb : Verbs()) {
    if (verb.name == args[0]) return verb.run(Args(args).subspan(1));
  }
  std::vector<std::string_view> names;
  for (const Verb& verb : Verbs()) names.push_back(verb.name);
  const std::string near(Nearest(args[0], names));
  const std::string hint = near.empty() ? "; millrace --help lists them"
                                        : "; did you mean '" + near + "'?";
  std::fprintf(stderr, "millrace: there is no verb '%s'%s\n", args[0].c_str(),
               hint.c_str());
  return 2;
}

}  // namespace
}  // namespace millrace::server

int main(int argc, char** argv) {
  return millrace::server::Main({argv + 1, argv + argc});
}

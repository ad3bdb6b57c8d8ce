// millrace keys: makes API keys for the file of api_keys_file. A key is shown
// once; the file gets its digest.
#include <algorithm>
#include <cstdio>
#include <string>

#include "server/cli/args.h"
#include "server/key_file.h"

namespace millrace::server {
namespace {

constexpr FlagSpec kFlags[] = {
    {"id", "NAME", "what logs show instead of the key (default: a new name)"},
    {"tenant", "NAME", "tenant that the key belongs to (default: default)"},
    {"scopes", "LIST",
     "what it may do: infer, manage, metrics, separated by commas (default: "
     "infer)"},
    {"from-stdin", "",
     "take the key from the first line of stdin instead of making one; use it "
     "for keys of high entropy only"},
};
constexpr VerbSpec kVerb = {
    "keys",
    "create",
    "Makes an API key: prints the key on stderr, once, and the entry for the "
    "file of --api-keys-file on stdout.",
    kFlags,
    1,
    1};

constexpr size_t kLeastKeyBytes = 20;

StatusOr<std::string> KeyOf(const ParsedArgs& args) {
  if (!args.Has("from-stdin")) return NewKey();
  std::string key;
  for (int c = std::getchar(); c != EOF && c != '\n'; c = std::getchar()) {
    key.push_back(static_cast<char>(c));
  }
  if (key.size() < kLeastKeyBytes) {
    return InvalidArgument(
        "the key on stdin has " + std::to_string(key.size()) +
        " characters but needs " + std::to_string(kLeastKeyBytes) +
        " at least, for its digest must not be guessable");
  }
  return key;
}

Status Create(const ParsedArgs& args) {
  if (args.positional().front() != "create") {
    return UsageError("there is no `keys " + args.positional().front() +
                      "`; say `millrace keys create`");
  }
  std::string scopes;
  std::string rest = args.Text("scopes", "infer");
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string name = rest.substr(0, comma);
    if (ScopeOf(name) == 0) {
      return UsageError("--scopes holds '" + name +
                        "'; the scopes are infer, manage and metrics");
    }
    scopes += (scopes.empty() ? "" : ", ") + name;
    rest.erase(0, std::min(comma + 1, rest.size()));
  }
  ASSIGN_OR_RETURN(const std::string key, KeyOf(args));
  const Digest digest = Sha256(key);
  const std::string hex = HexText(digest);
  const std::string tenant = args.Text("tenant", "default");
  const std::string id = args.Text("id", tenant + "-" + hex.substr(0, 8));
  const std::string entry = "  - id: " + id + "\n    sha256: " + hex +
                            "\n    tenant: " + tenant + "\n    scopes: [" +
                            scopes + "]\n";
  // What the server would refuse is refused here.
  const std::string file = "tenants: {" + tenant + ": {}}\nkeys:\n" + entry;
  if (const StatusOr<KeyFile> read = ParseKeyFile(file); !read.ok()) {
    return UsageError(read.status().message());
  }
  if (!args.Has("from-stdin")) {
    std::fprintf(stderr, "%s\n", key.c_str());
  }
  std::fputs(entry.c_str(), stdout);
  return OkStatus();
}

}  // namespace

const VerbSpec& KeysVerb() { return kVerb; }
int RunKeys(Args args) { return RunVerb(kVerb, args, Create); }

}  // namespace millrace::server

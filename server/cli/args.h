// The arguments of a subcommand: flags from its table, the rest positional.
// Small on purpose; the server's own settings are read by config/load.
//
//   constexpr FlagSpec kFlags[] = {{"ctx", "N", "tokens of one sequence"}};
//   constexpr VerbSpec kVerb = {"inspect", "FILE", "says what FILE holds",
//                               kFlags, 1, 1};
//   int RunInspect(Args args) { return RunVerb(kVerb, args, Inspect); }
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "server/cli/verbs.h"

namespace millrace::server {

struct FlagSpec {
  std::string_view name;   // without dashes
  std::string_view value;  // what help calls its value; empty: a switch
  std::string_view help;
  std::string_view also = {};  // another name, as other programs have it
};

struct VerbSpec {
  std::string_view name;
  std::string_view positional;  // as help shows it
  std::string_view what;        // what it does, wrapped by the help
  std::span<const FlagSpec> flags;
  size_t min_positional = 0;
  size_t max_positional = 0;
};

class ParsedArgs {
 public:
  // INVALID_ARGUMENT with reason "usage" says what is wrong with the line.
  static StatusOr<ParsedArgs> Parse(const VerbSpec& verb, Args args);

  const std::vector<std::string>& positional() const { return positional_; }
  bool Has(std::string_view flag) const;
  std::string Text(std::string_view flag, std::string_view otherwise) const;
  StatusOr<int64_t> Int(std::string_view flag, int64_t otherwise, int64_t least,
                        int64_t most) const;
  // "1,4,16"
  StatusOr<std::vector<int64_t>> Ints(std::string_view flag,
                                      std::vector<int64_t> otherwise,
                                      int64_t least, int64_t most) const;
  bool help() const { return help_; }

 private:
  std::vector<std::string> positional_;
  std::map<std::string, std::string, std::less<>> flags_;
  bool help_ = false;
};

// What is wrong with a command line; RunVerb answers 2 to it.
Status UsageError(std::string_view message);

// What --help prints: as wide as the terminal, with examples at the end.
std::string HelpText(const VerbSpec& verb);

// Parses, shows help when asked, runs the body and turns its status into the
// process' exit code, with one sentence on stderr, without control characters.
int RunVerb(const VerbSpec& verb, Args args,
            Status (*body)(const ParsedArgs& args));

}  // namespace millrace::server

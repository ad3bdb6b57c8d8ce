// "--flag value" and "--flag=value" mean the same; after "--" nothing is a
// flag any more.
#include "server/cli/args.h"

#include <charconv>
#include <cstdio>
#include <optional>
#include <utility>

#include "config/base/nearest.h"
#include "config/base/wrap.h"
#include "server/cli/clean_text.h"
#include "server/cli/examples.h"

namespace millrace::server {
namespace {

constexpr size_t kHelpColumn = 26;

const FlagSpec* Find(const VerbSpec& verb, std::string_view name) {
  for (const FlagSpec& flag : verb.flags) {
    if (flag.name == name || (!flag.also.empty() && flag.also == name)) {
      return &flag;
    }
  }
  return nullptr;
}

std::string Joined(std::string_view a, std::string_view b,
                   std::string_view c = "", std::string_view d = "") {
  std::string out(a);
  return out.append(b).append(c).append(d);
}

StatusOr<int64_t> Number(std::string_view flag, std::string_view text,
                         int64_t least, int64_t most) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < least || value > most) {
    return UsageError(Joined("--", flag, " is '", text) +
                      "', a whole number from " + std::to_string(least) +
                      " to " + std::to_string(most) + " is expected");
  }
  return value;
}

std::string LeftColumn(const FlagSpec& flag) {
  std::string left = Joined("  --", flag.name);
  if (!flag.value.empty()) left.append(" ").append(flag.value);
  return left;
}

// "-x", "-sys", else "--system".
std::string Dashed(std::string_view name) {
  return Joined(name.size() <= 3 ? "-" : "--", name);
}

Status UnknownFlag(const VerbSpec& verb, std::string_view typed,
                   std::string_view name) {
  std::vector<std::string_view> names = {"help"};
  for (const FlagSpec& flag : verb.flags) names.push_back(flag.name);
  const std::string_view near = Nearest(name, names);
  std::string message = Joined("there is no flag ", typed);
  if (!near.empty()) message += Joined("; did you mean --", near, "?");
  message += Joined(near.empty() ? "; " : " (", "millrace ", verb.name,
                    " --help lists the flags");
  return UsageError(near.empty() ? message : message + ")");
}

}  // namespace

std::string HelpText(const VerbSpec& verb) {
  const size_t width = HelpWidth();
  std::string text = Joined("usage: millrace ", verb.name);
  if (!verb.positional.empty()) text.append(" ").append(verb.positional);
  if (!verb.flags.empty()) text.append(" [flags]");
  text.append("\n\n").append(WrapText(verb.what, 0, width));
  if (!verb.flags.empty()) text.append("\n");
  for (const FlagSpec& flag : verb.flags) {
    std::string help(flag.help);
    if (!flag.also.empty()) help.append("; also ").append(Dashed(flag.also));
    text += HelpEntry(LeftColumn(flag), help, kHelpColumn, width);
  }
  return text + ExamplesText(verb.name);
}

Status UsageError(std::string_view message) {
  return InvalidArgument(message).Because("usage");
}

StatusOr<ParsedArgs> ParsedArgs::Parse(const VerbSpec& verb, Args args) {
  ParsedArgs parsed;
  bool flags_end = false;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string_view arg = args[i];
    if (arg == "--" && !flags_end) {
      flags_end = true;
      continue;
    }
    if (flags_end || arg.size() < 2 || arg[0] != '-') {
      parsed.positional_.emplace_back(arg);
      continue;
    }
    if (arg == "--help" || arg == "-h") {
      parsed.help_ = true;
      return parsed;
    }
    std::string_view name = arg.substr(arg[1] == '-' ? 2 : 1);
    std::optional<std::string> value;
    if (const size_t equals = name.find('='); equals != name.npos) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    }
    const FlagSpec* flag = Find(verb, name);
    if (flag == nullptr) {
      return UnknownFlag(verb, arg.substr(0, arg.find('=')), name);
    }
    if (flag->value.empty()) {
      if (value) return UsageError(Joined("--", name, " takes no value"));
      value = "";
    } else if (!value) {
      if (i + 1 == args.size()) {
        return UsageError(Joined(arg, " needs a value after it: ", arg, " ") +
                          std::string(flag->value));
      }
      value = args[++i];
    }
    parsed.flags_[std::string(flag->name)] = *value;
  }
  const size_t count = parsed.positional_.size();
  if (count < verb.min_positional || count > verb.max_positional) {
    return UsageError(
        Joined("the command line is: millrace ", verb.name,
               verb.positional.empty() ? "" : " ", verb.positional) +
        ", but " + std::to_string(count) +
        (count == 1 ? " argument was" : " arguments were") + " given");
  }
  return parsed;
}

bool ParsedArgs::Has(std::string_view flag) const {
  return flags_.find(flag) != flags_.end();
}

std::string ParsedArgs::Text(std::string_view flag,
                             std::string_view otherwise) const {
  const auto found = flags_.find(flag);
  return found == flags_.end() ? std::string(otherwise) : found->second;
}

StatusOr<int64_t> ParsedArgs::Int(std::string_view flag, int64_t otherwise,
                                  int64_t least, int64_t most) const {
  const auto found = flags_.find(flag);
  if (found == flags_.end()) return otherwise;
  return Number(flag, found->second, least, most);
}

StatusOr<std::vector<int64_t>> ParsedArgs::Ints(std::string_view flag,
                                                std::vector<int64_t> otherwise,
                                                int64_t least,
                                                int64_t most) const {
  const auto found = flags_.find(flag);
  if (found == flags_.end()) return otherwise;
  std::vector<int64_t> numbers;
  std::string_view rest = found->second;
  for (;;) {
    const size_t comma = rest.find(',');
    ASSIGN_OR_RETURN(const int64_t number,
                     Number(flag, rest.substr(0, comma), least, most));
    numbers.push_back(number);
    if (comma == rest.npos) return numbers;
    rest.remove_prefix(comma + 1);
  }
}

int RunVerb(const VerbSpec& verb, Args args,
            Status (*body)(const ParsedArgs& args)) {
  const StatusOr<ParsedArgs> parsed = ParsedArgs::Parse(verb, args);
  if (parsed.ok() && parsed->help()) {
    std::fputs(HelpText(verb).c_str(), stdout);
    return 0;
  }
  const Status status = parsed.ok() ? body(*parsed) : parsed.status();
  if (status.ok()) return 0;
  std::fprintf(stderr, "millrace %s: %s\n", std::string(verb.name).c_str(),
               Printable(status.message()).c_str());
  return status.reason() == "usage" ? 2 : 1;
}

}  // namespace millrace::server

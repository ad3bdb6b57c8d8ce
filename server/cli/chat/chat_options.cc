// Several bare words are one prompt, so that `millrace chat how are you` needs
// no quotes; after "--" all words are bare.
#include "server/cli/chat/chat_options.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>

namespace millrace::server {
namespace {

StatusOr<int64_t> WholeNumber(const std::string& flag,
                              const std::string& text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < 1) {
    return InvalidArgument(flag + " is '" + text +
                           "' but must be a whole number of at least 1");
  }
  return value;
}

StatusOr<double> Temperature(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || !(value >= 0) ||
      !(value <= 2)) {
    return InvalidArgument("--temperature is '" + text +
                           "' but must be a number between 0 and 2");
  }
  return value;
}

}  // namespace

std::string ChatHelp() {
  return R"(usage: millrace chat [FLAGS] [PROMPT…]

Talks with a running server. With a PROMPT it answers once and exits; without
one it reads lines: /reset forgets the conversation, /exit leaves, Ctrl-C stops
an answer.

  --url URL          server, default http://127.0.0.1:8000
  --model ID         default: the first that the server lists
  --system TEXT      system message
  --max-tokens N     length limit of each answer
  --temperature T    0 to 2
  --api-key KEY      default: the environment variable MILLRACE_API_KEY
)";
}

StatusOr<ChatOptions> ParseChatOptions(Args args) {
  ChatOptions options;
  if (const char* key = std::getenv("MILLRACE_API_KEY")) options.api_key = key;
  bool flags_over = false;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (flags_over || !arg.starts_with("-") || arg == "-") {
      if (!options.prompt.empty()) options.prompt += ' ';
      options.prompt += arg;
      continue;
    }
    if (arg == "--") {
      flags_over = true;
      continue;
    }
    if (arg == "--help" || arg == "-h") {
      options.help = true;
      return options;
    }
    const size_t equals = arg.find('=');
    const std::string flag = arg.substr(0, equals);
    if (flag != "--url" && flag != "--model" && flag != "--system" &&
        flag != "--max-tokens" && flag != "--temperature" &&
        flag != "--api-key") {
      return InvalidArgument("unknown flag " + flag +
                             "; millrace chat --help lists the flags");
    }
    std::string value;
    if (equals != arg.npos) {
      value = arg.substr(equals + 1);
    } else if (++i < args.size()) {
      value = args[i];
    } else {
      return InvalidArgument(flag + " needs a value");
    }
    if (flag == "--url") options.url = value;
    if (flag == "--model") options.model = value;
    if (flag == "--system") options.system = value;
    if (flag == "--api-key") options.api_key = value;
    if (flag == "--max-tokens") {
      ASSIGN_OR_RETURN(options.max_tokens, WholeNumber(flag, value));
    }
    if (flag == "--temperature") {
      ASSIGN_OR_RETURN(options.temperature, Temperature(value));
    }
  }
  for (const char c : options.api_key) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7F) {
      return InvalidArgument("--api-key holds a control character");
    }
  }
  return options;
}

}  // namespace millrace::server

// Several bare words are one prompt, so that `millrace chat how are you` needs
// no quotes.
#include "server/cli/chat/chat_options.h"

#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "server/cli/chat/tls_flags.h"

namespace millrace::server {
namespace {

constexpr FlagSpec kFlags[] = {
    {"url", "URL", "server, such as http://127.0.0.1:8000"},
    {"port", "N",
     "port of a server on this machine, instead of --url (default: "
     "MILLRACE_HTTP_PORT if set, else 8000)"},
    {"model", "ID", "default: the first that the server lists", "m"},
    {"prompt", "TEXT", "as the argument PROMPT", "p"},
    {"system", "TEXT", "system message", "sys"},
    {"max-tokens", "N",
     "length limit of each answer (default: what the context leaves)", "n"},
    {"temperature", "T",
     "0 to 2 (default: the model's own as the server says, else 0.7)", "temp"},
    {"top-p", "P",
     "share of the likeliest tokens to draw from, above 0 to 1 (default: the "
     "model's own, else 0.9)"},
    {"api-key", "KEY", "default: the environment variable MILLRACE_API_KEY"},
    kCaCertFlag,
    kCertFlag,
    kKeyFlag,
    kInsecureFlag,
};
constexpr VerbSpec kVerb = {
    "chat",
    "[PROMPT…]",
    "Talks with a running server. With a PROMPT it answers once and exits; "
    "without one it reads lines, with history (arrow keys, Ctrl-R) on a "
    "terminal. /help lists what a line may begin with, Ctrl-C stops an "
    "answer.\n"
    "\n"
    "On a terminal Markdown is shown as bold, headings and lists; NO_COLOR=1 "
    "turns that off.",
    kFlags,
    0,
    std::numeric_limits<size_t>::max()};

StatusOr<double> Number(const ParsedArgs& args, std::string_view flag,
                        double most, bool zero_too) {
  const std::string text = args.Text(flag, "");
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || !(value <= most) ||
      !(zero_too ? value >= 0 : value > 0)) {
    return UsageError("--" + std::string(flag) + " is '" + text +
                      "' but must be a number " +
                      (zero_too ? "between 0 and " : "above 0 and at most ") +
                      std::to_string(static_cast<int>(most)));
  }
  return value;
}

}  // namespace

const VerbSpec& ChatVerb() { return kVerb; }

StatusOr<ChatOptions> ParseChatOptions(Args args) {
  ASSIGN_OR_RETURN(const ParsedArgs parsed, ParsedArgs::Parse(kVerb, args));
  ChatOptions options;
  options.help = parsed.help();
  if (options.help) return options;
  const char* key = std::getenv("MILLRACE_API_KEY");
  options.api_key = parsed.Text("api-key", key == nullptr ? "" : key);
  options.tls = TlsOptionsOf(parsed);
  std::string port;
  if (parsed.Has("port")) {
    if (parsed.Has("url")) {
      return UsageError("--url names the port, too; leave --port out");
    }
    ASSIGN_OR_RETURN(const int64_t number, parsed.Int("port", 1, 1, 65535));
    port = std::to_string(number);
  }
  options.url = parsed.Has("url")
                    ? parsed.Text("url", "")
                    : LocalServer("127.0.0.1", port, &options.tls);
  options.model = parsed.Text("model", "");
  options.system = parsed.Text("system", "");
  if (parsed.Has("max-tokens")) {
    ASSIGN_OR_RETURN(options.max_tokens,
                     parsed.Int("max-tokens", 1, 1, INT32_MAX));
  }
  if (parsed.Has("temperature")) {
    ASSIGN_OR_RETURN(options.temperature,
                     Number(parsed, "temperature", 2, true));
  }
  if (parsed.Has("top-p")) {
    ASSIGN_OR_RETURN(options.top_p, Number(parsed, "top-p", 1, false));
  }
  options.prompt = parsed.Text("prompt", "");
  for (const std::string& word : parsed.positional()) {
    if (!options.prompt.empty()) options.prompt += ' ';
    options.prompt += word;
  }
  for (const char c : options.api_key) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7F) {
      return UsageError("--api-key holds a control character");
    }
  }
  return options;
}

}  // namespace millrace::server

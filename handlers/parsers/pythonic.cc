// Calls as a list of Python's: [get_weather(city="Paris"), now()] (Llama 3.2
// and 4). The whole text is the list, so that it is read once it is closed. A
// list that is no list of calls of the request's tools is content.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"
#include "handlers/parsers/formats.h"
#include "handlers/parsers/literal.h"

namespace millrace::handlers {
namespace {

struct Call {
  std::string name;
  std::string arguments;
};

// f(a=1, b="x")
std::optional<Call> ReadCall(LiteralReader& reader) {
  Call call = {.name = reader.Word(), .arguments = "{"};
  if (call.name.empty() || !reader.Take('(')) return std::nullopt;
  while (!reader.Take(')')) {
    if (call.arguments.size() > 1) {
      if (!reader.Take(',')) return std::nullopt;
      if (reader.Take(')')) break;
      call.arguments += ", ";
    }
    const std::string key = reader.Word();
    if (key.empty() || !reader.Take('=')) return std::nullopt;
    const auto value = reader.Value();
    if (!value) return std::nullopt;
    call.arguments += DumpJson(nlohmann::ordered_json(key)) + ": " + *value;
  }
  call.arguments += '}';
  return call;
}

std::vector<Call> ReadCalls(std::string_view list,
                            const std::vector<std::string>& tools) {
  LiteralReader reader(list, {});
  std::vector<Call> calls;
  if (!reader.Take('[')) return {};
  while (!reader.Take(']')) {
    if (!calls.empty() && !reader.Take(',')) return {};
    auto call = ReadCall(reader);
    if (!call || std::ranges::find(tools, call->name) == tools.end()) return {};
    calls.push_back(*std::move(call));
  }
  return calls;
}

class Pythonic final : public OutputParser {
 public:
  Pythonic(ParsedOutput& out, std::vector<std::string> tools)
      : OutputParser(out), tools_(std::move(tools)) {}

  void Step(char byte) override {
    if (is_content_) return out_.Content(std::string_view(&byte, 1));
    text_ += byte;
    if (depth_ == 0) {
      if (IsJsonSpace(byte)) return;
      if (byte != '[') return GiveBack();
    }
    if (quote_ != 0) {
      if (escaped_) {
        escaped_ = false;
      } else if (byte == '\\') {
        escaped_ = true;
      } else if (byte == quote_) {
        quote_ = 0;
      }
      return;
    }
    if (byte == '"' || byte == '\'') quote_ = byte;
    if (byte == '[') ++depth_;
    if (byte != ']' || --depth_ > 0) return;
    const std::vector<Call> calls = ReadCalls(text_, tools_);
    if (calls.empty()) return GiveBack();
    for (const Call& call : calls) {
      out_.BeginCall(call.name);
      out_.Arguments(call.arguments);
    }
    is_content_ = true;
  }

  void End() override {
    if (!is_content_) GiveBack();
  }

  size_t num_held() const override { return is_content_ ? 0 : text_.size(); }

 private:
  void GiveBack() {
    is_content_ = true;
    out_.Content(text_);
  }

  const std::vector<std::string> tools_;
  std::string text_;         // until it is decided
  bool is_content_ = false;  // all that comes
  int depth_ = 0;            // of brackets outside of strings
  char quote_ = 0;           // of the string that is open
  bool escaped_ = false;
};

}  // namespace

std::unique_ptr<OutputParser> MakePythonic(ParsedOutput& out,
                                           std::vector<std::string> tools) {
  return std::make_unique<Pythonic>(out, std::move(tools));
}

}  // namespace millrace::handlers

// Calls as FunctionGemma and Gemma 4 write them:
//
//   <start_function_call>call:get_weather{city:<escape>Paris<escape>,days:3}
//   <end_function_call>
//
// with <|tool_call>, <tool_call|> and <|"|> for the words of Gemma 4. Strings
// stand between quote tags and keys are bare, so that a call is turned into
// JSON once it is closed.
// Source: ai.google.dev/gemma/docs/functiongemma/formatting-and-best-practices
#include <utility>

#include "handlers/parsers/formats.h"
#include "handlers/parsers/literal.h"
#include "handlers/parsers/tag_finder.h"

namespace millrace::handlers {
namespace {

struct Words {
  std::string_view open;
  std::string_view close;
  std::string_view quote;
};
constexpr Words kWords[] = {
    {"<start_function_call>", "<end_function_call>", "<escape>"},
    {"<|tool_call>", "<tool_call|>", "<|\"|>"},
};

class Gemma final : public OutputParser {
 public:
  explicit Gemma(ParsedOutput& out)
      : OutputParser(out),
        open_({std::string(kWords[0].open), std::string(kWords[1].open)}) {}

  void Step(char byte) override {
    if (words_ == nullptr) {
      std::string text;
      const int tag = open_.Step(byte, text);
      out_.Content(text);
      if (tag >= 0) words_ = &kWords[tag];
      return;
    }
    body_ += byte;
    if (!body_.ends_with(words_->close)) return;
    body_.resize(body_.size() - words_->close.size());
    EndCall(/*closed=*/true);
  }

  void End() override {
    if (words_ == nullptr) return out_.Content(open_.Rest());
    EndCall(/*closed=*/false);
  }

  size_t num_held() const override {
    return words_ == nullptr ? open_.waiting()
                             : words_->open.size() + body_.size();
  }

 private:
  void EndCall(bool closed) {
    LiteralReader reader(body_, {.quote = words_->quote, .bare_keys = true});
    std::string name;
    std::optional<std::string> arguments;
    if (reader.TakeText("call:")) {
      name = reader.Word();
      arguments = reader.Value();
    }
    if (!name.empty() && arguments && arguments->starts_with('{') &&
        reader.AtEnd()) {
      out_.BeginCall(name);
      out_.Arguments(*arguments);
    } else {
      out_.Content(words_->open);
      out_.Content(body_);
      if (closed) out_.Content(words_->close);
    }
    body_.clear();
    words_ = nullptr;
  }

  TagFinder open_;
  const Words* words_ = nullptr;  // of the call that is open
  std::string body_;
};

}  // namespace

std::unique_ptr<OutputParser> MakeGemma(ParsedOutput& out) {
  return std::make_unique<Gemma>(out);
}

}  // namespace millrace::handlers

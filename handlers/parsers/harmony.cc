// The messages of gpt-oss, each with a header that names its channel and
// recipient:
//
//   <|channel|>analysis<|message|>…<|end|>
//   <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json
//   <|message|>{"x": 1}<|call|>
//   <|start|>assistant<|channel|>final<|message|>…<|return|>
//
// The analysis is reasoning, what goes to a function is a call, the rest is
// content. Source: OpenAI's description of the harmony response format.
#include "handlers/parsers/formats.h"
#include "handlers/parsers/tag_finder.h"

namespace millrace::handlers {
namespace {

constexpr std::string_view kChannel = "<|channel|>";

// The word behind `mark`, up to white space or a tag.
std::string WordBehind(const std::string& header, std::string_view mark) {
  const size_t at = header.rfind(mark);
  if (at == std::string::npos) return "";
  const size_t begin = at + mark.size();
  return header.substr(begin, header.find_first_of(" <\n", begin) - begin);
}

class Harmony final : public OutputParser {
 public:
  explicit Harmony(ParsedOutput& out)
      : OutputParser(out),
        tags_({"<|start|>", "<|message|>", "<|end|>", "<|call|>",
               "<|return|>"}) {}

  void Step(char byte) override {
    std::string text;
    const int tag = tags_.Step(byte, text);
    Text(text);
    if (tag < 0) return;
    if (tag == 1 && kind_ == Kind::kHeader) return EndHeader();
    if (tag == 1) return Text(tags_.tag(tag));
    EndMessage();
    is_started_ = tag == 0;
  }

  void End() override {
    if (kind_ == Kind::kHeader) {
      // Without any message, the text was not in this format.
      header_ += tags_.Rest();
      if (num_messages_ == 0 || IsPlainText()) out_.Content(header_);
      return;
    }
    Text(tags_.Rest());
    EndMessage();
  }

  size_t num_held() const override {
    switch (kind_) {
      case Kind::kHeader:
        return header_.size() + tags_.waiting();
      case Kind::kContent:
        return tags_.waiting();
      case Kind::kReasoning:
      case Kind::kArguments:
        break;
    }
    return 0;
  }

 private:
  enum class Kind { kHeader, kReasoning, kContent, kArguments };

  void Text(std::string_view text) {
    switch (kind_) {
      case Kind::kHeader:
        header_ += text;
        return;
      case Kind::kReasoning:
        return out_.Reasoning(text);
      case Kind::kContent:
        return out_.Content(text);
      case Kind::kArguments:
        is_empty_ = is_empty_ && text.empty();
        return out_.Arguments(text);
    }
  }

  void EndHeader() {
    ++num_messages_;
    constexpr std::string_view kFunctions = "functions.";
    std::string to = WordBehind(header_, "to=");
    if (to.starts_with(kFunctions)) to.erase(0, kFunctions.size());
    if (!to.empty()) {
      out_.BeginCall(to);
      kind_ = Kind::kArguments;
      is_empty_ = true;
    } else if (WordBehind(header_, kChannel) == "analysis") {
      kind_ = Kind::kReasoning;
    } else {
      kind_ = Kind::kContent;
    }
    header_.clear();
  }

  // Whether what stands behind a message is no header.
  bool IsPlainText() const {
    const size_t text = header_.find_first_not_of(" \n\t\r");
    return num_messages_ > 0 && !is_started_ && text != std::string::npos &&
           !kChannel.starts_with(header_.substr(text, kChannel.size()));
  }

  void EndMessage() {
    if (kind_ == Kind::kHeader && IsPlainText()) out_.Content(header_);
    if (kind_ == Kind::kArguments && is_empty_) out_.Arguments("{}");
    kind_ = Kind::kHeader;
    header_.clear();
  }

  TagFinder tags_;
  Kind kind_ = Kind::kHeader;
  std::string header_;
  bool is_started_ = false;  // <|start|> stands before this header
  bool is_empty_ = true;     // the arguments so far
  int num_messages_ = 0;
};

}  // namespace

std::unique_ptr<OutputParser> MakeHarmony(ParsedOutput& out) {
  return std::make_unique<Harmony>(out);
}

}  // namespace millrace::handlers

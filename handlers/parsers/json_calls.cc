// Text that looked like a call and is none goes out as content, tag included:
// nothing that the model wrote is lost. Behind a closing tag the text is
// content again.
#include "handlers/parsers/json_calls.h"

#include <utility>

#include "handlers/parsers/json_call_reader.h"
#include "handlers/parsers/tag_finder.h"

namespace millrace::handlers {
namespace {

constexpr size_t kLongestHeader = 256;

class JsonCalls final : public OutputParser {
 public:
  JsonCalls(ParsedOutput& out, JsonCallWords words,
            std::vector<std::string> tools)
      : OutputParser(out),
        words_(std::move(words)),
        tools_(std::move(tools)),
        num_open_(static_cast<int>(words_.open.size())),
        num_close_(static_cast<int>(words_.close.size())),
        tags_(AllTags(words_)) {}

  void Step(char byte) override {
    switch (state_) {
      case State::kText:
        return StepText(byte);
      case State::kOpen:
        return StepOpen(byte);
      case State::kHeader:
        return StepHeader(byte);
      case State::kCall:
        return StepCall(byte);
      case State::kArguments:
        return StepArguments(byte);
      case State::kBehind:
        return StepText(byte);
    }
  }

  void End() override {
    switch (state_) {
      case State::kText:
        return Text(tags_.Rest());
      case State::kOpen:
      case State::kHeader:
        return out_.Content(seen_);
      case State::kCall:
        if (!reader_->begun()) return out_.Content(seen_ + reader_->raw());
        return reader_->End();
      case State::kArguments:
      case State::kBehind:  // the half of a closing tag
        return;
    }
  }

  size_t num_held() const override {
    switch (state_) {
      case State::kText:
      case State::kBehind:
        return tags_.waiting();
      case State::kOpen:
      case State::kHeader:
        return seen_.size();
      case State::kCall:
        return reader_->begun() ? 0 : seen_.size() + reader_->raw().size();
      case State::kArguments:
        break;
    }
    return 0;
  }

 private:
  enum class State {
    kText,
    kOpen,       // behind an opening tag
    kHeader,     // in the name of a call
    kCall,       // in a call's object
    kArguments,  // in the arguments' object, behind a header
    kBehind,     // behind a call, before a closing tag
  };

  static std::vector<std::string> AllTags(const JsonCallWords& words) {
    std::vector<std::string> tags = words.open;
    tags.insert(tags.end(), words.close.begin(), words.close.end());
    tags.insert(tags.end(), words.dropped.begin(), words.dropped.end());
    return tags;
  }

  void StepText(char byte) {
    std::string text;
    const int tag = tags_.Step(byte, text);
    Text(text);
    if (tag < 0) return;
    at_start_ = false;
    if (tag < num_open_) {
      seen_ = tags_.tag(tag);
      seen_tag_ = seen_.size();
      strict_ = false;
      state_ = State::kOpen;
    } else if (tag < num_open_ + num_close_ && state_ == State::kText) {
      out_.Content(tags_.tag(tag));  // it closes nothing
    } else if (tag < num_open_ + num_close_) {
      state_ = State::kText;
    }
  }

  // Text that is no tag; it may begin a call, or end what stands behind one.
  void Text(std::string_view text) {
    for (const char c : text) {
      if (state_ == State::kBehind) {
        if (IsJsonSpace(c) || words_.separators.find(c) != std::string::npos) {
          continue;
        }
        if (c == '{' && !had_header_) {
          seen_.clear();
          BeginCall(c);
          continue;
        }
        state_ = State::kText;
      }
      if (state_ != State::kText) {  // the call began in this very text
        Step(c);
        continue;
      }
      if (at_start_ && words_.without_tag && (c == '{' || c == '[')) {
        at_start_ = false;
        seen_.clear();
        seen_tag_ = 0;
        strict_ = true;
        state_ = State::kOpen;
        StepOpen(c);
        continue;
      }
      at_start_ = at_start_ && IsJsonSpace(c);
      out_.Content(std::string_view(&c, 1));
    }
  }

  void StepOpen(char byte) {
    if (IsJsonSpace(byte)) {
      seen_ += byte;
      return;
    }
    if (byte == '{') return BeginCall(byte);
    if (byte == '[' && seen_.find('[', seen_tag_) == std::string::npos) {
      seen_ += byte;
      return;
    }
    if (words_.read_header != nullptr && byte != '[') {
      header_.clear();
      state_ = State::kHeader;
      return StepHeader(byte);
    }
    state_ = State::kText;
    out_.Content(seen_);
    StepText(byte);
  }

  void StepHeader(char byte) {
    seen_ += byte;
    if (byte != '{') {
      header_ += byte;
      if (header_.size() <= kLongestHeader) return;
      state_ = State::kText;
      return out_.Content(seen_);
    }
    const auto header = words_.read_header(header_);
    if (!header || header->name.empty()) {
      state_ = State::kText;
      return out_.Content(seen_);
    }
    out_.BeginCall(header->name, header->id);
    had_header_ = true;
    value_end_ = {};
    state_ = State::kArguments;
    StepArguments(byte);
  }

  void StepArguments(char byte) {
    out_.Arguments(std::string_view(&byte, 1));
    if (value_end_.Step(byte) == JsonValueEnd::Place::kLast) {
      state_ = State::kBehind;
    }
  }

  void BeginCall(char byte) {
    state_ = State::kCall;
    had_header_ = false;
    reader_.emplace(out_, strict_ ? &tools_ : nullptr);
    StepCall(byte);
  }

  void StepCall(char byte) {
    switch (reader_->Step(byte)) {
      case JsonCallReader::Result::kMore:
        return;
      case JsonCallReader::Result::kDone:
        state_ = State::kBehind;
        return;
      case JsonCallReader::Result::kBroken:
        state_ = State::kBehind;
        return StepText(byte);
      case JsonCallReader::Result::kNotACall:
        break;
    }
    state_ = State::kText;
    std::string raw = seen_ + reader_->raw();
    raw.pop_back();
    out_.Content(raw);
    StepText(byte);  // it may begin a tag
  }

  const JsonCallWords words_;
  const std::vector<std::string> tools_;
  const int num_open_;
  const int num_close_;
  TagFinder tags_;
  State state_ = State::kText;
  bool at_start_ = true;  // only white space so far
  bool strict_ = false;   // without a tag
  bool had_header_ = false;
  std::string seen_;     // since the tag, if it turns out to be no call
  size_t seen_tag_ = 0;  // bytes of it that are the tag
  std::string header_;
  JsonValueEnd value_end_;
  std::optional<JsonCallReader> reader_;
};

}  // namespace

std::unique_ptr<OutputParser> MakeJsonCalls(ParsedOutput& out,
                                            JsonCallWords words,
                                            std::vector<std::string> tools) {
  return std::make_unique<JsonCalls>(out, std::move(words), std::move(tools));
}

}  // namespace millrace::handlers

// Reasoning in front of the completion, between two tags such as <think> and
// </think>. Behind it another parser reads. White space around the tags belongs
// to neither.
#include <utility>

#include "handlers/parsers/formats.h"
#include "handlers/parsers/tag_finder.h"

namespace millrace::handlers {
namespace {

class Reasoning final : public OutputParser {
 public:
  Reasoning(ParsedOutput& out, const ReasoningFormat& format, bool begun,
            std::unique_ptr<OutputParser> rest)
      : OutputParser(out),
        open_(format.open),
        close_({std::string(format.close)}),
        rest_(std::move(rest)),
        state_(begun || format.always ? State::kReasoning : State::kStart),
        may_repeat_open_(begun || format.always) {}

  void Step(char byte) override {
    switch (state_) {
      case State::kStart:
        start_ += byte;
        return StepStart();
      case State::kReasoning: {
        std::string text;
        const int tag = close_.Step(byte, text);
        Thought(text);
        if (tag < 0) return;
        // It only began like an opening tag.
        if (!begun_) out_.Reasoning(std::exchange(start_, {}));
        space_.clear();
        state_ = State::kBehind;
        return;
      }
      case State::kBehind:
        if (IsJsonSpace(byte)) return;
        state_ = State::kRest;
        [[fallthrough]];
      case State::kRest:
        return rest_->Step(byte);
    }
  }

  void End() override {
    if (state_ == State::kStart) Release();
    if (state_ == State::kReasoning) Thought(close_.Rest());
    if (state_ == State::kReasoning && !begun_) out_.Reasoning(start_);
    rest_->End();
  }

  size_t num_held() const override {
    switch (state_) {
      case State::kStart:
        return start_.size();
      case State::kReasoning:
      case State::kBehind:
        break;
      case State::kRest:
        return rest_->num_held();
    }
    return 0;
  }

 private:
  enum class State { kStart, kReasoning, kBehind, kRest };

  // Whether the text begins with the opening tag.
  void StepStart() {
    const std::string_view text = std::string_view(start_).substr(
        std::min(start_.find_first_not_of(" \n\t\r"), start_.size()));
    if (text == open_) {
      start_.clear();
      state_ = State::kReasoning;
    } else if (!open_.starts_with(text)) {
      Release();
    }
  }
  void Release() {
    state_ = State::kRest;
    for (const char c : std::exchange(start_, {})) rest_->Step(c);
  }

  // Without white space at either end, and without an opening tag that the
  // model writes although the prompt has it.
  void Thought(std::string_view text) {
    for (const char c : text) {
      if (!begun_) {
        if (start_.empty() && IsJsonSpace(c)) continue;
        start_ += c;
        if (may_repeat_open_ && start_ == open_) {
          may_repeat_open_ = false;
          start_.clear();
          continue;
        }
        if (may_repeat_open_ && open_.starts_with(start_)) continue;
        begun_ = true;
        out_.Reasoning(std::exchange(start_, {}));
        continue;
      }
      if (IsJsonSpace(c)) {
        space_ += c;
        continue;
      }
      out_.Reasoning(std::exchange(space_, {}));
      out_.Reasoning(std::string_view(&c, 1));
    }
  }

  const std::string open_;
  TagFinder close_;
  const std::unique_ptr<OutputParser> rest_;
  State state_;
  bool may_repeat_open_;
  bool begun_ = false;  // some of the reasoning is out
  std::string start_;   // held back at the beginning
  std::string space_;   // at the end of the reasoning so far
};

}  // namespace

std::unique_ptr<OutputParser> MakeReasoning(
    ParsedOutput& out, const ReasoningFormat& format, bool begun,
    std::unique_ptr<OutputParser> rest) {
  return std::make_unique<Reasoning>(out, format, begun, std::move(rest));
}

}  // namespace millrace::handlers

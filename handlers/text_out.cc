// Bytes of an incomplete character wait in tail_, characters that may begin a
// stop string wait in text_. A token may have no text of its own (special
// tokens, middle bytes of an emoji), so tokens are released by position, not by
// length.
#include "handlers/text_out.h"

#include <utility>

#include "config/base/utf8.h"

namespace millrace::handlers {
namespace {

// Of valid, non-empty UTF-8.
int64_t FirstCharacterBytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return 1;
  if (lead < 0xE0) return 2;
  return lead < 0xF0 ? 3 : 4;
}

}  // namespace

TextOut::TextOut(Options options)
    : include_stop_(options.include_stop), matcher_(std::move(options.stop)) {}

bool TextOut::Push(std::string_view piece,
                   std::optional<TokenLogprobs> logprobs, bool may_stop) {
  if (stopped_by_ || finished_) return false;
  const int64_t begin = end_position();
  const bool had_tail = !tail_.empty();
  tail_ += piece;
  const size_t whole = tail_.size() - IncompleteUtf8Suffix(tail_);
  const std::string clean =
      ReplaceInvalidUtf8(std::string_view(tail_).substr(0, whole));
  tail_.erase(0, whole);

  if (had_tail && !clean.empty()) {
    // The waiting bytes became the first character of `clean`.
    const int64_t end = begin + FirstCharacterBytes(clean);
    for (auto it = pending_.rbegin(); it != pending_.rend() && it->end == kOpen;
         ++it) {
      it->end = end;
    }
  }
  const int64_t end = begin + static_cast<int64_t>(clean.size());
  pending_.push_back({begin, tail_.empty() ? end : kOpen, std::move(logprobs)});
  Append(clean, may_stop);
  return !stopped_by_;
}

void TextOut::Finish() {
  if (stopped_by_ || finished_) return;
  if (!tail_.empty()) {
    const std::string clean = ReplaceInvalidUtf8(tail_);
    tail_.clear();
    const int64_t end = end_position() + static_cast<int64_t>(clean.size());
    for (Pending& token : pending_) {
      if (token.end == kOpen) token.end = end;
    }
    Append(clean, true);
  }
  finished_ = true;
}

void TextOut::Append(std::string_view clean, bool may_stop) {
  if (!may_stop) {
    text_ += clean;
    return;
  }
  for (const char byte : clean) {
    text_ += byte;
    const int found = matcher_.Step(byte);
    if (found < 0) continue;
    stopped_by_ = matcher_.stop(found);
    // What is held covers every stop string's beginning, so the cut is never
    // before what has been released.
    if (!include_stop_) text_.resize(text_.size() - stopped_by_->size());
    return;
  }
}

OutputDelta TextOut::Take(std::vector<TokenSpan>* spans) {
  OutputDelta chunk;
  const bool over = stopped_by_ || finished_;
  const size_t size = text_.size() - (over ? 0 : matcher_.held());
  chunk.text = text_.substr(0, size);
  text_.erase(0, size);
  released_ += static_cast<int64_t>(size);

  while (!pending_.empty()) {
    Pending& token = pending_.front();
    const bool whole = token.end != kOpen && token.end <= released_;
    if (!whole && !stopped_by_) break;
    if (token.logprobs && (whole || token.begin < released_)) {
      chunk.logprobs.push_back(*std::move(token.logprobs));
      if (spans != nullptr) {
        spans->push_back({token.begin, whole ? token.end : released_});
      }
    }
    ++chunk.num_tokens;
    pending_.pop_front();
  }
  return chunk;
}

}  // namespace millrace::handlers

// A pair of ** is bold where no space stands inside of it, so that "2 ** 3"
// stays. Bold ends with its paragraph, code with its line. The lines of a fence
// are not shown, what stands between them is.
#include "server/cli/chat/markdown.h"

#include <utility>

namespace millrace::server {
namespace {

constexpr std::string_view kReset = "\x1b[0m";
constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kHeading = "\x1b[1;4m";
constexpr std::string_view kCode = "\x1b[36m";
constexpr std::string_view kFence = "```";

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n'; }

// "`", "``" or "```".
bool MayBeFence(std::string_view text) {
  return !text.empty() && kFence.starts_with(text);
}
bool EndsWithFence(std::string_view line) { return line.ends_with(kFence); }

// Whether more characters could make a mark of this beginning of a line.
bool MayBeMark(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == text.npos) return true;  // an indented mark may follow
  const std::string_view mark = text.substr(first);
  if (mark[0] == '#') {
    return mark.size() <= 6 && mark.find_first_not_of('#') == mark.npos;
  }
  return MayBeFence(mark) || mark == "-" || mark == "*" || mark == "+";
}

}  // namespace

std::string MarkdownScreen::Feed(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      EndLine(out);
    } else if (line_begins_) {
      BeginLine(c, out);
    } else {
      Inline(c, out);
    }
  }
  return out;
}

std::string MarkdownScreen::Finish() {
  std::string out;
  if (line_begins_ && !mark_.empty()) {
    line_begins_ = false;
    if (!EndsWithFence(mark_)) {
      for (const char c : std::exchange(mark_, {})) Inline(c, out);
    }
  }
  for (; stars_ > 0; --stars_) out += '*';
  if (in_code_) out.append("`").append(code_);
  if (bold_ || in_fence_ || block_ == Block::kHeading) out += kReset;
  *this = MarkdownScreen();
  return out;
}

void MarkdownScreen::BeginLine(char c, std::string& out) {
  const std::string with = mark_ + c;
  if (in_fence_) {
    // Only "```" ends it, indented or not; anything else is code.
    const size_t begin = with.find_first_not_of(' ');
    if (begin == with.npos || MayBeFence(with.substr(begin))) {
      mark_ = with;
      return;
    }
    if (EndsWithFence(mark_)) return;  // behind the closing fence
    line_begins_ = false;
    mark_.clear();
    out.append(kCode).append(with);
    return;
  }
  const size_t first = mark_.find_first_not_of(' ');
  const std::string_view mark = first == mark_.npos
                                    ? std::string_view()
                                    : std::string_view(mark_).substr(first);
  if (mark == kFence) return;  // the name of the language is not shown
  if (c == ' ' && !mark.empty()) {
    if (mark[0] == '#') {
      mark_.clear();
      line_begins_ = false;
      block_ = Block::kHeading;
      out += kHeading;
      return;
    }
    if (mark == "-" || mark == "*" || mark == "+") {
      out.append(mark_, 0, first).append("\xE2\x80\xA2 ");  // a bullet
      mark_.clear();
      line_begins_ = false;
      last_ = ' ';
      return;
    }
  }
  if (MayBeMark(with)) {
    mark_ = with;
    return;
  }
  line_begins_ = false;
  mark_.clear();
  for (const char each : with) Inline(each, out);
}

void MarkdownScreen::TakeMark(bool space_behind, std::string& out) {
  const bool pair = stars_ == 2;
  const bool opens = pair && !bold_ && !space_behind;
  const bool closes = pair && bold_ && !IsSpace(last_);
  if (opens || closes) {
    bold_ = opens;
    out += kReset;
    if (block_ == Block::kHeading) out += kHeading;
    if (bold_) out += kBold;
  } else {
    out.append(static_cast<size_t>(stars_), '*');
  }
  stars_ = 0;
}

void MarkdownScreen::Inline(char c, std::string& out) {
  if (in_fence_) {
    out += c;
    return;
  }
  if (in_code_) {
    if (c != '`') {
      code_ += c;
      return;
    }
    in_code_ = false;
    last_ = '`';
    if (code_.empty()) {
      out += "``";
      return;
    }
    out.append(kCode).append(std::exchange(code_, {})).append(kReset);
    if (block_ == Block::kHeading) out += kHeading;
    if (bold_) out += kBold;
    return;
  }
  if (c == '*') {
    ++stars_;
    return;
  }
  if (stars_ > 0) TakeMark(IsSpace(c), out);
  if (c == '`') {
    in_code_ = true;
    return;
  }
  Show(c, out);
}

void MarkdownScreen::Show(char c, std::string& out) {
  out += c;
  last_ = c;
}

void MarkdownScreen::EndLine(std::string& out) {
  const bool empty = line_begins_ && mark_.empty();
  const bool fence = line_begins_ && EndsWithFence(mark_);
  line_begins_ = true;
  if (fence) {
    mark_.clear();
    in_fence_ = !in_fence_;
    if (!in_fence_) out += kReset;
    last_ = '\n';
    return;
  }
  for (const char c : std::exchange(mark_, {})) Inline(c, out);
  if (stars_ > 0) TakeMark(/*space_behind=*/true, out);
  if (std::exchange(in_code_, false)) {
    out.append("`").append(std::exchange(code_, {}));
  }
  if (block_ == Block::kHeading || in_fence_ || (empty && bold_)) out += kReset;
  if (empty || block_ == Block::kHeading) bold_ = false;
  block_ = Block::kText;
  Show('\n', out);
}

}  // namespace millrace::server

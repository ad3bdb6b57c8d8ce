// Markdown of a streamed answer as styles of a terminal: **bold**, `code`,
// fenced code, headings, lists. All else stays as it is written.
//
//   MarkdownScreen screen;
//   out << screen.Feed("## Ri") << screen.Feed("vers\n") << screen.Finish();
//
// Text is held back only while it may still become markup: the beginning of a
// line, a lone '*', the inside of `code`. Not thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace millrace::server {

class MarkdownScreen {
 public:
  // The part of the text so far that can be shown, with escape sequences.
  std::string Feed(std::string_view text);
  // What was held back; styles end. Ready for the next answer.
  std::string Finish();

 private:
  enum class Block { kText, kHeading, kFence };

  void BeginLine(char c, std::string& out);
  void Inline(char c, std::string& out);
  void EndLine(std::string& out);
  void TakeMark(bool space_behind, std::string& out);
  void Show(char c, std::string& out);

  Block block_ = Block::kText;
  bool in_fence_ = false;
  bool line_begins_ = true;
  std::string mark_;   // beginning of a line that may be markup
  int stars_ = 0;      // seen, not yet decided
  bool bold_ = false;  // inside **
  bool in_code_ = false;
  std::string code_;  // behind the opening backtick
  char last_ = '\n';  // character before
};

}  // namespace millrace::server

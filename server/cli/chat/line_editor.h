// Lines that a person types at a terminal: edited, with history (libedit; the
// keys are Emacs', or as ~/.editrc says).
//
//   LineEditor editor(/*styled=*/true);
//   while (auto line = editor.Read()) ...
//
// Owns the terminal's mode while it reads. Not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace millrace::server {

class LineEditor {
 public:
  // `styled`: a bold prompt.
  explicit LineEditor(bool styled);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Shows the prompt and waits. Without its line break; nothing at the end of
  // the input (Ctrl-D on an empty line). Ctrl-C drops what was typed: an empty
  // line.
  std::optional<std::string> Read();

 private:
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace millrace::server

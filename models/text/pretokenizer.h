// Cuts text into the pieces that byte-level BPE encodes one by one. Which rule
// cuts is the model's choice and its name stands in the model file.
//
//   ASSIGN_OR_RETURN(auto cutter, Pretokenizer::Create("smollm"));
//   cutter->Cut("Hello 42", [](std::string_view piece) {...});
//
// Immutable after Create; thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "config/base/status.h"

namespace millrace::models {

class Pretokenizer {
 public:
  // INVALID_ARGUMENT lists the known names.
  static StatusOr<std::unique_ptr<Pretokenizer>> Create(std::string_view name);
  ~Pretokenizer();

  // The text must be valid UTF-8. The pieces, in order, are all of the text.
  void Cut(std::string_view text,
           const std::function<void(std::string_view)>& sink) const;

  // Whether a piece that is a token as it stands is taken without merging.
  bool whole_pieces_first() const;

 private:
  struct Impl;
  explicit Pretokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::models

// A handler of text whose tokenizer has a token for each byte, its id the
// byte's value, and ids from 256 on for the special tokens that it is given.
//
//   ByteHandler handler({"<fim_prefix>"});
//   handler.Tokenize("a<fim_prefix>", false, true)   // 97, 256
//
// It completes nothing. Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "handlers/handler.h"

namespace millrace {

class ByteHandler final : public handlers::GenerateHandler {
 public:
  explicit ByteHandler(std::vector<std::string> special = {})
      : special_(std::move(special)) {}

  void Start(handlers::GenerateRequest, std::shared_ptr<handlers::GenerateSink>,
             std::stop_token) override {}
  StatusOr<handlers::TokenizedText> Tokenize(
      const std::string& text, bool, bool parse_special) const override {
    handlers::TokenizedText tokens;
    for (size_t at = 0; at < text.size();) {
      const size_t found = parse_special ? SpecialAt(text, at) : 0;
      if (parse_special && found < special_.size()) {
        tokens.ids.push_back(256 + static_cast<int32_t>(found));
        at += special_[found].size();
      } else {
        tokens.ids.push_back(static_cast<uint8_t>(text[at++]));
      }
    }
    return tokens;
  }
  StatusOr<handlers::TokenizedText> TokenizeChat(
      const handlers::ChatPrompt&) const override {
    return handlers::TokenizedText{};
  }
  StatusOr<std::string> Detokenize(const std::vector<int32_t>&) const override {
    return std::string();
  }
  StatusOr<std::string> ApplyTemplate(
      const handlers::ChatPrompt&) const override {
    return std::string();
  }

 private:
  // Which of them stands there; their number: none.
  size_t SpecialAt(const std::string& text, size_t at) const {
    size_t i = 0;
    while (i < special_.size() &&
           text.compare(at, special_[i].size(), special_[i]) != 0) {
      ++i;
    }
    return i;
  }

  const std::vector<std::string> special_;
};

}  // namespace millrace

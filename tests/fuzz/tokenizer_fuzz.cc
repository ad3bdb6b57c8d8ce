// Encodes arbitrary bytes with every rule and a small vocabulary that has a
// token for each byte: decoding must give the text back, and no special token
// may appear unless it was asked for.
#include <cstdint>
#include <memory>
#include <vector>

#include "config/base/utf8.h"
#include "models/text/tokenizer.h"
#include "tests/unit/models/text/tiny_vocabulary.h"

namespace {

using millrace::models::EncodeOptions;
using millrace::models::Tokenizer;
using millrace::models::TokenKind;

std::vector<std::unique_ptr<Tokenizer>> MakeAll() {
  std::vector<std::unique_ptr<Tokenizer>> out;
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    auto made = Tokenizer::Create(millrace::models::TinyVocabulary(
        pre,
        {"a a", "aa aa", "t h", "Ġ th", "th e", "Ġ Ġ", "ĠĠ ĠĠ", "< |", "Ã ©"},
        {{"<|end|>", TokenKind::kControl},
         {"<|", TokenKind::kUserDefined},
         {"  ", TokenKind::kUserDefined}}));
    CHECK(made.ok(), "the vocabulary is well-formed");
    out.push_back(std::move(made).value());
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* tokenizers =
      new std::vector<std::unique_ptr<Tokenizer>>(MakeAll());
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string expected = millrace::ReplaceInvalidUtf8(text);
  for (const auto& tokenizer : *tokenizers) {
    const auto plain = tokenizer->Encode(text, {});
    CHECK(tokenizer->Decode(plain, false) == expected, "a round trip");
    const auto parsed =
        tokenizer->Encode(text, EncodeOptions{.parse_special = true});
    CHECK(tokenizer->Decode(parsed, true) == expected, "a round trip");
    for (const int32_t id : plain) {
      CHECK(!tokenizer->IsSpecial(id), "no special token unasked for");
    }
    const size_t cut = size / 2;
    const Tokenizer::Part parts[] = {{text.substr(0, cut), false},
                                     {text.substr(cut), false}};
    CHECK(tokenizer->EncodeParts(parts, false) == plain,
          "parts of one kind are one text");
  }
  return 0;
}

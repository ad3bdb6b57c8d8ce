// Tokenizer keys of a GGUF. More ids than eos end a completion: files name eot
// and eom apart, and many chat models end their turns with a control token that
// no key names, so those known by their text count too.
#include "models/llm/vocabulary.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace millrace::models {
namespace {

constexpr std::array<std::string_view, 9> kEndTexts = {
    "<|endoftext|>", "<|im_end|>",    "<|eot_id|>",
    "<|eom_id|>",    "<|end|>",       "<|end_of_text|>",
    "<end_of_turn>", "<|endofturn|>", "</s>",
};

StatusOr<TokenKind> KindOf(int64_t number) {
  switch (number) {
    case 1:
    case 2:  // unknown: an ordinary token that byte-level BPE never makes
      return number == 1 ? TokenKind::kNormal : TokenKind::kControl;
    case 3:
      return TokenKind::kControl;
    case 4:
      return TokenKind::kUserDefined;
    case 5:
      return TokenKind::kUnused;
    case 6:
      return TokenKind::kByte;
    default:
      return InvalidArgument(
          "tokenizer.ggml.token_type holds the unknown kind " +
          std::to_string(number));
  }
}

// An id by key, -1 when absent, within the vocabulary.
StatusOr<int32_t> IdOf(const GgufFile& file, std::string_view key,
                       size_t vocabulary) {
  ASSIGN_OR_RETURN(const int64_t id, file.Int(key, -1));
  if (id == -1 || id == 0xffffffff) return -1;
  if (id < 0 || id >= static_cast<int64_t>(vocabulary)) {
    return InvalidArgument(std::string(key) + " is " + std::to_string(id) +
                           ", but the vocabulary has " +
                           std::to_string(vocabulary) + " tokens");
  }
  return static_cast<int32_t>(id);
}

// Of a file in packed form whose original gave no name.
Status ReadSplits(const GgufFile& file, Vocabulary& out) {
  ASSIGN_OR_RETURN(const auto patterns, file.Strings("millrace.packed.splits"));
  ASSIGN_OR_RETURN(const auto drops, file.Ints("millrace.packed.drop_gaps"));
  if (drops.size() != patterns.size()) {
    return InvalidArgument("millrace.packed.drop_gaps has " +
                           std::to_string(drops.size()) + " entries for " +
                           std::to_string(patterns.size()) + " splits");
  }
  for (size_t i = 0; i < patterns.size(); ++i) {
    out.splits.push_back({std::string(patterns[i]), drops[i] != 0});
  }
  ASSIGN_OR_RETURN(out.whole_pieces_first,
                   file.Bool("millrace.packed.whole_pieces_first"));
  ASSIGN_OR_RETURN(out.nfc, file.Bool("millrace.packed.nfc"));
  return OkStatus();
}

}  // namespace

void AddKnownEnds(Vocabulary& vocabulary) {
  std::vector<int32_t>& ends = vocabulary.eog_ids;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.kinds[i] == TokenKind::kControl &&
        std::find(kEndTexts.begin(), kEndTexts.end(), vocabulary.tokens[i]) !=
            kEndTexts.end()) {
      ends.push_back(static_cast<int32_t>(i));
    }
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

StatusOr<Vocabulary> ReadVocabulary(const GgufFile& file) {
  Vocabulary out;
  ASSIGN_OR_RETURN(const std::string_view model,
                   file.String("tokenizer.ggml.model"));
  out.model = model;
  ASSIGN_OR_RETURN(const std::string_view pre,
                   file.String("tokenizer.ggml.pre", "gpt-2"));
  out.pre = pre;

  ASSIGN_OR_RETURN(const auto tokens, file.Strings("tokenizer.ggml.tokens"));
  if (tokens.empty()) {
    return InvalidArgument("tokenizer.ggml.tokens is empty");
  }
  out.tokens.assign(tokens.begin(), tokens.end());
  if (file.FindKey("tokenizer.ggml.token_type") == nullptr) {
    out.kinds.assign(tokens.size(), TokenKind::kNormal);
  } else {
    ASSIGN_OR_RETURN(const auto kinds, file.Ints("tokenizer.ggml.token_type"));
    if (kinds.size() != tokens.size()) {
      return InvalidArgument("tokenizer.ggml.token_type has " +
                             std::to_string(kinds.size()) + " entries for " +
                             std::to_string(tokens.size()) + " tokens");
    }
    out.kinds.reserve(kinds.size());
    for (const int64_t number : kinds) {
      ASSIGN_OR_RETURN(const TokenKind kind, KindOf(number));
      out.kinds.push_back(kind);
    }
  }
  if (file.FindKey("tokenizer.ggml.merges") != nullptr) {
    ASSIGN_OR_RETURN(const auto merges, file.Strings("tokenizer.ggml.merges"));
    out.merges.assign(merges.begin(), merges.end());
  }

  const size_t size = tokens.size();
  ASSIGN_OR_RETURN(out.bos_id, IdOf(file, "tokenizer.ggml.bos_token_id", size));
  ASSIGN_OR_RETURN(out.eos_id, IdOf(file, "tokenizer.ggml.eos_token_id", size));
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
        "tokenizer.ggml.eom_token_id"}) {
    ASSIGN_OR_RETURN(const int32_t id, IdOf(file, key, size));
    if (id >= 0) out.eog_ids.push_back(id);
  }
  AddKnownEnds(out);
  if (file.FindKey("millrace.packed.splits") != nullptr) {
    RETURN_IF_ERROR(ReadSplits(file, out));
  } else if (out.pre.empty()) {
    return InvalidArgument("tokenizer.ggml.pre is empty");
  }
  // What a file in packed form says is all there is.
  if (file.FindKey("millrace.packed.eog_ids") != nullptr) {
    out.eog_ids.clear();
    ASSIGN_OR_RETURN(const auto ids, file.Ints("millrace.packed.eog_ids"));
    for (const int64_t id : ids) {
      if (id < 0 || id >= static_cast<int64_t>(size)) {
        return InvalidArgument(
            "millrace.packed.eog_ids holds " + std::to_string(id) +
            ", but the vocabulary has " + std::to_string(size) + " tokens");
      }
      out.eog_ids.push_back(static_cast<int32_t>(id));
    }
  }
  std::sort(out.eog_ids.begin(), out.eog_ids.end());
  out.eog_ids.erase(std::unique(out.eog_ids.begin(), out.eog_ids.end()),
                    out.eog_ids.end());
  ASSIGN_OR_RETURN(out.add_bos,
                   file.Bool("tokenizer.ggml.add_bos_token", false));
  return out;
}

}  // namespace millrace::models

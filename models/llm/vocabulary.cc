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

// Ids that a file lists, all within the vocabulary.
StatusOr<std::vector<int32_t>> IdsOf(const GgufFile& file, const char* key,
                                     size_t vocabulary) {
  ASSIGN_OR_RETURN(const auto ids, file.Ints(key));
  std::vector<int32_t> out;
  for (const int64_t id : ids) {
    if (id < 0 || id >= static_cast<int64_t>(vocabulary)) {
      return InvalidArgument(std::string(key) + " holds " + std::to_string(id) +
                             ", but the vocabulary has " +
                             std::to_string(vocabulary) + " tokens");
    }
    out.push_back(static_cast<int32_t>(id));
  }
  return out;
}

// Keys of SentencePiece's tokenizers, and what their absence means.
Status ReadSentencePieces(const GgufFile& file, Vocabulary& out) {
  const bool unigram = out.model == "t5";
  if (file.FindKey("tokenizer.ggml.scores") != nullptr) {
    ASSIGN_OR_RETURN(out.scores, file.Doubles("tokenizer.ggml.scores"));
  }
  ASSIGN_OR_RETURN(out.unk_id, IdOf(file, "tokenizer.ggml.unknown_token_id",
                                    out.tokens.size()));
  if (out.unk_id < 0 && !out.tokens.empty()) out.unk_id = 0;
  for (const char* key : {"tokenizer.ggml.precompiled_charsmap",
                          "tokenizer.ggml.remove_extra_whitespaces"}) {
    const GgufValue* value = file.FindKey(key);
    if (value == nullptr || !unigram) continue;
    const bool off =
        value->type == GgufValueType::kBool
            ? value->bytes[0] == 0
            : value->type == GgufValueType::kArray && value->count == 0;
    if (!off) {
      return Unimplemented(std::string(key) +
                           " is set, which is not supported: text would be "
                           "normalised by a table of the model");
    }
  }
  ASSIGN_OR_RETURN(const bool prefix,
                   file.Bool("tokenizer.ggml.add_space_prefix", true));
  out.space_prefix = !prefix   ? SpacePrefix::kNone
                     : unigram ? SpacePrefix::kEachIfLacking
                               : SpacePrefix::kEach;
  out.byte_fallback = std::find(out.kinds.begin(), out.kinds.end(),
                                TokenKind::kByte) != out.kinds.end();
  return OkStatus();
}

// WordPiece as llama.cpp writes it: tokens that begin a word have "▁" before
// them and those inside one lost their "##". It lowers case and takes accents
// off whatever the model was trained with, and so do we.
Status ReadWordPieces(const GgufFile& file, Vocabulary& out) {
  constexpr std::string_view kWord = "\xe2\x96\x81";
  for (size_t i = 0; i < out.tokens.size(); ++i) {
    std::string& token = out.tokens[i];
    if (token.starts_with(kWord)) {
      token.erase(0, kWord.size());
    } else if (out.kinds[i] == TokenKind::kNormal &&
               !(token.starts_with('[') && token.ends_with(']'))) {
      token.insert(0, out.word_pieces.continuing_prefix);
    }
  }
  const struct {
    const char* key;
    const char* other;
    int32_t& id;
  } ids[] = {{"tokenizer.ggml.cls_token_id", "tokenizer.ggml.bos_token_id",
              out.bos_id},
             {"tokenizer.ggml.seperator_token_id",
              "tokenizer.ggml.eos_token_id", out.eos_id},
             {"tokenizer.ggml.unknown_token_id", "", out.unk_id}};
  constexpr std::string_view kTexts[] = {"[CLS]", "[SEP]", "[UNK]"};
  for (size_t i = 0; i < std::size(ids); ++i) {
    ASSIGN_OR_RETURN(ids[i].id, IdOf(file, ids[i].key, out.tokens.size()));
    if (ids[i].id < 0 && ids[i].other[0] != '\0') {
      ASSIGN_OR_RETURN(ids[i].id, IdOf(file, ids[i].other, out.tokens.size()));
    }
    if (ids[i].id >= 0) continue;
    const auto it = std::find(out.tokens.begin(), out.tokens.end(), kTexts[i]);
    if (it == out.tokens.end()) {
      return InvalidArgument("the tokenizer names no token " +
                             std::string(kTexts[i]));
    }
    ids[i].id = static_cast<int32_t>(it - out.tokens.begin());
  }
  out.add_bos = true;
  return OkStatus();
}

// What files in packed form say beyond that.
Status ReadPackedSentencePieces(const GgufFile& file, Vocabulary& out) {
  ASSIGN_OR_RETURN(const int64_t prefix,
                   file.Int("millrace.packed.space_prefix"));
  if (prefix < 0 ||
      prefix > static_cast<int64_t>(SpacePrefix::kFirstIfLacking)) {
    return InvalidArgument("millrace.packed.space_prefix is " +
                           std::to_string(prefix) + ", 0 to 3 is allowed");
  }
  out.space_prefix = static_cast<SpacePrefix>(prefix);
  ASSIGN_OR_RETURN(out.split_words, file.Bool("millrace.packed.split_words"));
  ASSIGN_OR_RETURN(out.byte_fallback,
                   file.Bool("millrace.packed.byte_fallback"));
  ASSIGN_OR_RETURN(out.fuse_unknown, file.Bool("millrace.packed.fuse_unknown"));
  ASSIGN_OR_RETURN(out.nfc, file.Bool("millrace.packed.nfc"));
  ASSIGN_OR_RETURN(out.unk_id, IdOf(file, "tokenizer.ggml.unknown_token_id",
                                    out.tokens.size()));
  return OkStatus();
}

// Phi-3 is trained with special tokens that swallow what follows them; no key
// says so.
Status ReadStripping(const GgufFile& file, Vocabulary& out) {
  for (const auto& [key, ids] :
       {std::pair("millrace.packed.lstrip_ids", &out.lstrip_ids),
        std::pair("millrace.packed.rstrip_ids", &out.rstrip_ids)}) {
    if (file.FindKey(key) == nullptr) continue;
    ASSIGN_OR_RETURN(*ids, IdsOf(file, key, out.tokens.size()));
  }
  ASSIGN_OR_RETURN(const std::string_view architecture,
                   file.String("general.architecture", ""));
  if (architecture != "phi3" || out.model != "llama" ||
      file.FindKey("millrace.packed.rstrip_ids") != nullptr) {
    return OkStatus();
  }
  for (size_t i = 0; i < out.tokens.size(); ++i) {
    const std::string& token = out.tokens[i];
    if (out.kinds[i] == TokenKind::kControl && token != "<unk>" &&
        token != "<s>" && token != "<|endoftext|>") {
      out.rstrip_ids.push_back(static_cast<int32_t>(i));
    }
  }
  return OkStatus();
}

// Whether the tokenizers that files call so bring text to Unicode's form C
// before they cut it, as the models' training did; no key of GGUF says so.
// llama.cpp leaves text as it is. Source: Qwen2Tokenizer and GPTNeoXTokenizer
// (OLMo 1 and OLMoE) of transformers.
bool ComposesText(std::string_view pre) {
  return pre == "qwen2" || pre == "olmo";
}

// Whether texts begin with the model's BOS where no key says so:
// SentencePiece's BPE, and byte-level BPE of these names. Source:
// llama_vocab::impl::load of llama.cpp.
bool BeginsWithBos(const Vocabulary& vocabulary) {
  if (vocabulary.model != "gpt2") return vocabulary.model == "llama";
  const std::string_view pre = vocabulary.pre;
  return pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3" ||
         pre == "tekken";
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
  if (out.model == "bert") {
    out.pre.clear();
    RETURN_IF_ERROR(ReadWordPieces(file, out));
    return out;
  }
  if (out.model != "gpt2") {
    RETURN_IF_ERROR(ReadSentencePieces(file, out));
    if (file.FindKey("millrace.packed.space_prefix") != nullptr) {
      RETURN_IF_ERROR(ReadPackedSentencePieces(file, out));
    }
  }
  RETURN_IF_ERROR(ReadStripping(file, out));
  if (out.model != "gpt2") {
    out.pre.clear();
  } else if (file.FindKey("millrace.packed.splits") != nullptr) {
    RETURN_IF_ERROR(ReadSplits(file, out));
  } else if (out.pre.empty()) {
    return InvalidArgument("tokenizer.ggml.pre is empty");
  } else {
    out.nfc = ComposesText(out.pre);
  }
  // What a file in packed form says is all there is.
  if (file.FindKey("millrace.packed.eog_ids") != nullptr) {
    ASSIGN_OR_RETURN(out.eog_ids, IdsOf(file, "millrace.packed.eog_ids", size));
  }
  std::sort(out.eog_ids.begin(), out.eog_ids.end());
  out.eog_ids.erase(std::unique(out.eog_ids.begin(), out.eog_ids.end()),
                    out.eog_ids.end());
  ASSIGN_OR_RETURN(out.add_bos,
                   file.Bool("tokenizer.ggml.add_bos_token",
                             BeginsWithBos(out) && out.bos_id >= 0));
  return out;
}

}  // namespace millrace::models

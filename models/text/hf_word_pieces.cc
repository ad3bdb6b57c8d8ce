// Without a normalizer text is cut as it is; strip_accents that is null follows
// lowercase, as in BERT.
#include "models/text/hf_word_pieces.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "models/text/hf_tokenizer_parts.h"

namespace millrace::models {
namespace {

using hf::Find;
using hf::Json;

Status ReadNormalizer(const Json& normalizer, WordPieceRules& rules) {
  const std::string type = hf::TypeOf(normalizer);
  if (type == "BertNormalizer") {
    rules.clean_text = hf::IsTrue(normalizer, "clean_text");
    rules.space_ideographs = hf::IsTrue(normalizer, "handle_chinese_chars");
    rules.lowercase = hf::IsTrue(normalizer, "lowercase");
    rules.strip_accents = Find(normalizer, "strip_accents") == nullptr
                              ? rules.lowercase
                              : hf::IsTrue(normalizer, "strip_accents");
    return OkStatus();
  }
  if (type == "Lowercase") {
    rules.lowercase = true;
    return OkStatus();
  }
  return Unimplemented("the normalizer of WordPiece is '" + type +
                       "'; BertNormalizer and Lowercase are supported");
}

Status ReadModel(const Json& model, Vocabulary& out) {
  if (const Json* prefix = Find(model, "continuing_subword_prefix");
      prefix != nullptr && prefix->is_string()) {
    out.word_pieces.continuing_prefix = prefix->get<std::string>();
  }
  if (const Json* most = Find(model, "max_input_chars_per_word")) {
    if (!most->is_number_integer() || most->get<int64_t>() < 1 ||
        most->get<int64_t>() > 10'000) {
      return InvalidArgument("model.max_input_chars_per_word is " +
                             Shortened(DumpJson(*most), 40) +
                             "; 1 to 10000 is allowed");
    }
    out.word_pieces.max_word_characters = most->get<int64_t>();
  }
  RETURN_IF_ERROR(hf::ReadVocab(model, out));
  const Json* unknown = Find(model, "unk_token");
  const std::string text = unknown != nullptr && unknown->is_string()
                               ? unknown->get<std::string>()
                               : "[UNK]";
  const auto it = std::find(out.tokens.begin(), out.tokens.end(), text);
  if (it == out.tokens.end()) {
    return InvalidArgument("model.unk_token is '" + Shortened(text, 60) +
                           "', which is no token");
  }
  out.unk_id = static_cast<int32_t>(it - out.tokens.begin());
  return OkStatus();
}

}  // namespace

StatusOr<Vocabulary> ReadHfWordPieces(const Json& root) {
  Vocabulary out;
  out.model = "bert";
  out.word_pieces = {.clean_text = false,
                     .space_ideographs = false,
                     .strip_accents = false,
                     .lowercase = false};
  if (const Json* normalizer = Find(root, "normalizer")) {
    RETURN_IF_ERROR(ReadNormalizer(*normalizer, out.word_pieces));
  }
  const Json* cut = Find(root, "pre_tokenizer");
  if (cut == nullptr || hf::TypeOf(*cut) != "BertPreTokenizer") {
    return Unimplemented("the pre_tokenizer of WordPiece is '" +
                         (cut == nullptr ? "null" : hf::TypeOf(*cut)) +
                         "'; BertPreTokenizer is supported");
  }
  RETURN_IF_ERROR(ReadModel(*Find(root, "model"), out));
  RETURN_IF_ERROR(hf::ReadAddedTokens(root, out));
  return out;
}

}  // namespace millrace::models

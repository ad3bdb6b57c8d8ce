// Ids of added tokens count beside those of the vocabulary and win over them;
// merges come as "a b" or as ["a", "b"], depending on the library's version;
// and a gap between ids is legal, no text gives such a token.
#include "models/text/hf_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "models/text/byte_alphabet.h"
#include "models/text/hf_regex.h"
#include "models/text/hf_tokenizer_parts.h"
#include "models/text/hf_word_pieces.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;
using hf::Find;
using hf::IsTrue;
using hf::TypeOf;

constexpr JsonLimits kLimits = {.max_depth = 32, .max_values = 8'000'000};
constexpr std::string_view kSpace = "\xe2\x96\x81";  // "▁"
constexpr int kMaxSteps = 32;  // of a sequence, counted through

bool HasText(const Json& object, const char* key) {
  const Json* value = Find(object, key);
  return value != nullptr && !(value->is_string() && *value == "");
}

Status Unknown(const std::string& what) {
  return Unimplemented(
      what +
      ": byte-level BPE (GPT-2, Llama 3, Qwen and their "
      "like), SentencePiece's BPE and Unigram (Llama 2, "
      "Mistral, Gemma) and WordPiece (BERT) are supported; serve "
      "a GGUF of the model");
}

Status ReadMerges(const Json& model, Vocabulary& out) {
  const Json* merges = Find(model, "merges");
  if (merges == nullptr || !merges->is_array()) {
    return InvalidArgument("model.merges is no list");
  }
  out.merges.reserve(merges->size());
  for (const Json& merge : *merges) {
    if (merge.is_string()) {
      out.merges.push_back(merge.get<std::string>());
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      out.merges.push_back(merge[0].get<std::string>() + " " +
                           merge[1].get<std::string>());
    } else {
      return InvalidArgument("merge " + std::to_string(out.merges.size()) +
                             " is " + Shortened(DumpJson(merge), 60) +
                             "; expected \"a b\" or [\"a\", \"b\"]");
    }
  }
  return OkStatus();
}

Status ReadNormalizer(const Json& normalizer, Vocabulary& out) {
  const std::string type = TypeOf(normalizer);
  if (type == "NFC") {
    out.nfc = true;
    return OkStatus();
  }
  if (type == "Prepend") {
    if (Find(normalizer, "prepend") == nullptr ||
        *Find(normalizer, "prepend") != kSpace) {
      return Unknown("the normalizer 'Prepend' adds something else than '" +
                     std::string(kSpace) + "'");
    }
    out.space_prefix = SpacePrefix::kEach;
    return OkStatus();
  }
  if (type == "Replace") {
    const Json* pattern = Find(normalizer, "pattern");
    const Json* text = pattern == nullptr ? nullptr : Find(*pattern, "String");
    const Json* content = Find(normalizer, "content");
    if (text == nullptr || *text != " " || content == nullptr ||
        *content != kSpace) {
      return Unknown("the normalizer 'Replace' has " +
                     Shortened(DumpJson(normalizer), 100));
    }
    return OkStatus();
  }
  if (type == "Sequence") {
    if (const Json* parts = Find(normalizer, "normalizers")) {
      for (const Json& part : *parts)
        RETURN_IF_ERROR(ReadNormalizer(part, out));
    }
    return OkStatus();
  }
  return Unknown("the normalizer is '" + type + "'");
}

Status ReadSplit(const Json& step, Vocabulary& out) {
  const Json* pattern = Find(step, "pattern");
  const Json* regex = pattern == nullptr ? nullptr : Find(*pattern, "Regex");
  const Json* literal = pattern == nullptr ? nullptr : Find(*pattern, "String");
  SplitRule rule;
  if (regex != nullptr && regex->is_string()) {
    ASSIGN_OR_RETURN(rule.pattern,
                     Pcre2FromOniguruma(regex->get_ref<const std::string&>()));
  } else if (literal != nullptr && literal->is_string()) {
    for (const char c : literal->get_ref<const std::string&>()) {
      const bool is_plain = (c & 0x80) != 0 || (c >= '0' && c <= '9') ||
                            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      if (!is_plain) rule.pattern += '\\';
      rule.pattern += c;
    }
  } else {
    return InvalidArgument(
        "a pre_tokenizer of type Split has neither Regex nor String");
  }
  const Json* behavior = Find(step, "behavior");
  const bool invert = IsTrue(step, "invert");
  if (behavior != nullptr && *behavior == "Removed" && invert) {
    rule.drop_gaps = true;
  } else if (behavior == nullptr || *behavior != "Isolated") {
    return Unimplemented(
        "a pre_tokenizer of type Split has the behavior " +
        (behavior == nullptr ? "null" : Shortened(DumpJson(*behavior), 40)) +
        (invert ? ", inverted" : "") + "; \"Isolated\" is supported");
  }
  out.splits.push_back(std::move(rule));
  return OkStatus();
}

// Cuts at spaces that the normaliser has replaced already, as Gemma has it.
Status ReadIdleSplit(const Json& step) {
  const Json* pattern = Find(step, "pattern");
  const Json* literal = pattern == nullptr ? nullptr : Find(*pattern, "String");
  if (literal != nullptr && *literal == " ") return OkStatus();
  return Unknown("pre_tokenizer has " + Shortened(DumpJson(step), 100));
}

Status ReadMetaspace(const Json& step, Vocabulary& out) {
  const Json* replacement = Find(step, "replacement");
  if (replacement == nullptr || *replacement != kSpace) {
    return Unknown("pre_tokenizer has " + Shortened(DumpJson(step), 100));
  }
  const Json* split = Find(step, "split");
  out.split_words = split == nullptr || *split != false;
  std::string scheme = "always";
  if (const Json* named = Find(step, "prepend_scheme");
      named != nullptr && named->is_string()) {
    scheme = named->get<std::string>();
  } else if (const Json* add = Find(step, "add_prefix_space");
             add != nullptr && *add == false) {
    scheme = "never";
  }
  out.space_prefix = scheme == "never"   ? SpacePrefix::kNone
                     : scheme == "first" ? SpacePrefix::kFirstIfLacking
                                         : SpacePrefix::kEachIfLacking;
  return OkStatus();
}

struct PreTokenizer {
  Vocabulary& out;
  bool byte_level = false;
  int steps = 0;

  Status Read(const Json& step) {
    if (++steps > kMaxSteps) {
      return InvalidArgument("pre_tokenizer has more than " +
                             std::to_string(kMaxSteps) + " steps");
    }
    const std::string type = TypeOf(step);
    if (type == "Sequence") {
      const Json* parts = Find(step, "pretokenizers");
      if (parts == nullptr || !parts->is_array()) {
        return InvalidArgument("pre_tokenizer has no list 'pretokenizers'");
      }
      for (const Json& part : *parts) RETURN_IF_ERROR(Read(part));
      return OkStatus();
    }
    if (byte_level) {
      return Unimplemented("pre_tokenizer has '" + type + "' after ByteLevel");
    }
    if (type == "Metaspace") return ReadMetaspace(step, out);
    if (type == "Split" && out.model != "gpt2") return ReadIdleSplit(step);
    if (type == "Split") return ReadSplit(step, out);
    if (type == "Digits") {
      out.splits.push_back({.pattern = IsTrue(step, "individual_digits")
                                           ? "\\p{N}"
                                           : "\\p{N}+"});
      return OkStatus();
    }
    if (type == "ByteLevel") {
      byte_level = true;
      if (IsTrue(step, "add_prefix_space")) {
        return Unimplemented(
            "pre_tokenizer has add_prefix_space, which is not supported");
      }
      const Json* use_regex = Find(step, "use_regex");
      if (use_regex == nullptr || *use_regex == true) {
        out.splits.push_back(Gpt2Rule());
      }
      return OkStatus();
    }
    return Unknown("pre_tokenizer has '" + type + "'");
  }
};

// The one special token that a template puts before the text, if any.
Status ReadTemplate(const Json& processor, Vocabulary& out) {
  const Json* single = Find(processor, "single");
  if (single == nullptr || !single->is_array()) {
    return InvalidArgument("post_processor has no list 'single'");
  }
  bool text_seen = false;
  std::string before;
  for (const Json& item : *single) {
    if (Find(item, "Sequence") != nullptr) {
      text_seen = true;
      continue;
    }
    const Json* special = Find(item, "SpecialToken");
    const Json* id = special == nullptr ? nullptr : Find(*special, "id");
    if (id == nullptr || !id->is_string() || text_seen || !before.empty()) {
      return Unimplemented("post_processor puts " +
                           Shortened(DumpJson(item), 100) +
                           " around a text; one token before it is supported");
    }
    before = id->get<std::string>();
  }
  if (before.empty()) return OkStatus();
  const auto it = std::find(out.tokens.begin(), out.tokens.end(), before);
  if (it == out.tokens.end()) {
    return InvalidArgument("post_processor puts '" + before +
                           "' before a text, which is no token");
  }
  out.add_bos = true;
  out.bos_id = static_cast<int32_t>(it - out.tokens.begin());
  return OkStatus();
}

Status ReadPostProcessor(const Json& processor, Vocabulary& out) {
  const std::string type = TypeOf(processor);
  if (type == "ByteLevel") return OkStatus();  // moves offsets only
  if (type == "TemplateProcessing") return ReadTemplate(processor, out);
  if (type == "Sequence") {
    if (const Json* parts = Find(processor, "processors")) {
      for (const Json& part : *parts) {
        RETURN_IF_ERROR(ReadPostProcessor(part, out));
      }
    }
    return OkStatus();
  }
  return Unimplemented("the post_processor '" + type + "' is not supported");
}

Status CheckModel(const Json& model) {
  const std::string type = TypeOf(model);
  if (type == "Unigram" || type == "WordPiece") return OkStatus();
  if (type != "BPE" && !(type.empty() && Find(model, "merges") != nullptr)) {
    return Unknown("the tokenizer's model is '" + type + "'");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (HasText(model, key)) {
      return Unimplemented("model." + std::string(key) + " is not supported");
    }
  }
  return OkStatus();
}

int32_t IdOfText(const Vocabulary& vocabulary, const std::string& text) {
  if (text.empty()) return -1;
  const auto it =
      std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), text);
  return it == vocabulary.tokens.end()
             ? -1
             : static_cast<int32_t>(it - vocabulary.tokens.begin());
}

bool HasByteLevel(const Json& root) {
  const Json* step = Find(root, "pre_tokenizer");
  if (step == nullptr) return false;
  if (TypeOf(*step) == "ByteLevel") return true;
  const Json* parts = Find(*step, "pretokenizers");
  return parts != nullptr && parts->is_array() &&
         std::any_of(parts->begin(), parts->end(), [](const Json& part) {
           return TypeOf(part) == "ByteLevel";
         });
}

// A list of [token, score].
Status ReadUnigramVocab(const Json& model, Vocabulary& out) {
  const Json* vocab = Find(model, "vocab");
  if (vocab == nullptr || !vocab->is_array() || vocab->empty() ||
      static_cast<int64_t>(vocab->size()) > hf::kMaxTokens) {
    return InvalidArgument("model.vocab is no list of tokens and scores");
  }
  for (const Json& entry : *vocab) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() ||
        !entry[1].is_number()) {
      return InvalidArgument("model.vocab holds " +
                             Shortened(DumpJson(entry), 60) +
                             "; expected [token, score]");
    }
    out.tokens.push_back(entry[0].get<std::string>());
    out.kinds.push_back(TokenKind::kNormal);
    out.scores.push_back(entry[1].get<double>());
  }
  const Json* unknown = Find(model, "unk_id");
  if (unknown == nullptr || !unknown->is_number_integer() ||
      unknown->get<int64_t>() < 0 ||
      unknown->get<int64_t>() >= static_cast<int64_t>(out.tokens.size())) {
    return InvalidArgument("model.unk_id is no id of a token");
  }
  out.unk_id = unknown->get<int32_t>();
  out.kinds[static_cast<size_t>(out.unk_id)] = TokenKind::kUnused;
  return OkStatus();
}

// What characters without a token become.
Status ReadFallback(const Json& model, Vocabulary& out) {
  out.byte_fallback = IsTrue(model, "byte_fallback");
  if (out.model == "llama") out.fuse_unknown = IsTrue(model, "fuse_unk");
  for (size_t i = 0; out.byte_fallback && i < out.tokens.size(); ++i) {
    if (ByteOfToken(out.tokens[i])) out.kinds[i] = TokenKind::kByte;
  }
  const Json* unknown = Find(model, "unk_token");
  if (unknown == nullptr || out.model != "llama") return OkStatus();
  out.unk_id =
      unknown->is_string() ? IdOfText(out, unknown->get<std::string>()) : -1;
  if (out.unk_id >= 0) return OkStatus();
  return InvalidArgument("model.unk_token is " +
                         Shortened(DumpJson(*unknown), 60) +
                         ", which is no token");
}

}  // namespace

StatusOr<Vocabulary> ReadHfTokenizer(std::string_view tokenizer_json,
                                     const HfTokenTexts& texts) {
  ASSIGN_OR_RETURN(const Json root, ParseJson(tokenizer_json, kLimits));
  const Json* model = Find(root, "model");
  if (model == nullptr || !model->is_object()) {
    return InvalidArgument("it has no object 'model'");
  }
  RETURN_IF_ERROR(CheckModel(*model));
  Vocabulary out;
  if (TypeOf(*model) == "WordPiece") return ReadHfWordPieces(root);
  const bool unigram = TypeOf(*model) == "Unigram";
  out.model = unigram                                                  ? "t5"
              : IsTrue(*model, "byte_fallback") || !HasByteLevel(root) ? "llama"
                                                                       : "gpt2";
  out.whole_pieces_first = IsTrue(*model, "ignore_merges");
  if (const Json* normalizer = Find(root, "normalizer")) {
    RETURN_IF_ERROR(ReadNormalizer(*normalizer, out));
  }
  PreTokenizer pre_tokenizer{.out = out};
  if (const Json* step = Find(root, "pre_tokenizer")) {
    RETURN_IF_ERROR(pre_tokenizer.Read(*step));
  }
  if (pre_tokenizer.byte_level != (out.model == "gpt2")) {
    return Unknown("the pre_tokenizer has ByteLevel beside byte_fallback");
  }
  if (unigram) {
    RETURN_IF_ERROR(ReadUnigramVocab(*model, out));
  } else {
    RETURN_IF_ERROR(hf::ReadVocab(*model, out));
    RETURN_IF_ERROR(ReadMerges(*model, out));
  }
  if (out.model != "gpt2") RETURN_IF_ERROR(ReadFallback(*model, out));
  RETURN_IF_ERROR(hf::ReadAddedTokens(root, out));
  if (!out.scores.empty()) out.scores.resize(out.tokens.size());
  out.bos_id = IdOfText(out, texts.bos);
  out.eos_id = IdOfText(out, texts.eos);
  if (out.eos_id >= 0) out.eog_ids.push_back(out.eos_id);
  const Json* processor = Find(root, "post_processor");
  if (processor != nullptr && !texts.template_apart) {
    RETURN_IF_ERROR(ReadPostProcessor(*processor, out));
  }
  return out;
}

}  // namespace millrace::models

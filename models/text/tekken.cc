// A token's merge is found by merging its own bytes with the tokens of lower
// rank: the last two parts that are left are the pair. The list so made merges
// in the same order as ranks do, since a pair's rank is that of its token.
#include "models/text/tekken.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "config/base/base64.h"
#include "config/base/json.h"
#include "config/base/utf8.h"
#include "models/text/byte_alphabet.h"
#include "models/text/hf_regex.h"
#include "models/text/hf_tokenizer_parts.h"

namespace millrace::models {
namespace {

using hf::Find;
using hf::Json;

constexpr JsonLimits kLimits = {.max_depth = 16, .max_values = 8'000'000};
constexpr int64_t kMostTokens = 1 << 22;
// Longer tokens exist in no vocabulary; a merge is looked for in their square.
constexpr size_t kMostBytes = 512;

// Of files from before special tokens were listed.
constexpr std::string_view kOldSpecials[] = {
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
};

StatusOr<int64_t> Count(const Json& config, const char* key, int64_t least) {
  const Json* value = Find(config, key);
  if (value == nullptr || !value->is_number_integer() ||
      value->get<int64_t>() < least || value->get<int64_t>() > kMostTokens) {
    return InvalidArgument(
        "config." + std::string(key) + " is " +
        (value == nullptr ? "missing" : Shortened(DumpJson(*value), 40)) +
        "; " + std::to_string(least) + " to " + std::to_string(kMostTokens) +
        " is allowed");
  }
  return value->get<int64_t>();
}

// Fills the first `count` tokens.
Status ReadSpecials(const Json& root, int64_t count, Vocabulary& out) {
  for (int64_t i = 0; i < count; ++i) {
    out.tokens.push_back("<SPECIAL_" + std::to_string(i) + ">");
    out.kinds.push_back(TokenKind::kControl);
  }
  const Json* list = Find(root, "special_tokens");
  if (list == nullptr) {
    for (size_t i = 0; i < std::size(kOldSpecials); ++i) {
      if (static_cast<int64_t>(i) < count) out.tokens[i] = kOldSpecials[i];
    }
    return OkStatus();
  }
  if (!list->is_array()) return InvalidArgument("special_tokens is no list");
  for (const Json& special : *list) {
    const Json* rank = Find(special, "rank");
    const Json* text = Find(special, "token_str");
    if (rank == nullptr || !rank->is_number_integer() || text == nullptr ||
        !text->is_string() || rank->get<int64_t>() < 0 ||
        rank->get<int64_t>() >= count) {
      return InvalidArgument("special_tokens holds " +
                             Shortened(DumpJson(special), 100) +
                             "; expected a rank below " +
                             std::to_string(count) + " and a token_str");
    }
    const auto at = static_cast<size_t>(rank->get<int64_t>());
    out.tokens[at] = text->get<std::string>();
    const Json* control = Find(special, "is_control");
    if (control != nullptr && *control == false) {
      out.kinds[at] = TokenKind::kUserDefined;
    }
  }
  return OkStatus();
}

StatusOr<std::vector<std::string>> ReadRanks(const Json& root, int64_t count) {
  const Json* vocab = Find(root, "vocab");
  if (vocab == nullptr || !vocab->is_array() ||
      static_cast<int64_t>(vocab->size()) < count) {
    return InvalidArgument(
        "vocab has " + std::to_string(vocab == nullptr ? 0 : vocab->size()) +
        " tokens, but the config says " + std::to_string(count));
  }
  std::vector<std::string> tokens;
  for (int64_t i = 0; i < count; ++i) {
    const Json& entry = (*vocab)[static_cast<size_t>(i)];
    const Json* rank = Find(entry, "rank");
    const Json* bytes = Find(entry, "token_bytes");
    const auto decoded =
        bytes != nullptr && bytes->is_string()
            ? DecodeBase64(bytes->get_ref<const std::string&>())
            : std::nullopt;
    if (rank == nullptr || *rank != i || !decoded || decoded->empty() ||
        decoded->size() > kMostBytes) {
      return InvalidArgument("vocab[" + std::to_string(i) + "] is " +
                             Shortened(DumpJson(entry), 100) +
                             "; its rank and the token's bytes in base64 are "
                             "wanted");
    }
    tokens.push_back(*decoded);
  }
  return tokens;
}

std::string Written(const ByteAlphabet& alphabet, std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) {
    out += alphabet.Character(static_cast<uint8_t>(byte));
  }
  return out;
}

int32_t IdOfText(const Vocabulary& vocabulary, std::string_view text) {
  const auto it =
      std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), text);
  return it == vocabulary.tokens.end()
             ? -1
             : static_cast<int32_t>(it - vocabulary.tokens.begin());
}

}  // namespace

std::vector<RankedMerge> MergesOfRanks(const std::vector<std::string>& tokens) {
  std::unordered_map<std::string_view, size_t> ranks;
  for (size_t i = 0; i < tokens.size(); ++i) ranks.emplace(tokens[i], i);
  std::vector<RankedMerge> merges;
  std::vector<size_t> ends;  // of the parts
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const std::string_view token = tokens[rank];
    ends.resize(token.size());
    for (size_t i = 0; i < ends.size(); ++i) ends[i] = i + 1;
    const auto begin = [&](size_t part) {
      return part == 0 ? 0 : ends[part - 1];
    };
    while (ends.size() > 2) {
      size_t best = rank;
      size_t at = 0;
      for (size_t i = 0; i + 1 < ends.size(); ++i) {
        const auto it =
            ranks.find(token.substr(begin(i), ends[i + 1] - begin(i)));
        if (it == ranks.end() || it->second >= best) continue;
        best = it->second;
        at = i;
      }
      if (best == rank) break;
      ends.erase(ends.begin() + static_cast<ptrdiff_t>(at));
    }
    if (ends.size() != 2) continue;
    merges.push_back({std::string(token.substr(0, ends[0])),
                      std::string(token.substr(ends[0]))});
  }
  return merges;
}

StatusOr<Vocabulary> ReadTekken(std::string_view json) {
  ASSIGN_OR_RETURN(const Json root, ParseJson(json, kLimits));
  const Json* config = Find(root, "config");
  if (config == nullptr || !config->is_object()) {
    return InvalidArgument("it has no object 'config'");
  }
  ASSIGN_OR_RETURN(const int64_t all, Count(*config, "default_vocab_size", 1));
  ASSIGN_OR_RETURN(const int64_t specials,
                   Count(*config, "default_num_special_tokens", 0));
  if (specials >= all) {
    return InvalidArgument("default_num_special_tokens is " +
                           std::to_string(specials) + " of " +
                           std::to_string(all) + " tokens");
  }
  const Json* pattern = Find(*config, "pattern");
  if (pattern == nullptr || !pattern->is_string()) {
    return InvalidArgument("config.pattern is no text");
  }
  Vocabulary out;
  out.model = "gpt2";
  out.whole_pieces_first = true;
  ASSIGN_OR_RETURN(std::string rule,
                   Pcre2FromOniguruma(pattern->get_ref<const std::string&>()));
  out.splits.push_back({.pattern = std::move(rule)});
  RETURN_IF_ERROR(ReadSpecials(root, specials, out));
  ASSIGN_OR_RETURN(const std::vector<std::string> tokens,
                   ReadRanks(root, all - specials));
  const ByteAlphabet alphabet;
  for (const std::string& token : tokens) {
    out.tokens.push_back(Written(alphabet, token));
    out.kinds.push_back(TokenKind::kNormal);
  }
  for (const auto& [left, right] : MergesOfRanks(tokens)) {
    out.merges.push_back(Written(alphabet, left) + " " +
                         Written(alphabet, right));
  }
  out.bos_id = IdOfText(out, "<s>");
  out.eos_id = IdOfText(out, "</s>");
  out.add_bos = out.bos_id >= 0;
  if (out.eos_id >= 0) out.eog_ids.push_back(out.eos_id);
  return out;
}

}  // namespace millrace::models

// From the scores of a text's tokens to entities, as transformers'
// TokenClassificationPipeline makes them:
//
//   none      each token alone
//   simple    neighbouring tokens of one label; B- begins another entity
//   first, max, average     the same of words: all tokens of a word get the
//             label of its first token, of the surest one, or of their mean
//
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "handlers/texts/token_words.h"

namespace millrace::handlers {

enum class Aggregation { kNone, kSimple, kFirst, kAverage, kMax };

// "none", "simple", "first", "average", "max".
std::optional<Aggregation> AggregationFromName(std::string_view name);

struct LabelledToken {
  std::string word;
  std::vector<double> scores;  // of each label; not empty
  int64_t index = 0;           // among all tokens that the model read
  int64_t start = 0;           // in characters of the text
  int64_t end = 0;
  bool is_subword = false;  // goes on with the word before
};

struct Entity {
  std::string label;  // with Aggregation::kNone; else without "B-" and "I-"
  double score = 0;
  std::string word;
  int64_t index = -1;  // of the token; -1: of several
  int64_t start = 0;
  int64_t end = 0;
};

// `labels` has one for each score.
std::vector<Entity> EntitiesOf(std::span<const LabelledToken> tokens,
                               Aggregation aggregation,
                               std::span<const std::string> labels,
                               const TokenWords& words);

}  // namespace millrace::handlers

#include "handlers/texts/token_entities.h"

#include <algorithm>
#include <utility>

namespace millrace::handlers {
namespace {

using Tokens = std::span<const LabelledToken>;

constexpr std::pair<std::string_view, Aggregation> kNames[] = {
    {"none", Aggregation::kNone},   {"simple", Aggregation::kSimple},
    {"first", Aggregation::kFirst}, {"average", Aggregation::kAverage},
    {"max", Aggregation::kMax},
};

size_t BestOf(const std::vector<double>& scores) {
  return static_cast<size_t>(std::max_element(scores.begin(), scores.end()) -
                             scores.begin());
}

double MostOf(const LabelledToken& token) {
  return token.scores[BestOf(token.scores)];
}

std::vector<double> MeanOf(Tokens word) {
  std::vector<double> mean(word.front().scores.size());
  for (const LabelledToken& token : word) {
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += token.scores[i];
  }
  for (double& score : mean) score /= static_cast<double>(word.size());
  return mean;
}

// The scores that decide of a word; the first of several that are as sure.
std::vector<double> ScoresOf(Tokens word, Aggregation aggregation) {
  if (aggregation == Aggregation::kAverage) return MeanOf(word);
  const LabelledToken* chosen = &word.front();
  if (aggregation == Aggregation::kMax) {
    chosen =
        &*std::max_element(word.begin(), word.end(),
                           [](const LabelledToken& a, const LabelledToken& b) {
                             return MostOf(a) < MostOf(b);
                           });
  }
  return chosen->scores;
}

Entity EntityOf(Tokens word, const std::vector<double>& scores,
                std::span<const std::string> labels) {
  const size_t best = BestOf(scores);
  Entity entity;
  entity.label = labels[best];
  entity.score = scores[best];
  entity.start = word.front().start;
  entity.end = word.back().end;
  return entity;
}

std::vector<Entity> TokensAlone(Tokens tokens,
                                std::span<const std::string> labels) {
  std::vector<Entity> out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    Entity entity = EntityOf(tokens.subspan(i, 1), tokens[i].scores, labels);
    entity.word = tokens[i].word;
    entity.index = tokens[i].index;
    out.push_back(std::move(entity));
  }
  return out;
}

std::vector<Entity> WordsOf(Tokens tokens, Aggregation aggregation,
                            std::span<const std::string> labels,
                            const TokenWords& words) {
  std::vector<Entity> out;
  for (size_t i = 0; i < tokens.size();) {
    size_t end = i + 1;
    while (end < tokens.size() && tokens[end].is_subword) ++end;
    const Tokens word = tokens.subspan(i, end - i);
    Entity entity = EntityOf(word, ScoresOf(word, aggregation), labels);
    std::vector<std::string> parts;
    for (const LabelledToken& token : word) parts.push_back(token.word);
    entity.word = words.Join(parts);
    out.push_back(std::move(entity));
    i = end;
  }
  return out;
}

// "B-PER" is the begin of "PER"; what has neither B- nor I- is inside.
std::pair<bool, std::string_view> TagOf(std::string_view label) {
  const bool begins = label.starts_with("B-");
  if (begins || label.starts_with("I-")) label.remove_prefix(2);
  return {begins, label};
}

Entity Group(std::span<const Entity> parts, const TokenWords& words) {
  Entity out;
  // Behind the first '-', whatever stands before it.
  const std::string& label = parts.front().label;
  const size_t dash = label.find('-');
  out.label = dash == std::string::npos ? label : label.substr(dash + 1);
  std::vector<std::string> texts;
  for (const Entity& part : parts) {
    out.score += part.score / static_cast<double>(parts.size());
    texts.push_back(part.word);
  }
  out.word = words.Join(texts);
  out.start = parts.front().start;
  out.end = parts.back().end;
  return out;
}

}  // namespace

std::optional<Aggregation> AggregationFromName(std::string_view name) {
  for (const auto& [known, aggregation] : kNames) {
    if (known == name) return aggregation;
  }
  return std::nullopt;
}

std::vector<Entity> EntitiesOf(Tokens tokens, Aggregation aggregation,
                               std::span<const std::string> labels,
                               const TokenWords& words) {
  const bool by_token =
      aggregation == Aggregation::kNone || aggregation == Aggregation::kSimple;
  const std::vector<Entity> parts =
      by_token ? TokensAlone(tokens, labels)
               : WordsOf(tokens, aggregation, labels, words);
  if (aggregation == Aggregation::kNone) return parts;
  std::vector<Entity> out;
  for (size_t i = 0; i < parts.size();) {
    const std::string_view tag = TagOf(parts[i].label).second;
    size_t end = i + 1;
    for (; end < parts.size(); ++end) {
      const auto [begins, next] = TagOf(parts[end].label);
      if (begins || next != tag) break;
    }
    out.push_back(Group(std::span(parts).subspan(i, end - i), words));
    i = end;
  }
  return out;
}

}  // namespace millrace::handlers

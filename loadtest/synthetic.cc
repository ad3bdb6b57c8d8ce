#include "loadtest/synthetic.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "loadtest/fetch.h"
#include "loadtest/input_files.h"

namespace millrace::loadtest {
namespace {

using Json = nlohmann::json;

constexpr char kWords[] =
    "the of and to in is that for it as was with be by on not he his but at "
    "are this have from or had an they which one you were all her she there "
    "would their we him been has when who will no more if out so up said what "
    "its about than into them can only other time new some could these two "
    "may first then do any like my now over such our man me even most made "
    "after also did many off before must well back through years much where "
    "your way down should because long each just state people those too Mr "
    "how little good world make very year still see own work men day get here "
    "old life both between being under three never know same last another "
    "while us might great since against go came right used take himself few "
    "house American use place during high without again home around small "
    "however found part school went say once general upon war left every does "
    "got united number course water until always away public something fact "
    "less though far put head think set called almost end enough better night";

constexpr int64_t kDefaultInputTokens = 128;
constexpr int64_t kMinPrompts = 1000;
constexpr int64_t kMaxPrompts = 100'000;

// How many tokens the server makes of the text; nothing where it has no
// /tokenize.
StatusOr<std::optional<int64_t>> CountTokens(const Options& options,
                                             const std::string& model,
                                             const std::string& text) {
  const Json body = {
      {"model", model}, {"prompt", text}, {"add_special_tokens", false}};
  std::string prefix = options.url.prefix;
  if (prefix.ends_with("/v1")) prefix.resize(prefix.size() - 3);
  ASSIGN_OR_RETURN(const FetchReply reply,
                   Fetch(options, "POST", prefix + "/tokenize", body.dump()));
  if (reply.status != 200) return std::optional<int64_t>();
  const Json answer = Json::parse(reply.body, nullptr, false);
  if (!answer.is_object()) return std::optional<int64_t>();
  const auto count = answer.find("count");
  if (count != answer.end() && count->is_number_integer()) {
    return count->get<int64_t>();
  }
  const auto tokens = answer.find("tokens");
  if (tokens == answer.end() || !tokens->is_array())
    return std::optional<int64_t>();
  return static_cast<int64_t>(tokens->size());
}

std::string Repeated(const std::string& word, int64_t times) {
  std::string text = "the";
  for (int64_t i = 0; i < times; ++i) text += " " + word;
  return text;
}

}  // namespace

std::vector<std::string> CommonWords() {
  std::istringstream in(kWords);
  std::vector<std::string> words;
  std::string word;
  while (in >> word) words.push_back(word);
  return words;
}

SyntheticText::SyntheticText(std::vector<std::string> words, uint64_t seed)
    : words_(std::move(words)), random_(seed) {}

double SyntheticText::Uniform() {
  return static_cast<double>(random_() >> 11) * 0x1.0p-53;
}

std::string SyntheticText::Make(int64_t num_tokens) {
  std::string text;
  for (int64_t i = 0; i < num_tokens; ++i) {
    // Only words behind a space are sure to be one token.
    text += i == 0 ? words_[0] : " " + words_[random_() % words_.size()];
  }
  return text;
}

int64_t SyntheticText::Draw(const TokenCount& count) {
  if (count.stddev <= 0) return std::llround(count.mean);
  // Box and Muller's transform of two uniform numbers.
  const double radius = std::sqrt(-2 * std::log1p(-Uniform()));
  const double normal = radius * std::cos(2 * 3.14159265358979 * Uniform());
  return std::max<int64_t>(1, std::llround(count.mean + count.stddev * normal));
}

StatusOr<std::vector<std::string>> SingleTokenWords(const Options& options,
                                                    const std::string& model,
                                                    bool* estimated) {
  std::vector<std::string> words = CommonWords();
  *estimated = false;
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : " ") + word;
  ASSIGN_OR_RETURN(const auto total, CountTokens(options, model, all));
  if (!total) {
    *estimated = true;
    return words;
  }
  if (*total == static_cast<int64_t>(words.size())) return words;
  // Some words are more than one token. Two lengths of the same word differ
  // by its tokens, whatever the tokenizer puts before a text.
  constexpr int64_t kMore = 8;
  std::vector<std::string> single;
  for (const std::string& word : words) {
    ASSIGN_OR_RETURN(const auto one,
                     CountTokens(options, model, Repeated(word, 1)));
    ASSIGN_OR_RETURN(const auto more,
                     CountTokens(options, model, Repeated(word, 1 + kMore)));
    if (one && more && *more - *one == kMore) single.push_back(word);
  }
  if (single.size() >= 16) return single;
  *estimated = true;
  return words;
}

StatusOr<Dataset> MakeDataset(const Options& options, const std::string& model,
                              bool* estimated) {
  *estimated = false;
  Dataset dataset;
  bool synthetic = options.dataset.empty();
  if (!synthetic) {
    ASSIGN_OR_RETURN(dataset, LoadJsonl(options.dataset));
    for (const Conversation& one : dataset) {
      if (options.endpoint == EndpointType::kChat) break;
      const bool pictures =
          std::any_of(one.turns.begin(), one.turns.end(),
                      [](const Turn& turn) { return !turn.images.empty(); });
      if (one.messages.empty() && !pictures) continue;
      return InvalidArgument("--dataset " + options.dataset + " holds " +
                             (pictures ? "pictures" : "\"messages\"") +
                             ", which need --endpoint-type chat");
    }
    const std::string folder =
        std::filesystem::path(options.dataset).parent_path().string();
    if (Status inlined = InlineImages(folder, dataset); !inlined.ok()) {
      return std::move(inlined).Prefixed("--dataset " + options.dataset);
    }
    synthetic = std::any_of(
        dataset.begin(), dataset.end(),
        [](const Conversation& one) { return one.input_length > 0; });
  }
  std::vector<std::string> known = CommonWords();
  if (synthetic) {
    ASSIGN_OR_RETURN(known, SingleTokenWords(options, model, estimated));
  }
  SyntheticText words(std::move(known), options.seed);
  if (options.dataset.empty()) {
    TokenCount input = options.input_tokens;
    if (input.mean <= 0) input.mean = kDefaultInputTokens;
    const int64_t num_prompts =
        options.num_prompts > 0
            ? options.num_prompts
            : std::clamp(
                  options.num_requests * options.repetitions *
                      std::max<int64_t>(
                          1, static_cast<int64_t>(options.sweep.values.size())),
                  kMinPrompts, kMaxPrompts);
    const std::string prefix = words.Make(options.shared_prefix_tokens);
    for (int64_t i = 0; i < num_prompts; ++i) {
      Conversation conversation;
      for (int64_t turn = 0; turn < options.turns; ++turn) {
        const int64_t length = words.Draw(input);
        const int64_t own =
            turn > 0
                ? length
                : std::max<int64_t>(1, length - options.shared_prefix_tokens);
        std::string text = words.Make(own);
        if (turn == 0 && !prefix.empty()) text = prefix + " " + text;
        conversation.turns.push_back({.text = std::move(text)});
      }
      dataset.push_back(std::move(conversation));
    }
  }
  for (Conversation& conversation : dataset) {
    if (conversation.input_length > 0) {
      conversation.turns.front().text = words.Make(conversation.input_length);
    }
    for (Turn& turn : conversation.turns) {
      if (turn.output_tokens < 0 && options.output_tokens.mean > 0) {
        turn.output_tokens = words.Draw(options.output_tokens);
      }
    }
  }
  return dataset;
}

}  // namespace millrace::loadtest

// Prompts of a wanted number of tokens. They are made of short English words
// that are one token each; which ones are is asked of the server's own
// tokenizer (POST /tokenize, as vLLM, llama.cpp and Millrace have it), so that
// lengths are those of the model that is measured.
//
//   SyntheticText words(CommonWords(), seed);
//   std::string text = words.Make(128);
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "loadtest/dataset.h"
#include "loadtest/options.h"

namespace millrace::loadtest {

// 200 or so; in most tokenizers each one, with a space before it, is a token.
std::vector<std::string> CommonWords();

class SyntheticText {
 public:
  SyntheticText(std::vector<std::string> words, uint64_t seed);

  // `num_tokens` words, joined by spaces: the first of the list, then words
  // drawn evenly.
  std::string Make(int64_t num_tokens);
  // A draw of the distribution, 1 at least.
  int64_t Draw(const TokenCount& count);

 private:
  double Uniform();  // in [0, 1)

  std::vector<std::string> words_;
  std::mt19937_64 random_;
};

// The words that the server's tokenizer gives one token each. Without
// /tokenize all words; *estimated says so.
StatusOr<std::vector<std::string>> SingleTokenWords(const Options& options,
                                                    const std::string& model,
                                                    bool* estimated);

// The conversations of a run: from the file, or made up as the flags say.
// `num_requests` is how many will be sent, -1 where that is not known.
StatusOr<Dataset> MakeDataset(const Options& options, const std::string& model,
                              bool* estimated);

}  // namespace millrace::loadtest

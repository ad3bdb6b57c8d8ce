// Labels of a recording as a text, with the times of its words, and as JSON in
// OpenAI's shapes:
//
//   {"text": "ada lives", "usage": {"type": "duration", "seconds": 2}}
//   {"task": "transcribe", "language": "en", "duration": 1.3, "text": …,
//    "segments": [{"id": 0, "start": 0, "end": 1.3, "text": …, …}],
//    "words": [{"word": "ada", "start": 0.1, "end": 0.4}, …]}
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "handlers/tasks/ctc.h"
#include "handlers/tasks/labels.h"

namespace millrace::handlers {

struct TimedWord {
  std::string word = {};
  double start = 0;  // seconds
  double end = 0;
};

struct Transcript {
  std::string text;  // words with a space between
  std::vector<TimedWord> words;
  std::vector<int64_t> labels;
  double mean_log_prob = 0;  // of its labels; 0 where there are none
};

// A label that is `word_delimiter`, or begins with U+2581, begins a word.
// "<s>", "</s>", "<unk>" and "<pad>" say nothing.
Transcript MakeTranscript(const std::vector<CtcToken>& tokens,
                          const Labels& labels,
                          const std::string& word_delimiter,
                          double seconds_per_frame);

struct TranscriptForm {
  bool verbose = false;
  bool has_words = false;     // verbose: timestamp_granularities
  bool has_segments = true;   // likewise
  std::string language = {};  // empty: untold
};
std::string TranscriptJson(const Transcript& transcript, double seconds,
                           const TranscriptForm& form);

}  // namespace millrace::handlers

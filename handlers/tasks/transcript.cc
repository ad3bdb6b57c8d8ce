#include "handlers/tasks/transcript.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/base/json.h"
#include "config/base/utf8.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kWordMark = "\u2581";
constexpr std::string_view kSilent[] = {"<s>", "</s>", "<unk>", "<pad>"};

double Rounded(double seconds) { return std::round(seconds * 1000) / 1000; }

// How well the text can be compressed, by which Whisper's users find texts that
// repeat themselves.
double CompressionRatio(const std::string& text) {
  if (text.empty()) return 0;
  uLongf size = compressBound(text.size());
  std::string packed(size, '\0');
  if (compress(reinterpret_cast<Bytef*>(packed.data()), &size,
               reinterpret_cast<const Bytef*>(text.data()),
               text.size()) != Z_OK) {
    return 0;
  }
  return static_cast<double>(text.size()) / static_cast<double>(size);
}

Json SegmentJson(const Transcript& transcript, double seconds) {
  return {{"id", 0},
          {"seek", 0},
          {"start", 0.0},
          {"end", Rounded(seconds)},
          {"text", transcript.text},
          {"tokens", transcript.labels},
          {"temperature", 0.0},
          {"avg_logprob", transcript.mean_log_prob},
          {"compression_ratio", CompressionRatio(transcript.text)},
          {"no_speech_prob", 0.0}};
}

Json WordsJson(const Transcript& transcript) {
  Json words = Json::array();
  for (const TimedWord& word : transcript.words) {
    words.push_back({{"word", word.word},
                     {"start", Rounded(word.start)},
                     {"end", Rounded(word.end)}});
  }
  return words;
}

}  // namespace

Transcript MakeTranscript(const std::vector<CtcToken>& tokens,
                          const Labels& labels,
                          const std::string& word_delimiter,
                          double seconds_per_frame) {
  Transcript transcript;
  double log_probs = 0;
  bool begins = true;
  for (const CtcToken& token : tokens) {
    transcript.labels.push_back(token.label);
    log_probs += token.log_prob;
    const std::string name = labels.NameOf(token.label);
    std::string_view text = name;
    if (std::find(std::begin(kSilent), std::end(kSilent), text) !=
        std::end(kSilent)) {
      continue;
    }
    if (text == word_delimiter || text == " ") {
      begins = true;
      continue;
    }
    if (text.starts_with(kWordMark)) {
      begins = true;
      text.remove_prefix(kWordMark.size());
      if (text.empty()) continue;
    }
    if (begins) {
      transcript.words.push_back(
          {.start =
               static_cast<double>(token.first_frame) * seconds_per_frame});
    }
    begins = false;
    TimedWord& word = transcript.words.back();
    word.word += text;
    word.end = static_cast<double>(token.end_frame) * seconds_per_frame;
  }
  for (TimedWord& word : transcript.words) {
    word.word = ReplaceInvalidUtf8(word.word);  // labels may be any bytes
    if (!transcript.text.empty()) transcript.text += ' ';
    transcript.text += word.word;
  }
  if (!tokens.empty()) {
    transcript.mean_log_prob = log_probs / static_cast<double>(tokens.size());
  }
  return transcript;
}

std::string TranscriptJson(const Transcript& transcript, double seconds,
                           const TranscriptForm& form) {
  Json json;
  if (form.verbose) {
    json["task"] = "transcribe";
    json["language"] = form.language.empty() ? "unknown" : form.language;
    json["duration"] = Rounded(seconds);
  }
  json["text"] = transcript.text;
  if (form.verbose && form.has_segments) {
    json["segments"] = Json::array();
    if (!transcript.text.empty()) {
      json["segments"].push_back(SegmentJson(transcript, seconds));
    }
  }
  if (form.verbose && form.has_words) json["words"] = WordsJson(transcript);
  json["usage"] = {{"type", "duration"},
                   {"seconds", static_cast<int64_t>(std::ceil(seconds))}};
  return DumpJson(json);
}

}  // namespace millrace::handlers

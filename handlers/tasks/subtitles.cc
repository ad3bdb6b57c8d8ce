#include "handlers/tasks/subtitles.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string_view>

namespace millrace::handlers {
namespace {

constexpr int64_t kMostCharacters = 42;
constexpr int64_t kLongestMs = 7000;
constexpr int64_t kPauseMs = 1000;

struct Cue {
  int64_t begin_ms = 0;
  int64_t end_ms = 0;
  std::string text = {};
};

int64_t Ms(double seconds) { return std::llround(seconds * 1000); }

// UTF-8: bytes that continue a character do not count.
int64_t NumCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
}

std::vector<Cue> CuesOf(const std::vector<TimedWord>& words) {
  std::vector<Cue> cues;
  for (const TimedWord& word : words) {
    const int64_t begin = Ms(word.start);
    const int64_t end = std::max(Ms(word.end), begin + 1);
    const bool joins =
        !cues.empty() && begin - cues.back().end_ms < kPauseMs &&
        end - cues.back().begin_ms <= kLongestMs &&
        NumCharacters(cues.back().text) + 1 + NumCharacters(word.word) <=
            kMostCharacters;
    if (joins) {
      cues.back().text += ' ' + word.word;
      cues.back().end_ms = end;
    } else {
      cues.push_back({begin, end, word.word});
    }
  }
  // Labels may be any characters: a line break would end the cue.
  for (Cue& cue : cues) {
    std::replace(cue.text.begin(), cue.text.end(), '\n', ' ');
    std::replace(cue.text.begin(), cue.text.end(), '\r', ' ');
  }
  return cues;
}

std::string TimeText(int64_t ms, char before_ms) {
  char text[40];
  std::snprintf(text, sizeof(text), "%02lld:%02lld:%02lld%c%03lld",
                static_cast<long long>(ms / 3'600'000),
                static_cast<long long>(ms / 60'000 % 60),
                static_cast<long long>(ms / 1000 % 60), before_ms,
                static_cast<long long>(ms % 1000));
  return text;
}

std::string TimesText(const Cue& cue, char before_ms) {
  return TimeText(cue.begin_ms, before_ms) + " --> " +
         TimeText(cue.end_ms, before_ms) + "\n";
}

// WebVTT has tags and character references.
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace

std::string SubRip(const std::vector<TimedWord>& words) {
  std::string text;
  int64_t number = 0;
  for (const Cue& cue : CuesOf(words)) {
    text += std::to_string(++number) + "\n" + TimesText(cue, ',') + cue.text +
            "\n\n";
  }
  return text;
}

std::string WebVtt(const std::vector<TimedWord>& words) {
  std::string text = "WEBVTT\n\n";
  for (const Cue& cue : CuesOf(words)) {
    text += TimesText(cue, '.') + Escaped(cue.text) + "\n\n";
  }
  return text;
}

}  // namespace millrace::handlers

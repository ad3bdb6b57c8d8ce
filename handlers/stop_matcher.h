// Looks for several stop strings in text that arrives byte by byte.
//
//   StopMatcher matcher({"\n\n", "END"});
//   for (char c : text) if (matcher.Step(c) >= 0) ...   // one is complete
//   matcher.held();   // bytes at the end that may still become one
//
// One Knuth-Morris-Pratt automaton for each string, so what is found does not
// depend on how the text was cut. Not thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace millrace::handlers {

class StopMatcher {
 public:
  // None of the strings is empty.
  explicit StopMatcher(std::vector<std::string> stops);

  // The longest stop string that this byte completes, by index; -1: none.
  int Step(char byte);

  // Length of the longest suffix of the text that begins a stop string.
  size_t held() const { return held_; }
  const std::string& stop(int idx) const { return automata_[idx].text; }

 private:
  struct Automaton {
    std::string text;
    std::vector<size_t> fallback;  // border of each prefix, [text.size()]
    size_t matched = 0;            // prefix that the text ends with
  };
  std::vector<Automaton> automata_;
  size_t held_ = 0;
};

}  // namespace millrace::handlers

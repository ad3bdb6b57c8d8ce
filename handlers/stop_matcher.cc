// When several stop strings end at the same byte the longest is reported, so
// that nothing of it is shown. The string that is complete first is reported
// even if another began earlier.
// Source: Knuth, Morris, Pratt 1977.
#include "handlers/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace millrace::handlers {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  automata_.reserve(stops.size());
  for (std::string& stop : stops) {
    Automaton automaton;
    automaton.fallback.assign(stop.size(), 0);
    for (size_t i = 1, border = 0; i < stop.size(); ++i) {
      while (border > 0 && stop[i] != stop[border]) {
        border = automaton.fallback[border - 1];
      }
      if (stop[i] == stop[border]) ++border;
      automaton.fallback[i] = border;
    }
    automaton.text = std::move(stop);
    automata_.push_back(std::move(automaton));
  }
}

int StopMatcher::Step(char byte) {
  int found = -1;
  held_ = 0;
  for (size_t i = 0; i < automata_.size(); ++i) {
    Automaton& a = automata_[i];
    if (a.matched == a.text.size()) a.matched = a.fallback[a.matched - 1];
    while (a.matched > 0 && a.text[a.matched] != byte) {
      a.matched = a.fallback[a.matched - 1];
    }
    if (a.text[a.matched] == byte) ++a.matched;
    held_ = std::max(held_, a.matched);
    if (a.matched == a.text.size() &&
        (found < 0 || a.text.size() > automata_[found].text.size())) {
      found = static_cast<int>(i);
    }
  }
  return found;
}

}  // namespace millrace::handlers

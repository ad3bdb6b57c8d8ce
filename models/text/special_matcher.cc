// The trie is walked anew from each byte that begins a special token: the
// texts are short, so that this costs less than keeping failure links.
#include "models/text/special_matcher.h"

namespace millrace::models {

SpecialMatcher::SpecialMatcher() : nodes_(1) { first_.fill(0); }

uint32_t SpecialMatcher::Child(uint32_t node, char byte) const {
  if (node == 0) return first_[static_cast<uint8_t>(byte)];
  for (const auto& [key, child] : nodes_[node].children) {
    if (key == byte) return child;
  }
  return 0;
}

void SpecialMatcher::Add(std::string_view text, int32_t id, bool always) {
  if (text.empty()) return;
  uint32_t node = 0;
  for (const char byte : text) {
    uint32_t child = Child(node, byte);
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      if (node == 0) {
        first_[static_cast<uint8_t>(byte)] = child;
      } else {
        nodes_[node].children.emplace_back(byte, child);
      }
    }
    node = child;
  }
  if (nodes_[node].id >= 0) return;
  nodes_[node].id = id;
  nodes_[node].always = always;
}

SpecialMatcher::Match SpecialMatcher::Find(std::string_view text, size_t from,
                                           bool with_control) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    Match match{begin, begin, -1};
    uint32_t node = first_[static_cast<uint8_t>(text[begin])];
    for (size_t end = begin + 1; node != 0; ++end) {
      const Node& here = nodes_[node];
      if (here.id >= 0 && (here.always || with_control)) {
        match = {begin, end, here.id};
      }
      node = end < text.size() ? Child(node, text[end]) : 0;
    }
    if (match.id >= 0) return match;
  }
  return {text.size(), text.size(), -1};
}

}  // namespace millrace::models

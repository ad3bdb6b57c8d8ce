// Looks for tags in text that arrives byte by byte.
//
//   TagFinder finder({"<tool_call>", "</tool_call>"});
//   std::string text;
//   const int tag = finder.Step(byte, text);   // -1: none ends here
//
// Bytes that cannot be part of a tag any more are appended to `text`; those
// that may be one wait. Not thread-safe.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "handlers/stop_matcher.h"

namespace millrace::handlers {

class TagFinder {
 public:
  // None of the tags is empty or the beginning of another one.
  explicit TagFinder(std::vector<std::string> tags)
      : tags_(std::move(tags)), matcher_(tags_) {}

  // The tag that this byte completes, by index; the text before it is released
  // and the tag itself dropped.
  int Step(char byte, std::string& text) {
    waiting_ += byte;
    const int found = matcher_.Step(byte);
    const size_t keep =
        found >= 0 ? tags_[static_cast<size_t>(found)].size() : matcher_.held();
    text.append(waiting_, 0, waiting_.size() - keep);
    waiting_.erase(0, waiting_.size() - keep);
    if (found >= 0) Reset();
    return found;
  }
  // The beginning of a tag that waits for its end, and forgets it.
  std::string Rest() {
    std::string rest = std::move(waiting_);
    Reset();
    return rest;
  }
  // Bytes that wait to be text or a tag.
  size_t waiting() const { return waiting_.size(); }
  const std::string& tag(int idx) const {
    return tags_[static_cast<size_t>(idx)];
  }

 private:
  void Reset() {
    waiting_.clear();
    matcher_ = StopMatcher(tags_);
  }

  std::vector<std::string> tags_;
  StopMatcher matcher_;
  std::string waiting_;
};

}  // namespace millrace::handlers

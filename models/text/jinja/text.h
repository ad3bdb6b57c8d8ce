// A string that knows, byte by byte, whether it came out of the request. This
// is how a rendered prompt can tell the template's own "<|im_end|>" from one
// that a user wrote: every operation on strings carries the marks along.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::models::jinja {

class Text {
 public:
  Text() = default;
  Text(std::string bytes, bool from_user)
      : bytes_(std::move(bytes)), first_(from_user) {}

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  void Append(std::string_view bytes, bool from_user);
  void Append(const Text& other) { Append(other, 0, other.size()); }
  // Bytes [begin, end) of the other.
  void Append(const Text& other, size_t begin, size_t end);
  Text Slice(size_t begin, size_t end) const;

  bool FromUserAt(size_t at) const;
  bool AnyFromUser() const { return !empty() && (first_ || !flips_.empty()); }

  // Calls fn(std::string_view bytes, bool from_user) for each longest run.
  template <typename Fn>
  void ForEachRun(const Fn& fn) const {
    bool from_user = first_;
    size_t begin = 0;
    for (size_t i = 0; i <= flips_.size(); ++i) {
      const size_t end = i < flips_.size() ? flips_[i] : size();
      if (end > begin) {
        fn(std::string_view(bytes_).substr(begin, end - begin), from_user);
      }
      begin = end;
      from_user = !from_user;
    }
  }

 private:
  bool LastRun() const { return first_ != (flips_.size() % 2 == 1); }

  std::string bytes_;
  bool first_ = false;         // what the first run is
  std::vector<size_t> flips_;  // where runs change; ascending, in (0, size)
};

}  // namespace millrace::models::jinja

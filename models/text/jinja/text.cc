// Marks are kept as the places where they change: most strings have none.
#include "models/text/jinja/text.h"

#include <algorithm>

namespace millrace::models::jinja {

void Text::Append(std::string_view bytes, bool from_user) {
  if (bytes.empty()) return;
  if (bytes_.empty()) {
    first_ = from_user;
    flips_.clear();
  } else if (LastRun() != from_user) {
    flips_.push_back(bytes_.size());
  }
  bytes_ += bytes;
}

void Text::Append(const Text& other, size_t begin, size_t end) {
  if (&other == this) {  // the views below would move under our feet
    const Text copy = other;
    return Append(copy, begin, end);
  }
  end = std::min(end, other.size());
  const auto first =
      std::upper_bound(other.flips_.begin(), other.flips_.end(), begin);
  size_t run = static_cast<size_t>(first - other.flips_.begin());
  while (begin < end) {
    const size_t stop =
        run < other.flips_.size() ? std::min(other.flips_[run], end) : end;
    Append(std::string_view(other.bytes_).substr(begin, stop - begin),
           other.first_ != (run % 2 == 1));
    begin = stop;
    ++run;
  }
}

Text Text::Slice(size_t begin, size_t end) const {
  Text out;
  out.Append(*this, begin, end);
  return out;
}

bool Text::FromUserAt(size_t at) const {
  const auto run = std::upper_bound(flips_.begin(), flips_.end(), at);
  return first_ != ((run - flips_.begin()) % 2 == 1);
}

}  // namespace millrace::models::jinja

// Builds the value from parser events, so that limits hold before memory is
// spent and no function recurses with the depth of the input. nlohmann's own
// ordered object looks each new key up from the front, which makes an object of
// n keys cost n²; here a large object gets an index while it is open.
#include "config/base/json.h"

#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "config/base/utf8.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
using Members = Json::object_t::Container;

constexpr size_t kIndexFromKeys = 16;
constexpr size_t kMaxDetailBytes = 160;

class Builder {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  // Events of the parser; false stops it.
  bool null() { return Scalar(nullptr); }
  bool boolean(bool value) { return Scalar(value); }
  bool number_integer(int64_t value) { return Scalar(value); }
  bool number_unsigned(uint64_t value) { return Scalar(value); }
  bool number_float(double value, const std::string&) { return Scalar(value); }
  bool string(std::string& value) { return Scalar(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // never in text
  bool start_object(size_t) { return Open(Json::object()); }
  bool end_object() { return Close(); }
  bool start_array(size_t) { return Open(Json::array()); }
  bool end_array() { return Close(); }

  // The same key twice: the last value stands, as in Python, unless refused.
  bool key(std::string& name) {
    Level& level = open_.back();
    // The members as the vector they are: the class above it searches linearly.
    Members& members = level.value->get_ref<Json::object_t&>();
    if (members.size() == kIndexFromKeys && level.index.empty()) {
      for (size_t i = 0; i < members.size(); ++i) {
        level.index.emplace(members[i].first, i);
      }
    }
    size_t at = members.size();
    if (members.size() < kIndexFromKeys) {
      for (size_t i = 0; i < members.size(); ++i) {
        if (members[i].first == name) at = i;
      }
    } else {
      at = level.index.emplace(name, at).first->second;
    }
    if (at == members.size()) {
      members.emplace_back(std::move(name), nullptr);
    } else if (limits_.unique_keys) {
      status_ = InvalidArgument("the key '" +
                                ReplaceInvalidUtf8(name.substr(0, 100)) +
                                "' appears twice in an object");
      return false;
    }
    level.next = &members[at].second;
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: …"
    std::string_view detail = error.what();
    if (const size_t end = detail.find("] "); end != detail.npos) {
      detail.remove_prefix(end + 2);
    }
    std::string shown = ReplaceInvalidUtf8(detail.substr(0, kMaxDetailBytes));
    if (detail.size() > kMaxDetailBytes) shown += "…";
    status_ = InvalidArgument("malformed JSON at byte " +
                              std::to_string(position) + ": " + shown);
    return false;
  }

  Json root;
  Status status() const { return status_; }

 private:
  struct Level {
    Json* value;           // the open array or object
    Json* next = nullptr;  // where the value of the last key goes
    std::unordered_map<std::string, size_t> index;  // keys of a large object
  };

  // Open containers stand each at the end of the one around it, which does not
  // grow before they close: the pointers stay good.
  Json* Place(Json value) {
    if (++num_values_ > limits_.max_values) {
      status_ = InvalidArgument("the JSON text holds more than " +
                                std::to_string(limits_.max_values) +
                                " values; send fewer");
      return nullptr;
    }
    if (open_.empty()) {
      root = std::move(value);
      return &root;
    }
    Level& level = open_.back();
    if (level.value->is_array()) {
      auto& items = level.value->get_ref<Json::array_t&>();
      items.push_back(std::move(value));
      return &items.back();
    }
    *level.next = std::move(value);
    return level.next;
  }

  bool Scalar(Json value) { return Place(std::move(value)) != nullptr; }

  bool Open(Json value) {
    if (open_.size() >= static_cast<size_t>(limits_.max_depth)) {
      status_ = InvalidArgument("the JSON text nests deeper than " +
                                std::to_string(limits_.max_depth) +
                                " levels; flatten it");
      return false;
    }
    Json* placed = Place(std::move(value));
    if (placed == nullptr) return false;
    open_.push_back({placed, nullptr, {}});
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  std::vector<Level> open_;
  int64_t num_values_ = 0;
  Status status_;
};

}  // namespace

StatusOr<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  Builder builder(limits);
  bool parsed = false;
  try {
    parsed = Json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const std::exception& error) {
    return InvalidArgument(std::string("the JSON text cannot be read: ") +
                           error.what());
  }
  if (parsed) return std::move(builder.root);
  if (!builder.status().ok()) return builder.status();
  return InvalidArgument("the JSON text cannot be read");
}

std::string DumpJson(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace millrace

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
  Builder(const JsonLimits& limits, const JsonArrayPick& pick)
      : limits_(limits), pick_(pick) {}

  // Events of the parser; false stops it.
  bool null() { return sink_ ? Told(sink_->OnOther("null")) : Scalar(nullptr); }
  bool boolean(bool value) {
    return sink_ ? Told(sink_->OnBool(value)) : Scalar(value);
  }
  bool number_integer(int64_t value) {
    return sink_ ? Told(sink_->OnInteger(value)) : Scalar(value);
  }
  bool number_unsigned(uint64_t value) {
    return sink_ ? Told(sink_->OnUnsigned(value)) : Scalar(value);
  }
  bool number_float(double value, const std::string&) {
    return sink_ ? Told(sink_->OnReal(value)) : Scalar(value);
  }
  bool string(std::string& value) {
    return sink_ ? Told(sink_->OnOther("a string")) : Scalar(std::move(value));
  }
  bool binary(Json::binary_t&) { return false; }  // never in text
  bool start_object(size_t) {
    if (sink_ == nullptr) return Open(Json::object());
    if (!Told(sink_->OnOther("an object"))) return false;
    status_ = InvalidArgument("an object stands where numbers should");
    return false;
  }
  bool end_object() { return Close(); }
  bool start_array(size_t) {
    if (sink_ != nullptr) return OpenInSink();
    if (!Open(Json::array())) return false;
    if (!pick_ || open_.size() < 2) return true;
    const Level& around = open_[open_.size() - 2];
    if (!around.value->is_object()) return true;
    StatusOr<JsonArraySink*> picked =
        pick_(root, *around.value, around.last_key());
    if (!picked.ok()) return Told(std::move(picked).status());
    sink_ = *picked;
    return sink_ == nullptr || OpenInSink();
  }
  bool end_array() {
    if (sink_ == nullptr) return Close();
    if (!Told(sink_->OnClose())) return false;
    if (--sink_depth_ > 0) return true;
    sink_ = nullptr;
    return Close();
  }

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
                                ReplaceInvalidUtf8(Shortened(name, 100)) +
                                "' appears twice in an object");
      return false;
    }
    level.next = &members[at].second;
    level.at = at;
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: …"
    std::string_view detail = error.what();
    if (const size_t end = detail.find("] "); end != detail.npos) {
      detail.remove_prefix(end + 2);
    }
    std::string shown = ReplaceInvalidUtf8(Shortened(detail, kMaxDetailBytes));
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
    size_t at = 0;         // of that key in an object
    std::unordered_map<std::string, size_t> index;  // keys of a large object

    std::string_view last_key() const {
      return static_cast<const Members&>(
                 value->get_ref<const Json::object_t&>())[at]
          .first;
    }
  };

  bool Told(Status status) {
    if (status.ok()) return true;
    status_ = std::move(status);
    return false;
  }

  bool OpenInSink() {
    if (++sink_depth_ > limits_.max_depth) return TooDeep();
    return Told(sink_->OnOpen());
  }

  bool TooDeep() {
    status_ = InvalidArgument("the JSON text nests deeper than " +
                              std::to_string(limits_.max_depth) +
                              " levels; flatten it");
    return false;
  }

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
      return TooDeep();
    }
    Json* placed = Place(std::move(value));
    if (placed == nullptr) return false;
    open_.push_back({placed, nullptr, 0, {}});
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  const JsonArrayPick& pick_;
  JsonArraySink* sink_ = nullptr;  // takes what comes, if there is one
  int sink_depth_ = 0;             // arrays open there
  std::vector<Level> open_;
  int64_t num_values_ = 0;
  Status status_;
};

}  // namespace

StatusOr<Json> ParseJson(std::string_view text, const JsonLimits& limits,
                         const JsonArrayPick& pick) {
  Builder builder(limits, pick);
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

Status FeedArray(const Json& array, JsonArraySink& sink) {
  RETURN_IF_ERROR(sink.OnOpen());
  for (const Json& item : array) {
    switch (item.type()) {
      case Json::value_t::array:
        RETURN_IF_ERROR(FeedArray(item, sink));
        break;
      case Json::value_t::boolean:
        RETURN_IF_ERROR(sink.OnBool(item.get<bool>()));
        break;
      case Json::value_t::number_integer:
        RETURN_IF_ERROR(sink.OnInteger(item.get<int64_t>()));
        break;
      case Json::value_t::number_unsigned:
        RETURN_IF_ERROR(sink.OnUnsigned(item.get<uint64_t>()));
        break;
      case Json::value_t::number_float:
        RETURN_IF_ERROR(sink.OnReal(item.get<double>()));
        break;
      default:
        RETURN_IF_ERROR(sink.OnOther(item.is_null()     ? "null"
                                     : item.is_string() ? "a string"
                                                        : "an object"));
    }
  }
  return sink.OnClose();
}

std::string DumpJson(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace millrace

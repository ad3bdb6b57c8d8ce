// A value of the template language: Python's values as templates see them.
// Values share what they hold and never change it; only namespaces change.
//
// Thread rule: values live within one rendering, on one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/text/jinja/text.h"

namespace millrace::models::jinja {

// Python's integers know no bound; ours end at 127 bits, and passing that is
// an error.
__extension__ typedef __int128 Integer;

class Dict;
class Value;
struct Builtin;
struct Loop;
struct Macro;
struct Namespace;

struct Sequence {
  std::vector<Value> items;
  std::string_view name;  // of a view: "dict_items"; of a group: "group"
  int depth = 1;          // of containers within containers
};

class Value {
 public:
  enum class Kind : uint8_t {
    kUndefined,
    kNone,
    kBool,
    kInt,
    kFloat,
    kString,
    kList,
    kTuple,
    kView,       // what dict.items() and its kin give: no index, no JSON
    kGenerator,  // what map and select give: no length, always true
    kDict,
    kNamespace,
    kLoop,
    kMacro,
    kFunction,
  };

  Value() = default;  // undefined
  // The message is what using it as anything but nothing would say.
  static Value Undefined(std::string message);
  static Value None() { return Value(Kind::kNone); }
  static Value Bool(bool value);
  static Value Int(Integer value);
  static Value Float(double value);
  static Value String(Text text);
  static Value String(std::string_view text, bool from_user = false) {
    return String(Text(std::string(text), from_user));
  }
  // kList, kTuple, kView or kGenerator.
  static Value Items(Kind kind, std::vector<Value> items,
                     std::string_view name = {});
  static Value FromDict(Dict dict);
  // A function, or a method with the object it belongs to.
  static Value Function(const Builtin* builtin, Value self);
  // Owned by the rendering, not by the value.
  static Value Of(Namespace* space);
  static Value Of(const Macro* macro);
  static Value Of(Loop* loop);

  Kind kind() const { return kind_; }
  bool Is(Kind kind) const { return kind_ == kind; }
  bool IsUndefined() const { return kind_ == Kind::kUndefined; }
  bool IsNone() const { return kind_ == Kind::kNone; }
  bool IsString() const { return kind_ == Kind::kString; }
  bool IsInteger() const {  // as Python counts: a bool is one
    return kind_ == Kind::kInt || kind_ == Kind::kBool;
  }
  bool IsNumber() const { return IsInteger() || kind_ == Kind::kFloat; }
  bool IsSequence() const {  // has items()
    return kind_ >= Kind::kList && kind_ <= Kind::kGenerator;
  }
  bool IsListOrTuple() const {
    return kind_ == Kind::kList || kind_ == Kind::kTuple;
  }
  bool IsDict() const { return kind_ == Kind::kDict; }

  // Each only for its kinds.
  Integer integer() const { return int_; }
  double number() const;  // any number, as a float
  const std::string& undefined_message() const;
  const Text& text() const;
  std::string_view str() const { return text().bytes(); }
  const Sequence& sequence() const;
  const std::vector<Value>& items() const { return sequence().items; }
  const Dict& dict() const;
  const Builtin* builtin() const;
  const Value& self() const;
  Namespace* space() const;
  const Macro* macro() const;
  Loop* loop() const;

  // Came out of the request as it is. Strings keep finer marks of their own.
  bool from_user() const { return from_user_; }
  Value FromUser() && {
    from_user_ = true;
    return std::move(*this);
  }

  // The text of a string; moved out when there is no other holder.
  Text TakeText() &&;
  // A generator gives its items once.
  std::vector<Value> TakeItems() const;

  bool Truth() const;
  int depth() const;  // 0: no container
  bool SameObject(const Value& other) const {
    return kind_ == other.kind_ && object_ == other.object_;
  }
  // "str", "dict", … as Python names the type.
  std::string_view TypeName() const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  template <typename T>
  static Value Holding(Kind kind, std::shared_ptr<T> object) {
    Value out(kind);
    out.object_ = std::move(object);
    return out;
  }
  template <typename T>
  T* As() const {
    return static_cast<T*>(object_.get());
  }

  Kind kind_ = Kind::kUndefined;
  bool from_user_ = false;
  double float_ = 0;
  Integer int_ = 0;  // of bools too
  std::shared_ptr<void> object_;
};

// Keeps the order of its keys. Keys are strings nearly always.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;
  const Value* Find(std::string_view key) const;
  const Value* Find(const Value& key) const;
  void Set(Value key, Value value);
  void Set(std::string_view key, Value value) {
    Set(Value::String(key), std::move(value));
  }
  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  int depth() const { return depth_; }
  // Whether a value may be a key.
  static bool Hashable(const Value& key);

 private:
  int64_t IndexOf(const Value& key) const;  // -1: none
  int64_t IndexOf(std::string_view key) const;

  std::vector<Entry> entries_;
  // Strings only, and only once there are many.
  std::unordered_map<std::string, size_t> index_;
  int depth_ = 1;
};

struct Namespace {
  Dict values;
};

std::string IntegerToString(Integer value);
// Digits only; none when one is no digit of the base or 127 bits are passed.
std::optional<Integer> IntegerFromString(std::string_view digits, int base);

}  // namespace millrace::models::jinja

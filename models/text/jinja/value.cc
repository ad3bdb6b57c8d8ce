// Values hold what they share behind one untyped pointer; the kind says what
// it points to. Namespaces, macros and loops belong to the rendering: values
// only point at them, so that no cycle can keep memory alive.
#include "models/text/jinja/value.h"

#include <algorithm>

namespace millrace::models::jinja {
namespace {

constexpr size_t kManyKeys = 16;

struct Bound {
  const Builtin* builtin;
  Value self;
};

// Points at an object without owning it.
template <typename T>
std::shared_ptr<T> Borrowed(T* object) {
  return std::shared_ptr<T>(std::shared_ptr<void>(), object);
}

}  // namespace

Value Value::Undefined(std::string message) {
  return Holding(Kind::kUndefined,
                 std::make_shared<std::string>(std::move(message)));
}

Value Value::Bool(bool value) {
  Value out(Kind::kBool);
  out.int_ = value ? 1 : 0;
  return out;
}

Value Value::Int(Integer value) {
  Value out(Kind::kInt);
  out.int_ = value;
  return out;
}

Value Value::Float(double value) {
  Value out(Kind::kFloat);
  out.float_ = value;
  return out;
}

Value Value::String(Text text) {
  return Holding(Kind::kString, std::make_shared<Text>(std::move(text)));
}

Value Value::Items(Kind kind, std::vector<Value> items, std::string_view name) {
  auto sequence = std::make_shared<Sequence>();
  for (const Value& item : items) {
    sequence->depth = std::max(sequence->depth, item.depth() + 1);
  }
  sequence->items = std::move(items);
  sequence->name = name;
  return Holding(kind, std::move(sequence));
}

Value Value::FromDict(Dict dict) {
  return Holding(Kind::kDict, std::make_shared<Dict>(std::move(dict)));
}

Value Value::Function(const Builtin* builtin, Value self) {
  return Holding(Kind::kFunction,
                 std::make_shared<Bound>(Bound{builtin, std::move(self)}));
}

Value Value::Of(Namespace* space) {
  return Holding(Kind::kNamespace, Borrowed(space));
}

Value Value::Of(const Macro* macro) {
  return Holding(Kind::kMacro, Borrowed(const_cast<Macro*>(macro)));
}

Value Value::Of(Loop* loop) { return Holding(Kind::kLoop, Borrowed(loop)); }

double Value::number() const {
  return kind_ == Kind::kFloat ? float_ : static_cast<double>(int_);
}

const std::string& Value::undefined_message() const {
  static const std::string kPlain = "the value is undefined";
  return object_ == nullptr ? kPlain : *As<std::string>();
}

const Text& Value::text() const { return *As<Text>(); }
const Sequence& Value::sequence() const { return *As<Sequence>(); }
const Dict& Value::dict() const { return *As<Dict>(); }
const Builtin* Value::builtin() const { return As<Bound>()->builtin; }
const Value& Value::self() const { return As<Bound>()->self; }
Namespace* Value::space() const { return As<Namespace>(); }
const Macro* Value::macro() const { return As<Macro>(); }
Loop* Value::loop() const { return As<Loop>(); }

Text Value::TakeText() && {
  if (object_.use_count() == 1) return std::move(*As<Text>());
  return text();
}

std::vector<Value> Value::TakeItems() const {
  if (kind_ != Kind::kGenerator) return items();
  return std::exchange(As<Sequence>()->items, {});
}

bool Value::Truth() const {
  switch (kind_) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return int_ != 0;
    case Kind::kFloat:
      return float_ != 0;
    case Kind::kString:
      return !text().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return !items().empty();
    case Kind::kDict:
      return dict().size() != 0;
    default:
      return true;
  }
}

int Value::depth() const {
  if (IsSequence()) return sequence().depth;
  if (kind_ == Kind::kDict) return dict().depth();
  if (kind_ == Kind::kFunction) return self().depth() + 1;
  return 0;
}

std::string_view Value::TypeName() const {
  switch (kind_) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kView:
      return sequence().name;
    case Kind::kGenerator:
      return "generator";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kMacro:
      return "Macro";
    case Kind::kFunction:
      return "function";
  }
  return "object";
}

bool Dict::Hashable(const Value& key) {
  if (key.Is(Value::Kind::kTuple)) {
    return std::all_of(key.items().begin(), key.items().end(), Hashable);
  }
  return !key.IsSequence() && !key.IsDict();
}

namespace {

// Equality of keys: numbers by value, whatever their kind.
bool SameKey(const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsInteger() && b.IsInteger()) return a.integer() == b.integer();
    return a.number() == b.number();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNone:
      return true;
    case Value::Kind::kString:
      return a.str() == b.str();
    case Value::Kind::kTuple:
      return std::equal(a.items().begin(), a.items().end(), b.items().begin(),
                        b.items().end(), SameKey);
    default:
      return a.SameObject(b);
  }
}

}  // namespace

int64_t Dict::IndexOf(std::string_view key) const {
  if (!index_.empty()) {
    const auto it = index_.find(std::string(key));
    return it == index_.end() ? -1 : static_cast<int64_t>(it->second);
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].first.IsString() && entries_[i].first.str() == key) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

int64_t Dict::IndexOf(const Value& key) const {
  if (key.IsString()) return IndexOf(key.str());
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (SameKey(entries_[i].first, key)) return static_cast<int64_t>(i);
  }
  return -1;
}

const Value* Dict::Find(std::string_view key) const {
  const int64_t i = IndexOf(key);
  return i < 0 ? nullptr : &entries_[static_cast<size_t>(i)].second;
}

const Value* Dict::Find(const Value& key) const {
  const int64_t i = IndexOf(key);
  return i < 0 ? nullptr : &entries_[static_cast<size_t>(i)].second;
}

void Dict::Set(Value key, Value value) {
  depth_ = std::max({depth_, key.depth() + 1, value.depth() + 1});
  const int64_t found = IndexOf(key);
  if (found >= 0) {
    entries_[static_cast<size_t>(found)].second = std::move(value);
    return;
  }
  if (key.IsString()) {
    if (entries_.size() >= kManyKeys && index_.empty()) {
      for (size_t i = 0; i < entries_.size(); ++i) {
        const Value& old = entries_[i].first;
        if (old.IsString()) index_.emplace(old.str(), i);
      }
    }
    if (entries_.size() >= kManyKeys)
      index_.emplace(key.str(), entries_.size());
  }
  entries_.emplace_back(std::move(key), std::move(value));
}

std::string IntegerToString(Integer value) {
  if (value == 0) return "0";
  std::string out;
  const bool negative = value < 0;
  for (; value != 0; value /= 10) {
    const int digit = static_cast<int>(value % 10);
    out.push_back(static_cast<char>('0' + (digit < 0 ? -digit : digit)));
  }
  if (negative) out.push_back('-');
  std::reverse(out.begin(), out.end());
  return out;
}

std::optional<Integer> IntegerFromString(std::string_view digits, int base) {
  if (digits.empty()) return {};
  Integer out = 0;
  for (const char c : digits) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 10
                      : c >= 'A' && c <= 'Z' ? c - 'A' + 10
                                             : 99;
    if (digit >= base || __builtin_mul_overflow(out, base, &out) ||
        __builtin_add_overflow(out, digit, &out)) {
      return {};
    }
  }
  return out;
}

}  // namespace millrace::models::jinja

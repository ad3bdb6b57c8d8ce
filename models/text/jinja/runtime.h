// What one rendering may use up, and the values that belong to it. Everything
// that makes a value or repeats work pays here, so that a template ends even
// when it is written to never end.
//
// One thread.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "models/text/chat_template.h"
#include "models/text/jinja/value.h"

namespace millrace::models::jinja {

class Runtime {
 public:
  Runtime(const ChatTemplate::Limits& limits, std::time_t now);
  ~Runtime();

  // INVALID_ARGUMENT when the limit is passed.
  Status Step(int64_t steps = 1);
  // Memory for values, never given back: below 0, as widths of texts may be,
  // counts as 0.
  Status Make(int64_t bytes);

  // Values that cost memory; these pay for it.
  StatusOr<Value> MakeString(Text text);
  StatusOr<Value> MakeString(std::string_view text, bool from_user = false) {
    return MakeString(Text(std::string(text), from_user));
  }
  StatusOr<Value> MakeItems(Value::Kind kind, std::vector<Value> items,
                            std::string_view name = {});
  StatusOr<Value> MakeDict(Dict dict);
  // Lives until the rendering ends.
  Namespace* NewNamespace();

  const ChatTemplate::Limits& limits() const { return limits_; }
  std::time_t now() const { return now_; }

  // Set once the template itself has raised: its words go out unchanged.
  bool raised = false;

 private:
  const ChatTemplate::Limits limits_;
  const std::time_t now_;
  int64_t steps_ = 0;
  int64_t bytes_ = 0;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
};

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// A filter (self is what stands before the bar), a test, a method (self is the
// object) or a global function (self is nothing).
struct Builtin {
  std::string_view name;
  StatusOr<Value> (*call)(Runtime& runtime, const Value& self,
                          const Args& args);
};

// Null when there is none of that name.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);
const Builtin* FindGlobal(std::string_view name);
const Builtin* FindMethod(Value::Kind kind, std::string_view name);

// Arguments matched to parameter names.
class Params {
 public:
  static StatusOr<Params> Bind(const Args& args,
                               std::initializer_list<std::string_view> names,
                               size_t num_required = 0);
  bool Has(size_t i) const { return values_[i] != nullptr; }
  const Value& operator[](size_t i) const { return *values_[i]; }
  // With a default, or an error that names the parameter.
  StatusOr<int64_t> Int(size_t i, int64_t otherwise) const;
  StatusOr<Text> String(size_t i, std::string_view otherwise) const;
  bool Flag(size_t i, bool otherwise) const {
    return Has(i) ? values_[i]->Truth() : otherwise;
  }

 private:
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;  // borrowed from the arguments
};

}  // namespace millrace::models::jinja

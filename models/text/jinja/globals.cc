// Functions that every template sees: those of Jinja, and those that
// transformers adds.
#include <time.h>

#include <string>

#include "models/text/jinja/builtins.h"
#include "models/text/jinja/interpreter.h"
#include "models/text/jinja/operators.h"
#include "models/text/jinja/print.h"

namespace millrace::models::jinja {
namespace {

using Kind = Value::Kind;
constexpr int64_t kMaxRange = 100000;  // the sandbox's own limit

StatusOr<Value> Range(Runtime& runtime, const Value&, const Args& args) {
  ASSIGN_OR_RETURN(const Params params,
                   Params::Bind(args, {"start", "stop", "step"}, 1));
  ASSIGN_OR_RETURN(int64_t begin, params.Int(0, 0));
  int64_t end = begin;
  if (params.Has(1)) {
    ASSIGN_OR_RETURN(end, params.Int(1, 0));
  } else {
    begin = 0;
  }
  ASSIGN_OR_RETURN(const int64_t step, params.Int(2, 1));
  if (step == 0) return InvalidArgument("arg 3 must not be zero");
  const int64_t distance = step > 0 ? end - begin : begin - end;
  const int64_t size = step > 0 ? step : -step;
  const int64_t count = distance <= 0 ? 0 : (distance + size - 1) / size;
  if (count > kMaxRange) {
    return InvalidArgument(
        "Range too big. The sandbox blocks ranges larger "
        "than MAX_RANGE (100000).");
  }
  RETURN_IF_ERROR(runtime.Step(count / 8));
  std::vector<Value> out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(Value::Int(begin + i * step));
  }
  return runtime.MakeItems(Kind::kList, std::move(out));
}

// dict(pairs or dict, **named), into `out`.
Status FillDict(Runtime& runtime, const Args& args, Dict& out) {
  if (args.positional.size() > 1) {
    return InvalidArgument("takes at most one value");
  }
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.IsDict()) {
      out = from.dict();
    } else {
      ASSIGN_OR_RETURN(const std::vector<Value> pairs, Iterate(runtime, from));
      for (const Value& pair : pairs) {
        ASSIGN_OR_RETURN(const std::vector<Value> two, Iterate(runtime, pair));
        if (two.size() != 2 || !Dict::Hashable(two[0])) {
          return InvalidArgument("needs pairs of a key and a value");
        }
        out.Set(two[0], two[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) out.Set(name, value);
  return OkStatus();
}

StatusOr<Value> DictFunction(Runtime& runtime, const Value&, const Args& args) {
  Dict out;
  RETURN_IF_ERROR(FillDict(runtime, args, out));
  return runtime.MakeDict(std::move(out));
}

StatusOr<Value> NamespaceFunction(Runtime& runtime, const Value&,
                                  const Args& args) {
  RETURN_IF_ERROR(runtime.Make(sizeof(Namespace)));
  Namespace* space = runtime.NewNamespace();
  RETURN_IF_ERROR(FillDict(runtime, args, space->values));
  return Value::Of(space);
}

// joiner(", ") gives nothing when first called and the separator from then on.
StatusOr<Value> JoinerCall(Runtime&, const Value& self, const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  Dict& values = self.space()->values;
  const bool used = values.Find("used") != nullptr;
  values.Set("used", Value::Bool(true));
  return used ? *values.Find("separator") : Value::String("");
}
constexpr Builtin kJoinerCall = {"joiner", JoinerCall};

StatusOr<Value> Joiner(Runtime& runtime, const Value&, const Args& args) {
  ASSIGN_OR_RETURN(const Params params, Params::Bind(args, {"sep"}));
  ASSIGN_OR_RETURN(Text separator, params.String(0, ", "));
  RETURN_IF_ERROR(runtime.Make(sizeof(Namespace)));
  Namespace* state = runtime.NewNamespace();
  state->values.Set("separator", Value::String(std::move(separator)));
  return Value::Function(&kJoinerCall, Value::Of(state));
}

// cycler(a, b): a namespace whose functions move it on.
void SetCurrent(Dict& values, Integer at) {
  values.Set("pos", Value::Int(at));
  values.Set("current", values.Find("items")->items()[static_cast<size_t>(at)]);
}

StatusOr<Value> CyclerNext(Runtime&, const Value& self, const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  Dict& values = self.space()->values;
  const auto size = static_cast<Integer>(values.Find("items")->items().size());
  Value out = *values.Find("current");
  SetCurrent(values, (values.Find("pos")->integer() + 1) % size);
  return out;
}
constexpr Builtin kCyclerNext = {"next", CyclerNext};

StatusOr<Value> CyclerReset(Runtime&, const Value& self, const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  SetCurrent(self.space()->values, 0);
  return Value::None();
}
constexpr Builtin kCyclerReset = {"reset", CyclerReset};

StatusOr<Value> Cycler(Runtime& runtime, const Value&, const Args& args) {
  if (args.positional.empty() || !args.named.empty()) {
    return InvalidArgument("at least one item has to be provided");
  }
  RETURN_IF_ERROR(runtime.Make(sizeof(Namespace)));
  Namespace* state = runtime.NewNamespace();
  ASSIGN_OR_RETURN(Value items,
                   runtime.MakeItems(Kind::kTuple, args.positional));
  state->values.Set("items", std::move(items));
  SetCurrent(state->values, 0);
  state->values.Set("next", Value::Function(&kCyclerNext, Value::Of(state)));
  state->values.Set("reset", Value::Function(&kCyclerReset, Value::Of(state)));
  return Value::Of(state);
}

StatusOr<Value> RaiseException(Runtime& runtime, const Value&,
                               const Args& args) {
  ASSIGN_OR_RETURN(const Params params, Params::Bind(args, {"message"}, 1));
  ASSIGN_OR_RETURN(const Text message, ToText(runtime, params[0]));
  runtime.raised = true;
  return InvalidArgument(message.bytes());
}

StatusOr<Value> StrftimeNow(Runtime& runtime, const Value&, const Args& args) {
  ASSIGN_OR_RETURN(const Params params, Params::Bind(args, {"format"}, 1));
  ASSIGN_OR_RETURN(const Text format, params.String(0, ""));
  if (format.size() > 1000) {
    return InvalidArgument("a time's format is longer than 1000 bytes");
  }
  // Python knows microseconds, C does not.
  std::string pattern;
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format.bytes()[i];
    if (c != '%' || i + 1 == format.size()) {
      pattern.push_back(c);
      if (c == '%') pattern.push_back(c);  // a lone one at the end
    } else if (format.bytes()[++i] == 'f') {
      pattern += "000000";
    } else {
      pattern += {c, format.bytes()[i]};
    }
  }
  const std::time_t now = runtime.now();
  struct tm local;
  if (localtime_r(&now, &local) == nullptr || pattern.empty()) {
    return Value::String("");
  }
  char written[4096];
  const size_t size =
      strftime(written, sizeof written, pattern.c_str(), &local);
  return runtime.MakeString(std::string_view(written, size),
                            format.AnyFromUser());
}

constexpr Builtin kGlobals[] = {
    {"range", Range},
    {"dict", DictFunction},
    {"namespace", NamespaceFunction},
    {"joiner", Joiner},
    {"cycler", Cycler},
    {"raise_exception", RaiseException},
    {"strftime_now", StrftimeNow},
};

// loop.cycle('odd', 'even') and loop.changed(value).
StatusOr<Value> LoopCycle(Runtime&, const Value& self, const Args& args) {
  if (args.positional.empty() || !args.named.empty()) {
    return InvalidArgument("no items for cycling given");
  }
  return args.positional[self.loop()->index % args.positional.size()];
}

StatusOr<Value> LoopChanged(Runtime& runtime, const Value& self,
                            const Args& args) {
  std::vector<Value>& last = self.loop()->changed;
  bool same = last.size() == args.positional.size() && !last.empty();
  for (size_t i = 0; same && i < last.size(); ++i) {
    ASSIGN_OR_RETURN(same, Equal(runtime, last[i], args.positional[i]));
  }
  last = args.positional;
  return Value::Bool(!same);
}

constexpr Builtin kLoopMethods[] = {
    {"cycle", LoopCycle},
    {"changed", LoopChanged},
};

}  // namespace

std::span<const Builtin> Globals() { return kGlobals; }
std::span<const Builtin> LoopMethods() { return kLoopMethods; }

}  // namespace millrace::models::jinja

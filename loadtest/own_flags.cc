#include "loadtest/own_flags.h"

#include <algorithm>
#include <utility>

#include "loadtest/option_values.h"
#include "loadtest/slo.h"

namespace millrace::loadtest {

StatusOr<OwnFlags> OwnFlags::Cut(const std::vector<std::string>& args,
                                 const std::vector<std::string_view>& names) {
  OwnFlags flags;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string_view arg = args[i];
    const size_t equals = arg.find('=');
    const std::string_view name =
        arg.starts_with("--") ? arg.substr(2, equals - 2) : "";
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      flags.rest_.push_back(args[i]);
      continue;
    }
    std::vector<std::string>& values = flags.values_[std::string(name)];
    if (equals != arg.npos) {
      values.emplace_back(arg.substr(equals + 1));
    } else if (i + 1 < args.size()) {
      values.push_back(args[++i]);
    } else {
      return InvalidArgument(args[i] + " needs a value after it");
    }
  }
  return flags;
}

bool OwnFlags::Has(std::string_view name) const {
  return values_.find(name) != values_.end();
}

std::string OwnFlags::Str(std::string_view name, std::string otherwise) const {
  const auto at = values_.find(name);
  return at != values_.end() ? at->second.back() : std::move(otherwise);
}

std::vector<std::string> OwnFlags::Many(std::string_view name) const {
  const auto at = values_.find(name);
  return at != values_.end() ? at->second : std::vector<std::string>();
}

StatusOr<int64_t> OwnFlags::Int(std::string_view name, int64_t otherwise,
                                int64_t least, int64_t most) const {
  if (!Has(name)) return otherwise;
  return ParseInt(name, Str(name), least, most);
}

StatusOr<double> OwnFlags::Real(std::string_view name, double otherwise,
                                double least, double most) const {
  if (!Has(name)) return otherwise;
  return ParseReal(name, Str(name), least, most);
}

StatusOr<std::chrono::nanoseconds> OwnFlags::Duration(
    std::string_view name, std::chrono::nanoseconds otherwise,
    bool zero) const {
  if (!Has(name)) return otherwise;
  const std::string flag = "--" + std::string(name);
  StatusOr<std::chrono::nanoseconds> value = ParseDuration(Str(name));
  if (!value.ok()) return std::move(value).status().Prefixed(flag);
  if (value->count() > 0 || zero) return value;
  return InvalidArgument(flag + " is 0; it must be longer");
}

bool OwnFlags::RestHas(std::string_view name,
                       std::string_view short_name) const {
  return std::any_of(rest_.begin(), rest_.end(), [&](std::string_view arg) {
    if (!arg.starts_with("--")) {
      return !short_name.empty() && arg.starts_with(short_name);
    }
    return arg.substr(2, arg.find('=') - 2) == name;
  });
}

}  // namespace millrace::loadtest

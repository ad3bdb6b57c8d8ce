// Splits the flags of a subcommand from those of a measurement.
//
//   ASSIGN_OR_RETURN(OwnFlags flags, OwnFlags::Cut(args, {"server",
//   "budget"})); flags.Str("server"); ParseOptions(flags.rest());
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::loadtest {

class OwnFlags {
 public:
  // `names` take a value each: --name VALUE or --name=VALUE. Everything else
  // is left in rest(). INVALID_ARGUMENT where a value is missing.
  static StatusOr<OwnFlags> Cut(const std::vector<std::string>& args,
                                const std::vector<std::string_view>& names);

  bool Has(std::string_view name) const;
  // The last value given.
  std::string Str(std::string_view name, std::string otherwise = "") const;
  std::vector<std::string> Many(std::string_view name) const;
  StatusOr<int64_t> Int(std::string_view name, int64_t otherwise, int64_t least,
                        int64_t most) const;
  StatusOr<double> Real(std::string_view name, double otherwise, double least,
                        double most) const;
  // Longer than 0 unless `zero`.
  StatusOr<std::chrono::nanoseconds> Duration(
      std::string_view name, std::chrono::nanoseconds otherwise,
      bool zero = false) const;

  const std::vector<std::string>& rest() const { return rest_; }
  // Is --name (or the short flag, as in "-n") among the rest, with its value
  // behind it or in the same word?
  bool RestHas(std::string_view name, std::string_view short_name = "") const;

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
  std::vector<std::string> rest_;
};

}  // namespace millrace::loadtest

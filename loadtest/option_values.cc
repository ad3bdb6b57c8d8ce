#include "loadtest/option_values.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

namespace millrace::loadtest {
namespace {

std::string Quoted(std::string_view flag, std::string_view text) {
  return "--" + std::string(flag) + " '" + std::string(text) + "'";
}

std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(',');
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// 12.0 as "12", 0.25 as "0.25".
std::string Short(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end.ptr);
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replace = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

StatusOr<int64_t> ParseInt(std::string_view flag, std::string_view text,
                           int64_t least, int64_t most) {
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() &&
      value >= least && value <= most) {
    return value;
  }
  return InvalidArgument(Quoted(flag, text) + " must be a whole number from " +
                         std::to_string(least) + " to " + std::to_string(most));
}

StatusOr<double> ParseReal(std::string_view flag, std::string_view text,
                           double least, double most) {
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() &&
      value >= least && value <= most) {
    return value;
  }
  return InvalidArgument(Quoted(flag, text) + " must be a number from " +
                         Short(least) + " to " + Short(most));
}

StatusOr<std::pair<std::string, std::string>> ParsePair(std::string_view flag,
                                                        std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == text.npos || colon == 0) {
    return InvalidArgument(Quoted(flag, text) + " must be name:value");
  }
  std::string_view value = text.substr(colon + 1);
  while (value.starts_with(' ')) value.remove_prefix(1);
  while (value.ends_with(' ')) value.remove_suffix(1);
  return std::pair(std::string(text.substr(0, colon)), std::string(value));
}

StatusOr<TokenCount> ParseTokenCount(std::string_view flag,
                                     std::string_view text) {
  TokenCount count;
  if (text.empty()) return count;
  const size_t colon = text.find(':');
  ASSIGN_OR_RETURN(count.mean,
                   ParseReal(flag, text.substr(0, colon), 1, 10'000'000));
  if (colon != text.npos) {
    ASSIGN_OR_RETURN(count.stddev,
                     ParseReal(flag, text.substr(colon + 1), 0, 10'000'000));
  }
  return count;
}

StatusOr<std::pair<std::string, std::vector<int64_t>>> ParseShape(
    std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) {
    return InvalidArgument(Quoted("shape", text) +
                           " must be name:sizes, as in input:1,3,224,224");
  }
  std::vector<int64_t> sizes;
  for (const std::string_view part : Split(text.substr(colon + 1))) {
    ASSIGN_OR_RETURN(const int64_t size,
                     ParseInt("shape", part, 0, int64_t{1} << 31));
    sizes.push_back(size);
  }
  return std::pair(std::string(text.substr(0, colon)), std::move(sizes));
}

StatusOr<Sweep> ParseSweep(std::string_view text) {
  Sweep sweep;
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  sweep.over_rate = name == "request-rate";
  if (equals == text.npos || (!sweep.over_rate && name != "concurrency")) {
    return InvalidArgument(Quoted("sweep", text) +
                           " must be concurrency=1,2,4 or "
                           "request-rate=5,10,20");
  }
  for (const std::string_view part : Split(text.substr(equals + 1))) {
    double value = 0;
    if (sweep.over_rate) {
      ASSIGN_OR_RETURN(value, ParseReal("sweep", part, 1e-4, 1e7));
    } else {
      ASSIGN_OR_RETURN(const int64_t whole, ParseInt("sweep", part, 1, 60'000));
      value = static_cast<double>(whole);
    }
    if (!sweep.values.empty() && value <= sweep.values.back()) {
      return InvalidArgument(Quoted("sweep", text) + " must rise; " +
                             Short(value) + " stands behind " +
                             Short(sweep.values.back()));
    }
    sweep.values.push_back(value);
  }
  return sweep;
}

StatusOr<std::vector<int>> ParseCpus(std::string_view text) {
  std::vector<int> cpus;
  if (text.empty()) return cpus;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  for (const std::string_view part : Split(text)) {
    ASSIGN_OR_RETURN(const int64_t cpu,
                     ParseInt("client-cpus", part, 0, CPU_SETSIZE - 1));
    if (!CPU_ISSET(static_cast<size_t>(cpu), &allowed)) {
      return InvalidArgument(Quoted("client-cpus", text) + " names CPU " +
                             std::to_string(cpu) +
                             ", which this process may not use");
    }
    cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

std::string Nearest(std::string_view word,
                    const std::vector<std::string>& known) {
  const auto nearest =
      std::min_element(known.begin(), known.end(),
                       [&](const std::string& a, const std::string& b) {
                         return EditDistance(word, a) < EditDistance(word, b);
                       });
  const bool is_near =
      nearest != known.end() &&
      EditDistance(word, *nearest) <= std::max<size_t>(1, word.size() / 3);
  return is_near ? *nearest : std::string();
}

}  // namespace millrace::loadtest

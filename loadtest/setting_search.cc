#include "loadtest/setting_search.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

namespace millrace::loadtest {
namespace {

constexpr double kGain = 1.02;

// A value of 0 often means "chosen by the server"; `place` says among which
// numbers such a base stands.
Setting Ladder(std::string name, std::vector<std::string> values,
               std::string base, double place) {
  Setting setting = {std::move(name), std::move(values)};
  const double number = SettingNumber(base).value_or(0);
  const double at = number == 0 ? place : number;
  auto& all = setting.values;
  const auto before =
      std::find_if(all.begin(), all.end(), [&](const std::string& value) {
        return SettingNumber(value).value_or(0) >= at;
      });
  setting.base = static_cast<size_t>(before - all.begin());
  if (before != all.end() && SettingNumber(*before) == at) {
    *before = std::move(base);
  } else {
    all.insert(before, std::move(base));
  }
  return setting;
}

std::vector<std::string> Powers(double least, double most, double factor = 2) {
  std::vector<std::string> values;
  for (double value = least; value <= most; value *= factor) {
    values.push_back(std::to_string(static_cast<int64_t>(value)));
  }
  return values;
}

}  // namespace

Choice SearchSettings(const std::vector<Setting>& settings,
                      std::optional<double> base_score,
                      const TryChoice& try_choice,
                      const std::function<bool()>& done) {
  Choice best;
  for (const Setting& setting : settings) best.push_back(setting.base);
  double best_score = base_score.value_or(0);
  std::map<Choice, bool> tried = {{best, true}};
  // Tries best with one value moved; true where that is better.
  const auto better = [&](size_t which, ptrdiff_t step) {
    Choice next = best;
    const ptrdiff_t to = static_cast<ptrdiff_t>(next[which]) + step;
    const auto count = static_cast<ptrdiff_t>(settings[which].values.size());
    if (to < 0 || to >= count || done()) return false;
    next[which] = static_cast<size_t>(to);
    if (!tried.emplace(next, true).second) return false;
    const std::optional<double> score = try_choice(next, best_score);
    if (!score || *score <= best_score * kGain) return false;
    best_score = *score;
    best = std::move(next);
    return true;
  };
  for (const ptrdiff_t stride : {2, 1}) {
    bool moved = true;
    while (moved && !done()) {
      moved = false;
      for (size_t which = 0; which < settings.size(); ++which) {
        for (const ptrdiff_t step : {stride, -stride}) {
          bool went = false;
          while (better(which, step)) went = true;
          moved |= went;
          if (went) break;
        }
      }
    }
  }
  return best;
}

std::optional<double> SettingNumber(std::string_view text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},         {"KiB", 1024.0}, {"MiB", 1048576.0},
      {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"ns", 1e-9},
      {"us", 1e-6},    {"ms", 1e-3},    {"s", 1}};
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (end == copy.c_str()) return std::nullopt;
  for (const auto& [name, factor] : kUnits) {
    if (name == end) return value * factor;
  }
  return std::nullopt;
}

std::optional<std::string> SettingOf(std::string_view config,
                                     std::string_view name) {
  const std::string head = std::string(name) + ": ";
  while (!config.empty()) {
    const size_t end = std::min(config.find('\n'), config.size());
    std::string_view line = config.substr(0, end);
    config.remove_prefix(std::min(end + 1, config.size()));
    if (!line.starts_with(head)) continue;
    line.remove_prefix(head.size());
    line = line.substr(0, line.find("  "));
    if (line.size() >= 2 && line.front() == '"' && line.back() == '"') {
      line = line.substr(1, line.size() - 2);
    }
    return std::string(line);
  }
  return std::nullopt;
}

std::vector<Setting> UsualSettings(bool graph, std::string_view config,
                                   const MachineSize& machine) {
  std::vector<Setting> settings;
  // Adds nothing where the server knows no such setting.
  const auto add = [&](const char* name, std::vector<std::string> values,
                       double place) {
    const std::optional<std::string> base = SettingOf(config, name);
    if (!base) return;
    Setting setting = Ladder(name, std::move(values), *base, place);
    if (setting.values.size() > 1) settings.push_back(std::move(setting));
  };
  const double cpus = machine.num_cpus;
  if (graph) {
    add("instance_count", Powers(1, cpus), 0);
    add("max_batch_size", Powers(1, 128), 32);
    add("max_queue_delay", {"0s", "200us", "1ms", "5ms"}, 0);
  } else {
    add("max_num_batched_tokens", Powers(64, 4096), 512);
    add("max_num_seqs", Powers(4, 512), 64);
    std::vector<std::string> pools;
    for (int64_t mib = 256; mib * 1048576.0 < machine.memory_bytes / 4;
         mib *= 2) {
      pools.push_back(std::to_string(mib) + "MiB");
    }
    // The server's own choice is at most a quarter of the memory.
    add("kv_cache_memory_bytes", std::move(pools), machine.memory_bytes / 4);
  }
  add("threads", Powers(1, cpus), cpus);
  return settings;
}

StatusOr<Setting> ParseTry(const std::string& text, std::string_view config) {
  const size_t equals = text.find('=');
  Setting setting;
  setting.name = text.substr(0, equals);
  std::replace(setting.name.begin(), setting.name.end(), '-', '_');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return InvalidArgument("--try '" + text +
                           "' must be SETTING=VALUE,VALUE, as in "
                           "max_num_seqs=16,64,256");
  }
  const std::optional<std::string> base = SettingOf(config, setting.name);
  if (!base) {
    return InvalidArgument("--try names '" + setting.name +
                           "', which is no setting of the server; millrace "
                           "serve --help-all lists them");
  }
  std::string_view rest = std::string_view(text).substr(equals + 1);
  while (true) {
    const size_t comma = rest.find(',');
    setting.values.emplace_back(rest.substr(0, comma));
    if (comma == rest.npos) break;
    rest.remove_prefix(comma + 1);
  }
  const auto at = std::find_if(
      setting.values.begin(), setting.values.end(),
      [&](const std::string& value) {
        return value == *base || (SettingNumber(value).has_value() &&
                                  SettingNumber(value) == SettingNumber(*base));
      });
  if (at == setting.values.end()) {
    setting.values.insert(setting.values.begin(), *base);
  } else {
    setting.base = static_cast<size_t>(at - setting.values.begin());
  }
  return setting;
}

}  // namespace millrace::loadtest

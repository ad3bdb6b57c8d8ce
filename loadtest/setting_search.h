// Searches the settings of a server one after another (coordinate search):
// first in steps of two values, then of one. A change is kept when it raises
// the score by more than 2 %, and the search goes on in its direction.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::loadtest {

struct Setting {
  std::string name;                 // "max_num_seqs"
  std::vector<std::string> values;  // rising
  size_t base = 0;                  // of the configuration given
};

// For each setting the index of a value.
using Choice = std::vector<size_t>;

// What one candidate reached; nothing: it failed or met no objective.
using TryChoice = std::function<std::optional<double>(const Choice& choice,
                                                      double best_score)>;

// The best choice found. `base_score` is that of the choice of all bases;
// nothing where the base meets no objective. `done` ends the search.
Choice SearchSettings(const std::vector<Setting>& settings,
                      std::optional<double> base_score,
                      const TryChoice& try_choice,
                      const std::function<bool()>& done);

// What a setting says as a number: "64", "1GiB" in bytes, "5ms" in seconds;
// nothing for words.
std::optional<double> SettingNumber(std::string_view text);

// The value of `name` in the output of millrace serve --print-config.
std::optional<std::string> SettingOf(std::string_view config,
                                     std::string_view name);

struct MachineSize {
  int num_cpus = 1;
  double memory_bytes = 0;
};

// The settings worth a search, with the values in `config` (the output of
// --print-config) as bases: of graphs, or of language models.
std::vector<Setting> UsualSettings(bool graph, std::string_view config,
                                   const MachineSize& machine);

// "max_num_seqs=16,64,256". The base, where it is not among the values, stands
// first. INVALID_ARGUMENT where the configuration has no such setting.
StatusOr<Setting> ParseTry(const std::string& text, std::string_view config);

}  // namespace millrace::loadtest

// Settings that were given and change nothing, and why.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/load.h"

namespace millrace::config {

// What the configuration cannot know by itself.
struct EffectFacts {
  std::vector<bool> is_graph;  // of each model of the settings; else text
  int64_t num_cores = 0;       // physical cores that may compute; 0: unknown
};

// One sentence each: "precision has no effect: …". Defaults are never warned
// of. The models of a repository are not known yet, so that settings of any
// kind of model may have an effect on them.
std::vector<std::string> SettingsWithoutEffect(const Loaded& loaded,
                                               const EffectFacts& facts);

}  // namespace millrace::config

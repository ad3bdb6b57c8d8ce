// An adapter of random numbers for a tiny model in a folder: q, k, v and o
// projections of all layers, in PEFT's files.
#pragma once

#include <string>

namespace millrace::models {

inline constexpr int kRandomAdapterRank = 3;
inline constexpr float kRandomAdapterScale = 2;

// `base` is a folder of Hugging Face whose config.json has head_dim. Gives the
// adapter's folder; the caller removes it.
std::string RandomAdapter(const std::string& base);

}  // namespace millrace::models

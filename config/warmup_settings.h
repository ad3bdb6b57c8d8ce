// What a model computes before it is ready: Triton's model_warmup, which
// config.pbtxt and config.yaml have alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::config {

// One input of a sample. Of one row where the sample has rows.
struct WarmupInput {
  enum class Data { kZero, kRandom, kFile };
  std::string name;
  std::string datatype;  // "FP32"
  std::vector<int64_t> dims;
  Data data = Data::kZero;
  std::string file = {};  // kFile: in the folder of the settings
};

// A request that is made up.
struct WarmupSample {
  std::string name;
  int64_t rows = 0;   // 0: the inputs have no dimension of the batch
  int64_t count = 1;  // how often each instance computes it
  std::vector<WarmupInput> inputs;
};

struct WarmupSettings {
  static constexpr int64_t kMostRuns = 100'000;  // of all samples together

  std::string folder = {};  // where files of inputs are
  std::vector<WarmupSample> samples;
};

}  // namespace millrace::config

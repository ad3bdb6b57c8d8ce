// A streaming speech recogniser made of three graphs (an RNN-T), as the
// config.yaml of its encoder declares it:
//
//   default_model_filename: encoder.pt2
//   task: transcribe            # task_options: labels, blank, beam_width, mel
//   transducer:
//     predictor: predictor.pt2  # beside the encoder
//     joiner: joiner.pt2
//     segment_length: 16        # mel frames that the encoder takes at a time
//     right_context_length: 4   # and those behind them that it looks at
//     feature_stats: global_stats.json   # {"mean": [...], "invstddev": [...]}
//     max_symbols: 10           # tokens of one encoded frame
#pragma once

#include <cstdint>
#include <string>

#include "config/base/status.h"

namespace YAML {
class Node;
}

namespace millrace::config {

struct TransducerSettings {
  static constexpr int64_t kMaxFrames = 1024;
  static constexpr int64_t kMaxSymbols = 100;

  std::string predictor = "predictor.pt2";
  std::string joiner = "joiner.pt2";
  int64_t segment_length = 16;       // mel frames
  int64_t right_context_length = 4;  // mel frames
  std::string feature_stats = {};    // empty: features stay as they are
  int64_t max_symbols = 10;
};

// The value of the key `transducer` in config.yaml. May throw what yaml-cpp
// throws for values of another kind. INVALID_ARGUMENT says what is wrong.
StatusOr<TransducerSettings> ReadTransducer(const YAML::Node& node);

// "predictor.pt2, joiner.pt2, segment_length 16, …": for metadata.
std::string TransducerText(const TransducerSettings& settings);

}  // namespace millrace::config

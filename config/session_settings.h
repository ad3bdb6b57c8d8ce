// What sessions of a model (WebSockets, server/README.md) do with binary
// messages where the client does not say:
//
//   session:
//     input: input          # takes their values
//     encoding: pcm16       # raw (default) or pcm16: 16-bit samples
//     context: 64           # values of the message before that come first
//     sample_rate: 16000    # values a second: the real-time factor is told
//
// A parameter of config.pbtxt has the same as
// "input=input,encoding=pcm16,context=64,sample_rate=16000".
#pragma once

#include <cstdint>
#include <string>

#include "config/base/status.h"

namespace YAML {
class Node;
}

namespace millrace::config {

struct SessionSettings {
  static constexpr int64_t kMaxSampleRate = 1'000'000;
  static constexpr int64_t kMaxContext = 16'384;

  std::string input = {};   // empty: the only one that is left
  bool pcm16 = false;       // else the bytes are the input's own
  int64_t context = 0;      // values; zeros before the first message
  int64_t sample_rate = 0;  // Hz; 0: not told
  // The model takes no other rate. Of the model, not of its config.yaml.
  bool only_rate = false;
};

// INVALID_ARGUMENT unless "raw" or "pcm16".
StatusOr<bool> IsPcm16(const std::string& encoding);

// The value of the key `session` in config.yaml. May throw what yaml-cpp throws
// for values of another kind. INVALID_ARGUMENT says what is wrong; the same of
// text.
StatusOr<SessionSettings> ReadSession(const YAML::Node& node);
StatusOr<SessionSettings> ParseSession(const std::string& text);

// What ParseSession reads again.
std::string SessionText(const SessionSettings& settings);

}  // namespace millrace::config

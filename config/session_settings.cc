// The key `session` of config.yaml.
#include "config/session_settings.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>

#include "config/base/utf8.h"
#include "config/values.h"

namespace millrace::config {
namespace {

// Takes one key after the other.
class Reader {
 public:
  Status Set(const std::string& key, const std::string& value) {
    if (!seen_.insert(key).second)
      return WrongSetting("session", key + " is given twice");
    if (key == "input") {
      settings_.input = value;
      return OkStatus();
    }
    if (key == "encoding") {
      const StatusOr<bool> pcm16 = IsPcm16(value);
      if (!pcm16.ok())
        return WrongSetting("session", std::string(pcm16.status().message()));
      settings_.pcm16 = *pcm16;
      return OkStatus();
    }
    if (key == "context") {
      return ParseValue(
          {.name = key, .min = 0, .max = SessionSettings::kMaxContext}, value,
          {}, &settings_.context);
    }
    if (key == "sample_rate") {
      return ParseValue(
          {.name = key, .min = 1, .max = SessionSettings::kMaxSampleRate},
          value, {}, &settings_.sample_rate);
    }
    return WrongSetting(
        "session", "unknown key '" + Shortened(key, 100) +
                       "'; it has input, encoding, context and sample_rate");
  }
  const SessionSettings& settings() const { return settings_; }

 private:
  SessionSettings settings_;
  std::set<std::string> seen_;
};

}  // namespace

StatusOr<bool> IsPcm16(const std::string& encoding) {
  if (encoding == "pcm16") return true;
  if (encoding == "raw") return false;
  return InvalidArgument("encoding is '" + Shortened(encoding, 60) +
                         "' but must be raw or pcm16")
      .At("encoding");
}

StatusOr<SessionSettings> ReadSession(const YAML::Node& node) {
  if (!node.IsMap())
    return WrongSetting("session", "it wants lines such as 'encoding: pcm16'");
  Reader reader;
  for (const auto& entry : node) {
    const std::string key = entry.first.as<std::string>();
    if (!entry.second.IsScalar())
      return WrongSetting("session", key + " wants a single value");
    RETURN_IF_ERROR(reader.Set(key, entry.second.Scalar()));
  }
  return reader.settings();
}

StatusOr<SessionSettings> ParseSession(const std::string& text) {
  Reader reader;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const size_t equals = part.find('=');
    if (equals == std::string::npos) {
      return WrongSetting("session",
                          "'" + Shortened(part, 100) +
                              "' is no key=value; write "
                              "\"input=NAME,encoding=pcm16,context=64\"");
    }
    RETURN_IF_ERROR(
        reader.Set(part.substr(0, equals), part.substr(equals + 1)));
    begin = end + 1;
  }
  return reader.settings();
}

std::string SessionText(const SessionSettings& settings) {
  std::string text =
      settings.input.empty() ? "" : "input=" + settings.input + ",";
  text += settings.pcm16 ? "encoding=pcm16" : "encoding=raw";
  if (settings.context > 0) {
    text += ",context=" + std::to_string(settings.context);
  }
  if (settings.sample_rate > 0) {
    text += ",sample_rate=" + std::to_string(settings.sample_rate);
  }
  return text;
}

}  // namespace millrace::config

// The key `session` of config.yaml.
#include "config/session_settings.h"

#include <yaml-cpp/yaml.h>

#include <set>

#include "config/values.h"

namespace millrace::config {
namespace {

Status Wrong(const std::string& message) {
  return InvalidArgument("session: " + message).At("session");
}

}  // namespace

StatusOr<bool> IsPcm16(const std::string& encoding) {
  if (encoding == "pcm16") return true;
  if (encoding == "raw") return false;
  return InvalidArgument("encoding is '" + encoding.substr(0, 60) +
                         "' but must be raw or pcm16")
      .At("encoding");
}

StatusOr<SessionSettings> ReadSession(const YAML::Node& node) {
  if (!node.IsMap()) return Wrong("it wants lines such as 'encoding: pcm16'");
  SessionSettings settings;
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const std::string key = entry.first.as<std::string>();
    if (!seen.insert(key).second) return Wrong(key + " is given twice");
    if (!entry.second.IsScalar()) return Wrong(key + " wants a single value");
    const std::string& value = entry.second.Scalar();
    if (key == "input") {
      settings.input = value;
    } else if (key == "encoding") {
      const StatusOr<bool> pcm16 = IsPcm16(value);
      if (!pcm16.ok()) return Wrong(std::string(pcm16.status().message()));
      settings.pcm16 = *pcm16;
    } else if (key == "context") {
      RETURN_IF_ERROR(ParseValue(
          {.name = key, .min = 0, .max = SessionSettings::kMaxContext}, value,
          {}, &settings.context));
    } else if (key == "sample_rate") {
      RETURN_IF_ERROR(ParseValue(
          {.name = key, .min = 1, .max = SessionSettings::kMaxSampleRate},
          value, {}, &settings.sample_rate));
    } else {
      return Wrong("unknown key '" + key.substr(0, 100) +
                   "'; it has input, encoding, context and sample_rate");
    }
  }
  return settings;
}

std::string SessionText(const SessionSettings& settings) {
  std::string text =
      settings.input.empty() ? "" : "input " + settings.input + ", ";
  text += settings.pcm16 ? "encoding pcm16" : "encoding raw";
  if (settings.context > 0) {
    text += ", context " + std::to_string(settings.context);
  }
  if (settings.sample_rate > 0) {
    text += ", sample_rate " + std::to_string(settings.sample_rate);
  }
  return text;
}

}  // namespace millrace::config

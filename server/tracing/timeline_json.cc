// Written piece by piece: a capture may have half a million slices, of which a
// JSON tree would take ten times the text's memory.
#include "server/tracing/timeline_json.h"

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/base/json.h"

namespace millrace::server {
namespace {

std::string Quoted(std::string_view text) {
  return DumpJson(nlohmann::ordered_json(std::string(text)));
}

std::string Micros(Clock::Duration time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f",
                std::chrono::duration<double, std::micro>(time).count());
  return text;
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

void AppendArgs(const TimelineSlice& slice, std::string& out) {
  out += ",\"args\":{";
  bool first = true;
  if (!slice.label.empty()) {
    out += "\"what\":" + Quoted(slice.label);
    first = false;
  }
  for (const auto& [name, value] : slice.numbers) {
    if (name == nullptr) continue;
    if (!first) out += ',';
    first = false;
    out.append("\"").append(name).append("\":").append(Number(value));
  }
  out += "}}";
}

}  // namespace

std::string TimelineJson(const TimelineCapture& capture,
                         const std::vector<std::string>& words) {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  std::map<std::string, int> processes;
  std::vector<std::string> where;  // of each track
  const char* comma = "\n";
  const auto metadata = [&](const char* name, const std::string& at,
                            const std::string& value) {
    out.append(comma).append("{\"ph\":\"M\",\"name\":\"").append(name);
    out.append("\"").append(at).append(",\"args\":{\"name\":");
    out.append(Quoted(value)).append("}}");
    comma = ",\n";
  };
  for (size_t i = 0; i < capture.tracks.size(); ++i) {
    const TimelineTrack& track = capture.tracks[i];
    const auto [process, is_new] = processes.emplace(
        track.process, static_cast<int>(processes.size()) + 1);
    const std::string pid = ",\"pid\":" + std::to_string(process->second);
    where.push_back(pid + ",\"tid\":" + std::to_string(i + 1));
    if (is_new) metadata("process_name", pid, track.process);
    metadata("thread_name", where.back(), track.thread);
  }
  for (const TimelineSlice& slice : capture.slices) {
    const std::string& at = where[static_cast<size_t>(slice.track)];
    // Operators are best known by their own words.
    const std::string name = Quoted(
        slice.name == "operator" ? std::string_view(slice.label) : slice.name);
    const std::string begin = Micros(slice.begin - capture.begin);
    out.append(comma).append("{\"name\":").append(name).append(at);
    comma = ",\n";
    if (slice.id == 0) {
      out.append(",\"ph\":\"X\",\"ts\":").append(begin).append(",\"dur\":");
      out.append(Micros(slice.end - slice.begin));
      AppendArgs(slice, out);
      continue;
    }
    const std::string id =
        ",\"cat\":\"request\",\"id\":" + std::to_string(slice.id);
    out.append(id).append(",\"ph\":\"b\",\"ts\":").append(begin);
    AppendArgs(slice, out);
    out.append(",\n{\"name\":").append(name).append(at).append(id);
    out.append(",\"ph\":\"e\",\"ts\":");
    out.append(Micros(slice.end - capture.begin)).append("}");
  }
  out += "\n],\"otherData\":{\"breakdown\":";
  out += DumpJson(nlohmann::ordered_json(words));
  out += ",\"slices_dropped\":" + std::to_string(capture.num_dropped) + "}}\n";
  return out;
}

}  // namespace millrace::server

#include "server/torchserve/metrics_text.h"

#include <algorithm>

namespace millrace::server::torchserve {
namespace {

bool IsComment(std::string_view line) { return line.starts_with('#'); }

// "# TYPE name counter", "name{a=\"b\"} 1" or "name 1".
std::string_view NameOf(std::string_view line) {
  if (IsComment(line)) {
    line.remove_prefix(std::min(line.find(' ', 2), line.size()));
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  }
  return line.substr(0, line.find_first_of("{ "));
}

// Their order there. Other labels stand before them, as they came.
constexpr std::string_view kLabels[] = {
    "ModelName", "WorkerName", "model_name", "model_version",
    "Level",     "Hostname",   "hostname"};

size_t RankOf(std::string_view label) {
  const auto at = std::find(std::begin(kLabels), std::end(kLabels),
                            label.substr(0, label.find('=')));
  return at == std::end(kLabels)
             ? 0
             : static_cast<size_t>(at - std::begin(kLabels)) + 1;
}

// a="b",c="d": each pair by itself. A quote may be escaped.
std::vector<std::string_view> LabelsOf(std::string_view text) {
  std::vector<std::string_view> labels;
  bool is_quoted = false;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_quoted && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      is_quoted = !is_quoted;
    } else if (!is_quoted && text[i] == ',') {
      labels.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  if (begin < text.size()) labels.push_back(text.substr(begin));
  std::stable_sort(labels.begin(), labels.end(),
                   [](std::string_view a, std::string_view b) {
                     return RankOf(a) < RankOf(b);
                   });
  return labels;
}

bool IsWhole(std::string_view number) {
  if (number.starts_with('-')) number.remove_prefix(1);
  return !number.empty() &&
         std::all_of(number.begin(), number.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

void AppendSample(std::string_view line, std::string& to) {
  // Values hold no brackets, and labels stand before them.
  const size_t brace = line.rfind('}');
  std::string_view value = line;
  if (brace != std::string_view::npos) {
    const size_t open = line.find('{');
    to.append(line.substr(0, open + 1));
    for (const std::string_view each :
         LabelsOf(line.substr(open + 1, brace - open - 1))) {
      to.append(each).append(",");
    }
    to.append("} ");
    value = line.substr(std::min(brace + 2, line.size()));
  } else {
    const size_t space = std::min(line.find(' '), line.size());
    to.append(line.substr(0, space)).append(" ");
    value = line.substr(std::min(space + 1, line.size()));
  }
  const size_t end = std::min(value.find(' '), value.size());  // a timestamp
  to.append(value.substr(0, end));
  if (IsWhole(value.substr(0, end))) to.append(".0");
  to.append(value.substr(end));
}

}  // namespace

std::string MetricsText(std::string_view text,
                        const std::vector<std::string>& names) {
  const auto is_wanted = [&](std::string_view name) {
    return names.empty() ||
           std::find(names.begin(), names.end(), name) != names.end();
  };
  std::string out;
  out.reserve(text.size() + text.size() / 16);
  bool family_wanted = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const std::string_view name = NameOf(line);
    if (IsComment(line)) family_wanted = is_wanted(name);
    if (!family_wanted && !is_wanted(name)) continue;
    if (IsComment(line)) {
      out.append(line);
    } else {
      AppendSample(line, out);
    }
    out += '\n';
  }
  return out;
}

}  // namespace millrace::server::torchserve

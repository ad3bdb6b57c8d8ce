#include "handlers/tasks/blank.h"

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "config/base/utf8.h"

namespace millrace::handlers {
namespace {

constexpr std::string_view kBlanks[] = {"<blank>", "<blk>", "<pad>", "[PAD]"};

// The number of a label's name, or the number that the text is; -1 is the last.
std::optional<int64_t> LabelNumber(const Labels& labels,
                                   const std::string& text,
                                   int64_t num_labels) {
  for (int64_t i = 0; i < labels.size(); ++i) {
    if (labels.NameOf(i) == text) return i;
  }
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  if (number < 0) number += num_labels;
  if (number < 0 || number >= num_labels) return std::nullopt;
  return number;
}

}  // namespace

StatusOr<int64_t> FindBlank(const TaskParts& parts, const Labels& labels,
                            const models::TensorSpec& scores,
                            int64_t* num_labels) {
  if (labels.size() == 0) {
    return InvalidArgument(
               "labels is missing; task 'transcribe' needs the file with the "
               "texts of its labels")
        .At("task_options.labels");
  }
  const bool without_blank = *num_labels == labels.size() + 1;
  if (*num_labels < 0) *num_labels = labels.size();
  if (!without_blank && *num_labels != labels.size()) {
    return InvalidArgument("labels has " + std::to_string(labels.size()) +
                           " names but '" + scores.name + "' is " + scores.text)
        .At("task_options.labels");
  }
  const std::string& blank = parts.answer.transcript.blank;
  if (!blank.empty()) {
    const auto number = LabelNumber(labels, blank, *num_labels);
    if (number.has_value()) return *number;
    return InvalidArgument("blank is '" + Shortened(blank, 100) +
                           "' but must be one of the " +
                           std::to_string(*num_labels) +
                           " labels or a number below that")
        .At("task_options.blank");
  }
  if (without_blank) return labels.size();
  for (const std::string_view name : kBlanks) {
    const auto number = LabelNumber(labels, std::string(name), *num_labels);
    if (number.has_value()) return *number;
  }
  return 0;
}

}  // namespace millrace::handlers

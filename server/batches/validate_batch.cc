#include "server/batches/validate_batch.h"

#include <optional>
#include <unordered_set>
#include <utility>

#include "config/base/utf8.h"
#include "server/batches/batch_line.h"

namespace millrace::server {
namespace {

constexpr size_t kMostErrors = 100;

}  // namespace

BatchCheck ValidateBatch(std::string_view input, std::string_view endpoint,
                         int64_t most_lines) {
  BatchCheck check;
  std::unordered_set<std::string> seen;
  std::optional<std::string> model;
  const auto complain = [&check](BatchError error) -> Status {
    check.errors.push_back(std::move(error));
    // Any failure ends the walk.
    return check.errors.size() < kMostErrors ? OkStatus() : Cancelled("enough");
  };
  const Status walked =
      ForEachLine(input, [&](std::string_view text, int64_t number) -> Status {
        if (++check.total > most_lines) {
          static_cast<void>(complain(
              {.code = "too_many_tasks",
               .message = "The batch has more than " +
                          std::to_string(most_lines) +
                          " requests, which is the limit; make several "
                          "batches of it.",
               .line = number}));
          return Cancelled("enough");
        }
        StatusOr<BatchLine> line = ReadBatchLine(text, endpoint);
        if (!line.ok()) {
          return complain({.code = std::string(line.status().reason()),
                           .message = std::string(line.status().message()),
                           .param = std::string(line.status().field()),
                           .line = number});
        }
        if (!seen.insert(line->custom_id).second) {
          return complain(
              {.code = "duplicate_custom_id",
               .message = "The custom_id for this request is a duplicate of "
                          "another request. The custom_id parameter must be "
                          "unique for each request in a batch.",
               .param = "custom_id",
               .line = number});
        }
        if (!model) model = line->model;
        if (*model != line->model) {
          return complain(
              {.code = "mismatched_model",
               .message = "The model of this request, '" +
                          Shortened(line->model, 100) +
                          "', is not that of the first one, '" +
                          Shortened(*model, 100) +
                          "'. All requests of a batch must be for one model.",
               .param = "body.model",
               .line = number});
        }
        return OkStatus();
      });
  static_cast<void>(walked);  // its errors stand in the list
  if (check.total == 0) {
    check.errors.push_back(
        {.code = "empty_file",
         .message = "The input file is empty. Please ensure that the batch "
                    "contains at least one request."});
  }
  check.model = model.value_or("");
  return check;
}

}  // namespace millrace::server

#include "handlers/task.h"

#include <utility>

namespace millrace::handlers {

std::string TaskBody(TaskResponse response) {
  if (response.results.size() == 1) return std::move(response.results.front());
  std::string body = "[";
  for (const std::string& result : response.results) {
    if (body.size() > 1) body += ",";
    body += result;
  }
  return body + "]";
}

}  // namespace millrace::handlers

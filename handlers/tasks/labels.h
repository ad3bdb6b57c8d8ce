// Names of classes, from the file that `labels` names:
//
//   {"0": "cat", "1": ["n02123045", "tabby"]}    index_to_name.json
//   {"cat": 0, "tabby": 1}                       vocab.json
//   ["cat", "dog"]                               a JSON list
//   cat                                          one name a line
//
// Immutable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "handlers/make_task.h"

namespace millrace::handlers {

class Labels {
 public:
  // None where the setting is empty.
  static StatusOr<Labels> Load(const TaskParts& parts);
  // `where` begins errors.
  static StatusOr<Labels> Parse(const std::string& text,
                                const std::string& where);

  // The class's number where it has no name.
  std::string NameOf(int64_t class_idx) const;
  int64_t size() const { return static_cast<int64_t>(names_.size()); }

 private:
  std::vector<std::string> names_;  // empty: no name
};

}  // namespace millrace::handlers

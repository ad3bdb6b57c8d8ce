// What a model with a task takes in place of its graph's tensors: BYTES, of
// texts, pictures or recordings. Ensembles check their steps against it.
#pragma once

#include <vector>

#include "handlers/handler.h"

namespace millrace::handlers {

// One way to ask: these inputs, all of them. An empty name stands for any.
struct TaskForm {
  std::vector<models::TensorSpec> inputs;
  std::vector<models::TensorSpec> outputs;
};

// A tensor handler that takes them.
class HasTaskForms {
 public:
  virtual ~HasTaskForms() = default;
  virtual std::vector<TaskForm> task_forms() const = 0;
};

// Empty: it takes its tensors alone.
inline std::vector<TaskForm> TaskFormsOf(const TensorHandler& handler) {
  const auto* has_forms = dynamic_cast<const HasTaskForms*>(&handler);
  return has_forms == nullptr ? std::vector<TaskForm>()
                              : has_forms->task_forms();
}

}  // namespace millrace::handlers

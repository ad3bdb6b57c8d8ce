// The description of a task's answer settings, as settings_visitor.h has those
// of its input. Private to config.
#pragma once

#include "config/answer_settings.h"
#include "config/settings_visitor.h"

namespace millrace::config {

// task_options of config.yaml: those that stand behind the graph of such a
// task.
void VisitAnswerSettings(AnswerSettings& answer, TaskKind kind,
                         const SettingVisitor& visit);

}  // namespace millrace::config

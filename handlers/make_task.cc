#include "handlers/make_task.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "handlers/tasks/image_task.h"
#include "handlers/tasks/transcribe.h"
#include "handlers/texts/token_task.h"

namespace millrace::handlers {

using config::TaskKind;

StatusOr<std::unique_ptr<TaskHandler>> MakeTaskHandler(TaskParts parts) {
  const TaskKind kind = parts.settings->kind;
  switch (kind) {
    case TaskKind::kClassify: {
      ASSIGN_OR_RETURN(auto answer, MakeClassifyAnswer(parts));
      return MakeImageTask(parts, std::move(answer));
    }
    case TaskKind::kDetect: {
      ASSIGN_OR_RETURN(auto answer, MakeDetectAnswer(parts));
      return MakeImageTask(parts, std::move(answer));
    }
    case TaskKind::kSegment: {
      ASSIGN_OR_RETURN(auto answer, MakeSegmentAnswer(parts));
      return MakeImageTask(parts, std::move(answer));
    }
    case TaskKind::kTokenClassify:
      return MakeTokenTask(parts);
    case TaskKind::kTranscribe:
      return MakeTranscribeTask(parts);
    case TaskKind::kNone:
    case TaskKind::kEmbed:
    case TaskKind::kRerank:
    case TaskKind::kClassifyText:
      break;
  }
  return Unimplemented("task '" + std::string(config::TaskName(kind)) +
                       "' is not supported yet; leave it out to serve tensors")
      .At("task");
}

StatusOr<std::string> FindTaskFile(const TaskParts& parts,
                                   const std::string& option,
                                   const std::string& name) {
  namespace fs = std::filesystem;
  if (name.find('/') != std::string::npos || name == "..") {
    return InvalidArgument(option + " is '" + name +
                           "' but must be the name of a file in the model's "
                           "folder")
        .At(option);
  }
  const fs::path beside = fs::path(parts.path).parent_path();
  for (const fs::path& folder : {beside, beside.parent_path()}) {
    std::error_code error;
    if (fs::is_regular_file(folder / name, error)) return folder / name;
  }
  return NotFound(option + " is '" + name + "', but neither " +
                  (beside / name).string() + " nor " +
                  (beside.parent_path() / name).string() + " is a file")
      .At(option);
}

}  // namespace millrace::handlers

// What a model source knows of models beside their files: see
// config/pipeline_settings.h.
#pragma once

#include <string>

#include "config/pipeline_settings.h"

namespace millrace::server {

class PipelineSource {
 public:
  virtual ~PipelineSource() = default;
  // As the last Find of that model read it; all null for one that was not
  // found.
  virtual config::PipelineSettings PipelineOf(
      const std::string& name) const = 0;
};

}  // namespace millrace::server

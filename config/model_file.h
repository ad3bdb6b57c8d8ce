// The configuration of one model of a repository as YAML: settings by the names
// that `models:` of the server's file has, and which versions are served.
//
//   max_batch_size: 8
//   instance_count: 2
//   version_policy: all            # latest (default), {latest: 2}, [1, 3]
//   version_labels: {stable: 1, canary: 3}
//   default_model_filename: net.onnx
//   task: classify                 # config/task_settings.h
//   task_options: {labels: index_to_name.json}
//   drift: {baseline: drift.json}  # config/drift_settings.h
//   traffic: {1: 90, 2: 10}        # config/traffic_settings.h
//   shadow: {version: 2}           # config/shadow_settings.h
//   micro_batching: {...}          # config/micro_batching_settings.h
//   ensemble: {steps: [...]}       # config/ensemble_settings.h
//   ragged_inputs: {input_ids: 0}  # config/ragged_settings.h
//   session: {encoding: pcm16}     # config/session_settings.h
//   model_warmup: [{...}]          # config/warmup_settings.h
//   transducer: {joiner: j.pt2}    # config/transducer_settings.h
//
// A label stands where a version's number stands in requests
// (/v2/models/m/versions/stable/infer), as with TensorFlow Serving.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "config/pipeline_settings.h"
#include "config/schema.h"

namespace millrace::config {

struct VersionPolicy {
  bool all = false;
  std::vector<int64_t> specific = {};  // these, where there are any
  int64_t latest = 1;                  // else so many of the highest
};

struct ModelFile {
  ModelSettings settings;
  PipelineSettings pipeline = {};
  // Triton's sequence_batching and model_warmup as JSON; empty: none. Read
  // where the format of config.pbtxt is known.
  std::string sequence_batching = {};
  std::string model_warmup = {};
  VersionPolicy version_policy = {};
  std::map<std::string, std::string> version_labels = {};  // label → version
  std::string default_model_filename = {};
  // Settings as they were read, for telling whether they have changed; labels,
  // traffic and the number of instances, which change while a model serves,
  // left out.
  std::string fingerprint = {};
};

// `defaults` are the settings that the text leaves alone; `where` names the
// file in errors. INVALID_ARGUMENT names the line and the key: unknown (with
// the nearest one), given twice, or of a wrong value.
StatusOr<ModelFile> ReadModelFile(const std::string& text,
                                  const std::string& where,
                                  const ModelSettings& defaults);

}  // namespace millrace::config

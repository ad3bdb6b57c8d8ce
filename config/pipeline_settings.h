// What makes a model more than its own file: an ensemble, an external handler,
// sequences. All null for a plain model. Shared by copies; never changed.
#pragma once

#include <memory>

namespace millrace::config {

struct AnswerSettings;         // answer_settings.h
struct DriftSettings;          // drift_settings.h
struct EnsembleSettings;       // ensemble_settings.h
struct ExternalSettings;       // external_settings.h
struct MicroBatchingSettings;  // micro_batching_settings.h
struct RaggedSettings;         // ragged_settings.h
struct ReshapeSettings;        // reshape_settings.h
struct SequenceSettings;       // sequence_settings.h
struct SessionSettings;        // session_settings.h
struct ShadowSettings;         // shadow_settings.h
struct TrafficSettings;        // traffic_settings.h
struct TransducerSettings;     // transducer_settings.h
struct WarmupSettings;         // warmup_settings.h

struct PipelineSettings {
  // How outputs become the answer of its task; null: as they are by default.
  std::shared_ptr<const AnswerSettings> answer = {};
  // Its task's requests go through stages that overlap.
  std::shared_ptr<const MicroBatchingSettings> micro_batching = {};
  // A graph of other models.
  std::shared_ptr<const EnsembleSettings> ensemble = {};
  // Keeps a state for each sequence of requests.
  std::shared_ptr<const SequenceSettings> sequences = {};
  // How its sessions read binary messages.
  std::shared_ptr<const SessionSettings> session = {};
  // Joins requests of different lengths.
  std::shared_ptr<const RaggedSettings> ragged = {};
  // Tensors whose shape differs between requests and the model.
  std::shared_ptr<const ReshapeSettings> reshape = {};
  // What it computes before it is ready.
  std::shared_ptr<const WarmupSettings> warmup = {};
  // How far its predictions are from a baseline.
  std::shared_ptr<const DriftSettings> drift = {};
  // Which version serves a request that names none; numbers, no labels.
  std::shared_ptr<const TrafficSettings> traffic = {};
  // A speech recogniser of three graphs; the model's file is its encoder.
  std::shared_ptr<const TransducerSettings> transducer = {};
  // Requests that are computed elsewhere as well.
  std::shared_ptr<const ShadowSettings> shadow = {};
  // A process of its own.
  std::shared_ptr<const ExternalSettings> external = {};

  // Whether it computes on cores of this process.
  bool needs_cores() const {
    return ensemble == nullptr && external == nullptr;
  }
};

}  // namespace millrace::config

#include "server/lifecycle/transducer_model.h"

#include <string>
#include <thread>
#include <utility>

#include "config/sequence_settings.h"
#include "config/session_settings.h"
#include "config/task_settings.h"
#include "handlers/sequences/sequence_handler.h"
#include "handlers/transducer/transducer_handler.h"
#include "handlers/transducer/transducer_task.h"
#include "server/lifecycle/session_port.h"

namespace millrace::server {
namespace {

constexpr auto kLookAgain = std::chrono::milliseconds(2);

// Sound in 16 bits, unless config.yaml says that it comes as the input has it.
StatusOr<std::shared_ptr<const SessionPort>> PortOf(
    const config::PipelineSettings& pipeline, const handlers::TaskParts& parts,
    const handlers::TensorHandler& sessions) {
  const int64_t rate = parts.settings->audio.sample_rate;
  config::SessionSettings session = {.input = handlers::kTransducerAudio,
                                     .pcm16 = true};
  if (pipeline.session != nullptr) session = *pipeline.session;
  if (session.sample_rate > 0 && session.sample_rate != rate) {
    return InvalidArgument("session: sample_rate is " +
                           std::to_string(session.sample_rate) +
                           " but task_options have " + std::to_string(rate) +
                           "; leave it out")
        .At("session");
  }
  session.sample_rate = rate;
  session.only_rate = true;
  return SessionPort::Create(session, parts.model, sessions.inputs(),
                             parts.registry);
}

}  // namespace

StatusOr<std::shared_ptr<Servable>> TransducerModel::Create(
    ModelFacts facts, Graphs graphs, const handlers::TaskParts& parts,
    const config::PipelineSettings& pipeline) {
  ASSIGN_OR_RETURN(handlers::TensorHandler * encoder,
                   graphs.encoder->ForTensors());
  ASSIGN_OR_RETURN(handlers::TensorHandler * predictor,
                   graphs.predictor->ForTensors());
  ASSIGN_OR_RETURN(handlers::TensorHandler * joiner,
                   graphs.joiner->ForTensors());
  ASSIGN_OR_RETURN(auto recogniser,
                   handlers::TransducerRecogniser::Create(
                       parts, *pipeline.transducer,
                       {.encoder = encoder,
                        .predictor = predictor,
                        .joiner = joiner,
                        .num_encoders = graphs.encoder->instance_count()}));
  ASSIGN_OR_RETURN(
      auto sessions,
      handlers::MakeSequenceHandler(
          handlers::MakeTransducerHandler(recogniser.get()),
          {.model = parts.model,
           .folder = {},  // states begin with zeros
           .settings = std::make_shared<const config::SequenceSettings>(
               handlers::TransducerSequences()),
           .registry = parts.registry}));
  ASSIGN_OR_RETURN(auto port, PortOf(pipeline, parts, *sessions));
  auto task = handlers::MakeTransducerTask(recogniser.get());
  facts.platform = graphs.encoder->facts().platform;
  facts.parameters.emplace_back("task", config::TaskName(parts.settings->kind));
  auto model = std::make_shared<TransducerModel>(
      std::move(facts), std::move(graphs), std::move(recogniser),
      std::move(sessions), std::move(task));
  model->set_session_port(std::move(port));
  return std::shared_ptr<Servable>(std::move(model));
}

TransducerModel::TransducerModel(
    ModelFacts facts, Graphs graphs,
    std::unique_ptr<handlers::TransducerRecogniser> recogniser,
    std::unique_ptr<handlers::TensorHandler> sessions,
    std::unique_ptr<handlers::TaskHandler> task)
    : Servable(std::move(facts)),
      graphs_(std::move(graphs)),
      recogniser_(std::move(recogniser)),
      sessions_(std::move(sessions)),
      task_(std::move(task)) {}

StatusOr<handlers::GenerateHandler*> TransducerModel::ForText() const {
  return InvalidArgument("the model '" + id() +
                         "' transcribes speech and generates no text; POST "
                         "/v1/audio/transcriptions or open a session")
      .At("model")
      .Because("wrong_model_kind");
}

// A run asks its graphs many times, so they are closed behind the last one.
bool TransducerModel::Drain(std::chrono::steady_clock::time_point deadline) {
  bool by_themselves = true;
  while (recogniser_->in_flight() > 0 && by_themselves) {
    by_themselves = std::chrono::steady_clock::now() < deadline;
    std::this_thread::sleep_for(kLookAgain);
  }
  for (const auto& graph :
       {graphs_.encoder, graphs_.predictor, graphs_.joiner}) {
    by_themselves &= graph->Drain(deadline);
  }
  return by_themselves;
}

std::optional<ModelStatistics> TransducerModel::statistics() const {
  return graphs_.encoder->statistics();
}

}  // namespace millrace::server

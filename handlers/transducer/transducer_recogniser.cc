#include "handlers/transducer/transducer_recogniser.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "config/base/out_of_memory.h"
#include "config/task_settings.h"
#include "handlers/tasks/blank.h"

namespace millrace::handlers {
namespace {

constexpr int64_t kRetryMs = 1000;

double Seconds(Clock::Duration time) {
  return std::chrono::duration<double>(time).count();
}

// Shares of real time: above 1 a model is slower than its speakers.
const std::vector<double>& FactorBuckets() {
  static const std::vector<double> bounds = {
      0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5};
  return bounds;
}

}  // namespace

// Keeps itself alive by the answers that it waits for. One thread at a time:
// the one that got the last answer, never the encoder's.
class TransducerRecogniser::OneRun
    : public std::enable_shared_from_this<OneRun> {
 public:
  OneRun(const TransducerRecogniser& owner, Request request, Done done,
         std::stop_token stop)
      : owner_(owner),
        ports_(owner.ports_),
        request_(std::move(request)),
        state_(std::move(request_.state)),
        done_(std::move(done)),
        stop_(std::move(stop)),
        trace_(std::make_shared<Trace>()) {
    trace_->request_id = request_.request_id;
    num_new_ = static_cast<int64_t>(request_.samples.size());
    if (state_.num_samples == 0) {
      state_.encoder = ports_.InitialStates();
      state_.samples.assign(owner_.features_.context(), 0.0F);
    }
    state_.num_samples += num_new_;
    state_.samples.insert(state_.samples.end(), request_.samples.begin(),
                          request_.samples.end());
    request_.samples = {};
  }

  void Go() {
    while (true) {
      const Status status = CatchOutOfMemory([&] { return Next(); });
      if (!status.ok() || asked_ == nullptr) return Finish(status);
      TensorHandler* const graph = std::exchange(asked_, nullptr);
      TensorRequest ask;
      ask.inputs = std::move(inputs_);
      ask.priority = request_.priority;
      ask.deadline = request_.deadline;
      ask.trace = trace_;
      // A search is long: the encoder's thread goes on with its next segment.
      ask.short_done = graph != ports_.graphs().encoder;
      turn_.store(Turn::kAsking, std::memory_order_relaxed);
      graph->Start(
          std::move(ask),
          [self = shared_from_this()](StatusOr<TensorResponse> answer) {
            self->Answered(std::move(answer));
          },
          stop_);
      if (turn_.exchange(Turn::kLeft, std::memory_order_acq_rel) !=
          Turn::kAnswered) {
        return;  // the answer goes on
      }
    }
  }

 private:
  // Who is first goes away, the other one goes on: the thread that asked, or
  // the one that has the answer.
  enum class Turn { kAsking, kLeft, kAnswered };

  void Answered(StatusOr<TensorResponse> answer) {
    answer_ = std::move(answer);
    if (turn_.exchange(Turn::kAnswered, std::memory_order_acq_rel) ==
        Turn::kLeft) {
      Go();
    }
  }

  // Takes the answer, if there is one, and says what to ask next: nothing where
  // all is done.
  Status Next() {
    if (answer_.has_value()) {
      StatusOr<TensorResponse> answer = *std::exchange(answer_, std::nullopt);
      RETURN_IF_ERROR(answer.status());
      AddTimes(answer->batch);
      RETURN_IF_ERROR(TakeAnswer(*std::move(answer)));
    }
    if (search_.has_value() &&
        search_->wants() == TransducerSearch::Want::kNothing) {
      state_.hypotheses = search_->Take();
      state_.num_frames += ports_.frames();
      search_.reset();
    }
    if (search_.has_value()) {
      AskForSearch();
    } else {
      AskForSegment();
    }
    return OkStatus();
  }

  Status TakeAnswer(TensorResponse answer) {
    if (!search_.has_value()) {
      ASSIGN_OR_RETURN(TransducerPorts::Encoded encoded,
                       ports_.ReadEncoded(std::move(answer)));
      encodings_ = std::move(encoded.encodings);
      state_.encoder = std::move(encoded.states);
      search_.emplace(owner_.options_, std::move(state_.hypotheses),
                      static_cast<size_t>(ports_.frames()), state_.num_frames);
      return OkStatus();
    }
    if (search_->wants() == TransducerSearch::Want::kPredictions) {
      ASSIGN_OR_RETURN(auto made,
                       ports_.ReadPredictions(answer, search_->asks().size()));
      search_->GivePredictions(std::move(made));
      return OkStatus();
    }
    ASSIGN_OR_RETURN(const std::span<const float> logits,
                     ports_.ReadLogits(answer, search_->alive().size(),
                                       owner_.options_.num_tokens));
    return search_->GiveLogits(logits);
  }

  void AskForSearch() {
    if (search_->wants() == TransducerSearch::Want::kPredictions) {
      asked_ = ports_.graphs().predictor;
      inputs_ = ports_.PredictorInputs(search_->asks());
      return;
    }
    const auto width = static_cast<size_t>(ports_.width());
    asked_ = ports_.graphs().joiner;
    inputs_ = ports_.JoinerInputs(
        {encodings_.data<float>() + search_->frame() * width, width},
        search_->alive());
  }

  // Nothing where no segment is whole.
  void AskForSegment() {
    const TransducerFeatures& features = owner_.features_;
    if (state_.samples.size() - used_ < features.num_samples()) {
      if (!request_.is_last || AllEncoded()) return;
      state_.samples.resize(used_ + features.num_samples());
    }
    asked_ = ports_.graphs().encoder;
    inputs_ = ports_.EncoderInputs(
        features.Compute(
            std::span(state_.samples).subspan(used_, features.num_samples())),
        state_.encoder);
    used_ += features.step();
  }

  // Each sample was in a segment, and not only in its right context.
  bool AllEncoded() const {
    const int64_t segments = state_.num_frames / ports_.frames();
    const auto step = static_cast<int64_t>(owner_.features_.step());
    const auto context = static_cast<int64_t>(owner_.features_.context());
    return state_.num_samples == 0 ||
           segments * step >= state_.num_samples + context;
  }

  void AddTimes(const BatchFacts& batch) {
    batch_.queue += batch.queue;
    batch_.compute_input += batch.compute_input;
    // A batch's time is shared by those that were in it.
    batch_.compute_infer +=
        batch.compute_infer / std::max<int32_t>(batch.requests, 1);
    batch_.compute_output += batch.compute_output;
  }

  // On the pool: a graph's own thread must not let go of the last handle of its
  // model.
  void Finish(const Status& status) {
    owner_.parts_.pool->Continue([self = shared_from_this(), status] {
      const Done done = std::move(self->done_);
      const TransducerRecogniser& owner = self->owner_;
      StatusOr<Result> result = Result();
      if (status.ok()) {
        std::vector<float>& samples = self->state_.samples;
        samples.erase(samples.begin(),
                      samples.begin() + static_cast<ptrdiff_t>(std::min(
                                            self->used_, samples.size())));
        owner.Observe(self->num_new_, self->batch_);
        result = Result{std::move(self->state_), self->batch_};
      } else {
        result = status;
      }
      self->request_.place.reset();
      done(std::move(result));
    });
  }

  const TransducerRecogniser& owner_;
  const TransducerPorts& ports_;
  Request request_;
  TransducerState state_;
  Done done_;
  const std::stop_token stop_;
  const std::shared_ptr<Trace> trace_;  // of the parts, not the caller's
  BatchFacts batch_;
  int64_t num_new_ = 0;
  size_t used_ = 0;  // samples of the state that are behind us
  std::optional<TransducerSearch> search_;
  models::Tensor encodings_;
  // What is asked next, and what came back.
  TensorHandler* asked_ = nullptr;
  std::vector<NamedTensor> inputs_;
  std::optional<StatusOr<TensorResponse>> answer_;
  // Acquire and release: the answer is seen by who goes on.
  std::atomic<Turn> turn_{Turn::kAsking};
};

StatusOr<std::unique_ptr<TransducerRecogniser>> TransducerRecogniser::Create(
    const TaskParts& parts, const config::TransducerSettings& settings,
    const TransducerGraphs& graphs) {
  const int64_t beam_width = parts.answer.transcript.beam_width;
  ASSIGN_OR_RETURN(TransducerPorts ports,
                   TransducerPorts::Create(graphs, settings, beam_width == 1));
  ASSIGN_OR_RETURN(
      TransducerFeatures features,
      TransducerFeatures::Create(parts, settings, ports.num_mels()));
  ASSIGN_OR_RETURN(Labels labels, Labels::Load(parts));
  TransducerOptions options;
  options.num_tokens = ports.num_tokens();
  ASSIGN_OR_RETURN(options.blank, FindBlank(parts, labels, ports.logits(),
                                            &options.num_tokens));
  options.greedy = beam_width == 1;
  options.beam_width = static_cast<size_t>(beam_width);
  options.max_symbols = settings.max_symbols;
  return std::unique_ptr<TransducerRecogniser>(
      new TransducerRecogniser(parts, std::move(ports), std::move(features),
                               std::move(labels), options));
}

TransducerRecogniser::TransducerRecogniser(const TaskParts& parts,
                                           TransducerPorts ports,
                                           TransducerFeatures features,
                                           Labels labels,
                                           const TransducerOptions& options)
    : parts_(parts),
      ports_(std::move(ports)),
      features_(std::move(features)),
      labels_(std::move(labels)),
      options_(options),
      max_runs_(parts.max_queue_size + ports_.graphs().num_encoders) {
  if (parts.registry == nullptr) return;
  const MetricLabels told = {{"model", parts.model}};
  audio_ = parts.registry->AddCounter(
      "millrace_transcribe_audio_seconds_total",
      "Seconds of sound that were transcribed, of sessions and recordings.",
      told);
  compute_ = parts.registry->AddCounter(
      "millrace_transcribe_compute_seconds_total",
      "Seconds that the graphs computed for that sound; divided by the sound's "
      "it is the real-time factor.",
      told);
  factor_ = parts.registry->AddHistogram(
      "millrace_transcribe_real_time_factor",
      "Compute time of a request by the time of its sound; above 1 the model "
      "is slower than its speaker.",
      FactorBuckets(), told);
}

int64_t TransducerRecogniser::sample_rate() const {
  return parts_.settings->audio.sample_rate;
}

Status TransducerRecogniser::Check(const Request& request) const {
  for (size_t i = 0; i < request.samples.size(); ++i) {
    if (std::isfinite(request.samples[i])) continue;
    return InvalidArgument("sample " + std::to_string(i) +
                           " of the sound is no number")
        .At("audio");
  }
  const int64_t most_ms = parts_.settings->audio.max_duration_ms;
  const auto added = static_cast<int64_t>(request.samples.size());
  const double seconds = SecondsOf(request.state.num_samples + added);
  if (added == 0 || seconds * 1000 <= static_cast<double>(most_ms)) {
    return OkStatus();
  }
  return InvalidArgument(
             "the sound of the session would be " + std::to_string(seconds) +
             " s long, but max_duration of the model '" + parts_.model +
             "' is " + std::to_string(static_cast<double>(most_ms) / 1000) +
             " s; end the session and begin another one")
      .At("audio");
}

void TransducerRecogniser::Run(Request request, Done done,
                               std::stop_token stop) const {
  if (const Status status = Check(request); !status.ok()) return done(status);
  if (request.place == nullptr) {
    StatusOr<Place> place = Reserve();
    if (!place.ok()) return done(place.status());
    request.place = *std::move(place);
  }
  const auto run = std::make_shared<OneRun>(*this, std::move(request),
                                            std::move(done), std::move(stop));
  run->Go();
}

Status TransducerRecogniser::Full() const {
  return ResourceExhausted(
             "model '" + parts_.model + "': " + std::to_string(max_runs_) +
             " pieces of sound are under way, as many as may (max_queue_size " +
             std::to_string(parts_.max_queue_size) +
             " and one for each instance of the encoder); try again later")
      .Because("queue_full")
      .RetryAfterMs(kRetryMs);
}

Status TransducerRecogniser::HasPlace() const {
  RETURN_IF_ERROR(ports_.graphs().encoder->HasPlace());
  return in_flight() < max_runs_ ? OkStatus() : Full();
}

StatusOr<TransducerRecogniser::Place> TransducerRecogniser::Reserve() const {
  RETURN_IF_ERROR(ports_.graphs().encoder->HasPlace());
  const int64_t before = in_flight_.fetch_add(1, std::memory_order_relaxed);
  Place place(this);
  if (before < max_runs_) return place;
  return Full();  // the place is given back
}

void TransducerRecogniser::Observe(int64_t num_samples,
                                   const BatchFacts& batch) const {
  const double sound = SecondsOf(num_samples);
  const double computed =
      Seconds(batch.compute_input + batch.compute_infer + batch.compute_output);
  audio_.Add(sound);
  compute_.Add(computed);
  if (sound > 0) factor_.Observe(computed / sound);
}

Transcript TransducerRecogniser::TranscriptOf(
    const TransducerState& state) const {
  if (state.hypotheses.empty()) return {};
  const Hypothesis& best = state.hypotheses.front();
  const double per_frame = SecondsOf(static_cast<int64_t>(features_.step())) /
                           static_cast<double>(ports_.frames());
  // A segment begins with the samples of the context, which were heard before.
  const auto late = static_cast<int64_t>(
      SecondsOf(static_cast<int64_t>(features_.context())) / per_frame);
  std::vector<CtcToken> tokens;
  for (const Hypothesis::Token& each : best.tokens) {
    const int64_t frame = std::max<int64_t>(0, each.frame - late);
    tokens.push_back(
        {.label = each.id, .first_frame = frame, .end_frame = frame + 1});
  }
  Transcript transcript = MakeTranscript(
      tokens, labels_, parts_.answer.transcript.word_delimiter, per_frame);
  if (!tokens.empty()) {
    transcript.mean_log_prob = best.score / static_cast<double>(tokens.size());
  }
  return transcript;
}

}  // namespace millrace::handlers

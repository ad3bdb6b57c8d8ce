#include "handlers/sequences/sequence_handler.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "config/base/deadline.h"
#include "config/base/mutex.h"
#include "config/topology.h"
#include "handlers/named_tensors.h"
#include "handlers/sequences/sequence_ports.h"
#include "handlers/sequences/sequence_table.h"
#include "models/tensor/strings.h"

namespace millrace::handlers {
namespace {

constexpr size_t kMaxIdBytes = 256;
constexpr auto kShortestLook = std::chrono::milliseconds(5);
constexpr auto kLongestLook = std::chrono::seconds(1);

bool IsNone(const SequenceId& id) {
  const auto* number = std::get_if<uint64_t>(&id);
  return number != nullptr ? *number == 0 : std::get<std::string>(id).empty();
}

std::string Text(const SequenceId& id) {
  const auto* number = std::get_if<uint64_t>(&id);
  return number != nullptr ? std::to_string(*number)
                           : std::get<std::string>(id);
}

int64_t BytesOf(const TensorRequest& request) {
  int64_t bytes = 0;
  for (const NamedTensor& input : request.inputs) {
    bytes += input.tensor.num_bytes() + models::NumCharacters(input.tensor);
  }
  return bytes;
}

struct Metrics {
  Gauge live, bytes;
  Counter started, expired, refused;

  Metrics(MetricRegistry* registry, const std::string& model) {
    if (registry == nullptr) return;
    const MetricLabels labels = {{"model", model}};
    live = registry->AddGauge(
        "millrace_sequences",
        "Sequences whose state is kept now; at max_candidate_sequences new "
        "ones are refused.",
        labels);
    bytes = registry->AddGauge("millrace_sequence_state_bytes",
                               "Bytes of the states of all live sequences.",
                               labels);
    started = registry->AddCounter("millrace_sequences_started_total",
                                   "Sequences that were started.", labels);
    expired = registry->AddCounter(
        "millrace_sequences_expired_total",
        "Sequences that were ended because nobody asked for them within "
        "max_sequence_idle_microseconds.",
        labels);
    refused = registry->AddCounter(
        "millrace_sequences_refused_total",
        "Sequences that were refused because too many were live.", labels);
  }
};

class SequenceHandler final : public SequencedHandler {
 public:
  SequenceHandler(std::unique_ptr<TensorHandler> model, SequenceParts parts,
                  SequencePorts ports)
      : parts_(std::move(parts)),
        ports_(std::move(ports)),
        model_(std::move(model)),
        metrics_(parts_.registry, parts_.model),
        sweeper_([this] { Sweep(); }) {}

  ~SequenceHandler() override {
    {
      MutexLock lock(mu_);
      stopping_ = true;
    }
    stop_.NotifyAll();
    sweeper_.join();
  }

  void StartAt(SequencePlace place, TensorRequest request, Done done,
               std::stop_token stop) override {
    const Status status =
        TryStart(std::move(place), request, done, std::move(stop));
    if (!status.ok()) done(status);
  }

  void EndAt(const SequenceId& id) override {
    MutexLock lock(mu_);
    Sequence* sequence = table_.Find(id);
    if (sequence == nullptr) return;
    if (sequence->running || !sequence->waiting.empty()) {
      sequence->left = true;
    } else {
      table_.Erase(id);
    }
    Tell();
  }

  Status HasPlace() const override { return model_->HasPlace(); }
  const std::vector<models::TensorSpec>& inputs() const override {
    return ports_.inputs();
  }
  const std::vector<models::TensorSpec>& outputs() const override {
    return ports_.outputs();
  }

 private:
  const config::SequenceSettings& settings() const { return *parts_.settings; }

  Status TryStart(SequencePlace place, TensorRequest& request, const Done& done,
                  std::stop_token stop) {
    const SequenceId id = place.id;
    RETURN_IF_ERROR(Check(place, request));
    const Clock::Time now = parts_.clock->Now();
    if (!parts_.timeout_is_of_queue) {
      request.deadline =
          EarlierDeadline(request.deadline, request.timeout, *parts_.clock);
      request.timeout.reset();
    }
    std::optional<WaitingRequest> next;
    {
      MutexLock lock(mu_);
      Expire(now);
      Sequence* sequence = table_.Find(id);
      if (sequence == nullptr) {
        if (!place.start && !place.start_if_new) return NotStarted(id);
        RETURN_IF_ERROR(CheckRoom());
        sequence = &table_.Add(id, now);
        metrics_.started.Add();
      }
      if (static_cast<int64_t>(sequence->waiting.size()) >=
          parts_.max_waiting) {
        return ResourceExhausted(
                   "sequence " + Text(id) + " of the model '" + parts_.model +
                   "' has " + std::to_string(parts_.max_waiting) +
                   " requests that wait, as many as may; send the next one "
                   "after a response")
            .At("sequence_id")
            .RetryAfterMs(100);
      }
      const int64_t bytes = sequence->running ? BytesOf(request) : 0;
      RETURN_IF_ERROR(CheckMayWait(bytes));
      if (place.start) sequence->left = false;
      table_.Touch(*sequence, now);
      sequence->waiting.push_back(
          {std::move(place), std::move(request), done, std::move(stop), bytes});
      waiting_bytes_ += bytes;
      if (!sequence->running) next = Next(id, *sequence);
      Tell();
    }
    Run(id, std::move(next));
    return OkStatus();
  }

  // In Triton's words.
  Status Check(const SequencePlace& place, const TensorRequest& request) const {
    if (IsNone(place.id)) {
      return InvalidArgument("inference request to model '" + parts_.model +
                             "' must specify a non-zero or non-empty "
                             "correlation ID (parameter sequence_id)")
          .At("sequence_id");
    }
    if (const auto* text = std::get_if<std::string>(&place.id);
        text != nullptr && text->size() > kMaxIdBytes) {
      return InvalidArgument("sequence_id has " + std::to_string(text->size()) +
                             " bytes but may have " +
                             std::to_string(kMaxIdBytes))
          .At("sequence_id");
    }
    RETURN_IF_ERROR(ports_.CheckId(place));
    RETURN_IF_ERROR(
        OutputsWanted(request.outputs, outputs(), parts_.model).status());
    for (const NamedTensor& input : request.inputs) {
      const auto spec = std::find_if(
          inputs().begin(), inputs().end(),
          [&](const auto& each) { return each.name == input.name; });
      if (spec == inputs().end()) {
        return InvalidArgument("input '" + input.name +
                               "' is not one that clients of the model '" +
                               parts_.model + "' send; it takes " +
                               NamesOf(inputs()))
            .At(input.name);
      }
      const models::Shape& shape = input.tensor.shape();
      if (settings().has_batch && shape.rank() > 0 && shape[0] != 1) {
        return InvalidArgument("inference request to model '" + parts_.model +
                               "' must specify batch-size 1 due to "
                               "requirements of sequence batcher, not " +
                               std::to_string(shape[0]))
            .At(input.name);
      }
    }
    return OkStatus();
  }

  Status NotStarted(const SequenceId& id) const {
    return InvalidArgument("inference request for sequence " + Text(id) +
                           " to model '" + parts_.model +
                           "' must specify the START flag on the first request "
                           "of the sequence")
        .At("sequence_start");
  }

  Status CheckRoom() REQUIRES(mu_) {
    const auto refused = [&](const std::string& why) {
      metrics_.refused.Add();
      return ResourceExhausted("the model '" + parts_.model + "' " + why)
          .At("sequence_id")
          .Because("too_many_sequences")
          .RetryAfterMs(1000);
    };
    if (table_.size() >= settings().max_sequences) {
      return refused("keeps " + std::to_string(table_.size()) +
                     " sequences, as many as max_candidate_sequences allows; "
                     "end one or try again later");
    }
    if (table_.state_bytes() + ports_.initial_bytes() >
        settings().max_state_bytes) {
      return refused("keeps " + std::to_string(table_.state_bytes()) +
                     " bytes of states and may keep " +
                     std::to_string(settings().max_state_bytes) +
                     "; end a sequence or try again later");
    }
    return OkStatus();
  }

  // What waits has no place at the model yet, so its bytes are counted here.
  Status CheckMayWait(int64_t bytes) REQUIRES(mu_) {
    if (bytes <= settings().max_state_bytes - waiting_bytes_) return OkStatus();
    return ResourceExhausted("requests of the model '" + parts_.model +
                             "' that wait behind others of their sequences "
                             "hold " +
                             std::to_string(waiting_bytes_) +
                             " bytes and may hold " +
                             std::to_string(settings().max_state_bytes) +
                             "; send the next one after a response")
        .At("sequence_id")
        .Because("queue_full")
        .RetryAfterMs(100);
  }

  // The one whose turn it is, if there is one.
  std::optional<WaitingRequest> Next(const SequenceId& id, Sequence& sequence)
      REQUIRES(mu_) {
    sequence.running = !sequence.waiting.empty();
    if (!sequence.running) {
      if (!sequence.begun || sequence.left) table_.Erase(id);
      return std::nullopt;
    }
    WaitingRequest next = std::move(sequence.waiting.front());
    sequence.waiting.pop_front();
    waiting_bytes_ -= next.bytes;
    return next;
  }

  // Where a request ends and where its start returns meet here: the second of
  // the two goes on with the next one.
  struct Meeting {
    std::atomic<bool> has_one = false;  // sequentially consistent: guards next
    std::optional<WaitingRequest> next;
  };

  // Without the lock: the request and those behind it, until one is under way.
  // They follow each other in a loop, also where the model ends or refuses each
  // at once. A request keeps its model, and so this object, until its ending.
  void Run(const SequenceId& id, std::optional<WaitingRequest> next) {
    while (next.has_value()) {
      const auto meeting = std::make_shared<Meeting>();
      Begin(id, *std::move(next), meeting);
      if (!meeting->has_one.exchange(true)) return;
      next = std::move(meeting->next);
    }
  }

  void Begin(const SequenceId& id, WaitingRequest turn,
             const std::shared_ptr<Meeting>& meeting) {
    SequencePlace place = turn.place;
    bool known = true;
    {
      MutexLock lock(mu_);
      Sequence& sequence = *table_.Find(id);
      place.start |= place.start_if_new && !sequence.begun;
      if (place.start) {
        table_.SetStates(sequence, ports_.InitialStates());
        sequence.begun = true;
      }
      known = sequence.begun;
      for (size_t i = 0; known && i < ports_.states().size(); ++i) {
        turn.request.inputs.push_back(
            {ports_.states()[i].input, sequence.states[i].Share()});
      }
    }
    // What was sent behind the sequence's end.
    if (!known) return End(id, place, turn.done, NotStarted(id), {}, *meeting);
    for (NamedTensor& control : ports_.Controls(place)) {
      turn.request.inputs.push_back(std::move(control));
    }
    if (turn.request.outputs.empty()) {
      for (const models::TensorSpec& spec : outputs()) {
        turn.request.outputs.push_back(spec.name);
      }
    }
    for (const config::SequenceState& state : ports_.states()) {
      turn.request.outputs.push_back(state.output);
    }
    model_->Start(
        std::move(turn.request),
        [this, id, place, meeting, done = std::move(turn.done)](
            StatusOr<TensorResponse> response) mutable {
          std::vector<models::Tensor> states;
          if (response.ok()) {
            // Copies: rows of a batch would keep all of it.
            const size_t first =
                response->outputs.size() - ports_.states().size();
            for (size_t i = first; i < response->outputs.size(); ++i) {
              states.push_back(response->outputs[i].tensor.Copy());
            }
            response->outputs.resize(first);
          }
          End(id, place, done, std::move(response), std::move(states),
              *meeting);
        },
        std::move(turn.stop));
  }

  void End(const SequenceId& id, const SequencePlace& place, const Done& done,
           StatusOr<TensorResponse> response,
           std::vector<models::Tensor> states, Meeting& meeting) {
    std::optional<WaitingRequest> next;
    {
      MutexLock lock(mu_);
      Sequence& sequence = *table_.Find(id);
      table_.Touch(sequence, parts_.clock->Now());
      bool over = place.end;
      if (response.ok() && !TryKeep(sequence, std::move(states))) {
        response =
            ResourceExhausted("the states of all sequences of the model '" +
                              parts_.model + "' have grown beyond " +
                              std::to_string(settings().max_state_bytes) +
                              " bytes; sequence " + Text(id) + " is ended");
        over = true;
      }
      // A start that failed has started nothing.
      if (over || (place.start && !response.ok())) {
        sequence.begun = false;
        table_.SetStates(sequence, {});
      }
      next = Next(id, sequence);
      Tell();
    }
    // Its ending may start a further one, which is not short.
    if (next.has_value()) next->request.short_done = false;
    const Done last = done;
    last(std::move(response));
    // The next request has a model of its own to hold; without one this object
    // may be gone.
    const bool goes_on = next.has_value();
    meeting.next = std::move(next);
    if (meeting.has_one.exchange(true) && goes_on) {
      Run(id, std::move(meeting.next));
    }
  }

  // False: there is no room for them.
  bool TryKeep(Sequence& sequence, std::vector<models::Tensor> states)
      REQUIRES(mu_) {
    table_.SetStates(sequence, std::move(states));
    return table_.state_bytes() <= settings().max_state_bytes;
  }

  void Expire(Clock::Time now) REQUIRES(mu_) {
    const auto idle = std::chrono::microseconds(settings().max_idle_us);
    const int64_t ended = table_.EraseUnusedSince(now - idle);
    if (ended == 0) return;
    metrics_.expired.Add(static_cast<double>(ended));
    Tell();
  }

  void Tell() REQUIRES(mu_) {
    metrics_.live.Set(static_cast<double>(table_.size()));
    metrics_.bytes.Set(static_cast<double>(table_.state_bytes()));
  }

  // Gives the memory of sequences back that nobody asks for any more, also when
  // no request comes.
  void Sweep() {
    // Only a name for top -H: naming a thread cannot fail.
    static_cast<void>(config::PinThisThread({}, "sequences"));
    const auto look = std::clamp<std::chrono::nanoseconds>(
        std::chrono::microseconds(settings().max_idle_us / 4), kShortestLook,
        kLongestLook);
    MutexLock lock(mu_);
    while (!stopping_) {
      stop_.WaitUntil(mu_, std::chrono::steady_clock::now() + look);
      Expire(parts_.clock->Now());
    }
  }

  const SequenceParts parts_;
  const SequencePorts ports_;
  const std::unique_ptr<TensorHandler> model_;
  Metrics metrics_;
  Mutex mu_;
  CondVar stop_;
  bool stopping_ GUARDED_BY(mu_) = false;
  SequenceTable table_ GUARDED_BY(mu_);
  int64_t waiting_bytes_ GUARDED_BY(mu_) = 0;
  std::thread sweeper_;  // last: it uses all of the above
};

}  // namespace

StatusOr<std::unique_ptr<TensorHandler>> MakeSequenceHandler(
    std::unique_ptr<TensorHandler> model, const SequenceParts& parts) {
  ASSIGN_OR_RETURN(
      SequencePorts ports,
      SequencePorts::Create(parts.model, *parts.settings, parts.folder,
                            model->inputs(), model->outputs()));
  return std::unique_ptr<TensorHandler>(std::make_unique<SequenceHandler>(
      std::move(model), parts, std::move(ports)));
}

}  // namespace millrace::handlers

// After a stop string the text is complete and goes out at once, but OnEnd
// waits for the engine's own end, one step later at most. Only then are the
// place and the pages free again, so that a client that asks again at once is
// not refused because of its own last request.
#include "handlers/generate_session.h"

#include <algorithm>
#include <utility>

#include "config/base/out_of_memory.h"
#include "handlers/call_constraint.h"
#include "handlers/generate_prompt.h"
#include "handlers/generate_task.h"
#include "handlers/image_prompt.h"
#include "handlers/reasoning_limits.h"

namespace millrace::handlers {

GenerateSession::GenerateSession(
    std::shared_ptr<const GenerateParts> parts, GenerateRequest request,
    std::shared_ptr<GenerateSink> sink, std::stop_token client_stop,
    std::vector<std::shared_ptr<GenerateSession>> siblings)
    : parts_(std::move(parts)),
      client_stop_(std::move(client_stop)),
      request_(std::move(request)),
      sink_(std::move(sink)),
      siblings_(std::move(siblings)) {}

void GenerateSession::Begin() {
  if (Status wanted = CheckStillWanted(); !wanted.ok()) return Refuse(wanted);
  if (Status fits = CheckFamilyFits(); !fits.ok()) return Refuse(fits);
  auto place = parts_->engine->Reserve(
      request_.deadline, static_cast<int32_t>(siblings_.size()) + 1,
      request_.tenant);
  if (!place.ok()) return Refuse(place.status());
  place_ = std::move(place).value();
  if (request_.trace) {
    request_.trace->Stamp(Stage::kReserved, parts_->clock->Now());
  }
  if (!parts_->pool->TryPost(
          [self = shared_from_this()] { self->Prepare(); })) {
    Refuse(ResourceExhausted("too many requests wait to be read; try again "
                             "in a second")
               .RetryAfterMs(1000)
               .Because("queue_full"));
  }
}

void GenerateSession::Refuse(Status status) {
  place_.Release();
  parts_->pool->Continue(
      [self = shared_from_this(), status = std::move(status)] {
        const auto siblings = std::move(self->siblings_);
        self->End({.status = status});
        for (const auto& sibling : siblings) sibling->End({.status = status});
      });
}

Status GenerateSession::CheckFamilyFits() const {
  const auto n = static_cast<int32_t>(siblings_.size()) + 1;
  const int32_t most = parts_->engine->info().limits.max_seqs;
  if (n == 1 || n <= most) return OkStatus();
  return InvalidArgument(
             "n is " + std::to_string(n) + " but model '" + parts_->model +
             "' runs " + std::to_string(most) +
             " sequences at once; ask for fewer completions or raise "
             "max_num_seqs")
      .At("n");
}

Status GenerateSession::CheckStillWanted() const {
  if (client_stop_.stop_requested()) {
    return Cancelled("the client is gone");
  }
  if (parts_->clock->Now() >= request_.deadline) {
    return DeadlineExceeded("the request's deadline passed before it ran");
  }
  return OkStatus();
}

void GenerateSession::Prepare() {
  if (Status wanted = CheckStillWanted(); !wanted.ok()) return StartAll(wanted);
  HoldCall();
  if (request_.options.constraint) return CompileConstraint();
  EncodeImages();
}

void GenerateSession::HoldCall() {
  const auto* chat = std::get_if<ChatPrompt>(&request_.prompt);
  if (chat == nullptr || parts_->call_grammars == nullptr) return;
  const bool must_come = chat->tool_choice.mode == ToolChoice::Mode::kRequired;
  // Content that may come has the request's own constraint.
  if (!must_come && request_.options.constraint) return;
  models::OutputConstraint call = CallConstraint(parts_->formats, *chat);
  if (!call) return;
  // The client's tokens may spell no call that fits.
  if (!request_.options.allowed_token_ids.empty() && MayRunFreely(*chat)) {
    return;
  }
  // Where a call must come there is no content to be constrained.
  request_.options.constraint = std::move(call);
  holds_call_ = true;
}

void GenerateSession::CompileConstraint() {
  const models::OutputConstraint& constraint = request_.options.constraint;
  if (!holds_call_ && parts_->grammars == nullptr) {
    return StartAll(
        InvalidArgument("the model '" + parts_->model +
                        "' has no structured output; leave this field out")
            .At(constraint.field)
            .Because("unsupported_parameter"));
  }
  models::GrammarCompiler* const compiler =
      holds_call_ ? parts_->call_grammars : parts_->grammars;
  compiler->Compile(
      constraint, {.deadline = request_.deadline, .stop = client_stop_},
      [self = shared_from_this()](models::CompiledGrammar grammar) {
        self->parts_->pool->Continue([self, grammar = std::move(grammar)] {
          const Status taken =
              CatchOutOfMemory([&] { return self->TakeGrammar(grammar); });
          if (!taken.ok()) return self->StartAll(taken);
          self->EncodeImages();
        });
      });
}

Status GenerateSession::TakeGrammar(const models::CompiledGrammar& grammar) {
  // A grammar that came late is not used.
  RETURN_IF_ERROR(CheckStillWanted());
  if (grammar.ok()) {
    if (holds_call_ && !request_.options.allowed_token_ids.empty()) {
      return InvalidArgument(
                 "allowed_token_ids cannot be used together with tools whose "
                 "calls are held to their schemas, by tool_choice or strict; "
                 "leave one of them out")
          .At("allowed_token_ids");
    }
    grammar_ = *grammar;
  } else if (!holds_call_) {
    return grammar.status();
  } else if (grammar.status().code() != StatusCode::kUnimplemented) {
    const auto& chat = std::get<ChatPrompt>(request_.prompt);
    const bool is_refused =
        grammar.status().code() == StatusCode::kInvalidArgument;
    if (!is_refused || !MayRunFreely(chat)) {
      return AtTool(parts_->formats, chat, grammar.status());
    }
  }
  // Without the library, and where a schema is refused that need not hold, a
  // call is as the model writes it.
  return OkStatus();
}

void GenerateSession::EncodeImages() {
  const auto submit = [](GenerateSession& session) {
    session.StartAll(CatchOutOfMemory([&] { return session.SubmitAll(); }));
  };
  const std::span<const ChatImage> given = ImagesOf(request_.prompt);
  if (given.empty()) return submit(*this);
  if (Status fits = CheckImages(*parts_, given); !fits.ok()) {
    return StartAll(fits);
  }
  std::vector<models::vision::ImageFile> files;
  for (const ChatImage& image : given) {
    files.push_back({image.bytes, image.field});
  }
  parts_->images->Encode(std::move(files),
                         {.deadline = request_.deadline,
                          .stop = client_stop_,
                          .max_rows = parts_->engine->info().max_context,
                          .model = parts_->model},
                         [self = shared_from_this(), submit](
                             StatusOr<models::vision::EncodedImages> images) {
                           self->parts_->pool->Continue(
                               [self, submit, images = std::move(images)] {
                                 if (!images.ok())
                                   return self->StartAll(images.status());
                                 self->images_ = *images;
                                 submit(*self);
                               });
                         });
}

void GenerateSession::StartAll(const Status& status) {
  // The prompt may be large: it does not wait for the completion to end.
  request_.prompt = TextPrompt{};
  place_.Release();
  const auto siblings = std::move(siblings_);
  std::vector<GenerateSession*> all = {this};
  for (const auto& sibling : siblings) all.push_back(sibling.get());
  for (GenerateSession* session : all) {
    if (session->stream_) {
      session->Follow();
    } else {
      session->End({.status = status, .usage = session->usage_});
    }
  }
}

void GenerateSession::Follow() {
  sink_->OnAccepted(usage_);
  Send();  // an echo that waits for nothing
  // Last: from here on the engine may have another pool thread run us.
  // A local reference, for the end drops the member.
  const auto stream = stream_;
  stream->OnReady([self = shared_from_this()] { self->Wake(); });
}

Status GenerateSession::SubmitAll() {
  RETURN_IF_ERROR(CheckStillWanted());
  ASSIGN_OR_RETURN(
      EncodedPrompt prompt,
      EncodePrompt(*parts_, request_.prompt, parts_->engine->info().max_context,
                   std::exchange(images_, {})));
  usage_.prompt_tokens = static_cast<int64_t>(prompt.ids.size());
  for (const auto& sibling : siblings_) sibling->usage_ = usage_;
  ASSIGN_OR_RETURN(scheduler::GenerateTask task,
                   MakeTask(*parts_, request_, std::move(prompt.ids)));
  task.embeddings = std::move(prompt.embeddings);
  ASSIGN_OR_RETURN(
      task.sampling.grammar,
      WithReasoning(*parts_, request_, task.prompt, std::move(grammar_),
                    /*of_content=*/!holds_call_));
  task.num_completions = static_cast<int32_t>(siblings_.size()) + 1;
  if (!siblings_.empty()) {
    task.fork_group = std::make_shared<scheduler::ForkGroup>();
    task.fork_group->num_left = task.num_completions;
  }
  const OutputProcessor::Options output =
      OutputOptionsOf(*parts_, request_, task);

  RETURN_IF_ERROR(CheckStillWanted());
  RETURN_IF_ERROR(Submit(place_.Split(), task, output));
  task.num_completions = 0;
  for (const auto& sibling : siblings_) {
    ++task.sampling.seed;
    RETURN_IF_ERROR(sibling->Submit(place_.Split(), task, output));
  }
  return OkStatus();
}

Status GenerateSession::Submit(scheduler::Reservation place,
                               scheduler::GenerateTask task,
                               const OutputProcessor::Options& output) {
  output_.emplace(output);
  task.stop = engine_stop_.get_token();
  forward_stop_.emplace(client_stop_, ForwardStop{&engine_stop_});
  ASSIGN_OR_RETURN(stream_,
                   parts_->engine->Submit(std::move(place), std::move(task)));
  return OkStatus();
}

void GenerateSession::Wake() {
  if (wakes_.fetch_add(1, std::memory_order_acq_rel) != 0) return;
  parts_->pool->Continue([self = shared_from_this()] { self->Run(); });
}

void GenerateSession::Run() {
  uint32_t served = wakes_.load(std::memory_order_acquire);
  while (true) {
    Advance();
    const uint32_t before = wakes_.fetch_sub(served, std::memory_order_acq_rel);
    if (before == served) return;
    served = before - served;  // came in meanwhile
  }
}

void GenerateSession::Advance() {
  if (!stream_) return;  // the end has been told
  scheduler::TokenStream::Taken taken = stream_->Take();
  for (const auto& progress : taken.progress) sink_->OnProgress(progress);
  for (auto& event : taken.prompt) output_->PushPrompt(std::move(event));
  for (const scheduler::TokenEvent& event : taken.tokens) {
    if (!output_->Push(event)) break;  // the engine may have run ahead
  }
  const bool complete = output_->stop_reason().has_value();
  if (output_->stopped_by_text()) {
    stream_->MarkStopped();
    engine_stop_.request_stop();
  }
  const bool cancelled =
      taken.end && taken.end->status.code() == StatusCode::kCancelled;
  if (taken.end) output_->Finish();
  if (!cancelled || complete) Send();
  if (taken.end) EndWith(*taken.end);
}

void GenerateSession::Send() {
  for (OutputDelta& delta : output_->Take()) sink_->OnDelta(std::move(delta));
}

void GenerateSession::EndWith(const scheduler::StreamEnd& end) {
  usage_.completion_tokens = output_->num_tokens();
  usage_.cached_tokens = end.cached_tokens;
  usage_.reasoning_tokens = output_->reasoning_tokens();
  // The engine may have run ahead of a stop string.
  usage_.accepted_prediction_tokens =
      std::min<int64_t>(end.prediction.accepted, usage_.completion_tokens);
  usage_.rejected_prediction_tokens = end.prediction.rejected;
  GenerateEnd result;
  if (output_->stop_reason()) {
    // Whatever the engine says of it: the completion was whole.
    result.reason = FinishReason::kStop;
    result.stop_reason = *output_->stop_reason();
  } else if (!end.status.ok()) {
    result.status = end.status;
  } else {
    result.reason = end.reason == scheduler::FinishReason::kStop
                        ? FinishReason::kStop
                        : FinishReason::kLength;
  }
  result.usage = usage_;
  End(std::move(result));
}

void GenerateSession::End(GenerateEnd end) {
  // OnEnd may free the engine, so everything of the engine's goes before it.
  place_.Release();
  forward_stop_.reset();
  stream_.reset();
  const auto sink = std::move(sink_);
  sink->OnEnd(std::move(end));
}

}  // namespace millrace::handlers

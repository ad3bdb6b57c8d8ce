// A handler turns a request into a completion or tensors, blind to the wire.
//
//   handler->Start(std::move(request), sink, stop_token);
//
// Start returns at once. The sink then gets any number of deltas, in order, and
// exactly one end, from threads of the handler pool, never two at a time. A
// failure before the first token (template, too long, no place) is an end
// without deltas, so the codec can still choose the status line.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "handlers/messages.h"
#include "models/tensor/tensor_spec.h"

namespace millrace::handlers {

class GenerateSink {
 public:
  virtual ~GenerateSink() = default;
  // The request has passed every check and is with the engine; a streaming
  // codec may send its header now. Called once, before the first delta.
  virtual void OnAccepted(const Usage& prompt) = 0;
  // When asked for, before the first delta: how far the prompt is, when its
  // first step begins and behind each of its steps.
  virtual void OnProgress(const PromptProgress& /*progress*/) {}
  // Must not block: the sink keeps what it cannot write yet.
  virtual void OnDelta(OutputDelta delta) = 0;
  virtual void OnEnd(GenerateEnd end) = 0;
};

struct TokenizedText {
  std::vector<int32_t> ids;
  std::vector<std::string> pieces;  // bytes of each
};

// Everything a generative model offers.
class GenerateHandler {
 public:
  virtual ~GenerateHandler() = default;

  virtual void Start(GenerateRequest request,
                     std::shared_ptr<GenerateSink> sink,
                     std::stop_token stop) = 0;
  // One completion for each sink, drawn with the seeds s, s + 1, …; options.n
  // is their number. By default they are as many requests; a handler that can
  // computes the prompt once.
  virtual void StartSiblings(GenerateRequest request,
                             std::vector<std::shared_ptr<GenerateSink>> sinks,
                             std::stop_token stop);

  // Short work on the calling thread (use the handler pool).
  virtual StatusOr<TokenizedText> Tokenize(const std::string& text,
                                           bool add_special,
                                           bool parse_special) const = 0;
  virtual StatusOr<TokenizedText> TokenizeChat(
      const ChatPrompt& chat) const = 0;
  virtual StatusOr<std::string> Detokenize(
      const std::vector<int32_t>& ids) const = 0;
  virtual StatusOr<std::string> ApplyTemplate(const ChatPrompt& chat) const = 0;
};

// Everything a graph offers.
class TensorHandler {
 public:
  virtual ~TensorHandler() = default;

  // Checks at once; `done` is called once, from a thread of the handler pool,
  // from the model's own where the request says that it is short, or, for a
  // refusal, before this returns.
  using Done = std::function<void(StatusOr<TensorResponse>)>;
  virtual void Start(TensorRequest request, Done done,
                     std::stop_token stop) = 0;
  // Whether a request that came now would get a place, else the refusal that
  // Start would give it: asked before the request's tensors are read.
  virtual Status HasPlace() const = 0;

  virtual const std::vector<models::TensorSpec>& inputs() const = 0;
  virtual const std::vector<models::TensorSpec>& outputs() const = 0;
};

}  // namespace millrace::handlers

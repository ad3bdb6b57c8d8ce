// Where in a sequence of requests one stands, for models that keep a state
// between them; the others take no notice of it.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>

#include "handlers/handler.h"

namespace millrace::handlers {

using SequenceId = std::variant<uint64_t, std::string>;

struct SequencePlace {
  SequenceId id = uint64_t{0};  // 0 and "": none
  bool start = false;
  bool end = false;
  bool start_if_new = false;  // starts it where there is none of that id
};

// A handler that is told.
class SequencedHandler : public TensorHandler {
 public:
  virtual void StartAt(SequencePlace place, TensorRequest request, Done done,
                       std::stop_token stop) = 0;
  // Ends the sequence without a request; those that run or wait come first.
  // Nothing where there is none of that id, or where the handler keeps none.
  virtual void EndAt(const SequenceId&) {}
  void Start(TensorRequest request, Done done, std::stop_token stop) override {
    StartAt({}, std::move(request), std::move(done), std::move(stop));
  }
};

// Starts a request of any handler.
inline void StartInSequence(TensorHandler* handler, SequencePlace place,
                            TensorRequest request, TensorHandler::Done done,
                            std::stop_token stop) {
  auto* sequenced = dynamic_cast<SequencedHandler*>(handler);
  if (sequenced == nullptr) {
    handler->Start(std::move(request), std::move(done), std::move(stop));
  } else {
    sequenced->StartAt(std::move(place), std::move(request), std::move(done),
                       std::move(stop));
  }
}

}  // namespace millrace::handlers

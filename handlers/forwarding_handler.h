// A base for handlers that add something to the requests of another one: what
// they do not override is that one's. They override Start.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "handlers/handler.h"
#include "handlers/place_in_time.h"

namespace millrace::handlers {

// As thread-safe as `inner`.
class ForwardingHandler : public TimedHandler {
 public:
  explicit ForwardingHandler(std::unique_ptr<TensorHandler> inner)
      : inner_(std::move(inner)) {}

  Status HasPlaceBy(Clock::Time deadline) const override {
    return handlers::HasPlaceBy(*inner_, deadline);
  }
  const std::vector<models::TensorSpec>& inputs() const override {
    return inner_->inputs();
  }
  const std::vector<models::TensorSpec>& outputs() const override {
    return inner_->outputs();
  }

 protected:
  TensorHandler& inner() { return *inner_; }
  const TensorHandler& inner() const { return *inner_; }

 private:
  const std::unique_ptr<TensorHandler> inner_;
};

}  // namespace millrace::handlers

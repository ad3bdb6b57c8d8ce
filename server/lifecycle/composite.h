// A servable that calls other models: an ensemble, an external handler.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "server/lifecycle/servable.h"
#include "server/lifecycle/version_state.h"

namespace millrace::server {

class Composite {
 public:
  virtual ~Composite() = default;
  // Whether it could compute a request now, or what it lacks: an ensemble needs
  // its models.
  virtual Status Ready() const = 0;
  // Whether it takes a request, which may wait until it can be computed.
  virtual Status Takes() const { return Ready(); }
  // More than that of every model that it calls.
  virtual int depth() const = 0;
  // The models that it is made of, each once.
  virtual std::vector<std::string> members() const = 0;
};

// The same of any model.
Status ReadyOf(const Servable& servable);
Status TakesOf(const Servable& servable);
int DepthOf(const Servable& servable);  // 0: it calls no other model
std::vector<std::string> MembersOf(const Servable& servable);

// Closes and drains those that call others first: their last requests still
// need them. True if all requests ended by themselves.
bool DrainInOrder(std::vector<std::shared_ptr<Servable>> all,
                  std::chrono::steady_clock::time_point deadline);

// What serves but is not ready is unavailable. `serving` stands beside the
// index; null: it does not serve.
void TellReadiness(const std::vector<std::shared_ptr<Servable>>& serving,
                   std::vector<VersionStatus>* index);

}  // namespace millrace::server

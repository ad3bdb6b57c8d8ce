// How a model calls another one of the same server: an ensemble its steps, an
// external handler what it asks for.
//
//   ASSIGN_OR_RETURN(LentModel lent,
//                    lender->LendForRequest(caller, "classify", ""));
//   lent.handler->Start(...);                    // keep `lent` until the end
//
// Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "config/base/status.h"
#include "handlers/handler.h"

namespace millrace::handlers {

struct LentModel {
  TensorHandler* handler = nullptr;
  // The model stays while this is held. Not to be let go of on the model's own
  // thread, which must not be the one to unload it.
  std::shared_ptr<const void> hold;
  int depth = 0;  // 0: calls no other model
};

// The same of a language model.
struct LentText {
  GenerateHandler* handler = nullptr;
  std::shared_ptr<const void> hold;
};

class ModelLender {
 public:
  virtual ~ModelLender() = default;
  // `version` empty: the latest. Errors as those of a request of that model,
  // so one whose requests wait for its process to come back is lent.
  // `caller` is the model that calls: two that call each other could wait for
  // each other forever, so the second of them is refused.
  virtual StatusOr<LentModel> Lend(const std::string& caller,
                                   const std::string& name,
                                   const std::string& version) = 0;
  // The same for a request that is made now: `version` empty is the one that
  // the model's traffic gives it, where it has any.
  virtual StatusOr<LentModel> LendForRequest(const std::string& caller,
                                             const std::string& name,
                                             const std::string& version) {
    return Lend(caller, name, version);
  }
  // Whether that model could compute a request now; one that is lent may not.
  // Unless overridden: whether it is lent.
  virtual Status Ready(const std::string& caller, const std::string& name,
                       const std::string& version) {
    return Lend(caller, name, version).status();
  }
  // That model is loaded anew: what it called before counts no more.
  virtual void Forget(const std::string& caller) = 0;
  // UNIMPLEMENTED unless overridden: who lends graphs alone.
  virtual StatusOr<LentText> LendText(const std::string& caller,
                                      const std::string& name,
                                      const std::string& version);
};

inline StatusOr<LentText> ModelLender::LendText(const std::string&,
                                                const std::string& name,
                                                const std::string&) {
  return Unimplemented("language models such as '" + name + "' are not lent");
}

}  // namespace millrace::handlers

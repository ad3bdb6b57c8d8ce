// The application: makes every part, connects them, and runs until Shutdown. No
// other file creates the parts.
//
//   ASSIGN_OR_RETURN(auto app, App::Start(settings, options));
//   WaitForStopSignal();
//   app->Shutdown();
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "config/load.h"
#include "models/group/group.h"
#include "server/lifecycle/load_progress.h"
#include "server/torchserve/registry.h"

namespace millrace::server {

class App {
 public:
  struct Options {
    LoadProgress::Show show = {};  // how far loads are; may be empty
    // Called once, from another thread, when a model of the start cannot be
    // loaded: load_status() says why, and the server is never ready.
    std::function<void()> on_failed = {};
    // False: such a model is left out, and the others serve.
    bool exit_on_error = true;
    // Of the processes that serve the only model together, this one its rank 0;
    // null: alone. A rank that is lost later is such a failure, too.
    std::shared_ptr<models::Group> group = nullptr;
    // Set: TorchServe's APIs and its registry instead of named models.
    std::optional<torchserve::RegistryOptions> torchserve = {};
  };

  // Listens, then loads the models behind: until all of them serve, probes and
  // requests are answered 503 "loading". What can be refused without a load (a
  // busy port, too few file descriptors, wrong keys) is refused before one
  // begins.
  static StatusOr<std::unique_ptr<App>> Start(const config::Settings& settings,
                                              Options options);
  ~App();

  // A load runs that cannot be interrupted; destruction waits for its end.
  bool loading() const;
  // OK until a model of the start cannot be loaded, or a rank of the group is
  // lost.
  Status load_status() const;

  int http_port() const;
  int grpc_port() const;  // -1: no gRPC

  // Readiness goes false, no new requests; running ones have until
  // shutdown_timeout. True if all of them ended by themselves.
  bool Shutdown();
  // After Shutdown, for a process that ends without destruction, since a load
  // still runs: removes the files of registered archives (Registry::Clear) and
  // of keys, which destruction removes.
  void RemoveFiles();

 private:
  struct Parts;
  explicit App(std::unique_ptr<Parts> parts);
  // Names in the order of loading; `lenient`: one that fails is left out. Runs
  // on a thread of its own.
  void LoadModels(const std::vector<std::string>& names, bool lenient);

  std::unique_ptr<Parts> parts_;
};

}  // namespace millrace::server

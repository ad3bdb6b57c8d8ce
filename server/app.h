// The application: makes every part, wires them, runs until told to stop. The
// only place where dependencies meet.
//
//   ASSIGN_OR_RETURN(auto app, App::Start(settings, progress));
//   WaitForStopSignal();
//   app->Shutdown();
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "config/base/status.h"
#include "config/load.h"

namespace millrace::server {

class App {
 public:
  // Loads every model, then listens: what cannot work (a corrupt file, a busy
  // port, too little memory, too few file descriptors) is told before anything
  // answers. `progress` sees a model's name and 0…1; may be empty.
  static StatusOr<std::unique_ptr<App>> Start(
      const config::Settings& settings,
      std::function<void(const std::string&, double)> progress);
  ~App();

  int http_port() const;
  int grpc_port() const;  // -1: no gRPC

  // Readiness goes false, no new requests; running ones have until
  // shutdown_timeout. True if all of them ended by themselves.
  bool Shutdown();

 private:
  struct Parts;
  explicit App(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace millrace::server

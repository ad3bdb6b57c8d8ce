// What is being loaded now and how far it is. Each load logs a line when it
// begins and, while it lasts, one each second; health routes and refusals read
// the same state.
//
//   LoadProgress progress;
//   {
//     LoadProgress::Load load(&progress, "m", "1", "m.gguf");
//     load.Report(0.4);
//   }  // ended, well or not
//
// One load at a time. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "config/base/mutex.h"

namespace millrace::server {

class LoadProgress {
 public:
  struct State {
    std::string model;   // being loaded now; empty: none
    double done = -1;    // of it, 0…1; negative: not known
    double seconds = 0;  // since its load began
    int num_ready = 0;
    int num_expected = 0;
  };
  // Shows the state to a person. Called from the thread that loads and from one
  // beside it, one call at a time; the last call of a load has no model.
  using Show = std::function<void(const State& state)>;

  // With `show`, the log has no lines between begin and end: what is shown
  // is the same. `interval` is the time between two of them.
  explicit LoadProgress(Show show = {}, std::chrono::milliseconds interval =
                                            std::chrono::seconds(1));

  // How many models the server loads before it is ready, and how many it has.
  void Expect(int num_models);
  void CountReady();

  State state() const;
  // "0 of 2 models are ready, 'm' is at 43 %".
  std::string Sentence() const;
  // Until the load under way ends at its speed so far: 1 s to 60 s.
  std::chrono::milliseconds TimeLeft() const;

  // A load under way, as long as it lives. Loading thread only.
  class Load {
   public:
    // `progress` outlives it.
    Load(LoadProgress* progress, const std::string& model,
         const std::string& version, const std::string& path);
    ~Load();
    Load(const Load&) = delete;
    Load& operator=(const Load&) = delete;

    // 0…1.
    void Report(double done);

   private:
    void Tick();  // ticker_

    LoadProgress* const progress_;
    Mutex mu_;
    CondVar changed_;
    bool ended_ GUARDED_BY(mu_) = false;
    std::thread ticker_;  // last: uses all of the above
  };

 private:
  void ShowNow();

  const Show show_;
  const std::chrono::milliseconds interval_;
  Mutex show_mu_;  // held around show_, which draws and is short
  mutable Mutex mu_;
  State state_ GUARDED_BY(mu_);  // but for its seconds
  std::chrono::steady_clock::time_point begun_ GUARDED_BY(mu_);
};

}  // namespace millrace::server

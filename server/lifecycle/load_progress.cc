// A thread beside the load writes the lines in between: a load of a graph
// reports nothing by itself, and one that stands still must be seen to.
#include "server/lifecycle/load_progress.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "config/base/log.h"
#include "config/topology.h"

namespace millrace::server {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr auto kLeastLeft = std::chrono::milliseconds(1'000);
constexpr auto kMostLeft = std::chrono::milliseconds(60'000);

std::string Percent(double done) {
  return std::to_string(std::lround(done * 100)) + " %";
}

double Tenths(double seconds) { return std::round(seconds * 10) / 10; }

}  // namespace

LoadProgress::LoadProgress(Show show, std::chrono::milliseconds interval)
    : show_(std::move(show)), interval_(interval) {}

void LoadProgress::Expect(int num_models) {
  MutexLock lock(mu_);
  state_.num_expected = num_models;
}

void LoadProgress::CountReady() {
  MutexLock lock(mu_);
  ++state_.num_ready;
}

LoadProgress::State LoadProgress::state() const {
  MutexLock lock(mu_);
  State state = state_;
  if (!state.model.empty()) {
    state.seconds =
        std::chrono::duration<double>(SteadyClock::now() - begun_).count();
  }
  return state;
}

std::string LoadProgress::Sentence() const {
  const State now = state();
  std::string text = std::to_string(now.num_ready) + " of " +
                     std::to_string(now.num_expected) + " models are ready";
  if (now.model.empty()) return text;
  text += ", '" + now.model + "' ";
  return text +
         (now.done < 0 ? "is being loaded" : "is at " + Percent(now.done));
}

std::chrono::milliseconds LoadProgress::TimeLeft() const {
  const State now = state();
  if (now.done <= 0) return kLeastLeft;
  const double seconds = now.seconds * (1 - now.done) / now.done;
  return std::clamp(
      std::chrono::milliseconds(static_cast<int64_t>(
          std::min(seconds * 1e3, static_cast<double>(kMostLeft.count())))),
      kLeastLeft, kMostLeft);
}

void LoadProgress::ShowNow() {
  if (!show_) return;
  MutexLock lock(show_mu_);
  show_(state());
}

LoadProgress::Load::Load(LoadProgress* progress, const std::string& model,
                         const std::string& version, const std::string& path)
    : progress_(progress) {
  {
    MutexLock lock(progress_->mu_);
    progress_->state_.model = model;
    progress_->state_.done = -1;
    progress_->begun_ = SteadyClock::now();
  }
  LogInfo("loading model",
          {{"model", model}, {"version", version}, {"path", path}});
  progress_->ShowNow();
  ticker_ = std::thread([this] { Tick(); });
}

LoadProgress::Load::~Load() {
  {
    MutexLock lock(mu_);
    ended_ = true;
    changed_.NotifyAll();
  }
  ticker_.join();
  {
    MutexLock lock(progress_->mu_);
    progress_->state_.model.clear();
    progress_->state_.done = -1;
  }
  progress_->ShowNow();
}

void LoadProgress::Load::Report(double done) {
  {
    MutexLock lock(progress_->mu_);
    progress_->state_.done = std::clamp(done, 0.0, 1.0);
  }
  progress_->ShowNow();
}

void LoadProgress::Load::Tick() {
  // Only a name for top -H: naming a thread cannot fail.
  static_cast<void>(config::PinThisThread({}, "load-progress"));
  auto next = SteadyClock::now() + progress_->interval_;
  while (true) {
    {
      MutexLock lock(mu_);
      while (!ended_ && changed_.WaitUntil(mu_, next)) {
      }
      if (ended_) return;
    }
    next += progress_->interval_;
    if (progress_->show_) {
      progress_->ShowNow();
      continue;
    }
    const State now = progress_->state();
    if (now.done < 0) {
      LogInfo("still loading model",
              {{"model", now.model}, {"seconds", Tenths(now.seconds)}});
    } else {
      LogInfo("still loading model", {{"model", now.model},
                                      {"done", Percent(now.done)},
                                      {"seconds", Tenths(now.seconds)}});
    }
  }
}

}  // namespace millrace::server

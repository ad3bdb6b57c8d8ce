// A capture of what all threads do for a few seconds: slices of time on tracks,
// kept only while a capture runs. Without one, each place that records slices
// costs one relaxed load.
//
//   if (timeline->on()) timeline->Add({.track = track_, .name = "step", ...});
//
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/clock.h"
#include "config/base/mutex.h"

namespace millrace {

struct TimelineSlice {
  int track = 0;
  std::string_view name;   // a literal
  std::string label = {};  // further words, such as a request's id
  Clock::Time begin = {};
  Clock::Time end = {};
  // Slices of one id may overlap those of others on their track; 0: none do.
  int64_t id = 0;
  std::array<std::pair<const char*, double>, 4> numbers = {};  // null: none
};

struct TimelineTrack {
  std::string process;  // "model chat", "server"
  std::string thread;   // "engine", "worker 1"
};

struct TimelineCapture {
  Clock::Time begin = {};
  Clock::Time end = {};
  std::vector<TimelineTrack> tracks;  // by the slices' numbers
  std::vector<TimelineSlice> slices;  // in the order of their ends, or so
  int64_t num_dropped = 0;            // beyond kMaxSlices
};

class Timeline {
 public:
  // Some 100 bytes each.
  static constexpr size_t kMaxSlices = 500'000;

  // Relaxed: a slice more or less at the edges of a capture does not matter.
  bool on() const { return on_.load(std::memory_order_relaxed); }

  // The same names give the same track, for the life of the timeline.
  int Track(std::string_view process, std::string_view thread);
  // Dropped when no capture runs.
  void Add(TimelineSlice slice);
  void Add(std::vector<TimelineSlice> slices);

  // False: another capture runs.
  bool Start(Clock::Time now);
  TimelineCapture Stop(Clock::Time now);

 private:
  void AddLocked(TimelineSlice slice) REQUIRES(mu_);

  std::atomic<bool> on_ = false;
  Mutex mu_;
  bool capturing_ GUARDED_BY(mu_) = false;
  TimelineCapture capture_ GUARDED_BY(mu_);
  std::vector<TimelineTrack> tracks_ GUARDED_BY(mu_);
};

}  // namespace millrace

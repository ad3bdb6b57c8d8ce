// What a runner offers beside Runner when a step may be launched before the
// results of the step before it are read: its device goes on at once, and the
// host plans meanwhile.
//
//   runner.Launch(first);
//   if (ahead.MayLaunchAhead()) runner.Launch(second);
//   runner.Wait();   // ends the first
//   runner.Wait();   // ends the second
//
// The second step is made before it is known what the first one draws. In place
// of such a token its row names the sample of the first step that draws it:
//
//   first    samples   0: a row of slot 7    1: a row of slot 2
//   second   tokens    a row of slot 2: DrawnBy(1)
//
// At most two steps are in flight. Wait ends the older one; its result lives
// until the next Launch or Wait, and its batch stays as it is until then. After
// a fault the other one is waited for, too, and is worthless. Steps run one
// after the other, so pages that the first one writes may be another sequence's
// in the second. No step in flight names a slot that is initialised.
#pragma once

#include <cstdint>

namespace millrace::models {

class RunnerAhead {
 public:
  virtual ~RunnerAhead() = default;
  // One step is in flight, and all that it draws is on the device before the
  // next one begins: no token of it is drawn on the host. Rows of draft tokens
  // are the caller's to look for: which of theirs count is found on the host.
  virtual bool MayLaunchAhead() const = 0;
};

// Stands in StepBatch::tokens() for the token that a sample of the step before
// draws.
constexpr int32_t DrawnBy(int32_t sample) { return -1 - sample; }
constexpr bool IsDrawn(int32_t token) { return token < 0; }
constexpr int32_t SampleOf(int32_t token) { return -1 - token; }

}  // namespace millrace::models

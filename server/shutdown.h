// Waits for stop signals. SIGTERM, SIGINT and, unless it was ignored
// before, SIGHUP are blocked in every thread (call BlockStopSignals before the
// first one starts), the main thread waits for them, and a second one ends the
// process at once.
#pragma once

namespace millrace::server {

void BlockStopSignals();
// Returns the first of them.
int WaitForStopSignal();
// What a stop signal from outside does.
void SendStopSignal();
// From now on another one exits with 128 + its number.
void ExitOnNextStopSignal();

}  // namespace millrace::server

// Whether a stream is a terminal that takes escape sequences.
//
// Pure but for the environment; thread-safe.
#pragma once

namespace millrace {

// Whether `file` (STDERR_FILENO) is a terminal that obeys escape sequences, so
// that text may be styled and a line drawn again: TERM is neither empty nor
// "dumb", as in the shells of editors and the logs of build servers.
bool ObeysEscapes(int file);

}  // namespace millrace

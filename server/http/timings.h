// The `timings` object of llama.cpp's server: how many tokens of a request were
// cached, computed and generated, and how long that took. Pure.
#pragma once

#include <string>

#include "config/base/clock.h"
#include "config/base/trace.h"
#include "handlers/messages.h"

namespace millrace::server::http {

// A JSON object. The prompt's time runs from the request's first step to its
// first token, that of the completion from there until `now`; what has no stamp
// is 0. One completion only: n completions share their stamps.
std::string TimingsJson(const handlers::Usage& usage, const Trace& trace,
                        Clock::Time now);

// `prompt_progress`, as llama.cpp's return_progress asks for it: a JSON object.
std::string ProgressJson(const handlers::PromptProgress& progress);

// The timings of a prompt that far.
std::string TimingsJson(const handlers::PromptProgress& progress);

}  // namespace millrace::server::http

// The command line of `millrace-loadtest tune`: its own flags, and those of a
// measurement, which are read as everywhere.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "loadtest/options.h"

namespace millrace::loadtest {

struct TuneOptions {
  // millrace, serve, model and flags: the configuration to start from.
  std::vector<std::string> server;
  bool graph = false;              // else a language model
  bool search_rate = false;        // the load is a rate, else a concurrency
  std::vector<std::string> tries;  // "max_num_seqs=16,64"; empty: the usual
  std::chrono::nanoseconds budget{0};
  std::chrono::nanoseconds start_timeout{0};
  int64_t rounds = 3;  // in which the finalists are measured in turns
  std::string output = "millrace-tuned.yaml";
  std::vector<std::string> args;  // as typed, for the evidence
  bool model_named = false;
  bool help = false;
  Options load;
};

// `args` are without "tune".
StatusOr<TuneOptions> ParseTuneOptions(const std::vector<std::string>& args);

std::string TuneHelpText();

}  // namespace millrace::loadtest

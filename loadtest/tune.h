// Finds the configuration of a server that carries the highest load within the
// objectives: starts the server with candidate settings, searches the highest
// load of each, and measures the two finalists again in turns.
//
//   ASSIGN_OR_RETURN(const TuneResult result, Tune(options));
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "loadtest/load_search.h"
#include "loadtest/report.h"
#include "loadtest/tune_options.h"

namespace millrace::loadtest {

struct Candidate {
  // Name and value of the settings that differ from the configuration given.
  std::vector<std::pair<std::string, std::string>> changes;
  std::optional<LoadPoint> best;     // nothing: no load met the objectives
  std::optional<Report> report;      // of the best load, else of the last one
  std::string failure;               // why it could not be measured
  bool out_of_time = false;          // the search of its load was cut short
  int num_loads = 0;                 // that were measured
  std::vector<double> goodput = {};  // of the rounds of the finalists
};

struct TuneResult {
  std::vector<Candidate> candidates;  // in the order tried; [0]: as given
  size_t best = 0;                    // the one whose file is written, if met
  size_t finalist = 0;                // the best of the others; 0: none
  double seconds = 0;
  bool met = false;  // the objectives, by `best`
};

// Is every value of `after` above every value of `before`?
bool ClearlyBetter(const std::vector<double>& before,
                   const std::vector<double>& after);

// Decides between the configuration given and the finalist by their rounds:
// one that failed in a round loses; else the finalist must be clearly better.
// Sets best, and met: false where both failed.
void DecideRounds(TuneResult& result);

// Prints each candidate as it ends and writes the best configuration.
// FAILED_PRECONDITION where the configuration given does not serve, CANCELLED
// after SIGINT or SIGTERM. No server is left running.
StatusOr<TuneResult> Tune(const TuneOptions& options);

// ---- texts (tune_text.cc) ---------------------------------------------------

std::string TuneHeader(const TuneOptions& options);
std::string TuneRow(size_t index, const Candidate& candidate);
std::string TuneVerdict(const TuneOptions& options, const TuneResult& result);

// The lines of `millrace serve --print-config` that differ from the defaults.
// Secrets, which it prints as ***, become comments.
std::string MinimalConfig(const std::string& printed);

// What is known of this machine, one line.
std::string MachineText();

// A command line with *** for the values of these flags, named as settings are
// ("api_key" is --api-key), and of the variables of these settings
// (MILLRACE_API_KEY=value, as env takes it).
std::vector<std::string> HideSecrets(std::vector<std::string> words,
                                     const std::vector<std::string>& flags);

// A configuration file with the evidence as comments. `printed`: what the
// server says with --print-config. The file holds no secret.
std::string TunedFile(const TuneOptions& options, const TuneResult& result,
                      const std::string& version, const std::string& printed);

}  // namespace millrace::loadtest

// The command line: what to send where, at which pace, and what to report.
//
//   ASSIGN_OR_RETURN(const Options options, ParseOptions(args));
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "loadtest/arrivals.h"
#include "loadtest/endpoint.h"
#include "loadtest/slo.h"
#include "loadtest/url.h"

namespace millrace::loadtest {

// A number of tokens: a normal distribution, cut at 1.
struct TokenCount {
  double mean = 0;  // 0: not given
  double stddev = 0;
};

struct Sweep {
  bool over_rate = false;      // else over concurrency
  std::vector<double> values;  // rising; empty: no sweep
};

struct Options {
  // Target.
  std::string url_text = "http://127.0.0.1:8000";
  Url url;
  std::string path;  // --endpoint; empty: the protocol's own
  std::string model;
  EndpointType endpoint = EndpointType::kChat;
  bool streaming = false;
  std::vector<std::pair<std::string, std::string>> headers;
  std::chrono::nanoseconds request_timeout{0};

  // Load: a closed loop of `concurrency`, or an open one.
  int64_t concurrency = 1;
  bool open_loop = false;
  ArrivalSpec arrivals;
  int64_t max_connections = 1024;
  int64_t num_requests = -1;             // -1: no limit
  std::chrono::nanoseconds duration{0};  // 0: no limit
  std::chrono::nanoseconds grace{0};     // for requests under way at the end
  int64_t warmup_requests = 0;
  std::chrono::nanoseconds warmup_time{0};
  int64_t repetitions = 1;
  Sweep sweep;
  int64_t threads = 1;
  std::vector<int> cpus;  // of the threads, in turn; empty: not pinned
  uint64_t seed = 0;

  // Text.
  std::string dataset;
  TokenCount input_tokens;
  TokenCount output_tokens;
  int64_t shared_prefix_tokens = 0;
  int64_t num_prompts = 0;  // 0: as many as requests, 1000 at least
  int64_t turns = 1;        // of a synthetic conversation
  bool ignore_eos = true;   // where output_tokens is given
  std::vector<std::pair<std::string, std::string>> extra_inputs;  // JSON values

  // Tensors and bytes.
  int64_t batch_size = 1;
  // Each request has batch_size rows: where --shape gives another first size
  // this one counts, and what cannot have so many is an error.
  bool exact_rows = false;
  bool binary_tensors = true;
  std::vector<std::pair<std::string, std::vector<int64_t>>> shapes;
  // Name and file; those of one name are sent in turn.
  std::vector<std::pair<std::string, std::string>> input_files;
  std::vector<std::string> data_files;  // of torchserve, in turn
  std::string content_type = "application/octet-stream";

  // Report.
  Slo slo;
  std::string slo_text;
  double max_error_rate = 0.01;
  std::string json_file;
  std::string csv_file;
  std::string html_file;
  bool progress = true;

  bool help = false;
};

// INVALID_ARGUMENT names the flag, the value and what is allowed. `args` are
// without the program's name.
StatusOr<Options> ParseOptions(const std::vector<std::string>& args);

std::string HelpText();

}  // namespace millrace::loadtest

// What a bench run found, as a table for people and JSON for programs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/llm/model.h"
#include "models/llm/step_account.h"

namespace millrace::server {

// One shape of work and how long its repetitions took.
struct BenchCase {
  std::string name;  // "pp512", "tg128"
  int64_t batch = 1;
  int64_t depth = 0;        // tokens in the cache before
  int64_t tokens = 0;       // read or answered in one repetition, all together
  double weight_bytes = 0;  // read in one repetition
  double kv_bytes = 0;      // read in one repetition
  double linear_macs = 0;   // of one repetition, attention not counted
  double prompt_macs = 0;   // of those, by the kernels for prompts
  std::vector<double> seconds;  // of each repetition
  std::string skipped;          // why there are none
};

struct BenchReport {
  std::string path;
  models::LlmInfo info;
  models::RunnerRoofline roofline;
  std::vector<BenchCase> cases;
};

// Model, machine, and what the columns mean; 80 columns wide, as the table.
std::string MachineText(const BenchReport& report);
std::string TableHeader();
std::string TableRow(const BenchCase& row,
                     const models::RunnerRoofline& roofline);
nlohmann::ordered_json ReportJson(const BenchReport& report);

double Median(std::vector<double> values);

}  // namespace millrace::server

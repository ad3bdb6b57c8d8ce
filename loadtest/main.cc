// millrace-loadtest: puts load on a model server and reports what it did.
#include <cstdio>
#include <string>
#include <vector>

#include "loadtest/options.h"
#include "loadtest/report.h"
#include "loadtest/session.h"

namespace millrace::loadtest {
namespace {

constexpr int kMeasured = 0;
constexpr int kNothingMeasured = 1;
constexpr int kUsage = 2;
constexpr int kSloMissed = 3;

int Fail(const Status& status, int code) {
  std::fprintf(stderr, "millrace-loadtest: %s\n",
               std::string(status.message()).c_str());
  return code;
}

Status WriteFiles(const Options& options, const Report& report) {
  if (!options.json_file.empty()) {
    RETURN_IF_ERROR(WriteFile(options.json_file, JsonText(report)));
  }
  if (!options.csv_file.empty()) {
    RETURN_IF_ERROR(WriteFile(options.csv_file, ReportCsv(report)));
  }
  return OkStatus();
}

StatusOr<int> RunLoad(const Options& options) {
  ASSIGN_OR_RETURN(const auto session, Session::Open(&options));
  const Load load = LoadOf(options);
  ASSIGN_OR_RETURN(Measurement measurement, session->Measure(load));
  const Report report =
      MakeReport(options, *session, load, std::move(measurement));
  std::fputs(TableText(report).c_str(), stdout);
  RETURN_IF_ERROR(WriteFiles(options, report));
  if (report.num_ok == 0) return kNothingMeasured;
  return report.slo_met ? kMeasured : kSloMissed;
}

int Main(const std::vector<std::string>& args) {
  const StatusOr<Options> options = ParseOptions(args);
  if (!options.ok()) return Fail(options.status(), kUsage);
  if (options->help) {
    std::fputs(HelpText().c_str(), stdout);
    return kMeasured;
  }
  const StatusOr<int> code = RunLoad(*options);
  if (code.ok()) return *code;
  const bool usage = code.status().code() == StatusCode::kInvalidArgument;
  return Fail(code.status(), usage ? kUsage : kNothingMeasured);
}

}  // namespace
}  // namespace millrace::loadtest

int main(int argc, char** argv) {
  return millrace::loadtest::Main({argv + 1, argv + argc});
}

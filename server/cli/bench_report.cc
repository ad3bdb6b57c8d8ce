// Rates are of the median repetition, beside the tokens/s of the slowest and
// the fastest one. What is read are weights, keys and values; the JSON has
// each.
#include "server/cli/bench_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "config/base/utf8.h"
#include "config/base/wrap.h"

namespace millrace::server {
namespace {

constexpr size_t kColumns = 80;  // as wide as the table

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

struct Rates {
  double median = 0, least = 0, most = 0;  // tokens/s
  double weight_bytes = 0, kv_bytes = 0, macs = 0, prompt_macs = 0;
};

Rates RatesOf(const BenchCase& row) {
  Rates rates;
  if (row.seconds.empty()) return rates;
  const double seconds = Median(row.seconds);
  const auto [fastest, slowest] =
      std::minmax_element(row.seconds.begin(), row.seconds.end());
  const auto tokens = static_cast<double>(row.tokens);
  rates.median = tokens / seconds;
  rates.least = tokens / *slowest;
  rates.most = tokens / *fastest;
  rates.weight_bytes = row.weight_bytes / seconds;
  rates.kv_bytes = row.kv_bytes / seconds;
  rates.macs = row.linear_macs / seconds;
  rates.prompt_macs = row.prompt_macs / seconds;
  return rates;
}

double Percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half]
                                : (values[half - 1] + values[half]) / 2;
}

std::string MachineText(const BenchReport& report) {
  const models::LlmInfo& info = report.info;
  std::string text = Format(
      "%s  %s %s  %.0f M parameters\n", Shortened(info.name, 60).c_str(),
      Shortened(info.architecture, 30).c_str(), info.quantization.c_str(),
      static_cast<double>(info.num_parameters) * 1e-6);
  std::string roofline = Format(
      "%d threads, %s. Measured peaks: %.1f GB/s read of the model's weights, "
      "%.0f GMAC/s by the kernel of its widest matrix in cache",
      info.threads, info.isa.c_str(), report.roofline.read_bytes_per_s * 1e-9,
      report.roofline.macs_per_s * 1e-9);
  if (report.roofline.prompt_macs_per_s > 0) {
    roofline +=
        Format(", %.0f for prompts", report.roofline.prompt_macs_per_s * 1e-9);
  }
  text += WrapText(roofline + ".", 0, kColumns);
  text += "\n";
  text += WrapText(
      "ppN reads a prompt of N tokens; tgN generates N tokens for each "
      "sequence "
      "of the batch; depth: tokens in the cache before. of peak: the share of "
      "the peaks above; a read of more than 100% had part of its bytes in "
      "caches.",
      0, kColumns);
  return text + "\n";
}

std::string TableHeader() {
  return Format("%-8s %5s %6s %8s %8s %8s %6s %7s %7s %7s\n", "test", "batch",
                "depth", "tokens/s", "slowest", "fastest", "GB/s", "of peak",
                "GMAC/s", "of peak");
}

std::string TableRow(const BenchCase& row,
                     const models::RunnerRoofline& roofline) {
  const std::string head = Format("%-8s %5lld %6lld", row.name.c_str(),
                                  static_cast<long long>(row.batch),
                                  static_cast<long long>(row.depth));
  if (row.seconds.empty()) return head + "  skipped: " + row.skipped + "\n";
  const Rates rates = RatesOf(row);
  const double read = rates.weight_bytes + rates.kv_bytes;
  return head +
         Format(" %8.1f %8.1f %8.1f %6.1f %6.0f%% %7.1f %6.0f%%\n",
                rates.median, rates.least, rates.most, read * 1e-9,
                Percent(read, roofline.read_bytes_per_s), rates.macs * 1e-9,
                100 * roofline.MacSeconds(rates.macs, rates.prompt_macs));
}

nlohmann::ordered_json ReportJson(const BenchReport& report) {
  using Json = nlohmann::ordered_json;
  Json results = Json::array();
  for (const BenchCase& row : report.cases) {
    Json result = {
        {"test", row.name}, {"batch", row.batch}, {"depth", row.depth}};
    if (row.seconds.empty()) {
      result["skipped"] = row.skipped;
    } else {
      const Rates rates = RatesOf(row);
      result["tokens_per_s"] = rates.median;
      result["tokens_per_s_least"] = rates.least;
      result["tokens_per_s_most"] = rates.most;
      result["weight_bytes_per_s"] = rates.weight_bytes;
      result["kv_bytes_per_s"] = rates.kv_bytes;
      result["linear_macs_per_s"] = rates.macs;
      result["prompt_macs_per_s"] = rates.prompt_macs;
      result["seconds"] = row.seconds;
    }
    results.push_back(std::move(result));
  }
  return {{"model", report.path},
          {"quantization", report.info.quantization},
          {"isa", report.info.isa},
          {"threads", report.info.threads},
          {"weight_bytes", report.info.weight_bytes},
          {"kv_bytes_per_token", report.info.kv_bytes_per_token},
          {"peak_read_bytes_per_s", report.roofline.read_bytes_per_s},
          {"weight_pass_bytes", report.roofline.pass_bytes},
          {"peak_macs_per_s", report.roofline.macs_per_s},
          {"peak_prompt_macs_per_s", report.roofline.prompt_macs_per_s},
          {"results", std::move(results)}};
}

}  // namespace millrace::server

// A page that needs nothing but itself: figures in tables, plots as SVG. The
// same text as on the terminal stands at its end, to be copied.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "loadtest/report.h"
#include "loadtest/svg.h"
#include "loadtest/sweep.h"

namespace millrace::loadtest {
namespace {

constexpr size_t kMaxDots = 3000;
constexpr double kBins = 60;  // of the plots over time

constexpr char kHead[] =
    "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
    "<meta name='viewport' content='width=device-width,initial-scale=1'>"
    "<title>millrace-loadtest</title><style>"
    ":root{color-scheme:light dark;--line:#8884;--soft:#777}"
    "body{font:15px/1.45 system-ui,sans-serif;max-width:1180px;margin:2rem "
    "auto;padding:0 1rem}"
    "h1{font-size:1.4rem;margin-bottom:.2rem}h2{font-size:1.1rem}"
    ".sub{color:var(--soft);margin-top:0}"
    ".cards{display:flex;flex-wrap:wrap;gap:.8rem;margin:1rem 0}"
    ".card{border:1px solid var(--line);border-radius:8px;padding:.6rem 1rem;"
    "min-width:8.5rem}.card b{display:block;font-size:1.35rem}"
    ".card span{color:var(--soft);font-size:.85rem}"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min("
    "100%,480px),1fr));gap:1rem}"
    "svg{width:100%;height:auto;border:1px solid var(--line);border-radius:"
    "8px}svg text{fill:currentColor;font-family:system-ui,sans-serif}"
    ".title{font-size:14px;font-weight:600}.tick,.label{font-size:11px}"
    ".grid{stroke:var(--line)}.marker{stroke:var(--soft);stroke-dasharray:4 3}"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;margin:1rem 0}"
    "th,td{padding:.25rem .8rem;text-align:right;border-bottom:1px solid "
    "var(--line)}th:first-child,td:first-child{text-align:left}"
    ".bad{color:#d0342c;font-weight:600}.good{color:#00824f;font-weight:600}"
    ".warn{border-left:4px solid #e69f00;padding:.3rem .8rem;margin:.4rem 0}"
    "pre{overflow-x:auto;border:1px solid var(--line);border-radius:8px;"
    "padding:.8rem;font-size:12px}</style></head><body>";

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[400];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

void AddCard(std::string& out, const std::string& value, const char* what) {
  out +=
      "<div class='card'><b>" + value + "</b><span>" + what + "</span></div>";
}

std::string Warnings(const Report& report) {
  std::string out;
  for (const std::string& warning : report.warnings) {
    out += "<p class='warn'>" + EscapeHtml(warning) + "</p>";
  }
  return out;
}

std::string Title(const Report& report) {
  return "<h1>" + EscapeHtml(report.model) + "</h1><p class='sub'>" +
         EscapeHtml(report.url) + " · " + report.endpoint +
         (report.streaming ? ", streaming" : "") + "</p>";
}

// ---- plots of one run -------------------------------------------------------

Plot PercentilePlot(const Report& report) {
  Plot plot = {.title = "Latencies by percentile",
               .x_label = "percentile",
               .y_label = "ms",
               .percentile_axis = true,
               .log_y = true};
  int color = 0;
  for (const char* key : {"request_latency_ms", "time_to_first_token_ms",
                          "inter_token_latency_ms"}) {
    const Summary* summary = report.Find(key);
    if (summary != nullptr) {
      plot.series.push_back(
          {.name = summary->title, .points = summary->curve, .color = color});
    }
    ++color;
  }
  return plot;
}

Plot ScatterPlot(const Report& report) {
  Series latency = {.name = "Request latency", .line = false, .color = 0};
  Series ttft = {.name = "Time to first token", .line = false, .color = 1};
  Series failed = {.name = "Failed after", .line = false, .color = 3};
  const size_t stride = report.points.size() / kMaxDots + 1;
  for (size_t i = 0; i < report.points.size(); i += stride) {
    const RequestPoint& point = report.points[i];
    const double at = point.at_ms / 1e3;
    (point.ok ? latency : failed).points.emplace_back(at, point.latency_ms);
    if (point.ok && point.ttft_ms >= 0) {
      ttft.points.emplace_back(at, point.ttft_ms);
    }
  }
  Plot plot = {.title = "Each request by when it was due",
               .x_label = "s from the start",
               .y_label = "ms"};
  for (Series* series : {&latency, &ttft, &failed}) {
    if (!series->points.empty()) plot.series.push_back(std::move(*series));
  }
  return plot;
}

Plot RatePlot(const Report& report) {
  double end_s = 1e-3;
  bool tokens = false;
  for (const RequestPoint& point : report.points) {
    end_s = std::max<double>(end_s, (point.at_ms + point.latency_ms) / 1e3);
    tokens |= point.output_tokens > 0;
  }
  const double bin_s = end_s / kBins;
  std::vector<double> bins(static_cast<size_t>(kBins) + 1);
  for (const RequestPoint& point : report.points) {
    if (!point.ok) continue;
    const double end = (point.at_ms + point.latency_ms) / 1e3 / bin_s;
    // Tokens of a stream are spread evenly from its first one to its end.
    const double begin = tokens && point.ttft_ms >= 0
                             ? (point.at_ms + point.ttft_ms) / 1e3 / bin_s
                             : end;
    const double amount = tokens ? point.output_tokens : 1;
    const auto first = static_cast<size_t>(begin);
    const auto last = static_cast<size_t>(end);
    for (size_t i = first; i <= last; ++i) {
      const auto at = static_cast<double>(i);
      const double share =
          first == last
              ? 1
              : (std::min(end, at + 1) - std::max(begin, at)) / (end - begin);
      bins[i] += amount * share;
    }
  }
  Series series = {.name = tokens ? "Output tokens/s" : "Requests/s",
                   .color = 2};
  // The repetitions lie over each other: their mean.
  const auto runs =
      static_cast<double>(std::max<int64_t>(1, report.repetitions));
  for (size_t i = 0; i + 1 < bins.size(); ++i) {
    series.points.emplace_back((static_cast<double>(i) + 0.5) * bin_s,
                               bins[i] / bin_s / runs);
  }
  return {.title = tokens ? "Output tokens/s over time"
                          : "Requests/s, counted when they end",
          .x_label = "s from the start",
          .y_label = tokens ? "tokens/s" : "requests/s",
          .series = {std::move(series)}};
}

std::string SummaryTable(const Report& report) {
  std::string out =
      "<div class='scroll'><table><tr><th></th><th>mean</th><th>p50</th>"
      "<th>p90</th><th>p95</th><th>p99</th><th>p99.9</th><th>max</th>"
      "<th>count</th></tr>";
  for (const Summary& row : report.summaries) {
    out += "<tr><td>" + row.title + " (" + row.unit + ")</td>";
    for (const double value :
         {row.mean, row.p50, row.p90, row.p95, row.p99, row.p999, row.max}) {
      out += Format("<td>%.2f</td>", value);
    }
    out += Format("<td>%lld</td></tr>", static_cast<long long>(row.count));
  }
  return out + "</table></div>";
}

std::string ErrorTable(const Report& report) {
  if (report.errors.empty()) return "";
  std::string out =
      "<h2>Failures</h2><div class='scroll'><table><tr><th>kind</th>"
      "<th>requests</th><th style='text-align:left'>what the first one said"
      "</th></tr>";
  for (const auto& [key, error] : report.errors) {
    out += "<tr><td>" + EscapeHtml(key) + "</td><td>" +
           std::to_string(error.count) + "</td><td style='text-align:left'>" +
           EscapeHtml(error.example) + "</td></tr>";
  }
  return out + "</table></div>";
}

std::string Objectives(const Report& report) {
  if (report.objectives.empty()) return "";
  std::string out =
      "<h2>Objectives</h2><table><tr><th>objective</th><th>limit</th>"
      "<th>measured</th><th></th></tr>";
  for (const ObjectiveResult& result : report.objectives) {
    out += "<tr><td>" + std::string(MetricName(result.objective.metric)) + " " +
           EscapeHtml(result.objective.statistic) + "</td>";
    out += Format("<td>%.1f ms</td><td>%.1f ms</td><td class='%s'>%s</td></tr>",
                  static_cast<double>(result.objective.limit.count()) * 1e-6,
                  result.value_ms, result.met ? "good" : "bad",
                  result.met ? "met" : "missed");
  }
  return out + "</table>";
}

// ---- plots of a sweep -------------------------------------------------------

double LoadOfStep(const SweepResult& sweep, const Report& report) {
  return sweep.over_rate ? report.load.rate
                         : static_cast<double>(report.load.concurrency);
}

template <typename Value>
Series OverLoad(const SweepResult& sweep, const char* name, int color,
                Value value) {
  Series series = {.name = name, .color = color};
  for (const Report& report : sweep.steps) {
    series.points.emplace_back(LoadOfStep(sweep, report), value(report));
  }
  return series;
}

Series StatisticOverLoad(const SweepResult& sweep, const char* name, int color,
                         const char* key, double Summary::*statistic) {
  Series series = {.name = name, .color = color};
  for (const Report& report : sweep.steps) {
    const Summary* summary = report.Find(key);
    if (summary == nullptr) continue;
    series.points.emplace_back(LoadOfStep(sweep, report), summary->*statistic);
  }
  return series;
}

std::vector<Plot> SweepPlots(const SweepResult& sweep) {
  const std::string axis = sweep.over_rate ? "requests/s sent" : "concurrency";
  bool tokens = false;
  for (const Report& report : sweep.steps) {
    tokens |= report.output_token_throughput > 0;
  }
  std::vector<Marker> markers;
  if (sweep.knee) {
    markers.push_back({LoadOfStep(sweep, sweep.steps[*sweep.knee]), "knee"});
  }
  if (sweep.best && sweep.best != sweep.knee) {
    markers.push_back({LoadOfStep(sweep, sweep.steps[*sweep.best]), "SLO"});
  }
  std::vector<Plot> plots;
  plots.push_back({.title = "Requests/s",
                   .x_label = axis,
                   .y_label = "requests/s",
                   .series = {OverLoad(sweep, "answered", 0,
                                       [](const Report& report) {
                                         return report.request_throughput;
                                       }),
                              OverLoad(sweep, "goodput", 2,
                                       [](const Report& report) {
                                         return report.goodput;
                                       })},
                   .markers = markers});
  if (tokens) {
    plots.push_back(
        {.title = "Output tokens/s",
         .x_label = axis,
         .y_label = "tokens/s",
         .series = {OverLoad(sweep, "output tokens", 0,
                             [](const Report& report) {
                               return report.output_token_throughput;
                             })},
         .markers = markers});
  }
  const auto times = [&](const char* title, const char* key) {
    Plot plot = {
        .title = title,
        .x_label = axis,
        .y_label = "ms",
        .series = {StatisticOverLoad(sweep, "p50", 0, key, &Summary::p50),
                   StatisticOverLoad(sweep, "p90", 4, key, &Summary::p90),
                   StatisticOverLoad(sweep, "p99", 1, key, &Summary::p99)},
        .markers = markers};
    if (!plot.series[0].points.empty()) plots.push_back(std::move(plot));
  };
  times("Request latency", "request_latency_ms");
  times("Time to first token", "time_to_first_token_ms");
  times("Inter token latency", "inter_token_latency_ms");
  return plots;
}

}  // namespace

std::string ReportHtml(const Report& report) {
  std::string out = kHead + Title(report) + "<div class='cards'>";
  AddCard(out, Format("%.2f", report.request_throughput), "requests/s");
  if (report.output_token_throughput > 0) {
    AddCard(out, Format("%.1f", report.output_token_throughput),
            "output tokens/s");
  }
  if (!report.objectives.empty()) {
    AddCard(out, Format("%.2f", report.goodput), "goodput, requests/s");
  }
  if (const Summary* ttft = report.Find("time_to_first_token_ms")) {
    AddCard(out, Format("%.1f ms", ttft->p50), "first token, p50");
  }
  if (const Summary* latency = report.Find("request_latency_ms")) {
    AddCard(out, Format("%.1f ms", latency->p99), "latency, p99");
  }
  AddCard(out, Format("%.2f %%", 100 * report.error_rate), "failed");
  out += "</div>" + Warnings(report) + Objectives(report) +
         "<div class='plots'>" + PlotSvg(PercentilePlot(report)) +
         PlotSvg(ScatterPlot(report)) + PlotSvg(RatePlot(report)) + "</div>" +
         SummaryTable(report) + ErrorTable(report) + "<h2>As text</h2><pre>" +
         EscapeHtml(TableText(report)) + "</pre></body></html>\n";
  return out;
}

std::string SweepHtml(const SweepResult& result) {
  std::string text = SweepHeader(result);
  for (const Report& report : result.steps) text += SweepRow(result, report);
  text += "\n" + SweepFooter(result);
  return PlotPage(
      result.steps.empty() ? std::string() : Title(result.steps.front()), text,
      SweepPlots(result));
}

std::string PlotPage(const std::string& title, const std::string& text,
                     const std::vector<Plot>& plots) {
  std::string out = kHead + title;
  out += "<pre>" + EscapeHtml(text) + "</pre><div class='plots'>";
  for (const Plot& plot : plots) out += PlotSvg(plot);
  return out + "</div></body></html>\n";
}

}  // namespace millrace::loadtest

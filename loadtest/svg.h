// Plots as SVG text, to stand inside an HTML page. Text takes the page's
// colour, so that light and dark pages both work.
//
//   std::string svg = PlotSvg({.title = "Throughput", .x_label = "requests/s",
//                              .y_label = "tokens/s", .series = {...}});
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::loadtest {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points = {};  // lines: x rises
  bool line = true;                                    // else dots
  int color = 0;  // of a fixed palette; see kColors in svg.cc
};

struct Marker {  // a vertical line with a word
  double x = 0;
  std::string text;
};

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series = {};
  std::vector<Marker> markers = {};
  // Where x is a percentile: 50, 90, 99, 99.9 at equal distances.
  bool percentile_axis = false;
  bool log_y = false;
};

std::string PlotSvg(const Plot& plot);

// &, <, > and quotes as entities.
std::string EscapeHtml(std::string_view text);

// Rising round numbers that cover [low, high], 4 to 8 of them.
std::vector<double> NiceTicks(double low, double high);

}  // namespace millrace::loadtest

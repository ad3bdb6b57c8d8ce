#include "loadtest/svg.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace millrace::loadtest {
namespace {

constexpr double kWidth = 560;
constexpr double kHeight = 300;
constexpr double kLeft = 66;
constexpr double kRight = 26;
constexpr double kTop = 48;
constexpr double kBottom = 44;
// Distinct for most colour-blind eyes (after Okabe and Ito).
constexpr const char* kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                   "#e69f00"};

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[400];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

// 1500 as "1500", 0.25 as "0.25", 12000000 as "1.2e+07".
std::string Number(double value) { return Format("%.6g", value); }

// Positions of percentiles: 90 % is one step from 0, 99 % two, 99.9 % three.
double PercentileX(double percent) {
  return -std::log10(std::max(1 - percent / 100, 1e-6));
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Cover(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

// From values to pixels.
class Scale {
 public:
  explicit Scale(const Plot& plot) : plot_(plot) {
    for (const Series& series : plot.series) {
      for (const auto& [x, y] : series.points) {
        x_.Cover(X(x));
        if (!plot.log_y || y > 0) y_.Cover(Y(y));
      }
    }
    if (x_.empty()) x_ = {0, 1};
    if (y_.empty()) y_ = {0, 1};
    if (!plot.percentile_axis) x_.low = std::min(x_.low, 0.0);
    if (plot.log_y) {
      y_.low = std::floor(y_.low);
      y_.high = std::max(std::ceil(y_.high), y_.low + 1);
    } else {
      y_.low = std::min(y_.low, 0.0);
      y_.high = NiceTicks(y_.low, y_.high).back();
    }
    if (x_.high <= x_.low) x_.high = x_.low + 1;
    if (y_.high <= y_.low) y_.high = y_.low + 1;
  }

  double PixelX(double x) const {
    return kLeft +
           (X(x) - x_.low) / (x_.high - x_.low) * (kWidth - kLeft - kRight);
  }
  double PixelY(double y) const {
    const double value = plot_.log_y && y <= 0 ? y_.low : Y(y);
    return kHeight - kBottom -
           (value - y_.low) / (y_.high - y_.low) * (kHeight - kTop - kBottom);
  }
  std::vector<double> TicksX() const {
    if (!plot_.percentile_axis) return Within(NiceTicks(x_.low, x_.high));
    std::vector<double> ticks;
    for (const double tick : {0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999}) {
      if (X(tick) <= x_.high + 1e-9) ticks.push_back(tick);
    }
    return ticks;
  }
  std::vector<double> TicksY() const {
    if (!plot_.log_y) return NiceTicks(y_.low, y_.high);
    std::vector<double> ticks;
    for (double power = y_.low; power <= y_.high; ++power) {
      ticks.push_back(std::pow(10, power));
    }
    return ticks;
  }

 private:
  double X(double x) const {
    return plot_.percentile_axis ? PercentileX(x) : x;
  }
  double Y(double y) const { return plot_.log_y ? std::log10(y) : y; }
  std::vector<double> Within(std::vector<double> ticks) const {
    std::erase_if(ticks, [&](double tick) {
      return tick > x_.high * 1.0001 || tick < x_.low;
    });
    return ticks;
  }

  const Plot& plot_;
  Range x_;
  Range y_;
};

void AddAxes(const Plot& plot, const Scale& scale, std::string& out) {
  for (const double tick : scale.TicksY()) {
    const double y = scale.PixelY(tick);
    out += Format(
        "<line class='grid' x1='%.1f' x2='%.1f' y1='%.1f' "
        "y2='%.1f'/><text class='tick' x='%.1f' y='%.1f' "
        "text-anchor='end'>%s</text>",
        kLeft, kWidth - kRight, y, y, kLeft - 6, y + 4, Number(tick).c_str());
  }
  for (const double tick : scale.TicksX()) {
    const double x = scale.PixelX(tick);
    const std::string unit = plot.percentile_axis ? " %" : "";
    out += Format(
        "<line class='grid' x1='%.1f' x2='%.1f' y1='%.1f' "
        "y2='%.1f'/><text class='tick' x='%.1f' y='%.1f' "
        "text-anchor='middle'>%s%s</text>",
        x, x, kTop, kHeight - kBottom, x, kHeight - kBottom + 16,
        plot.percentile_axis ? Format("%g", tick).c_str()
                             : Number(tick).c_str(),
        unit.c_str());
  }
  out += Format(
      "<text class='label' x='%.1f' y='%.1f' text-anchor='middle'>"
      "%s</text>",
      (kLeft + kWidth - kRight) / 2, kHeight - 6,
      EscapeHtml(plot.x_label).c_str());
  out += Format(
      "<text class='label' transform='translate(14 %.1f) "
      "rotate(-90)' text-anchor='middle'>%s</text>",
      (kTop + kHeight - kBottom) / 2, EscapeHtml(plot.y_label).c_str());
}

void AddSeries(const Series& series, const Scale& scale, std::string& out) {
  const char* color =
      kColors[static_cast<size_t>(series.color) % std::size(kColors)];
  if (!series.line) {
    out += Format("<g fill='%s' fill-opacity='0.55'>", color);
    for (const auto& [x, y] : series.points) {
      out += Format("<circle cx='%.1f' cy='%.1f' r='2'/>", scale.PixelX(x),
                    scale.PixelY(y));
    }
    out += "</g>";
    return;
  }
  out += Format("<polyline fill='none' stroke='%s' stroke-width='2' points='",
                color);
  for (const auto& [x, y] : series.points) {
    out += Format("%.1f,%.1f ", scale.PixelX(x), scale.PixelY(y));
  }
  out += "'/>";
  if (series.points.size() > 40) return;
  for (const auto& [x, y] : series.points) {
    out += Format(
        "<circle cx='%.1f' cy='%.1f' r='3.2' fill='%s'><title>%s: "
        "%s, %s</title></circle>",
        scale.PixelX(x), scale.PixelY(y), color,
        EscapeHtml(series.name).c_str(), Number(x).c_str(), Number(y).c_str());
  }
}

void AddLegend(const Plot& plot, std::string& out) {
  double x = kLeft;
  for (const Series& series : plot.series) {
    const char* color =
        kColors[static_cast<size_t>(series.color) % std::size(kColors)];
    out += Format(
        "<rect x='%.1f' y='29' width='10' height='10' rx='2' "
        "fill='%s'/><text class='tick' x='%.1f' y='38'>%s</text>",
        x, color, x + 14, EscapeHtml(series.name).c_str());
    x += 32 + 6.3 * static_cast<double>(series.name.size());
  }
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::vector<double> NiceTicks(double low, double high) {
  if (high <= low) high = low + 1;
  const double raw = (high - low) / 5;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = power;
  for (const double times : {1.0, 2.0, 2.5, 5.0, 10.0}) {
    step = times * power;
    if (step >= raw * (1 - 1e-9)) break;
  }
  std::vector<double> ticks;
  const double first = std::floor(low / step + 1e-9);
  for (double i = first;; ++i) {
    ticks.push_back(i * step);
    if (i * step >= high * (1 - 1e-9)) return ticks;
  }
}

std::string PlotSvg(const Plot& plot) {
  const Scale scale(plot);
  std::string out = Format(
      "<svg viewBox='0 0 %.0f %.0f' role='img' aria-label='%s'>"
      "<text class='title' x='%.0f' y='18'>%s</text>",
      kWidth, kHeight, EscapeHtml(plot.title).c_str(), kLeft,
      EscapeHtml(plot.title).c_str());
  AddAxes(plot, scale, out);
  for (const Marker& marker : plot.markers) {
    const double x = scale.PixelX(marker.x);
    out += Format(
        "<line class='marker' x1='%.1f' x2='%.1f' y1='%.1f' "
        "y2='%.1f'/><text class='tick' x='%.1f' y='%.1f' "
        "text-anchor='end'>%s</text>",
        x, x, kTop, kHeight - kBottom, x - 4, kHeight - kBottom - 6,
        EscapeHtml(marker.text).c_str());
  }
  for (const Series& series : plot.series) AddSeries(series, scale, out);
  AddLegend(plot, out);
  return out + "</svg>";
}

}  // namespace millrace::loadtest

// Finds the highest load that meets the objectives, with few measurements:
// doubles or halves the load until one value meets them and the next does not,
// then bisects between the two.
//
//   const LoadResult found = FindHighestLoad({.start = 8}, measure);
#pragma once

#include <functional>
#include <optional>

namespace millrace::loadtest {

struct LoadPoint {
  double load = 0;
  double score = 0;  // goodput, requests/s
  bool met = false;  // the objectives
};

struct LoadRange {
  double start = 1;
  double least = 1;
  double most = 1024;
  bool whole = true;       // loads are whole numbers (concurrency)
  double precision = 0.1;  // of the load that is found
  // A score to beat. The search gives up early on what cannot reach it: two
  // loads that miss the objectives, or a score that no longer grows.
  std::optional<double> beat = std::nullopt;
};

struct LoadResult {
  // Of the loads that met the objectives the one with the highest score.
  std::optional<LoadPoint> best;
  int num_measured = 0;
  bool ended_early = false;  // measure returned nothing
};

// `measure` returns nothing to end the search.
LoadResult FindHighestLoad(
    const LoadRange& range,
    const std::function<std::optional<LoadPoint>(double load)>& measure);

}  // namespace millrace::loadtest

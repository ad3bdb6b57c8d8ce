// Candidates that are taken in an order come out of a heap, so that a few of
// many cost no full sort. Sums run over ascending ids, whatever was taken.
#include "models/llm/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace::models {
namespace {

constexpr float kMinTemperature = 1e-5f;  // its reciprocal is finite

}  // namespace

Candidates::Candidates(const KernelTable& kernels,
                       std::span<const float> logits, float temperature,
                       Room& room)
    : kernels_(kernels),
      logits_(logits),
      temperature_(temperature),
      room_(room) {
  const auto vocab = static_cast<int64_t>(logits.size());
  room_.weights.resize(logits.size());
  const float greatest = kernels_.max(logits.data(), vocab);
  kernels_.sum_exp(logits.data(), vocab, greatest, 1.0f / temperature,
                   room_.weights.data());
  room_.ids.clear();
  for (int32_t id = 0; id < static_cast<int32_t>(vocab); ++id) {
    if (logits[id] > -std::numeric_limits<float>::infinity()) {
      room_.ids.push_back(id);
    }
  }
}

double Candidates::Mass() const {
  double mass = 0;
  for (const int32_t id : room_.ids) mass += room_.weights[id];
  return mass;
}

int32_t Candidates::Best() const {
  return *std::max_element(
      room_.ids.begin(), room_.ids.end(),
      [&](int32_t a, int32_t b) { return logits_[a] < logits_[b]; });
}

template <typename Before, typename Enough>
void Candidates::KeepFirst(Before before, Enough enough) {
  std::vector<int32_t>& ids = room_.ids;
  const auto later = [&](int32_t a, int32_t b) { return before(b, a); };
  std::make_heap(ids.begin(), ids.end(), later);
  auto end = ids.end();
  while (end != ids.begin()) {
    std::pop_heap(ids.begin(), end, later);
    if (enough(*--end)) break;
  }
  ids.erase(ids.begin(), end);
  std::sort(ids.begin(), ids.end());
}

void Candidates::KeepTopNSigma(float n) {
  std::vector<int32_t>& ids = room_.ids;
  if (n <= 0 || ids.size() <= 1) return;
  const auto count = static_cast<double>(ids.size());
  double sum = 0;
  for (const int32_t id : ids) sum += logits_[id];
  const double mean = sum / count;
  double squares = 0;
  for (const int32_t id : ids) {
    squares += (logits_[id] - mean) * (logits_[id] - mean);
  }
  const double least =
      logits_[Best()] - static_cast<double>(n) * std::sqrt(squares / count);
  std::erase_if(ids, [&](int32_t id) { return logits_[id] < least; });
}

void Candidates::KeepTopK(int32_t k) {
  if (k <= 0 || static_cast<size_t>(k) >= room_.ids.size()) return;
  KeepFirst(
      [&](int32_t a, int32_t b) {
        return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
      },
      [&, taken = 0](int32_t) mutable { return ++taken == k; });
}

void Candidates::KeepTypical(float p, int32_t min_keep) {
  if (p >= 1) return;
  const double mass = Mass();
  const auto surprise = [&](int32_t id) {
    return -std::log(room_.weights[id] / mass);
  };
  // A weight may be 0 where it is too small for a float; its surprise is
  // infinite then and adds nothing to the entropy.
  double entropy = 0;
  for (const int32_t id : room_.ids) {
    if (room_.weights[id] > 0) {
      entropy += room_.weights[id] / mass * surprise(id);
    }
  }
  room_.shifts.resize(logits_.size());
  for (const int32_t id : room_.ids) {
    room_.shifts[id] = std::abs(surprise(id) - entropy);
  }
  KeepFirst(
      [&](int32_t a, int32_t b) {
        return room_.shifts[a] != room_.shifts[b]
                   ? room_.shifts[a] < room_.shifts[b]
                   : a < b;
      },
      [&, held = 0.0, taken = 0](int32_t id) mutable {
        held += room_.weights[id] / mass;
        return ++taken >= min_keep && held > p;
      });
}

void Candidates::KeepTopP(float p, int32_t min_keep) {
  if (p >= 1) return;
  const double wanted = p * Mass();
  KeepFirst(
      [&](int32_t a, int32_t b) {
        return room_.weights[a] != room_.weights[b]
                   ? room_.weights[a] > room_.weights[b]
                   : a < b;
      },
      [&, held = 0.0, taken = 0](int32_t id) mutable {
        held += room_.weights[id];
        return ++taken >= min_keep && held >= wanted;
      });
}

void Candidates::KeepMinP(float p, int32_t min_keep) {
  if (p <= 0) return;
  const float least = p * room_.weights[Best()];
  const auto likely = std::ranges::count_if(
      room_.ids, [&](int32_t id) { return room_.weights[id] >= least; });
  if (likely < min_keep) return KeepTopK(min_keep);
  std::erase_if(room_.ids,
                [&](int32_t id) { return room_.weights[id] < least; });
}

void Candidates::DropTop(float threshold, int32_t min_keep) {
  if (threshold > 0.5f) return;  // two cannot be above it
  const double least = threshold * Mass();
  int32_t kept = -1;  // the least likely above; of equal ones the last
  int32_t above = 0;
  for (const int32_t id : room_.ids) {
    if (room_.weights[id] < least) continue;
    ++above;
    if (kept < 0 || room_.weights[id] <= room_.weights[kept]) kept = id;
  }
  const auto left = static_cast<int32_t>(room_.ids.size()) - above + 1;
  if (above < 2 || left < min_keep) return;
  std::erase_if(room_.ids, [&](int32_t id) {
    return id != kept && room_.weights[id] >= least;
  });
}

void Candidates::KeepSurprise(float mu) {
  const int32_t best = Best();
  const double least = std::exp2(-static_cast<double>(mu)) * Mass();
  std::erase_if(room_.ids, [&](int32_t id) {
    return id != best && room_.weights[id] < least;
  });
}

void Candidates::KeepZipf(float mu) {
  constexpr size_t kFirst = 100;
  std::vector<int32_t> first(std::min(kFirst, room_.ids.size()));
  std::partial_sort_copy(
      room_.ids.begin(), room_.ids.end(), first.begin(), first.end(),
      [&](int32_t a, int32_t b) { return logits_[a] > logits_[b]; });
  if (first.size() < 2) return;
  // The slope of ln p against ln rank, by least squares of the differences
  // between neighbours.
  double products = 0;
  double squares = 0;
  for (size_t i = 0; i + 1 < first.size(); ++i) {
    const double rank = std::log(static_cast<double>(i + 2) / (i + 1));
    const double drop =
        (static_cast<double>(logits_[first[i]]) - logits_[first[i + 1]]) /
        temperature_;
    products += rank * drop;
    squares += rank * rank;
  }
  const double slope = products / squares;
  const double above = slope - 1;
  const auto vocab = static_cast<double>(logits_.size());
  const double norm =
      above == 0 ? 1 / std::log(vocab) : above / (1 - std::pow(vocab, -above));
  const double k = std::pow(norm * std::exp2(mu), 1 / slope);
  // Also where k is no number.
  if (!(k < static_cast<double>(room_.ids.size()))) return;
  KeepTopK(std::max(static_cast<int32_t>(k), 1));
}

void Candidates::Temper(float temperature) {
  if (temperature < kMinTemperature) {
    room_.ids = {Best()};
    return;
  }
  temperature_ = temperature;
  const float greatest = logits_[Best()];
  room_.gathered.clear();
  for (const int32_t id : room_.ids) room_.gathered.push_back(logits_[id]);
  room_.terms.resize(room_.ids.size());
  kernels_.sum_exp(room_.gathered.data(),
                   static_cast<int64_t>(room_.ids.size()), greatest,
                   1.0f / temperature, room_.terms.data());
  for (size_t i = 0; i < room_.ids.size(); ++i) {
    room_.weights[room_.ids[i]] = room_.terms[i];
  }
}

float Candidates::DynamicTemperature(float temperature, float range,
                                     float exponent) const {
  if (range <= 0 || room_.ids.size() <= 1) return temperature;
  const float least = std::max(0.0f, temperature - range);
  const float most = temperature + range;
  const double mass = Mass();
  double entropy = 0;
  for (const int32_t id : room_.ids) {
    const double p = room_.weights[id] / mass;
    if (p > 0) entropy -= p * std::log(p);
  }
  const double even = entropy / std::log(static_cast<double>(room_.ids.size()));
  return least + (most - least) * static_cast<float>(std::pow(
                                      std::clamp(even, 0.0, 1.0), exponent));
}

int32_t Candidates::Draw(float temperature, double u) const {
  const std::vector<int32_t>& ids = room_.ids;
  const int32_t best = Best();
  if (temperature < kMinTemperature || ids.size() == 1) return best;
  room_.gathered.clear();
  for (const int32_t id : ids) room_.gathered.push_back(logits_[id]);
  std::vector<float>& terms = room_.terms;
  terms.resize(ids.size());
  const double mass =
      kernels_.sum_exp(room_.gathered.data(), static_cast<int64_t>(ids.size()),
                       logits_[best], 1.0f / temperature, terms.data());
  double rest = u * mass;
  int32_t last = best;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (terms[i] == 0) continue;
    last = ids[i];
    rest -= terms[i];
    if (rest < 0) break;
  }
  return last;
}

float Candidates::Surprise(int32_t id) const {
  return static_cast<float>(-std::log2(room_.weights[id] / Mass()));
}

}  // namespace millrace::models

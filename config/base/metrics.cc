// prometheus-cpp behind handles. Its look-up by labels costs hundreds of
// nanoseconds, hence handles are made once and kept.
#include "config/base/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <list>
#include <map>
#include <tuple>
#include <utility>

#include "config/base/mutex.h"
#include "config/base/open_metrics.h"
#include "config/base/status.h"

namespace millrace {
namespace {

// A histogram's exemplars: of each bucket the last request that was in a trace.
class Exemplars {
 public:
  explicit Exemplars(const std::vector<double>& bounds) : bounds_(bounds) {}

  void Set(double value, const std::string& trace_id) {
    const double now = std::chrono::duration<double>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
    const auto bucket = static_cast<size_t>(
        std::ranges::lower_bound(bounds_, value) - bounds_.begin());
    MutexLock lock(mu_);
    by_bucket_.resize(bounds_.size() + 1);
    by_bucket_[bucket] = {trace_id, value, now};
  }
  std::vector<Exemplar> all() const {
    MutexLock lock(mu_);
    return by_bucket_;
  }

 private:
  const std::vector<double> bounds_;
  mutable Mutex mu_;
  std::vector<Exemplar> by_bucket_ GUARDED_BY(mu_);  // empty: none yet
};

struct HistogramSeries {
  HistogramSeries(prometheus::Histogram* of_family,
                  const std::vector<double>& bounds)
      : counts(of_family), exemplars(bounds) {}

  prometheus::Histogram* const counts;
  Exemplars exemplars;
};

// Outlives the registry while a hook's owner still holds its handle.
struct Hooks {
  // Held while the hooks run, against the house rule: an owner that drops its
  // handle must know that its hook will not run again. A hook may therefore
  // not drop a handle itself.
  Mutex mu;
  std::list<std::function<void()>> all GUARDED_BY(mu);
};

// Names and kinds are literals of ours: a refused one is a bug.
template <typename Make>
auto Checked(Make make) {
  try {
    return make();
  } catch (const std::exception& error) {
    CHECK(false, error.what());
    std::abort();  // for compilers that do not see that the line above does
  }
}

// The series of a registry by name and labels. Shared with the handles, which
// may outlive the registry.
struct SeriesTable : std::enable_shared_from_this<SeriesTable> {
  struct Entry {
    void* metric = nullptr;
    std::unique_ptr<HistogramSeries> histogram;  // null: another kind
    std::function<void()> remove;                // from its family
    int num_owners = 0;
  };
  using Key = std::pair<std::string, MetricLabels>;

  prometheus::Registry registry;
  Mutex mu;
  // The registry merges families by name and would drop a second help text.
  std::map<std::string, std::string, std::less<>> helps GUARDED_BY(mu);
  std::map<Key, Entry> series GUARDED_BY(mu);

  // `make` gives the family; `bounds` go to Add, as the kind takes them.
  // Metrics are added and removed under the lock: else a series could be found
  // by its labels while its last owner removes it.
  template <typename Metric, typename MakeFamily, typename... Bounds>
  std::pair<void*, std::shared_ptr<void>> Own(std::string_view name,
                                              std::string_view help,
                                              const MetricLabels& labels,
                                              MakeFamily make,
                                              const Bounds&... bounds) {
    MutexLock lock(mu);
    const auto first = helps.emplace(name, help).first;
    CHECK(first->second == help, first->first.c_str());
    const auto [at, is_new] =
        series.try_emplace(Key(std::string(name), labels), Entry());
    Entry& entry = at->second;
    // Asked for again although it exists: another kind under this name stops.
    prometheus::Family<Metric>* family = Checked([&] {
      return &make()
                  .Name(std::string(name))
                  .Help(std::string(help))
                  .Register(registry);
    });
    if (is_new) {
      Metric* metric = Checked([&] { return &family->Add(labels, bounds...); });
      entry.metric = metric;
      if constexpr (sizeof...(bounds) > 0) {
        entry.histogram = std::make_unique<HistogramSeries>(metric, bounds...);
        entry.metric = entry.histogram.get();
      }
      entry.remove = [family, metric] { family->Remove(metric); };
    }
    ++entry.num_owners;
    return {entry.metric,
            std::shared_ptr<void>(nullptr, [self = shared_from_this(), at = at](
                                               void*) { self->Leave(at); })};
  }

  ExemplarTable AllExemplars() {
    ExemplarTable table;
    MutexLock lock(mu);
    for (const auto& [key, entry] : series) {
      if (entry.histogram == nullptr) continue;
      std::vector<Exemplar> found = entry.histogram->exemplars.all();
      if (!found.empty()) table.emplace(key, std::move(found));
    }
    return table;
  }

  void Leave(std::map<Key, Entry>::iterator at) {
    MutexLock lock(mu);
    if (--at->second.num_owners > 0) return;
    at->second.remove();
    series.erase(at);
  }
};

}  // namespace

struct MetricRegistry::Impl {
  std::shared_ptr<SeriesTable> table = std::make_shared<SeriesTable>();
  std::shared_ptr<Hooks> hooks = std::make_shared<Hooks>();
  MetricAliases aliases;

  std::vector<prometheus::MetricFamily> Collect() {
    {
      MutexLock lock(hooks->mu);
      for (const auto& fold : hooks->all) fold();
    }
    std::vector<prometheus::MetricFamily> families = table->registry.Collect();
    aliases.AppendTo(families);
    return families;
  }
};

void Counter::Add(double by) const {
  if (impl_) static_cast<prometheus::Counter*>(impl_)->Increment(by);
}
double Counter::value() const {
  return impl_ ? static_cast<prometheus::Counter*>(impl_)->Value() : 0;
}
void Gauge::Set(double value) const {
  if (impl_) static_cast<prometheus::Gauge*>(impl_)->Set(value);
}
void Gauge::Add(double by) const {
  if (impl_) static_cast<prometheus::Gauge*>(impl_)->Increment(by);
}
double Gauge::value() const {
  return impl_ ? static_cast<prometheus::Gauge*>(impl_)->Value() : 0;
}
void Histogram::Observe(double value) const {
  if (impl_) static_cast<HistogramSeries*>(impl_)->counts->Observe(value);
}
void Histogram::Observe(double value, const std::string& trace_id) const {
  if (impl_ == nullptr) return;
  auto* series = static_cast<HistogramSeries*>(impl_);
  series->counts->Observe(value);
  if (!trace_id.empty()) series->exemplars.Set(value, trace_id);
}

MetricRegistry::MetricRegistry() : impl_(std::make_unique<Impl>()) {}
MetricRegistry::~MetricRegistry() = default;

Counter MetricRegistry::AddCounter(std::string_view name, std::string_view help,
                                   const MetricLabels& labels) {
  Counter counter;
  std::tie(counter.impl_, counter.owner_) =
      impl_->table->Own<prometheus::Counter>(name, help, labels,
                                             prometheus::BuildCounter);
  return counter;
}

Gauge MetricRegistry::AddGauge(std::string_view name, std::string_view help,
                               const MetricLabels& labels) {
  Gauge gauge;
  std::tie(gauge.impl_, gauge.owner_) = impl_->table->Own<prometheus::Gauge>(
      name, help, labels, prometheus::BuildGauge);
  return gauge;
}

Histogram MetricRegistry::AddHistogram(std::string_view name,
                                       std::string_view help,
                                       const std::vector<double>& bucket_bounds,
                                       const MetricLabels& labels) {
  Histogram histogram;
  std::tie(histogram.impl_, histogram.owner_) =
      impl_->table->Own<prometheus::Histogram>(
          name, help, labels, prometheus::BuildHistogram, bucket_bounds);
  return histogram;
}

std::shared_ptr<void> MetricRegistry::OnScrape(std::function<void()> fold) {
  const std::shared_ptr<Hooks> hooks = impl_->hooks;
  MutexLock lock(hooks->mu);
  const auto at = hooks->all.insert(hooks->all.end(), std::move(fold));
  return std::shared_ptr<void>(nullptr, [hooks, at](void*) {
    MutexLock removing(hooks->mu);
    hooks->all.erase(at);
  });
}

void MetricRegistry::ExportAlso(std::vector<MetricAlias> aliases) {
  impl_->aliases.Add(std::move(aliases));
}

std::string MetricRegistry::Text() {
  return prometheus::TextSerializer().Serialize(impl_->Collect());
}

std::string MetricRegistry::OpenMetricsText() {
  const std::vector<prometheus::MetricFamily> families = impl_->Collect();
  return millrace::OpenMetricsText(families, impl_->table->AllExemplars());
}

const std::vector<double>& LatencyBucketsSeconds() {
  static const std::vector<double> bounds = {0.001, 0.002, 0.005, 0.01, 0.02,
                                             0.05,  0.1,   0.2,   0.5,  1,
                                             2,     5,     10,    20,   60};
  return bounds;
}

}  // namespace millrace

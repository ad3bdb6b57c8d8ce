// prometheus-cpp behind handles. Its look-up by labels costs hundreds of
// nanoseconds, hence handles are made once and kept.
#include "config/base/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <exception>
#include <list>
#include <utility>

#include "config/base/mutex.h"
#include "config/base/status.h"

namespace millrace {
namespace {

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
  }
}

}  // namespace

struct MetricRegistry::Impl {
  prometheus::Registry registry;
  Mutex mu;
  // The registry merges families by name and would drop a second help text.
  std::map<std::string, std::string, std::less<>> helps GUARDED_BY(mu);

  void SameHelp(std::string_view name, std::string_view help) {
    MutexLock lock(mu);
    const auto at = helps.emplace(name, help).first;
    CHECK(at->second == help, at->first.c_str());
  }
  std::shared_ptr<Hooks> hooks = std::make_shared<Hooks>();
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
  if (impl_) static_cast<prometheus::Histogram*>(impl_)->Observe(value);
}

MetricRegistry::MetricRegistry() : impl_(std::make_unique<Impl>()) {}
MetricRegistry::~MetricRegistry() = default;

Counter MetricRegistry::AddCounter(std::string_view name, std::string_view help,
                                   const MetricLabels& labels) {
  impl_->SameHelp(name, help);
  Counter counter;
  counter.impl_ = Checked([&] {
    return &prometheus::BuildCounter()
                .Name(std::string(name))
                .Help(std::string(help))
                .Register(impl_->registry)
                .Add(labels);
  });
  return counter;
}

Gauge MetricRegistry::AddGauge(std::string_view name, std::string_view help,
                               const MetricLabels& labels) {
  impl_->SameHelp(name, help);
  Gauge gauge;
  gauge.impl_ = Checked([&] {
    return &prometheus::BuildGauge()
                .Name(std::string(name))
                .Help(std::string(help))
                .Register(impl_->registry)
                .Add(labels);
  });
  return gauge;
}

Histogram MetricRegistry::AddHistogram(std::string_view name,
                                       std::string_view help,
                                       const std::vector<double>& bucket_bounds,
                                       const MetricLabels& labels) {
  impl_->SameHelp(name, help);
  Histogram histogram;
  histogram.impl_ = Checked([&] {
    return &prometheus::BuildHistogram()
                .Name(std::string(name))
                .Help(std::string(help))
                .Register(impl_->registry)
                .Add(labels, bucket_bounds);
  });
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

std::string MetricRegistry::Text() {
  {
    MutexLock lock(impl_->hooks->mu);
    for (const auto& fold : impl_->hooks->all) fold();
  }
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

const std::vector<double>& LatencyBucketsSeconds() {
  static const std::vector<double> bounds = {0.001, 0.002, 0.005, 0.01, 0.02,
                                             0.05,  0.1,   0.2,   0.5,  1,
                                             2,     5,     10,    20,   60};
  return bounds;
}

}  // namespace millrace

#include "handlers/response_cache.h"
#include "handlers/forwarding_handler.h"
#include "models/tensor/strings.h"

#include <openssl/evp.h>

#include <memory>
#include <string_view>
#include <utility>

namespace millrace::handlers {
namespace {

// Of an entry beside its tensors' bytes: list, map, names, headers.
constexpr int64_t kEntryBytes = 512;

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
  }
  void Add(const void* bytes, size_t size) {
    EVP_DigestUpdate(context_.get(), bytes, size);
  }
  void Add(int64_t number) { Add(&number, sizeof(number)); }
  // Its length first, so that two texts never run into each other.
  void Add(std::string_view text) {
    Add(static_cast<int64_t>(text.size()));
    Add(text.data(), text.size());
  }
  ResponseCache::Key Finish() {
    ResponseCache::Key key{};
    EVP_DigestFinal_ex(context_.get(), key.data(), nullptr);
    return key;
  }

 private:
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

class CachingHandler final : public ForwardingHandler {
 public:
  CachingHandler(std::unique_ptr<TensorHandler> handler, ResponseCache* cache,
                 const Clock* clock)
      : ForwardingHandler(std::move(handler)), cache_(cache), clock_(clock) {}

  void Start(TensorRequest request, Done done, std::stop_token stop) override {
    const Clock::Time begin = clock_->Now();
    const ResponseCache::Key key = ResponseCache::KeyOf(request);
    std::optional<TensorResponse> found = cache_->Find(key);
    const Clock::Duration lookup = clock_->Now() - begin;
    if (found.has_value()) {
      cache_->Count(/*is_hit=*/true, lookup);
      return done(*std::move(found));
    }
    inner().Start(
        std::move(request),
        [cache = cache_, clock = clock_, key, lookup,
         done = std::move(done)](StatusOr<TensorResponse> response) {
          const Clock::Time kept = clock->Now();
          if (response.ok()) cache->Keep(key, *response);
          cache->Count(/*is_hit=*/false, lookup + (clock->Now() - kept));
          done(std::move(response));
        },
        std::move(stop));
  }

  // What the cache has needs no place of the model; Start refuses the rest.
  Status HasPlaceBy(Clock::Time /*deadline*/) const override {
    return OkStatus();
  }

 private:
  ResponseCache* const cache_;
  const Clock* const clock_;
};

}  // namespace

ResponseCache::ResponseCache(int64_t max_bytes, const std::string& model,
                             MetricRegistry* registry)
    : max_bytes_(max_bytes) {
  if (registry == nullptr) return;
  const MetricLabels labels = {{"model", model}};
  hits_ = registry->AddCounter(
      "millrace_response_cache_hits_total",
      "Requests of a graph that were answered from the response cache.",
      labels);
  misses_ = registry->AddCounter(
      "millrace_response_cache_misses_total",
      "Requests that the response cache had no answer for.", labels);
  evictions_ = registry->AddCounter(
      "millrace_response_cache_evictions_total",
      "Answers that made room for others; many of them ask for more "
      "response_cache_bytes.",
      labels);
  bytes_in_use_ = registry->AddGauge(
      "millrace_response_cache_bytes",
      "Memory of the answers in the response cache.", labels);
}

ResponseCache::~ResponseCache() {
  bytes_in_use_.Add(-static_cast<double>(bytes()));
}

ResponseCache::Key ResponseCache::KeyOf(const TensorRequest& request) {
  Sha256 hash;
  hash.Add(static_cast<int64_t>(request.inputs.size()));
  for (const NamedTensor& input : request.inputs) {
    hash.Add(input.name);
    hash.Add(static_cast<int64_t>(input.tensor.dtype()));
    hash.Add(static_cast<int64_t>(input.tensor.shape().rank()));
    for (const int64_t size : input.tensor.shape()) hash.Add(size);
    if (input.tensor.dtype() != models::kString) {
      hash.Add(input.tensor.bytes(),
               static_cast<size_t>(input.tensor.num_bytes()));
      continue;
    }
    const auto* texts = input.tensor.data<std::string_view>();
    for (int64_t i = 0; i < input.tensor.num_elements(); ++i) {
      hash.Add(texts[i]);
    }
  }
  for (const std::string& output : request.outputs) hash.Add(output);
  return hash.Finish();
}

std::optional<TensorResponse> ResponseCache::Find(const Key& key) {
  MutexLock lock(mu_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  TensorResponse response;
  for (const NamedTensor& output : found->second->outputs) {
    response.outputs.push_back({output.name, output.tensor.Share()});
  }
  response.batch.closed = "response_cache";
  return response;
}

void ResponseCache::Keep(const Key& key, const TensorResponse& response) {
  Entry entry{.key = key, .outputs = {}, .bytes = kEntryBytes};
  for (const NamedTensor& output : response.outputs) {
    entry.bytes += output.tensor.num_bytes() +
                   models::NumCharacters(output.tensor) +
                   static_cast<int64_t>(sizeof(NamedTensor)) +
                   static_cast<int64_t>(output.name.size());
  }
  if (entry.bytes > max_bytes_) return;
  // Bytes of its own: the answer's may be a part of a whole batch's.
  for (const NamedTensor& output : response.outputs) {
    entry.outputs.push_back({output.name, output.tensor.Copy()});
  }
  MutexLock lock(mu_);
  if (by_key_.contains(key)) return;  // another request was first
  while (bytes_ + entry.bytes > max_bytes_) {
    Forget(std::prev(entries_.end()));
    evictions_.Add();
  }
  bytes_ += entry.bytes;
  bytes_in_use_.Add(static_cast<double>(entry.bytes));
  entries_.push_front(std::move(entry));
  by_key_[key] = entries_.begin();
}

void ResponseCache::Forget(Entries::iterator entry) {
  bytes_ -= entry->bytes;
  bytes_in_use_.Add(-static_cast<double>(entry->bytes));
  by_key_.erase(entry->key);
  entries_.erase(entry);
}

void ResponseCache::Count(bool is_hit, Clock::Duration time) {
  (is_hit ? hits_ : misses_).Add();
  MutexLock lock(mu_);
  ++(is_hit ? counts_.hits : counts_.misses);
  (is_hit ? counts_.hit_time : counts_.miss_time) += time;
}

CacheCounts ResponseCache::counts() const {
  MutexLock lock(mu_);
  return counts_;
}

int64_t ResponseCache::bytes() const {
  MutexLock lock(mu_);
  return bytes_;
}

std::unique_ptr<TensorHandler> MakeCachingHandler(
    std::unique_ptr<TensorHandler> handler, ResponseCache* cache,
    const Clock* clock) {
  return std::make_unique<CachingHandler>(std::move(handler), cache, clock);
}

}  // namespace millrace::handlers

#include "loadtest/plan/fleet.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

namespace millrace::loadtest {
namespace {

constexpr int64_t kTimelinePoints = 200;

enum class Kind : uint8_t { kRun, kStart, kLose, kReturn, kScale };

// Equal times are taken in the order of kinds and replicas.
struct Event {
  Ns at;
  Kind kind;
  uint32_t replica;
  auto Key() const { return std::tuple(at, kind, replica); }
  bool operator>(const Event& other) const { return Key() > other.Key(); }
};

enum class State : uint8_t { kStarting, kServing, kDraining, kDown };

uint64_t Mixed(uint64_t value) {  // the finalizer of splitmix64
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

class Fleet final : public SimSink {
 public:
  Fleet(const FleetSpec& spec, const std::vector<SimRequest>& requests,
        const Slo& slo)
      : spec_(spec), requests_(requests), slo_(slo) {
    first_token_.assign(requests.size(), -1);
  }

  FleetResult Run();

  void FirstToken(uint32_t request, Ns now) override {
    if (first_token_[request] >= 0) return;  // before a loss
    first_token_[request] = now + spec_.model.request_overhead_ns;
    result_.ttft_ns.Add(first_token_[request] - requests_[request].arrival);
  }
  void Gaps(Ns gap, int64_t count) override {
    if (count > 0) result_.itl_ns.Add(gap, count);
  }
  void Done(uint32_t request, Ns now) override;
  void Refused(uint32_t) override {
    ++result_.num_refused;
    --outstanding_;
  }

 private:
  // Load, when it was last used, index: of equals the one that has waited
  // longest comes first, as in proxies.
  using Rank = std::tuple<int64_t, uint64_t, uint32_t>;

  struct Node {
    std::unique_ptr<Replica> replica;
    State state = State::kServing;
    Ns scheduled = kNever;
    uint64_t last_used = 0;
    Rank rank = {};  // its key in by_load_
  };

  uint32_t AddNode(State state);
  void SetState(uint32_t index, State state);
  void Update(uint32_t index);
  std::optional<uint32_t> Route(uint32_t request);
  uint32_t NextServing(uint64_t from) const;
  void Send(uint32_t request);
  void Lose();
  void Scale();
  void Handle(const Event& event);
  bool Over() const {
    return next_arrival_ == requests_.size() && outstanding_ == 0;
  }
  void Push(Ns at, Kind kind, uint32_t replica = 0) {
    events_.push({at, kind, replica});
  }

  const FleetSpec& spec_;
  const std::vector<SimRequest>& requests_;
  const Slo& slo_;
  FleetResult result_;
  Ns now_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
  std::vector<Node> nodes_;
  std::set<Rank> by_load_;  // those that serve
  int64_t num_serving_ = 0;
  int64_t num_starting_ = 0;
  int64_t num_paid_ = 0;
  Ns paid_since_ = 0;
  uint64_t turn_ = 0;  // of round-robin
  uint64_t num_sent_ = 0;
  size_t next_arrival_ = 0;
  int64_t outstanding_ = 0;
  std::vector<Ns> first_token_;
  std::vector<uint32_t> lost_;
  std::vector<uint32_t> parked_;  // that wait for any replica to serve
};

void Fleet::Done(uint32_t index, Ns now) {
  now += spec_.model.request_overhead_ns;
  const SimRequest& request = requests_[index];
  using std::chrono::nanoseconds;
  const Ns latency = now - request.arrival;
  result_.latency_ns.Add(latency);
  Ns ttft = -1;
  Ns tpot = -1;
  if (!spec_.model.graph) {
    ttft = first_token_[index] - request.arrival;
    result_.output_tokens += request.output_tokens;
    if (request.output_tokens > 1) {
      tpot = (latency - ttft) / (request.output_tokens - 1);
      result_.tpot_ns.Add(tpot);
    }
  }
  if (MeetsSlo(slo_, nanoseconds(ttft), nanoseconds(tpot),
               nanoseconds(latency))) {
    ++result_.num_good;
  }
  ++result_.num_done;
  --outstanding_;
  result_.end = std::max(result_.end, now);
}

uint32_t Fleet::AddNode(State state) {
  const auto index = static_cast<uint32_t>(nodes_.size());
  Node node;
  node.replica =
      MakeReplica(spec_.model, requests_, spec_.prefix_tokens, *this);
  node.state = State::kDown;
  nodes_.push_back(std::move(node));
  SetState(index, state);
  return index;
}

void Fleet::SetState(uint32_t index, State state) {
  Node& node = nodes_[index];
  result_.replica_seconds += static_cast<double>(num_paid_) *
                             static_cast<double>(now_ - paid_since_) * 1e-9;
  paid_since_ = now_;
  const auto count = [&](State of, int64_t by) {
    if (of == State::kServing) num_serving_ += by;
    if (of == State::kStarting) num_starting_ += by;
    if (of != State::kDown) num_paid_ += by;
  };
  if (node.state == State::kServing) by_load_.erase(node.rank);
  count(node.state, -1);
  node.state = state;
  count(state, 1);
  if (state == State::kServing) {
    node.rank = {node.replica->outstanding(), node.last_used, index};
    by_load_.insert(node.rank);
  }
  result_.most_replicas = std::max(result_.most_replicas, num_paid_);
}

// After each change of a replica: its place by load and its next event.
void Fleet::Update(uint32_t index) {
  Node& node = nodes_[index];
  const int64_t load = node.replica->outstanding();
  const Rank rank = {load, node.last_used, index};
  if (node.state == State::kServing && rank != node.rank &&
      spec_.routing == Routing::kLeastLoaded) {
    by_load_.erase(node.rank);
    node.rank = rank;
    by_load_.insert(rank);
  }
  if (node.state == State::kDraining && load == 0) {
    SetState(index, State::kDown);
  }
  const Ns next = node.replica->next();
  if (next == node.scheduled) return;
  node.scheduled = next;
  if (next != kNever) Push(next, Kind::kRun, index);
}

uint32_t Fleet::NextServing(uint64_t from) const {
  auto index = static_cast<uint32_t>(from % nodes_.size());
  while (nodes_[index].state != State::kServing) {
    index = index + 1 == nodes_.size() ? 0 : index + 1;
  }
  return index;
}

std::optional<uint32_t> Fleet::Route(uint32_t request) {
  if (num_serving_ == 0) return std::nullopt;
  const int32_t group = requests_[request].group;
  switch (spec_.routing) {
    case Routing::kLeastLoaded:
      return std::get<2>(*by_load_.begin());
    case Routing::kPrefix: {
      if (group < 0) break;
      const double most = 1.25 * static_cast<double>(outstanding_) /
                              static_cast<double>(num_serving_) +
                          1;
      uint32_t index = NextServing(Mixed(static_cast<uint64_t>(group)));
      for (int64_t i = 0; i < num_serving_; ++i) {
        const auto load =
            static_cast<double>(nodes_[index].replica->outstanding());
        if (load < most) break;
        index = NextServing(uint64_t{index} + 1);
      }
      return index;
    }
    case Routing::kRoundRobin:
      break;
  }
  const uint32_t index = NextServing(turn_);
  turn_ = uint64_t{index} + 1;
  return index;
}

void Fleet::Send(uint32_t request) {
  const std::optional<uint32_t> index = Route(request);
  if (!index) {
    parked_.push_back(request);
    return;
  }
  nodes_[*index].last_used = ++num_sent_;
  nodes_[*index].replica->Add(request, now_);
  Update(*index);
}

void Fleet::Lose() {
  const auto count = static_cast<int64_t>(
      std::ceil(spec_.loss->share * static_cast<double>(num_serving_)));
  std::vector<uint32_t> again;
  for (uint32_t i = 0, n = 0; i < nodes_.size() && n < count; ++i) {
    if (nodes_[i].state != State::kServing) continue;
    ++n;
    lost_.push_back(i);
    const auto evicted = nodes_[i].replica->Evict();
    again.insert(again.end(), evicted.begin(), evicted.end());
    SetState(i, State::kDown);
    nodes_[i].scheduled = kNever;
  }
  result_.num_restarted += static_cast<int64_t>(again.size());
  std::sort(again.begin(), again.end());
  for (const uint32_t request : again) Send(request);
  if (spec_.loss->lasts != kNever) {
    Push(now_ + spec_.loss->lasts, Kind::kReturn);
  }
}

void Fleet::Scale() {
  const Autoscale& rule = *spec_.autoscale;
  const auto wanted = std::clamp<int64_t>(
      std::llround(std::ceil(static_cast<double>(outstanding_) / rule.target)),
      rule.least, rule.most);
  for (int64_t have = num_serving_ + num_starting_; have < wanted; ++have) {
    Push(now_ + spec_.start_time, Kind::kStart, AddNode(State::kStarting));
  }
  // None is stopped while others start.
  for (size_t i = nodes_.size();
       i > 0 && num_serving_ > wanted && num_starting_ == 0; --i) {
    const auto index = static_cast<uint32_t>(i - 1);
    if (nodes_[index].state != State::kServing) continue;
    SetState(index, State::kDraining);
    Update(index);
  }
  if (!Over()) Push(now_ + rule.interval, Kind::kScale);
}

void Fleet::Handle(const Event& event) {
  const auto serve = [&](uint32_t index) {
    SetState(index, State::kServing);
    for (const uint32_t request : std::exchange(parked_, {})) Send(request);
  };
  switch (event.kind) {
    case Kind::kRun: {
      Node& node = nodes_[event.replica];
      if (node.scheduled != event.at) return;  // it was planned anew
      node.scheduled = kNever;
      node.replica->Run(now_);
      Update(event.replica);
      return;
    }
    case Kind::kStart:
      return serve(event.replica);
    case Kind::kLose:
      return Lose();
    case Kind::kReturn:
      for (const uint32_t index : std::exchange(lost_, {})) serve(index);
      return;
    case Kind::kScale:
      return Scale();
  }
}

FleetResult Fleet::Run() {
  for (int64_t i = 0; i < spec_.replicas; ++i) AddNode(State::kServing);
  if (spec_.autoscale) Push(spec_.autoscale->interval, Kind::kScale);
  if (spec_.loss) Push(spec_.loss->at, Kind::kLose);
  const Ns last = requests_.empty() ? 0 : requests_.back().arrival;
  const Ns sample_every = std::max<Ns>(1, last / kTimelinePoints);
  Ns next_sample = 0;
  while (!Over()) {
    const Ns arrival = next_arrival_ < requests_.size()
                           ? requests_[next_arrival_].arrival
                           : kNever;
    const Ns event = events_.empty() ? kNever : events_.top().at;
    if (arrival == kNever && event == kNever) break;  // none will ever serve
    now_ = std::min(arrival, event);
    if (now_ >= next_sample) {
      result_.timeline.push_back({now_, num_serving_, outstanding_});
      next_sample = now_ + sample_every;
    }
    ++result_.num_events;
    if (event <= arrival) {
      const Event top = events_.top();
      events_.pop();
      Handle(top);
      continue;
    }
    ++outstanding_;
    Send(static_cast<uint32_t>(next_arrival_++));
  }
  result_.num_refused += static_cast<int64_t>(parked_.size());
  result_.end = std::max(result_.end, last);
  now_ = std::max(now_, result_.end);
  result_.replica_seconds += static_cast<double>(num_paid_) *
                             static_cast<double>(now_ - paid_since_) * 1e-9;
  return std::move(result_);
}

}  // namespace

FleetResult Simulate(const FleetSpec& fleet,
                     const std::vector<SimRequest>& requests, const Slo& slo) {
  return Fleet(fleet, requests, slo).Run();
}

}  // namespace millrace::loadtest

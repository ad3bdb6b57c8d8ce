// A slot is a connection with its reader. A closed loop runs one coroutine a
// slot; an open loop starts a coroutine when a request is due, on a free slot.
// One sweep every 5 ms watches all deadlines: cheaper than a timer a request.
#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "loadtest/detail/connection.h"
#include "loadtest/worker.h"

namespace millrace::loadtest {
namespace {

namespace asio = boost::asio;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr auto kSweep = milliseconds(5);
// A closed loop waits before it tries a server again that refused: else it
// would count nothing but how fast refusals come.
constexpr auto kConnectPause = milliseconds(100);
constexpr auto kMaxRetryAfter = std::chrono::seconds(60);

struct Slot {
  Slot(asio::io_context& context, const Endpoints& endpoints)
      : connection(context, endpoints), timer(context) {}

  HttpConnection connection;
  asio::steady_timer timer;
  std::unique_ptr<BodyReader> reader;
  std::vector<std::string> replies;
  std::string scratch;
};

class HttpWorker final : public Worker {
 public:
  HttpWorker(const WorkerSetup& setup, Endpoints endpoints)
      : setup_(setup),
        options_(*setup.options),
        endpoints_(std::move(endpoints)),
        context_(1),
        sweep_timer_(context_),
        pace_timer_(context_) {}

  RunStats Run(const Phase& phase, Progress& progress) override;

 private:
  asio::awaitable<void> ClosedLoop(Slot& slot);
  asio::awaitable<void> OpenLoop();
  asio::awaitable<void> ServeTickets(Slot& slot, Ticket ticket);
  asio::awaitable<Outcome> Converse(Slot& slot, Ticket ticket);
  asio::awaitable<RequestRecord> Send(Slot& slot, Time intended,
                                      std::string_view bytes);
  asio::awaitable<void> SleepUntil(Slot& slot, Time wake);
  asio::awaitable<void> Sweep();

  Slot& TakeSlot();
  void CoroutineEnded(const std::exception_ptr& error);
  bool stopped() const {
    return progress_->stop.load(std::memory_order_relaxed) != StopLevel::kNone;
  }

  const WorkerSetup setup_;
  const Options& options_;
  const Endpoints endpoints_;
  asio::io_context context_;
  asio::steady_timer sweep_timer_;
  asio::steady_timer pace_timer_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> free_;

  // Of the phase under way.
  const Phase* phase_ = nullptr;
  Progress* progress_ = nullptr;
  std::optional<Recorder> recorder_;
  std::deque<Ticket> waiting_;  // due, but all connections are taken
  int64_t slots_taken_ = 0;
  int64_t coroutines_ = 0;  // without the sweep
  Time sending_ended_ = Time::max();
};

RunStats HttpWorker::Run(const Phase& phase, Progress& progress) {
  phase_ = &phase;
  progress_ = &progress;
  recorder_.emplace(options_.slo, phase.start);
  sending_ended_ = Time::max();
  context_.restart();
  const auto done = [this](std::exception_ptr error) { CoroutineEnded(error); };
  if (phase.open_loop) {
    ++coroutines_;
    asio::co_spawn(context_, OpenLoop(), done);
  } else {
    const int64_t share =
        ShareOf(phase.concurrency, setup_.thread_index, options_.threads);
    for (int64_t i = 0; i < share; ++i) {
      ++coroutines_;
      asio::co_spawn(context_, ClosedLoop(TakeSlot()), done);
    }
  }
  if (coroutines_ > 0) asio::co_spawn(context_, Sweep(), asio::detached);
  context_.run();
  return recorder_->Take();
}

Slot& HttpWorker::TakeSlot() {
  ++slots_taken_;
  if (!free_.empty()) {
    Slot* slot = free_.back();
    free_.pop_back();
    return *slot;
  }
  slots_.push_back(std::make_unique<Slot>(context_, endpoints_));
  slots_.back()->reader = MakeBodyReader(options_.endpoint, options_.streaming);
  return *slots_.back();
}

// No coroutine throws but for want of memory, which ends the process.
void HttpWorker::CoroutineEnded(const std::exception_ptr& error) {
  if (error != nullptr) std::rethrow_exception(error);
  if (--coroutines_ > 0) return;
  sweep_timer_.cancel();
}

asio::awaitable<void> HttpWorker::ClosedLoop(Slot& slot) {
  while (const auto ticket = NextTurnOf(*phase_, *progress_)) {
    const Outcome outcome = co_await Converse(slot, *ticket);
    if (outcome == Outcome::kConnect) {
      co_await SleepUntil(slot, Clock::now() + kConnectPause);
    }
  }
  sending_ended_ = std::min(sending_ended_, Clock::now());
  --slots_taken_;
  free_.push_back(&slot);
}

asio::awaitable<void> HttpWorker::OpenLoop() {
  ArrivalShare share(*phase_, setup_.thread_index, options_.threads);
  const int64_t max_slots = std::max<int64_t>(
      1,
      ShareOf(phase_->max_connections, setup_.thread_index, options_.threads));
  while (const auto ticket = share.Next()) {
    while (Clock::now() < ticket->intended && !stopped()) {
      pace_timer_.expires_at(ticket->intended);
      co_await pace_timer_.async_wait(kAwait);
    }
    if (stopped()) break;
    if (slots_taken_ >= max_slots) {
      waiting_.push_back(*ticket);
      continue;
    }
    ++coroutines_;
    asio::co_spawn(context_, ServeTickets(TakeSlot(), *ticket),
                   [this](std::exception_ptr error) { CoroutineEnded(error); });
  }
  sending_ended_ = Clock::now();
}

// One request, then those that waited for a connection.
asio::awaitable<void> HttpWorker::ServeTickets(Slot& slot, Ticket ticket) {
  while (true) {
    co_await Converse(slot, ticket);
    if (waiting_.empty()) break;
    ticket = waiting_.front();
    waiting_.pop_front();
  }
  --slots_taken_;
  free_.push_back(&slot);
}

asio::awaitable<Outcome> HttpWorker::Converse(Slot& slot, Ticket ticket) {
  const Requests& requests = *setup_.requests;
  const int64_t conversation = ticket.index % requests.size();
  const int64_t num_turns = requests.NumTurns(conversation);
  Time intended = ticket.intended;
  slot.replies.clear();
  for (int64_t turn = 0; turn < num_turns; ++turn) {
    if (turn > 0) {
      intended = Clock::now() + requests.Delay(conversation, turn);
      co_await SleepUntil(slot, intended);
      if (stopped() || Clock::now() >= phase_->stop) break;
    }
    const RequestRecord record = co_await Send(
        slot, intended,
        requests.Bytes(conversation, turn, slot.replies, slot.scratch));
    recorder_->Add(record);
    progress_->Count(record);
    if (!phase_->open_loop && record.outcome == Outcome::kRateLimited) {
      const auto pause =
          std::chrono::duration<double>(std::max(record.retry_after_s, 0.1));
      co_await SleepUntil(
          slot, Clock::now() +
                    std::min<nanoseconds>(duration_cast<nanoseconds>(pause),
                                          kMaxRetryAfter));
    }
    if (record.outcome != Outcome::kOk) co_return record.outcome;
    if (turn + 1 < num_turns) slot.replies.emplace_back(slot.reader->text());
  }
  co_return Outcome::kOk;
}

asio::awaitable<RequestRecord> HttpWorker::Send(Slot& slot, Time intended,
                                                std::string_view bytes) {
  RequestRecord record;
  record.intended = intended;
  // A request that has waited too long for a connection fails at once; after a
  // stop nothing more is sent.
  if (stopped() || Clock::now() >= intended + options_.request_timeout) {
    record.end = Clock::now();
    record.outcome = stopped() ? Outcome::kUnfinished : Outcome::kTimeout;
    record.error = stopped()
                       ? "it was not sent, as the run was stopped"
                       : "it waited for a connection too long and was not sent";
    co_return record;
  }
  progress_->in_flight.fetch_add(1, std::memory_order_relaxed);
  slot.connection.deadline = intended + options_.request_timeout;
  co_await slot.connection.Exchange(bytes, *slot.reader, record);
  slot.connection.deadline = Time::max();
  progress_->in_flight.fetch_sub(1, std::memory_order_relaxed);
  co_return record;
}

asio::awaitable<void> HttpWorker::SleepUntil(Slot& slot, Time wake) {
  wake = std::min(wake, phase_->stop);
  while (Clock::now() < wake && !stopped()) {
    slot.timer.expires_at(wake);
    co_await slot.timer.async_wait(kAwait);
  }
}

asio::awaitable<void> HttpWorker::Sweep() {
  while (coroutines_ > 0) {
    sweep_timer_.expires_after(kSweep);
    co_await sweep_timer_.async_wait(kAwait);
    const Time now = Clock::now();
    const StopLevel stop = progress_->stop.load(std::memory_order_relaxed);
    if (stop != StopLevel::kNone)
      sending_ended_ = std::min(sending_ended_, now);
    const bool bounded =
        phase_->stop != Time::max() || stop != StopLevel::kNone;
    const Time ended = std::min(sending_ended_, phase_->stop);
    const bool over = stop == StopLevel::kAbort ||
                      (bounded && now > ended && now - ended > phase_->grace);
    if (over) {
      progress_->stop.store(StopLevel::kAbort, std::memory_order_relaxed);
    }
    if (stop != StopLevel::kNone) pace_timer_.cancel();
    for (const auto& slot : slots_) {
      if (stop != StopLevel::kNone) slot->timer.cancel();
      if (slot->connection.deadline == Time::max()) continue;
      if (over) {
        slot->connection.Abort(Outcome::kUnfinished);
      } else if (now >= slot->connection.deadline) {
        slot->connection.Abort(Outcome::kTimeout);
      }
    }
  }
}

}  // namespace

StatusOr<std::unique_ptr<Worker>> MakeHttpWorker(const WorkerSetup& setup) {
  ASSIGN_OR_RETURN(Endpoints endpoints, Resolve(setup.options->url));
  return std::make_unique<HttpWorker>(setup, std::move(endpoints));
}

}  // namespace millrace::loadtest

// MADV_POPULATE_WRITE makes pages as a write would and leaves what they hold,
// so that it may run beside whoever fills them.
#include "models/memory/warm_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <stop_token>

namespace millrace::models {
namespace {

// Asked for at a time: enough to be cheap, little enough to stop soon.
constexpr int64_t kPieceBytes = int64_t{4} << 20;

void AskForPages(const std::stop_token& stopped, std::byte* data,
                 int64_t bytes) {
#ifdef MADV_POPULATE_WRITE
  for (int64_t at = 0; at < bytes && !stopped.stop_requested();
       at += kPieceBytes) {
    const auto piece = static_cast<size_t>(std::min(bytes - at, kPieceBytes));
    if (::madvise(data + at, piece, MADV_POPULATE_WRITE) != 0) return;
  }
#else
  (void)stopped, (void)data, (void)bytes;
#endif
}

}  // namespace

StatusOr<WarmBuffer> WarmBuffer::Start(int64_t bytes, int64_t warm_bytes,
                                       const config::CpuSet& cpus,
                                       std::string_view purpose) {
  WarmBuffer out;
  ASSIGN_OR_RETURN(out.buffer_, HugeBuffer::Allocate(bytes, true, purpose));
  const int64_t warm = std::min(bytes, warm_bytes);
  if (warm > 0 && cpus.size() > 1) {
    out.thread_ = std::jthread(
        [cpus, warm, data = out.data()](const std::stop_token& stopped) {
          // Without its CPUs it only asks from others.
          (void)config::PinThisThread(cpus, "warm_pages");
          AskForPages(stopped, data, warm);
        });
  }
  return out;
}

void WarmBuffer::Wait() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace millrace::models

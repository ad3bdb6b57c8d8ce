// One lock, held to swap a vector. Closing and posting are ordered by it: a job
// is either refused or seen by the edge that ends everything.
#include "scheduler/mailbox.h"

#include <string>
#include <utility>

namespace millrace::scheduler {

Status Mailbox::Post(std::unique_ptr<Job> job) {
  MutexLock lock(mu_);
  if (mail_.closed) return Unavailable("the model takes no new requests");
  if (static_cast<int32_t>(mail_.jobs.size()) >= capacity_) {
    return ResourceExhausted("the engine's mailbox is full (" +
                             std::to_string(capacity_) + " requests)");
  }
  mail_.jobs.push_back(std::move(job));
  news_ = true;
  changed_.NotifyOne();
  return OkStatus();
}

void Mailbox::Close() {
  MutexLock lock(mu_);
  mail_.closed = true;
  news_ = true;
  changed_.NotifyOne();
}

void Mailbox::Quit() {
  MutexLock lock(mu_);
  mail_.closed = true;
  mail_.quit = true;
  news_ = true;
  changed_.NotifyOne();
}

void Mailbox::AwaitEnded() {
  MutexLock lock(mu_);
  while (!ended_) ended_changed_.Wait(mu_);
}

int32_t Mailbox::size() const {
  MutexLock lock(mu_);
  return static_cast<int32_t>(mail_.jobs.size());
}

Mailbox::Mail Mailbox::Take(bool park) {
  MutexLock lock(mu_);
  while (park && !news_) changed_.Wait(mu_);
  news_ = false;
  Mail mail;
  mail.jobs.swap(mail_.jobs);
  mail.closed = mail_.closed;
  mail.quit = mail_.quit;
  return mail;
}

void Mailbox::Ended() {
  MutexLock lock(mu_);
  ended_ = true;
  ended_changed_.NotifyAll();
}

}  // namespace millrace::scheduler

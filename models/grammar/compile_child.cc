// Bytes between the two: numbers as they are in memory, since both are the same
// program on the same machine.
#include "models/grammar/compile_child.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "models/grammar/child_process.h"
#include "models/grammar/grammar_source.h"
#include "models/grammar/xgrammar.h"

namespace millrace::models {
namespace {

void PutNumber(std::string& bytes, uint32_t number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}
void PutText(std::string& bytes, std::string_view text) {
  PutNumber(bytes, static_cast<uint32_t>(text.size()));
  bytes.append(text);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  uint32_t Number() {
    uint32_t number = 0;
    if (rest_.size() < sizeof(number)) {
      ok_ = false;
      return 0;
    }
    std::memcpy(&number, rest_.data(), sizeof(number));
    rest_.remove_prefix(sizeof(number));
    return number;
  }
  // At most as many as there are bytes left.
  uint32_t Count() {
    const uint32_t count = Number();
    if (count <= rest_.size()) return count;
    ok_ = false;
    return 0;
  }
  std::string Text() {
    const uint32_t size = Count();
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }
  bool ok() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

StatusOr<std::string> ReadInput() {
  std::string bytes;
  char buffer[1 << 16];
  while (true) {
    const ssize_t size = ::read(STDIN_FILENO, buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return Internal("standard input cannot be read");
    if (size == 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(size));
  }
}

StatusOr<std::string> Compile() {
  ASSIGN_OR_RETURN(const std::string bytes, ReadInput());
  ASSIGN_OR_RETURN(const CompileJob job, DecodeJob(bytes));
  // A small constraint can ask for much work here, too.
  ASSIGN_OR_RETURN(const GrammarSource source, SourceOf(job.constraint));
  ASSIGN_OR_RETURN(const auto xgrammar, Xgrammar::Open());
  ASSIGN_OR_RETURN(const auto vocabulary, xgrammar->MakeVocabulary(job.tokens));
  return vocabulary->Compile(source);
}

bool WriteAll(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = ::write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(size));
  }
  return true;
}

void Limit(__rlimit_resource resource, int64_t soft, int64_t hard) {
  const rlimit limit = {static_cast<rlim_t>(soft), static_cast<rlim_t>(hard)};
  ::setrlimit(resource, &limit);
}

}  // namespace

std::string EncodeJob(const OutputConstraint& constraint,
                      const TokenTexts& tokens) {
  std::string bytes;
  PutNumber(bytes, static_cast<uint32_t>(constraint.kind));
  PutText(bytes, constraint.text);
  PutNumber(bytes, static_cast<uint32_t>(tokens.vocab_size));
  PutNumber(bytes, static_cast<uint32_t>(tokens.stop_ids.size()));
  for (const int32_t id : tokens.stop_ids) {
    PutNumber(bytes, static_cast<uint32_t>(id));
  }
  PutNumber(bytes, static_cast<uint32_t>(tokens.texts.size()));
  for (const std::string& text : tokens.texts) PutText(bytes, text);
  return bytes;
}

StatusOr<CompileJob> DecodeJob(std::string_view bytes) {
  Reader reader(bytes);
  CompileJob job;
  job.constraint.kind = static_cast<ConstraintKind>(reader.Number());
  job.constraint.text = reader.Text();
  job.tokens.vocab_size = static_cast<int32_t>(reader.Number());
  for (uint32_t left = reader.Count(); left > 0; --left) {
    job.tokens.stop_ids.push_back(static_cast<int32_t>(reader.Number()));
  }
  for (uint32_t left = reader.Count(); left > 0; --left) {
    job.tokens.texts.push_back(reader.Text());
  }
  if (!reader.ok()) return InvalidArgument("the job is damaged");
  return job;
}

int RunCompileChild() {
  // Sockets and files of the server are none of its business.
  ::close_range(3, ~0U, 0);
  Limit(RLIMIT_AS, kChildMemoryBytes, kChildMemoryBytes);
  // At the hard limit the signal is SIGKILL, which others send, too.
  Limit(RLIMIT_CPU, kChildCpuSeconds, kChildCpuSeconds + 1);
  Limit(RLIMIT_CORE, 0, 0);
  std::string answer;
  try {
    StatusOr<std::string> compiled = Compile();
    answer = compiled.ok() ? "K" + *compiled
                           : "E" + std::string(compiled.status().message());
  } catch (const std::bad_alloc&) {  // at the limit of memory
    return kOutOfMemoryExit;
  } catch (const std::exception&) {
    return 1;
  }
  return WriteAll(answer) ? 0 : 1;
}

}  // namespace millrace::models

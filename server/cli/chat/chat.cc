// The terminal side. Ctrl-C is caught only while an answer is on its way; at
// the prompt it ends the program as usual.
#include "server/cli/chat/chat.h"

#include <unistd.h>

#include <csignal>
#include <iostream>
#include <string>
#include <utility>

#include "server/cli/chat/chat_options.h"
#include "server/cli/chat/conversation.h"

namespace millrace::server {
namespace {

// The one thing a signal handler may touch.
volatile std::sig_atomic_t interrupted = 0;

// Catches Ctrl-C for as long as it lives.
class InterruptGuard {
 public:
  InterruptGuard() {
    interrupted = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGINT, &action, &before_);
  }
  ~InterruptGuard() { ::sigaction(SIGINT, &before_, nullptr); }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction before_ {};
};

// Control characters but for line breaks and tabs are left out.
std::string Printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte >= ' ' && byte != 0x7F) || c == '\n' || c == '\t') out += c;
  }
  return out;
}

std::string Trimmed(const std::string& line) {
  const size_t first = line.find_first_not_of(" \t\r");
  if (first == line.npos) return "";
  return line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

int Failed(const ChatTerminal& terminal, const Status& status) {
  terminal.err << "millrace chat: " << status.message() << "\n";
  return status.code() == StatusCode::kInvalidArgument ? 2 : 1;
}

// Asks and prints; 0 or 1.
int Answer(Conversation& talk, const std::string& question,
           const ChatTerminal& terminal) {
  bool at_line_start = true;
  Status status;
  {
    InterruptGuard guard;
    status = talk.Ask(
        question,
        [&](std::string_view text) {
          const std::string shown =
              terminal.to_screen ? Printable(text) : std::string(text);
          if (shown.empty()) return;
          at_line_start = shown.back() == '\n';
          terminal.out << shown << std::flush;
        },
        terminal.cancelled);
  }
  if (!at_line_start) terminal.out << "\n";
  terminal.out << std::flush;
  if (status.code() == StatusCode::kCancelled) {
    terminal.err << "(stopped)\n";
    return 1;
  }
  return status.ok() ? 0 : (Failed(terminal, status), 1);
}

int Talk(Conversation& talk, const ChatTerminal& terminal) {
  if (terminal.interactive) {
    terminal.out << "Talking with " << talk.model()
                 << ". /reset starts anew, /exit leaves, Ctrl-C stops an "
                    "answer.\n";
  }
  int result = 0;
  std::string line;
  while (true) {
    if (terminal.interactive) terminal.out << "> " << std::flush;
    if (!std::getline(terminal.in, line)) break;
    const std::string question = Trimmed(line);
    if (question.empty()) continue;
    if (question == "/exit" || question == "/quit") return result;
    if (question == "/reset") {
      talk.Reset();
      continue;
    }
    if (question == "/help") {
      terminal.out << "/reset starts anew, /exit leaves\n";
      continue;
    }
    result = Answer(talk, question, terminal);
  }
  if (terminal.interactive) terminal.out << "\n";
  return result;
}

}  // namespace

int RunChatOn(Args args, ChatTerminal terminal) {
  const auto options = ParseChatOptions(args);
  if (!options.ok()) return Failed(terminal, options.status());
  if (options->help) {
    terminal.out << ChatHelp();
    return 0;
  }
  auto talk = Conversation::Open(*options);
  if (!talk.ok()) return Failed(terminal, talk.status());
  return options->prompt.empty() ? Talk(*talk, terminal)
                                 : Answer(*talk, options->prompt, terminal);
}

int RunChat(Args args) {
  const bool to_screen = ::isatty(STDOUT_FILENO) != 0;
  return RunChatOn(args,
                   {.in = std::cin,
                    .out = std::cout,
                    .err = std::cerr,
                    .interactive = to_screen && ::isatty(STDIN_FILENO) != 0,
                    .to_screen = to_screen,
                    .cancelled = [] { return interrupted != 0; }});
}

}  // namespace millrace::server

// The terminal side. Ctrl-C is caught only while an answer is on its way; at
// the prompt the line editor drops the line, and without one it ends the
// program.
#include "server/cli/chat/chat.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>

#include "config/base/terminal.h"
#include "server/cli/chat/chat_options.h"
#include "server/cli/chat/commands.h"
#include "server/cli/chat/conversation.h"
#include "server/cli/chat/line_editor.h"
#include "server/cli/chat/markdown.h"
#include "server/cli/clean_text.h"

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

std::string Trimmed(const std::string& line) {
  const size_t first = line.find_first_not_of(" \t\r");
  if (first == line.npos) return "";
  return line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

int Failed(const ChatTerminal& terminal, const Status& status) {
  terminal.err << "millrace chat: " << Printable(status.message()) << "\n";
  const bool usage = status.code() == StatusCode::kInvalidArgument;
  return usage ? 2 : 1;
}

void Note(const ChatTerminal& terminal, const std::string& text) {
  if (terminal.styled) {
    terminal.err << "\x1b[2m" << text << "\x1b[0m\n";
  } else {
    terminal.err << text << "\n";
  }
}

std::string CutNote(const Conversation& talk, bool interactive) {
  if (talk.max_tokens() > 0) {
    return "(cut off: --max-tokens is " + std::to_string(talk.max_tokens()) +
           ")";
  }
  const int64_t context = talk.model().max_model_len;
  return "(cut off: the context of " +
         (context > 0 ? std::to_string(context) + " tokens" : "the model") +
         " is full" + (interactive ? "; /clear starts anew)" : ")");
}

// Asks and prints; 0 or 1.
int Answer(Conversation& talk, const std::string& question,
           const ChatTerminal& terminal) {
  bool at_line_start = true;
  MarkdownScreen screen;
  const auto show = [&](const std::string& shown) {
    if (shown.empty()) return;
    at_line_start = shown.back() == '\n';
    terminal.out << shown << std::flush;
  };
  StatusOr<std::string> ended = std::string();
  {
    InterruptGuard guard;
    ended = talk.Ask(
        question,
        [&](std::string_view text) {
          const std::string plain =
              terminal.to_screen ? Printable(text) : std::string(text);
          show(terminal.styled ? screen.Feed(plain) : plain);
        },
        terminal.cancelled);
  }
  if (terminal.styled) show(screen.Finish());
  if (!at_line_start) terminal.out << "\n";
  terminal.out << std::flush;
  if (ended.ok()) {
    if (*ended == "length") Note(terminal, CutNote(talk, terminal.interactive));
    return 0;
  }
  if (ended.status().code() == StatusCode::kCancelled) {
    Note(terminal, "(stopped)");
  } else {
    Failed(terminal, ended.status());
    if (terminal.interactive &&
        ended.status().reason() == "context_length_exceeded") {
      Note(terminal, "(/clear forgets the conversation and makes room)");
    }
  }
  return 1;
}

std::optional<std::string> ReadLine(const ChatTerminal& terminal) {
  if (terminal.read_line) return terminal.read_line();
  if (terminal.interactive) terminal.out << "> " << std::flush;
  std::string line;
  if (!std::getline(terminal.in, line)) return std::nullopt;
  return line;
}

int Talk(Conversation& talk, const ChatTerminal& terminal) {
  if (terminal.interactive) {
    terminal.out << "Talking with " << Printable(talk.model().id) << " ("
                 << Printable(talk.SamplingText())
                 << ").\n/help lists the commands, Ctrl-C stops an answer, "
                    "Ctrl-D leaves.\n";
  }
  int result = 0;
  while (const auto line = ReadLine(terminal)) {
    const std::string question = Trimmed(*line);
    if (question.empty()) continue;
    if (!IsCommand(question)) {
      result = Answer(talk, question, terminal);
      continue;
    }
    const CommandOutcome done = RunCommand(question, talk);
    if (done.leave) return result;
    if (done.status.ok()) {
      terminal.out << Printable(done.text) << std::flush;
    } else {
      terminal.err << Printable(done.status.message()) << "\n";
    }
  }
  if (terminal.interactive) terminal.out << "\n";
  return result;
}

bool IsSet(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

int RunChatOn(Args args, ChatTerminal terminal) {
  const auto options = ParseChatOptions(args);
  if (!options.ok()) return Failed(terminal, options.status());
  if (options->help) {
    terminal.out << HelpText(ChatVerb());
    return 0;
  }
  auto talk = Conversation::Open(*options);
  if (!talk.ok()) return Failed(terminal, talk.status());
  return options->prompt.empty() ? Talk(*talk, terminal)
                                 : Answer(*talk, options->prompt, terminal);
}

int RunChat(Args args) {
  const bool to_screen = ::isatty(STDOUT_FILENO) != 0;
  const bool interactive = to_screen && ::isatty(STDIN_FILENO) != 0;
  const bool able = ObeysEscapes(STDOUT_FILENO);
  const bool styled = able && !IsSet("NO_COLOR");
  ChatTerminal terminal = {.in = std::cin,
                           .out = std::cout,
                           .err = std::cerr,
                           .interactive = interactive,
                           .to_screen = to_screen,
                           .styled = styled,
                           .cancelled = [] { return interrupted != 0; }};
  std::unique_ptr<LineEditor> editor;  // made when the first line is wanted
  if (interactive && able) {
    terminal.read_line = [&editor, styled] {
      if (editor == nullptr) editor = std::make_unique<LineEditor>(styled);
      return editor->Read();
    };
  }
  return RunChatOn(args, std::move(terminal));
}

}  // namespace millrace::server

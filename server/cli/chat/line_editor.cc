// libedit decodes what is typed by the locale. Where that is not UTF-8 (LANG
// unset, as in many containers) C.UTF-8 is taken, else letters beyond ASCII
// would be dropped.
#include "server/cli/chat/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <signal.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace millrace::server {
namespace {

constexpr int kHistoryLines = 1000;

// '\1' encloses what takes no columns. libedit needs a writable text, and drops
// such a part where it is the last one.
char* PlainPrompt(EditLine*) {
  static char text[] = "> ";
  return text;
}
char* BoldPrompt(EditLine*) {
  static char text[] = "\1\x1b[1m\1>\1\x1b[0m\1 ";
  return text;
}

// Bound to Ctrl-C: what was typed is dropped and Read gives an empty line.
unsigned char DropLine(EditLine* edit, int) {
  std::fputs("^C\n(Ctrl-D leaves)\n", stdout);
  ::el_reset(edit);
  ::el_insertstr(edit, "\n");
  return CC_NEWLINE;
}

// Bound to Ctrl-Z. libedit puts the terminal back, and draws the line again
// when the program goes on.
unsigned char Suspend(EditLine*, int) {
  std::raise(SIGTSTP);
  return CC_NORM;
}

// libedit shows the prompt a moment before Ctrl-C becomes a key. A Ctrl-C in
// that moment is a signal, which would end the program: it is dropped.
class HeldInterrupt {
 public:
  HeldInterrupt() {
    ::sigemptyset(&interrupt_);
    ::sigaddset(&interrupt_, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &interrupt_, &before_);
  }
  ~HeldInterrupt() {
    constexpr timespec kNow = {};
    ::sigtimedwait(&interrupt_, nullptr, &kNow);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  HeldInterrupt(const HeldInterrupt&) = delete;
  HeldInterrupt& operator=(const HeldInterrupt&) = delete;

 private:
  sigset_t interrupt_ = {};
  sigset_t before_ = {};
};

void TakeUtf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(::nl_langinfo(CODESET), "UTF-8") != 0) {
    std::setlocale(LC_CTYPE, "C.UTF-8");
  }
}

}  // namespace

struct LineEditor::Parts {
  EditLine* edit = nullptr;
  History* history = nullptr;
};

LineEditor::LineEditor(bool styled) : parts_(std::make_unique<Parts>()) {
  TakeUtf8();
  HistEvent event;
  parts_->history = ::history_init();
  ::history(parts_->history, &event, H_SETSIZE, kHistoryLines);
  ::history(parts_->history, &event, H_SETUNIQUE, 1);
  EditLine* edit = ::el_init("millrace", stdin, stdout, stderr);
  parts_->edit = edit;
  ::el_set(edit, EL_PROMPT_ESC, styled ? BoldPrompt : PlainPrompt, '\1');
  ::el_set(edit, EL_EDITOR, "emacs");
  // Other signals put the terminal back before they end the program.
  ::el_set(edit, EL_SIGNAL, 1);
  ::el_set(edit, EL_HIST, ::history, parts_->history);
  ::el_set(edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  ::el_source(edit, nullptr);
  // While a line is read Ctrl-C is a key and sends no signal: where it comes a
  // moment after the end of an answer, the conversation is kept.
  ::el_set(edit, EL_SETTY, "-d", "-isig", nullptr);
  ::el_set(edit, EL_ADDFN, "millrace-drop-line", "drops the line", DropLine);
  ::el_set(edit, EL_ADDFN, "millrace-suspend", "stops the program", Suspend);
  ::el_set(edit, EL_BIND, "^C", "millrace-drop-line", nullptr);
  ::el_set(edit, EL_BIND, "^Z", "millrace-suspend", nullptr);
}

LineEditor::~LineEditor() {
  ::el_end(parts_->edit);
  ::history_end(parts_->history);
}

std::optional<std::string> LineEditor::Read() {
  const HeldInterrupt held;
  int count = 0;
  const char* text = ::el_gets(parts_->edit, &count);
  if (text == nullptr || count <= 0) return std::nullopt;
  // Behind `count` bytes stands what DropLine dropped.
  std::string line(text, static_cast<size_t>(count));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  if (line.find_first_not_of(" \t") != line.npos) {
    HistEvent event;
    ::history(parts_->history, &event, H_ENTER, line.c_str());
  }
  return line;
}

}  // namespace millrace::server

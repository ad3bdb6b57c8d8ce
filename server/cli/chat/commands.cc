#include "server/cli/chat/commands.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "config/base/nearest.h"
#include "config/base/wrap.h"

namespace millrace::server {
namespace {

using Outcome = CommandOutcome;

struct Command {
  std::string_view name;
  std::string_view argument;
  std::string_view help;
  Outcome (*run)(const std::string& argument, Conversation& talk);
};

Outcome Help(const std::string&, Conversation&);

Outcome Clear(const std::string&, Conversation& talk) {
  talk.Clear();
  return {.text = "The conversation is forgotten.\n"};
}

Outcome System(const std::string& text, Conversation& talk) {
  if (text.empty()) {
    return {.text = talk.system().empty() ? "There is no system message.\n"
                                          : talk.system() + "\n"};
  }
  const bool remove = text == "none";
  talk.SetSystem(remove ? "" : text);
  return {.text = remove ? "The system message is removed.\n"
                         : "The system message is set.\n"};
}

Outcome Model(const std::string& id, Conversation& talk) {
  if (!id.empty()) {
    const Status status = talk.SetModel(id);
    if (!status.ok()) return {.status = status};
    return {.text = "Talking with " + talk.model().id + " (" +
                    talk.SamplingText() + ").\n"};
  }
  const auto models = talk.ListModels();
  if (!models.ok()) return {.status = models.status()};
  std::string text;
  for (const ListedModel& model : *models) {
    text += (model.id == talk.model().id ? "* " : "  ") + model.id + "\n";
  }
  return {.text = text.empty() ? "* " + talk.model().id + "\n" : text};
}

Outcome Save(const std::string& path, Conversation& talk) {
  if (path.empty()) {
    return {.status = InvalidArgument("/save needs the name of a file")};
  }
  const Status status = talk.Save(path);
  if (!status.ok()) return {.status = status};
  return {.text = std::to_string(talk.num_messages()) +
                  " messages are written to " + path + ".\n"};
}

Outcome Exit(const std::string&, Conversation&) { return {.leave = true}; }

constexpr Command kCommands[] = {
    {"help", "", "this list", Help},
    {"clear", "", "forgets the conversation; the system message stays", Clear},
    {"system", "[TEXT]", "shows or sets the system message; none removes it",
     System},
    {"model", "[ID]", "lists the server's models, or goes on with another",
     Model},
    {"save", "FILE", "writes model and messages as JSON", Save},
    {"exit", "", "leaves, as Ctrl-D does", Exit},
    // Names of other programs.
    {"reset", "", "", Clear},
    {"quit", "", "", Exit},
    {"bye", "", "", Exit},
};

Outcome Help(const std::string&, Conversation&) {
  std::string text;
  for (const Command& command : kCommands) {
    if (command.help.empty()) continue;
    std::string left = "  /" + std::string(command.name);
    if (!command.argument.empty()) left.append(" ").append(command.argument);
    text += HelpEntry(left, command.help, 18, 80);
  }
  return {.text = text};
}

std::string_view WordOf(std::string_view line) {
  return line.substr(1, std::min(line.find_first_of(" \t"), line.size()) - 1);
}

}  // namespace

bool IsCommand(std::string_view line) {
  if (line.size() < 2 || line[0] != '/') return false;
  const std::string_view word = WordOf(line);
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return std::isalpha(static_cast<unsigned char>(c)) != 0;
  });
}

CommandOutcome RunCommand(std::string_view line, Conversation& talk) {
  const std::string_view word = WordOf(line);
  std::string_view rest = line.substr(word.size() + 1);
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  std::vector<std::string_view> names;
  for (const Command& command : kCommands) {
    if (command.name == word) return command.run(std::string(rest), talk);
    names.push_back(command.name);
  }
  const std::string_view near = Nearest(word, names);
  return {.status = InvalidArgument(
              "there is no command /" + std::string(word) +
              (near.empty() ? "; /help lists those there are"
                            : "; did you mean /" + std::string(near) + "?"))};
}

}  // namespace millrace::server

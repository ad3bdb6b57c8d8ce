// A value is completed from the setting's choices where it has any, else from
// files where it names one. Everything that is no flag is a file: a model.
#include "server/cli/completion.h"

#include <cstdio>
#include <vector>

#include "config/load.h"
#include "server/cli/serve_flags.h"

namespace millrace::server {
namespace {

struct Flag {
  std::string name;
  std::string help;
  bool takes_value = false;
  std::vector<std::string> choices = {};
};

struct VerbFlags {
  std::string name;
  std::string help;
  std::vector<Flag> flags = {};
};

std::vector<VerbFlags> Collect(std::span<const Verb> verbs) {
  std::vector<VerbFlags> all;
  for (const Verb& verb : verbs) {
    VerbFlags& out = all.emplace_back(
        VerbFlags{std::string(verb.name), std::string(verb.help)});
    if (verb.spec == nullptr) {
      for (const auto& flags : {ServeFlags(), TorchServeFlags()}) {
        for (const ServeFlag& flag : flags) {
          Flag& own = out.flags.emplace_back(Flag{std::string(flag.name),
                                                  std::string(flag.help),
                                                  !flag.value.empty()});
          for (const std::string_view choice : flag.choices) {
            if (!choice.empty()) own.choices.emplace_back(choice);
          }
        }
      }
      for (config::FlagInfo& flag : config::Flags()) {
        out.flags.push_back(
            {flag.name, flag.help, flag.takes_value, std::move(flag.choices)});
      }
    } else {
      for (const FlagSpec& flag : verb.spec().flags) {
        out.flags.push_back({std::string(flag.name), std::string(flag.help),
                             !flag.value.empty()});
      }
    }
    out.flags.push_back({"help", "what the verb does"});
  }
  return all;
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

// In single quotes, as all three shells read them, with `special` behind a
// backslash.
std::string Quoted(std::string_view text, std::string_view special = "") {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (special.find(c) != special.npos) out += '\\';
    out += c;
  }
  return out + "'";
}

// The first clause: a line of a menu is short.
std::string Brief(const std::string& help) {
  return help.substr(0, help.find_first_of(";("));
}

std::string Bash(const std::vector<VerbFlags>& verbs) {
  std::string names, flags, values;
  for (const VerbFlags& verb : verbs) {
    names += (names.empty() ? "" : " ") + verb.name;
    std::string list;
    for (const Flag& flag : verb.flags) {
      list += (list.empty() ? "--" : " --") + flag.name;
      if (!flag.choices.empty()) {
        values += "    '" + verb.name + " --" + flag.name + "') words='" +
                  Joined(flag.choices) + "' ;;\n";
      } else if (flag.takes_value) {
        values += "    '" + verb.name + " --" + flag.name + "') return ;;\n";
      }
    }
    flags += "      " + verb.name + ") words='" + list + "' ;;\n";
  }
  return "# bash completion of millrace: source <(millrace completion bash)\n"
         "_millrace() {\n"
         "  local cur=${COMP_WORDS[COMP_CWORD]} words=\n"
         "  local prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}\n"
         "  COMPREPLY=()\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
         "    COMPREPLY=($(compgen -W '" +
         names +
         "' -- \"$cur\"))\n"
         "    return\n"
         "  fi\n"
         "  # --flag=value comes as three words.\n"
         "  if [ \"$cur\" = = ]; then\n"
         "    cur=\n"
         "  elif [ \"$prev\" = = ]; then\n"
         "    prev=${COMP_WORDS[COMP_CWORD-2]}\n"
         "  fi\n"
         "  # No words: the shell completes names of files.\n"
         "  case \"$verb $prev\" in\n" +
         values +
         "    *)\n"
         "      [[ $cur == -* ]] || return\n"
         "      case $verb in\n" +
         flags +
         "      esac ;;\n"
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
         "}\n"
         "complete -o bashdefault -o default -F _millrace millrace\n";
}

std::string Zsh(const std::vector<VerbFlags>& verbs) {
  std::string names, cases;
  for (const VerbFlags& verb : verbs) {
    names += "    " + Quoted(verb.name + ":" + verb.help) + "\n";
    cases += "    " + verb.name + ")\n      _arguments \\\n";
    for (const Flag& flag : verb.flags) {
      std::string spec = "--" + flag.name + (flag.takes_value ? "=" : "");
      std::string text = Quoted(Brief(flag.help), "[]:\\");
      spec += "[" + text.substr(1, text.size() - 2) + "]";
      if (!flag.choices.empty()) {
        spec += ":value:(" + Joined(flag.choices) + ")";
      } else if (flag.takes_value) {
        spec += ":value:_files";
      }
      cases += "        '" + spec + "' \\\n";
    }
    cases += "        '*:file:_files' ;;\n";
  }
  return "#compdef millrace\n"
         "# zsh completion of millrace: source <(millrace completion zsh), or\n"
         "# a file called _millrace in a folder of $fpath.\n"
         "_millrace() {\n"
         "  local -a verbs=(\n" +
         names +
         "  )\n"
         "  if (( CURRENT == 2 )); then\n"
         "    _describe verb verbs\n"
         "    return\n"
         "  fi\n"
         "  shift words\n"
         "  (( CURRENT-- ))\n"
         "  case $words[1] in\n" +
         cases +
         "  esac\n"
         "}\n"
         "if [ \"$funcstack[1]\" = _millrace ]; then\n"
         "  _millrace \"$@\"\n"
         "else\n"
         "  compdef _millrace millrace\n"
         "fi\n";
}

std::string Fish(const std::vector<VerbFlags>& verbs) {
  std::string out =
      "# fish completion of millrace, for\n"
      "# ~/.config/fish/completions/millrace.fish\n";
  for (const VerbFlags& verb : verbs) {
    out += "complete -c millrace -f -n __fish_use_subcommand -a " + verb.name +
           " -d " + Quoted(verb.help, "\\") + "\n";
    for (const Flag& flag : verb.flags) {
      out += "complete -c millrace -n '__fish_seen_subcommand_from " +
             verb.name + "' -l " + flag.name;
      if (!flag.choices.empty()) {
        out += " -x -a " + Quoted(Joined(flag.choices));
      } else if (flag.takes_value) {
        out += " -r";
      }
      out += " -d " + Quoted(Brief(flag.help), "\\") + "\n";
    }
  }
  return out;
}

constexpr VerbSpec kVerb = {
    "completion",
    "bash|zsh|fish",
    "Prints the completions of verbs, flags and their values for a shell. The "
    "examples switch them on: for this bash, and for every fish.",
    {},
    1,
    1};

Status Completion(const ParsedArgs& args) {
  ASSIGN_OR_RETURN(const std::string script,
                   CompletionScript(args.positional()[0], Verbs()));
  std::fputs(script.c_str(), stdout);
  return OkStatus();
}

}  // namespace

StatusOr<std::string> CompletionScript(std::string_view shell,
                                       std::span<const Verb> verbs) {
  const std::vector<VerbFlags> all = Collect(verbs);
  if (shell == "bash") return Bash(all);
  if (shell == "zsh") return Zsh(all);
  if (shell == "fish") return Fish(all);
  return UsageError("there are no completions for '" + std::string(shell) +
                    "'; there are some for bash, zsh and fish");
}

const VerbSpec& CompletionVerb() { return kVerb; }
int RunCompletion(Args args) { return RunVerb(kVerb, args, Completion); }

}  // namespace millrace::server

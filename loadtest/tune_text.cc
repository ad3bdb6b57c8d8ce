// What tune prints, and the file that it writes.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>
#include <utility>

#include "loadtest/cpu_name.h"
#include "loadtest/server_process.h"
#include "loadtest/tune.h"

namespace millrace::loadtest {
namespace {

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[400];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

// Empty where there is none.
std::string TextOf(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

const char* LoadName(const TuneOptions& options) {
  return options.search_rate ? "request rate" : "concurrency";
}

std::string ChangesText(const Candidate& candidate) {
  std::string text;
  for (const auto& [name, value] : candidate.changes) {
    text += (text.empty() ? "" : ", ") + name + " " + value;
  }
  return text.empty() ? "as given" : text;
}

double P99(const Candidate& candidate, std::string_view key) {
  const Summary* summary =
      candidate.report ? candidate.report->Find(key) : nullptr;
  return summary != nullptr ? summary->p99 : 0;
}

std::string OutcomeText(const Candidate& candidate) {
  if (!candidate.failure.empty()) return "FAILED: " + candidate.failure;
  if (!candidate.best) {
    return candidate.out_of_time ? "SLO missed; time over" : "SLO missed";
  }
  return candidate.out_of_time ? "met; time over" : "met";
}

// "12.3 requests/s (11.9 to 12.6 in 3 rounds)"
std::string Figures(const Candidate& candidate) {
  if (!candidate.failure.empty()) return "failed: " + candidate.failure;
  if (!candidate.best) return "no load met the SLO";
  const std::vector<double>& all = candidate.goodput;
  if (all.empty()) {
    return Format("%.2f requests/s within the SLO", candidate.best->score);
  }
  double sum = 0;
  for (const double value : all) sum += value;
  return Format("%.2f requests/s within the SLO (%.2f to %.2f in %zu rounds)",
                sum / static_cast<double>(all.size()),
                *std::min_element(all.begin(), all.end()),
                *std::max_element(all.begin(), all.end()), all.size());
}

std::string Evidence(const TuneOptions& options, const Candidate& candidate) {
  std::string text = ChangesText(candidate) + ": " + Figures(candidate);
  if (candidate.best) {
    text += Format(" at %s %g", LoadName(options), candidate.best->load);
  }
  for (const auto& [key, name] : {std::pair("time_to_first_token_ms", "TTFT"),
                                  std::pair("inter_token_latency_ms", "ITL"),
                                  std::pair("request_latency_ms", "latency")}) {
    const double p99 = P99(candidate, key);
    if (p99 > 0) text += Format(", %s p99 %.4g ms", name, p99);
  }
  return text;
}

// One sentence: which configuration is best, and how sure that is.
std::string Conclusion(const TuneResult& result) {
  const bool given_failed = !result.candidates[0].failure.empty();
  if (!result.met && given_failed) {
    return "Both finalists failed while they were measured in turns; no "
           "configuration is written";
  }
  if (!result.met) {
    return "No configuration met the SLO at any load that was tried";
  }
  if (given_failed) {
    return "Measured in turns, the configuration given failed; this one did "
           "not";
  }
  if (result.finalist == 0) {
    return Format(
        "The configuration given is the only one of %zu that met the SLO",
        result.candidates.size());
  }
  if (!result.candidates[result.finalist].failure.empty()) {
    return "The configuration given is the best: measured in turns, the other "
           "finalist failed";
  }
  if (result.best == 0) {
    return "The configuration given is the best within noise: measured in "
           "turns, "
           "the other finalist was not better in every round";
  }
  if (!result.candidates[0].best) {
    return "The configuration given met the SLO at no load; this one does";
  }
  return "Measured in turns, the lowest round of this configuration was above "
         "the highest round of the one given";
}

std::string ShellWord(const std::string& word) {
  const bool plain =
      !word.empty() &&
      word.find_first_of(" \t\n\\'\"$`&|;<>()*?[]#~!{}") == std::string::npos;
  if (plain) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : " ") + ShellWord(word);
  }
  return text;
}

// A line of --print-config whose value is a secret.
bool IsSecret(const std::string& line) {
  const size_t colon = line.find(": ");
  return colon != std::string::npos &&
         line.find("***", colon) != std::string::npos;
}

// Settings that the server prints as ***.
std::vector<std::string> SecretSettings(const std::string& printed) {
  std::vector<std::string> names;
  std::istringstream lines(printed);
  for (std::string line; std::getline(lines, line);) {
    if (!IsSecret(line)) continue;
    const size_t begin = line.find_first_not_of(" -");
    names.push_back(line.substr(begin, line.find(": ") - begin));
  }
  return names;
}

// The command line of tune. That of the server is one of its words.
std::string CommandText(std::vector<std::string> args,
                        const std::vector<std::string>& secrets) {
  const std::string flag = "--server-command";
  const auto hidden = [&](const std::string& command) {
    const auto words = SplitCommand(command);
    return words.ok() ? Joined(HideSecrets(*words, secrets)) : "***";
  };
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == flag && i + 1 < args.size()) {
      args[i + 1] = hidden(args[i + 1]);
      ++i;
    } else if (args[i].starts_with(flag + "=")) {
      args[i] = flag + "=" + hidden(args[i].substr(flag.size() + 1));
    }
  }
  return "millrace-loadtest tune " +
         Joined(HideSecrets(std::move(args), {"api_key", "header", "H"}));
}

// Where NAME begins in MILLRACE_NAME=value, which is a word by itself or stands
// behind a flag (--env=MILLRACE_NAME=value). npos: the word is no such thing.
size_t VariableIn(const std::string& word) {
  constexpr std::string_view kPrefix = "MILLRACE_";
  const size_t at = word.find(kPrefix);
  if (at == word.npos) return at;
  const bool follows_flag =
      word[0] == '-' && word.find_first_of(" \t\n'\"") > at;
  return at == 0 || follows_flag ? at + kPrefix.size() : word.npos;
}

// Comment lines of at most 79 columns.
std::string Comment(const std::string& text) {
  std::string out;
  std::string line = "#";
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (word.empty()) continue;
    if (line.size() > 1 && line.size() + 1 + word.size() > 79) {
      out += line + "\n";
      line = "#  ";
    }
    line += " " + word;
  }
  return out + line + "\n";
}

}  // namespace

std::string TuneHeader(const TuneOptions& options) {
  return Format("%3s %12s %10s %10s %9s %9s %9s %5s  %s\n", "",
                LoadName(options), "goodput/s", "tokens/s", "TTFT p99",
                "ITL p99", "lat. p99", "loads", "settings, outcome");
}

std::string TuneRow(size_t index, const Candidate& candidate) {
  const std::string load =
      candidate.best ? Format("%g", candidate.best->load) : "-";
  const double tokens =
      candidate.report ? candidate.report->output_token_throughput : 0;
  return Format("%3zu %12s %10.2f %10.1f %9.1f %9.1f %9.1f %5d  ", index,
                load.c_str(), candidate.best ? candidate.best->score : 0.0,
                tokens, P99(candidate, "time_to_first_token_ms"),
                P99(candidate, "inter_token_latency_ms"),
                P99(candidate, "request_latency_ms"), candidate.num_loads) +
         ChangesText(candidate) + "; " + OutcomeText(candidate) + "\n";
}

std::string TuneVerdict(const TuneOptions& options, const TuneResult& result) {
  std::string out =
      "\nGiven: " + Evidence(options, result.candidates[0]) + "\n";
  if (result.finalist != 0) {
    out +=
        "Finalist: " + Evidence(options, result.candidates[result.finalist]) +
        "\n";
  }
  return out + Conclusion(result) + ".\n";
}

std::string MinimalConfig(const std::string& printed) {
  std::string out;
  size_t begin = 0;
  while (begin < printed.size()) {
    const size_t end = std::min(printed.find('\n', begin), printed.size());
    const std::string line = printed.substr(begin, end - begin);
    begin = end + 1;
    if (line.empty() || line.ends_with("# default")) continue;
    if (IsSecret(line)) {
      out += "# " + line.substr(0, line.find(": ")) +
             ": not copied, it is a secret\n";
      continue;
    }
    // Where a value came from says nothing in a file.
    const size_t origin = line.rfind("  # ");
    std::string kept = line.substr(0, origin);
    kept.erase(kept.find_last_not_of(' ') + 1);
    out += kept + "\n";
  }
  return out;
}

std::string MachineText() {
  utsname system = {};
  uname(&system);
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                        static_cast<double>(sysconf(_SC_PAGESIZE));
  return CpuName(TextOf("/proc/cpuinfo"), TextOf("/proc/device-tree/model")) +
         Format(", %u CPUs, %.0f GiB, ", std::thread::hardware_concurrency(),
                memory / 0x1p30) +
         system.sysname + " " + system.release;
}

std::vector<std::string> HideSecrets(std::vector<std::string> words,
                                     const std::vector<std::string>& flags) {
  const auto carries = [&](std::string name) {
    std::replace(name.begin(), name.end(), '-', '_');
    return std::find(flags.begin(), flags.end(), name) != flags.end();
  };
  for (size_t i = 0; i < words.size(); ++i) {
    std::string& word = words[i];
    const size_t variable = VariableIn(word);
    const size_t assigns = word.find('=', variable);  // npos where that is
    if (assigns != word.npos) {
      std::string name = word.substr(variable, assigns - variable);
      for (char& c : name) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
      }
      if (carries(name)) {
        word.replace(assigns + 1, word.npos, "***");
        continue;
      }
    }
    const size_t begin = word.find_first_not_of('-');
    if (begin == 0 || begin == word.npos) continue;
    const size_t equals = std::min(word.find('='), word.size());
    if (carries(word.substr(begin, equals - begin))) {
      if (equals < word.size()) {
        word.replace(equals + 1, word.npos, "***");
      } else if (i + 1 < words.size()) {
        words[++i] = "***";
      }
    } else if (begin == 1 && carries(word.substr(1, 1))) {  // as in -Hvalue
      word.replace(2, word.npos, "***");
    }
  }
  return words;
}

std::string TunedFile(const TuneOptions& options, const TuneResult& result,
                      const std::string& version, const std::string& printed) {
  const std::vector<std::string> secrets = SecretSettings(printed);
  size_t num_failed = 0;
  for (const Candidate& candidate : result.candidates) {
    num_failed += candidate.failure.empty() ? 0 : 1;
  }
  std::string out = Comment("Found by: " + CommandText(options.args, secrets));
  out += Comment("Server: " + Joined(HideSecrets(options.server, secrets)) +
                 " (" + version + ")");
  out += Comment("Machine: " + MachineText());
  out += Comment("Objectives: " + options.load.slo_text);
  out += Comment(Format("Tried: %zu configurations in %.0f s, %zu failed",
                        result.candidates.size(), result.seconds, num_failed));
  out += Comment("Given: " + Evidence(options, result.candidates[0]));
  if (result.finalist != 0) {
    out += Comment(std::string(result.best != 0 ? "Best: " : "Finalist: ") +
                   Evidence(options, result.candidates[result.finalist]));
  }
  return out + Comment(Conclusion(result) + ".") + "\n" +
         MinimalConfig(printed);
}

}  // namespace millrace::loadtest

// Numbers of implementers and parts: Arm's Architecture Reference Manual,
// MIDR_EL1, and the technical reference manuals of the cores; Linux has them in
// arch/arm64/include/asm/cputype.h.
#include "loadtest/cpu_name.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <vector>

namespace millrace::loadtest {
namespace {

struct Part {
  int32_t implementer;
  int32_t part;
  std::string_view name;
};
// Cores of servers and of boards that people try things on.
constexpr Part kParts[] = {
    {0x41, 0xd03, "Cortex-A53"},   {0x41, 0xd05, "Cortex-A55"},
    {0x41, 0xd07, "Cortex-A57"},   {0x41, 0xd08, "Cortex-A72"},
    {0x41, 0xd0b, "Cortex-A76"},   {0x41, 0xd0c, "Neoverse-N1"},
    {0x41, 0xd40, "Neoverse-V1"},  {0x41, 0xd41, "Cortex-A78"},
    {0x41, 0xd42, "Cortex-A78AE"}, {0x41, 0xd49, "Neoverse-N2"},
    {0x41, 0xd4f, "Neoverse-V2"},  {0x41, 0xd84, "Neoverse-V3"},
    {0x41, 0xd8e, "Neoverse-N3"},  {0x43, 0x0af, "ThunderX2"},
    {0x46, 0x001, "A64FX"},        {0x48, 0xd01, "TaiShan v110"},
    {0x6d, 0xd49, "Azure Cobalt"}, {0xc0, 0xac3, "Ampere-1"},
    {0xc0, 0xac4, "Ampere-1a"},
};
struct Implementer {
  int32_t number;
  std::string_view name;
};
constexpr Implementer kImplementers[] = {
    {0x41, "Arm"},      {0x42, "Broadcom"},  {0x43, "Cavium"},
    {0x46, "Fujitsu"},  {0x48, "HiSilicon"}, {0x4e, "NVIDIA"},
    {0x51, "Qualcomm"}, {0x61, "Apple"},     {0x6d, "Microsoft"},
    {0xc0, "Ampere"},
};

std::string_view Trimmed(std::string_view text) {
  // The kernel ends texts of the device tree with a zero.
  constexpr std::string_view kSpaces(" \t\r\n\0", 5);
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

// "0xd0c"; -1: no such number.
int32_t Hex(std::string_view text) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  int32_t number = -1;
  const auto [stop, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, 16);
  return error == std::errc() && stop == text.data() + text.size() ? number
                                                                   : -1;
}

std::string NameOf(std::string_view implementer, std::string_view part) {
  const int32_t by = Hex(implementer);
  const int32_t number = Hex(part);
  for (const Part& known : kParts) {
    if (known.implementer == by && known.part == number) {
      return std::string(known.name);
    }
  }
  std::string maker = "implementer " + std::string(implementer);
  for (const Implementer& known : kImplementers) {
    if (known.number == by) maker = known.name;
  }
  return "CPU part " + std::string(part) + " of " + maker;
}

}  // namespace

std::string CpuName(std::string_view cpuinfo, std::string_view board) {
  std::vector<std::string> cores;  // each kind once
  std::string_view implementer;
  while (!cpuinfo.empty()) {
    const std::string_view line = cpuinfo.substr(0, cpuinfo.find('\n'));
    cpuinfo.remove_prefix(std::min(line.size() + 1, cpuinfo.size()));
    const size_t colon = line.find(':');
    if (colon == line.npos) continue;
    const std::string_view key = Trimmed(line.substr(0, colon));
    const std::string_view value = Trimmed(line.substr(colon + 1));
    if (value.empty()) continue;
    if (key == "model name") return std::string(value);
    if (key == "CPU implementer") implementer = value;
    if (key != "CPU part") continue;
    const std::string name = NameOf(implementer, value);
    if (std::find(cores.begin(), cores.end(), name) == cores.end()) {
      cores.push_back(name);
    }
  }
  std::string text;
  for (const std::string& core : cores) {
    text += (text.empty() ? "" : " and ") + core;
  }
  board = Trimmed(board);
  if (text.empty()) return board.empty() ? "unknown CPU" : std::string(board);
  return board.empty() ? text : text + " (" + std::string(board) + ")";
}

}  // namespace millrace::loadtest

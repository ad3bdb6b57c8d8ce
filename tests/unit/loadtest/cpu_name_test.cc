#include "loadtest/cpu_name.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace::loadtest {
namespace {

// A core as /proc/cpuinfo of a 64-bit Arm kernel has it, which names no model.
std::string Core(const std::string& implementer, const std::string& part) {
  return "processor\t: 0\nBogoMIPS\t: 50.00\n"
         "Features\t: fp asimd evtstrm aes crc32 atomics asimddp\n"
         "CPU implementer\t: " +
         implementer +
         "\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: " + part +
         "\nCPU revision\t: 1\n\n";
}

TEST(CpuName, IsTheModelWhereCpuinfoNamesOne) {
  EXPECT_EQ(CpuName("processor\t: 0\nvendor_id\t: GenuineIntel\n"
                    "model\t\t: 143\nmodel name\t: Intel(R) Xeon(R) 8488C\n",
                    ""),
            "Intel(R) Xeon(R) 8488C");
}

TEST(CpuName, IsThatOfThePartOnArm) {
  EXPECT_EQ(CpuName(Core("0x41", "0xd0c") + Core("0x41", "0xd0c"), ""),
            "Neoverse-N1");
  EXPECT_EQ(CpuName(Core("0xc0", "0xac3"), ""), "Ampere-1");
}

TEST(CpuName, HasEachKindOfCoreOnceAndTheBoard) {
  const std::string cores = Core("0x41", "0xd05") + Core("0x41", "0xd05") +
                            Core("0x41", "0xd0b") + Core("0x41", "0xd0b");
  // The kernel's text ends with a zero.
  EXPECT_EQ(CpuName(cores, std::string("A Board 5\0", 10)),
            "Cortex-A55 and Cortex-A76 (A Board 5)");
}

TEST(CpuName, HasNumbersWhereTheyAreNotKnown) {
  EXPECT_EQ(CpuName(Core("0x41", "0xfff"), ""), "CPU part 0xfff of Arm");
  EXPECT_EQ(CpuName(Core("0x99", "0xd0c"), ""),
            "CPU part 0xd0c of implementer 0x99");
  EXPECT_EQ(CpuName(Core("0x41", "none"), ""), "CPU part none of Arm");
}

TEST(CpuName, IsUnknownWhereNothingTellsIt) {
  EXPECT_EQ(CpuName("", ""), "unknown CPU");
  EXPECT_EQ(CpuName("processor\t: 0\nisa\t: rv64gc\n", ""), "unknown CPU");
  EXPECT_EQ(CpuName("processor\t: 0\nmodel name\t:\n", "Board\n"), "Board");
}

}  // namespace
}  // namespace millrace::loadtest

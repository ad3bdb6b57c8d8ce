// The name of this machine's CPU, for people.
#pragma once

#include <string>
#include <string_view>

namespace millrace::loadtest {

// From the text of /proc/cpuinfo: its first "model name", as on x86; on Arm,
// which has none, the names of its kinds of cores by implementer and part
// ("Neoverse-N1", "Cortex-A76 and Cortex-A55"), or both numbers where they are
// not known here. `board` is the text of /proc/device-tree/model, "" where
// there is none; it stands behind the names of cores. "unknown CPU" where
// neither tells anything.
std::string CpuName(std::string_view cpuinfo, std::string_view board);

}  // namespace millrace::loadtest

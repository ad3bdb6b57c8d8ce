// A libnvidia-ml.so with two GPUs, for tests without a driver. The second tells
// neither power nor energy, as some do not. Each question for the energy adds
// 2.5 J.
#include <atomic>
#include <cstdint>
#include <cstdio>

namespace {

constexpr int kFine = 0;
constexpr int kUninitialised = 1;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;

std::atomic<int> initialised = 0;
std::atomic<unsigned long long> millijoules = 7'000'000;

uintptr_t Number(void* device) { return reinterpret_cast<uintptr_t>(device); }

}  // namespace

extern "C" {

int nvmlInit_v2() {
  ++initialised;
  return kFine;
}
int nvmlShutdown() {
  --initialised;
  return kFine;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  if (initialised == 0) return kUninitialised;
  *count = 2;
  return kFine;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index >= 2) return kInvalidArgument;
  *device = reinterpret_cast<void*>(uintptr_t{index} + 1);
  return kFine;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
  std::snprintf(uuid, length, "GPU-%u", static_cast<unsigned>(Number(device)));
  return kFine;
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned rates[2]) {
  rates[0] = Number(device) == 1 ? 75 : 0;
  rates[1] = 50;
  return kFine;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long bytes[3]) {
  bytes[0] = 80'000'000'000 * Number(device);
  bytes[1] = 60'000'000'000;
  bytes[2] = bytes[0] - bytes[1];
  return kFine;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  *milliwatts = 123'500;
  return Number(device) == 1 ? kFine : kNotSupported;
}
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  *milliwatts = 700'000;
  return Number(device) == 1 ? kFine : kNotSupported;
}
int nvmlDeviceGetTotalEnergyConsumption(void* device,
                                        unsigned long long* energy) {
  if (Number(device) != 1) return kNotSupported;
  *energy = millijoules += 2500;
  return kFine;
}

}  // extern "C"

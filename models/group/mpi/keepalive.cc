// Source: Open MPI 4.1, orte/mca/oob/tcp/oob_tcp_component.c, which registers
// the three settings and their defaults.
#include "models/group/mpi/keepalive.h"

#include <charconv>
#include <string>
#include <string_view>

namespace millrace::models::mpi {
namespace {

constexpr int64_t kMost = 1'000'000;

struct Setting {
  const char* name;
  int64_t unset;
};
constexpr Setting kTime = {"oob_tcp_keepalive_time", 300};
constexpr Setting kInterval = {"oob_tcp_keepalive_intvl", 20};
constexpr Setting kProbes = {"oob_tcp_keepalive_probes", 9};

StatusOr<int64_t> ValueOf(const Setting& setting, Environment environment) {
  const std::string variable = std::string("OMPI_MCA_") + setting.name;
  const char* const found = environment(variable.c_str());
  if (found == nullptr) return setting.unset;
  const std::string_view text = found;
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < 0 || value > kMost) {
    return InvalidArgument("mpirun's " + std::string(setting.name) + " is '" +
                           std::string(text.substr(0, 100)) +
                           "' but must be a whole number from 0 to " +
                           std::to_string(kMost))
        .At("tensor_parallel_timeout");
  }
  return value;
}

}  // namespace

Status CheckKeepalive(int64_t timeout_ms, Environment environment) {
  ASSIGN_OR_RETURN(const int64_t time, ValueOf(kTime, environment));
  ASSIGN_OR_RETURN(const int64_t interval, ValueOf(kInterval, environment));
  ASSIGN_OR_RETURN(const int64_t probes, ValueOf(kProbes, environment));
  const int64_t sum = time + interval * probes;
  if (timeout_ms > sum * 1000) return OkStatus();
  return InvalidArgument(
             "tensor_parallel_timeout is " + std::to_string(timeout_ms) +
             " ms, but mpirun notices a lost machine only after " +
             std::to_string(sum) + " s (oob_tcp_keepalive_time " +
             std::to_string(time) + " + oob_tcp_keepalive_intvl " +
             std::to_string(interval) + " * oob_tcp_keepalive_probes " +
             std::to_string(probes) +
             ") and waits for many minutes if ranks give up before; say mpirun "
             "--mca oob_tcp_keepalive_time 5 --mca oob_tcp_keepalive_intvl 2 "
             "--mca oob_tcp_keepalive_probes 5, or raise "
             "tensor_parallel_timeout above that time")
      .At("tensor_parallel_timeout");
}

}  // namespace millrace::models::mpi

// When Open MPI notices that a machine of the group has vanished: a group that
// gives up before would leave an mpirun that no longer looks for it and waits
// for many minutes.
#pragma once

#include <cstdint>

#include "config/base/status.h"

namespace millrace::models::mpi {

// Value of an environment variable; null: it is not set. Open MPI's mpirun
// hands its --mca settings to the ranks as OMPI_MCA_NAME.
using Environment = const char* (*)(const char* name);

// For a group on several machines. INVALID_ARGUMENT unless `timeout_ms` is
// above oob_tcp_keepalive_time + oob_tcp_keepalive_intvl *
// oob_tcp_keepalive_probes, or for a setting of these that is no number of
// seconds or no count.
Status CheckKeepalive(int64_t timeout_ms, Environment environment);

}  // namespace millrace::models::mpi

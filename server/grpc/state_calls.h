// Triton's calls about shared memory, the log and traces: what they ask of the
// server's state, and its answers as messages. The service counts and finishes
// them.
#pragma once

#include "config/base/status.h"
#include "server/protocol_state.h"

namespace inference {
class LogSettingsRequest;
class LogSettingsResponse;
class SystemSharedMemoryRegisterRequest;
class SystemSharedMemoryStatusRequest;
class SystemSharedMemoryStatusResponse;
class TraceSettingRequest;
class TraceSettingResponse;
}  // namespace inference

namespace millrace::server {

Status RegisterRegion(
    const inference::SystemSharedMemoryRegisterRequest& request,
    SharedRegions& regions);
Status DescribeRegions(
    const inference::SystemSharedMemoryStatusRequest& request,
    const SharedRegions& regions,
    inference::SystemSharedMemoryStatusResponse* response);

// INVALID_ARGUMENT names the setting; then nothing is changed.
Status ChangeLogSettings(const inference::LogSettingsRequest& request,
                         LogControl& log,
                         inference::LogSettingsResponse* response);
// Traces are not offered: INVALID_ARGUMENT for a level but OFF.
Status ChangeTraceSettings(const inference::TraceSettingRequest& request,
                           inference::TraceSettingResponse* response);

}  // namespace millrace::server

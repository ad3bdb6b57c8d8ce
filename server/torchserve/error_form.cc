#include "server/torchserve/error_form.h"

namespace millrace::server::torchserve {

ErrorForm ErrorFormOf(const Status& status) {
  const std::string_view reason = status.reason();
  if (reason == "method_not_allowed") return {405, "MethodNotAllowedException"};
  if (reason == "route_not_found") return {404, "ResourceNotFoundException"};
  if (reason == "default_version") return {403, "InvalidModelVersionException"};
  if (reason == "invalid_model") return {400, "InvalidModelException"};
  if (reason == "download_failed") return {400, "DownloadArchiveException"};
  if (reason == "payload_too_large") return {413, "BadRequestException"};
  if (reason == "not_explained") return {501, "NotImplementedException"};
  if (reason == "workflow_not_found") return {404, "WorkflowNotFoundException"};
  if (reason == "invalid_workflow") return {400, "InvalidWorkflowException"};
  if (reason == "invalid_dag") return {400, "InvalidDAGException"};
  if (reason == "workflow_failed") return {500, "WorkflowException"};
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kOutOfRange:
    case StatusCode::kFailedPrecondition:
      return {400, "BadRequestException"};
    case StatusCode::kUnauthenticated:
    case StatusCode::kPermissionDenied:
      return {400, "InvalidKeyException"};
    case StatusCode::kNotFound:
      return {404, status.field() == "model_version"
                       ? "ModelVersionNotFoundException"
                       : "ModelNotFoundException"};
    case StatusCode::kAlreadyExists:
      return {409, "ConflictStatusException"};
    case StatusCode::kDeadlineExceeded:
      return {408, "RequestTimeoutException"};
    case StatusCode::kResourceExhausted:
    case StatusCode::kUnavailable:
      return {503, "ServiceUnavailableException"};
    default:
      return {500, "InternalServerException"};
  }
}

}  // namespace millrace::server::torchserve

// The API's description for programs (OpenAPI 3.1), made from the table of
// routes and the tables of request fields.
#pragma once

#include <span>
#include <string>

#include "server/http/router.h"

namespace millrace::server::http {

// JSON. Pure.
std::string OpenApiText(std::span<const Route> routes);

}  // namespace millrace::server::http

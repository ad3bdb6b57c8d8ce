// Whose pages may make a browser ask this server in its visitor's name.
#pragma once

#include "config/schema.h"
#include "server/http/message.h"

namespace millrace::server::http {

// True without an Origin header (no browser, or a page of this very server that
// only reads), for an origin whose host and port are those of the request, and
// for what cors_allow_origin allows. For requests that a browser sends without
// a preflight: a preflight's answer decides about all others.
bool IsAllowedOrigin(const config::ServerSettings& settings,
                     const HttpRequest& head);

}  // namespace millrace::server::http

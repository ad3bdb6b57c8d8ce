// Who computes where on a running server: `millrace topology --url`.
#pragma once

#include <string>

#include "config/base/status.h"
#include "server/cli/chat/http_client.h"

namespace millrace::server {

// Prints the cores with the models that compute on them (GET /debug/cores) and
// the CPUs of the instances of graphs (GET /v2/models/stats). UNAVAILABLE: no
// server is there, or what it answers is something else.
Status PrintLiveTopology(const HttpUrl& url, const std::string& api_key);

}  // namespace millrace::server

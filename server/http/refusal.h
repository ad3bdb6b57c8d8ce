// The error of a request that no route has answered, in the words of the
// protocol that its path belongs to.
#pragma once

#include <string>

#include "config/base/status.h"
#include "server/http/message.h"
#include "server/http/site.h"

namespace millrace::server::http {

HttpResponse Refusal(const Site& site, const std::string& path,
                     const Status& status);

}  // namespace millrace::server::http

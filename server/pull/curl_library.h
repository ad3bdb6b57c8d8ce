// libcurl's functions, found with dlopen.
//
// Thread-safe; the library stays open until the process ends.
#pragma once

// Its checks of types are macros around the functions themselves.
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#include "config/base/status.h"

namespace millrace::server {

struct CurlLibrary {
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_perform) easy_perform = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;
};

// FAILED_PRECONDITION says which package to install.
StatusOr<const CurlLibrary*> OpenCurl();

}  // namespace millrace::server

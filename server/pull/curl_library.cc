#include "server/pull/curl_library.h"

#include <dlfcn.h>

#include <string>

namespace millrace::server {
namespace {

// Protocols named by words came with it.
constexpr unsigned kLeastVersion = 0x075500;  // 7.85.0

template <typename Function>
bool Find(void* library, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(::dlsym(library, name));
  return *out != nullptr;
}

StatusOr<CurlLibrary> Open() {
  void* library = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    library = ::dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    const char* why = ::dlerror();
    return FailedPrecondition(
        "pulling over the network needs libcurl, which cannot be opened (" +
        std::string(why == nullptr ? "unknown" : why) +
        "); install it (Debian: apt-get install libcurl4 ca-certificates)");
  }
  CurlLibrary curl;
  decltype(&curl_version_info) version_info = nullptr;
  decltype(&curl_global_init) global_init = nullptr;
  if (!Find(library, "curl_version_info", &version_info) ||
      !Find(library, "curl_global_init", &global_init) ||
      !Find(library, "curl_easy_init", &curl.easy_init) ||
      !Find(library, "curl_easy_setopt", &curl.easy_setopt) ||
      !Find(library, "curl_easy_perform", &curl.easy_perform) ||
      !Find(library, "curl_easy_getinfo", &curl.easy_getinfo) ||
      !Find(library, "curl_easy_cleanup", &curl.easy_cleanup) ||
      !Find(library, "curl_easy_strerror", &curl.easy_strerror) ||
      !Find(library, "curl_slist_append", &curl.slist_append) ||
      !Find(library, "curl_slist_free_all", &curl.slist_free_all)) {
    return FailedPrecondition("libcurl.so.4 lacks functions of libcurl");
  }
  const curl_version_info_data* info = version_info(CURLVERSION_NOW);
  if (info->version_num < kLeastVersion) {
    return FailedPrecondition("libcurl is " + std::string(info->version) +
                              "; pulling needs 7.85.0 or newer");
  }
  if (global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    return Internal("libcurl cannot be initialised");
  }
  return curl;
}

}  // namespace

StatusOr<const CurlLibrary*> OpenCurl() {
  static const StatusOr<CurlLibrary> curl = Open();
  if (!curl.ok()) return curl.status();
  return &*curl;
}

}  // namespace millrace::server

// What keys and values depend on beside the tokens, as one digest: KV pages
// that were kept in a folder may be used again only where it is the same.
//
//   ASSIGN_OR_RETURN(std::string fingerprint,
//                    KvFingerprint("smollm2.gguf", settings, facts));
//
// It covers the contents of the model's files, this program itself (another
// build may round otherwise), the kernel table, the types that are computed
// and kept in, the context and the size of a page. Files of gigabytes take
// seconds to read; digests are remembered in the folder by a file's size and
// time.
#pragma once

#include <cstdint>
#include <string>

#include "config/base/status.h"
#include "config/schema.h"

namespace millrace::models {

struct KvFacts {
  std::string isa;  // kernel table
  int32_t max_context = 0;
  int64_t page_bytes = 0;
};

// 64 hexadecimal digits. `path` is the model's file or folder;
// settings.kv_cache_dir must be there. INVALID_ARGUMENT where a file of the
// model cannot be read.
StatusOr<std::string> KvFingerprint(const std::string& path,
                                    const config::LlmSettings& settings,
                                    const KvFacts& facts);

}  // namespace millrace::models

// What a Hugging Face repository holds, by the answer of
// GET /api/models/ORG/REPO/revision/REV?blobs=true, and which of its files a
// server needs.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "server/pull/source.h"

namespace millrace::server {

struct HubFile {
  std::string path;      // within the repository, safe to join to a folder
  int64_t size = -1;     // bytes; -1: not known
  std::string sha256;    // of files in large file storage
  std::string git_sha1;  // of the others: git's name of the blob
};

struct HubListing {
  std::string commit;  // 40 hexadecimal digits
  std::vector<HubFile> files;
};

// DATA_LOSS says what of the answer is not as expected.
StatusOr<HubListing> ParseHubListing(std::string_view json);

// All that a server needs: weights in safetensors with the .json, .jinja and
// .txt files and tokenizer.model beside them, or the only GGUF file; or the one
// file that the source names. An error lists what there is to name.
StatusOr<std::vector<HubFile>> ChooseFiles(const HubListing& listing,
                                           const Source& source);

}  // namespace millrace::server

// Where a model can be pulled from, as users write it:
//
//   hf://org/repo             what a server needs of a Hugging Face repository
//   hf://org/repo@v1.0/a.gguf one file of one revision
//   https://host/a.gguf       one file; http:// too
//   s3://bucket/a.gguf        one object
//   file:///mnt/a.gguf        one file, copied into the cache
//
// Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "config/base/status.h"

namespace millrace::server {

enum class SourceKind { kHub, kHttp, kS3, kFile };

struct Source {
  SourceKind kind = SourceKind::kHttp;
  std::string text;  // for messages: without passwords and signed queries

  std::string repo;      // hf: org/repo
  std::string revision;  // hf: a branch, a tag or a commit
  std::string url;       // http, https: as given
  std::string bucket;    // s3
  // hf: a path within the repository, empty: all that a server needs; s3: the
  // key; file: an absolute path.
  std::string path;
  std::string name;       // of the file or folder in the cache
  std::string cache_key;  // of the folder in the cache, the same for each pull
};

// Whether a model's path is an address, not a file.
bool IsAddress(std::string_view path);

// INVALID_ARGUMENT names what is wrong, and refuses names of pickled weights.
StatusOr<Source> ParseSource(std::string_view text);

// Whether a file's name is that of pickled data, which may run any code.
bool IsPickleName(std::string_view file);
Status RefusePickle(std::string_view file);

// A relative path that stays in its folder: no "..", no empty part, no control
// characters.
bool IsSafePath(std::string_view path);

// "a b/c" => "a%20b/c"; slashes stay.
std::string PercentEncode(std::string_view path);

}  // namespace millrace::server

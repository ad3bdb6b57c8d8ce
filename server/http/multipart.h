// Bodies of multipart/form-data, as clients upload files (RFC 7578, RFC 2046,
// section 5.1). CRLF stands between lines, and headers of parts are short.
//
//   ASSIGN_OR_RETURN(auto parts, ParseFormData(content_type, body));
//
// Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::server::http {

struct FormPart {
  std::string name;
  std::string filename;      // empty: none was given
  std::string content_type;  // lower case, no parameters; empty: none was given
  std::string_view data;     // within the body
};

inline constexpr size_t kMostFormParts = 16;

struct FormRules {
  size_t max_parts = kMostFormParts;
  // Every part has a name, its bytes are as they are, and no text stands before
  // the first boundary or behind the last one. TorchServe takes forms without.
  bool strict = true;
};

// INVALID_ARGUMENT says what is wrong; "unsupported_media_type" where the type
// is another one.
StatusOr<std::vector<FormPart>> ParseFormData(std::string_view content_type,
                                              std::string_view body,
                                              const FormRules& rules = {});

// The part of that name; null: none. Of several, the first.
const FormPart* FindPart(const std::vector<FormPart>& parts,
                         std::string_view name);

}  // namespace millrace::server::http

#include "server/http/multipart.h"

#include <algorithm>
#include <utility>

#include "config/base/utf8.h"

namespace millrace::server::http {
namespace {

constexpr size_t kMaxBoundaryChars = 70;  // RFC 2046, section 5.1.1
constexpr size_t kMaxPartHeaderBytes = 4096;
constexpr size_t kMaxNameBytes = 1024;
constexpr std::string_view kLineEnd = "\r\n";

Status Malformed(const std::string& what) {
  return InvalidArgument("the body is no multipart/form-data: " + what)
      .Because("malformed_multipart");
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string_view Trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// "token" or "\"quoted \\\" text\"" at the beginning of `rest`, taken from it.
bool TakeValue(std::string_view& rest, std::string& value) {
  value.clear();
  if (!rest.empty() && rest.front() == '"') {
    for (size_t i = 1; i < rest.size(); ++i) {
      if (rest[i] == '"') {
        rest.remove_prefix(i + 1);
        return true;
      }
      // Browsers send a lone backslash as it is; only these two are escapes.
      if (rest[i] == '\\' && i + 1 < rest.size() &&
          (rest[i + 1] == '"' || rest[i + 1] == '\\')) {
        ++i;
      }
      value.push_back(rest[i]);
    }
    return false;
  }
  const size_t end = std::min(rest.find(';'), rest.size());
  value = Trimmed(rest.substr(0, end));
  rest.remove_prefix(end);
  return !value.empty();
}

// A type and its parameters: `form-data; name="a"; filename="b"`. Calls
// each(name, value) with names in lower case; false when it is malformed.
template <typename Each>
bool ReadParameters(std::string_view text, std::string& type, Each each) {
  const size_t end = std::min(text.find(';'), text.size());
  type = Lower(Trimmed(text.substr(0, end)));
  text.remove_prefix(end);
  while (!text.empty()) {
    text.remove_prefix(1);  // the semicolon
    text = Trimmed(text);
    if (text.empty()) return true;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string name = Lower(Trimmed(text.substr(0, equals)));
    text = Trimmed(text.substr(equals + 1));
    std::string value;
    if (!TakeValue(text, value)) return false;
    each(name, std::move(value));
    text = Trimmed(text);
    if (!text.empty() && text.front() != ';') return false;
  }
  return true;
}

StatusOr<std::string> BoundaryOf(std::string_view content_type) {
  std::string type, boundary;
  const bool well_formed = ReadParameters(
      content_type, type, [&boundary](const std::string& name, auto value) {
        if (name == "boundary") boundary = std::move(value);
      });
  if (type != "multipart/form-data") {
    return InvalidArgument("the Content-Type is '" +
                           Shortened(content_type, 100) +
                           "'; send multipart/form-data")
        .Because("unsupported_media_type");
  }
  if (!well_formed || boundary.empty() || boundary.size() > kMaxBoundaryChars ||
      std::any_of(boundary.begin(), boundary.end(),
                  [](char c) { return c < ' ' || c > '~'; })) {
    return Malformed("its Content-Type must have a boundary of 1 to " +
                     std::to_string(kMaxBoundaryChars) +
                     " printable characters");
  }
  return boundary;
}

std::string TypeOf(std::string_view value) {
  return Lower(
      Trimmed(value.substr(0, std::min(value.find(';'), value.size()))));
}

Status CheckCoding(std::string_view value) {
  const std::string coding = Lower(value);
  if (coding == "binary" || coding == "8bit" || coding == "7bit") {
    return OkStatus();
  }
  return Malformed("the Content-Transfer-Encoding '" + Shortened(coding, 100) +
                   "' is not offered; send bytes as they are");
}

// The lines before the empty one.
Status ReadPartHeader(std::string_view header, bool strict, FormPart& part) {
  bool named = !strict;
  while (!header.empty()) {
    const size_t end = std::min(header.find(kLineEnd), header.size());
    const std::string_view line = header.substr(0, end);
    header.remove_prefix(std::min(end + kLineEnd.size(), header.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) {
      return Malformed("a line of a part's header has no colon");
    }
    const std::string name = Lower(Trimmed(line.substr(0, colon)));
    const std::string_view value = Trimmed(line.substr(colon + 1));
    if (name == "content-type") part.content_type = TypeOf(value);
    if (name == "content-transfer-encoding" && strict) {
      RETURN_IF_ERROR(CheckCoding(value));
    }
    if (name != "content-disposition") continue;
    std::string type;
    const bool well_formed = ReadParameters(
        value, type, [&](const std::string& key, std::string text) {
          if (key == "name") {
            part.name = std::move(text);
            named = true;
          } else if (key == "filename") {
            part.filename = std::move(text);
          }
        });
    if (!well_formed || (strict && type != "form-data")) {
      return Malformed("a part's Content-Disposition must be form-data");
    }
  }
  if (!named || part.name.size() > kMaxNameBytes ||
      part.filename.size() > kMaxNameBytes) {
    return Malformed("each part needs a name, and names have at most " +
                     std::to_string(kMaxNameBytes) + " bytes");
  }
  return OkStatus();
}

// Takes the header with its empty line from the beginning of `rest`.
StatusOr<std::string_view> TakePartHeader(std::string_view& rest, bool strict) {
  if (!strict && rest.starts_with(kLineEnd)) {  // there is none
    rest.remove_prefix(kLineEnd.size());
    return std::string_view();
  }
  const size_t size = rest.substr(0, kMaxPartHeaderBytes).find("\r\n\r\n");
  if (size == std::string_view::npos) {
    return Malformed("the header of a part has no end within " +
                     std::to_string(kMaxPartHeaderBytes) + " bytes");
  }
  const std::string_view header = rest.substr(0, size);
  rest.remove_prefix(size + 2 * kLineEnd.size());
  return header;
}

}  // namespace

StatusOr<std::vector<FormPart>> ParseFormData(std::string_view content_type,
                                              std::string_view body,
                                              const FormRules& rules) {
  ASSIGN_OR_RETURN(const std::string boundary, BoundaryOf(content_type));
  const std::string first = "--" + boundary;
  const std::string between = "\r\n--" + boundary;
  if (body.starts_with(first)) {
    body.remove_prefix(first.size());
  } else {
    const size_t begin = body.find(between);
    if (rules.strict || begin == std::string_view::npos) {
      return Malformed("it does not begin with its boundary");
    }
    body.remove_prefix(begin + between.size());
  }
  std::vector<FormPart> parts;
  while (!body.starts_with("--")) {
    if (!body.starts_with(kLineEnd)) {
      return Malformed("a boundary is not followed by a line's end");
    }
    if (parts.size() >= rules.max_parts) {
      return Malformed("it has more than " + std::to_string(rules.max_parts) +
                       " parts");
    }
    body.remove_prefix(kLineEnd.size());
    FormPart part;
    ASSIGN_OR_RETURN(const std::string_view header,
                     TakePartHeader(body, rules.strict));
    RETURN_IF_ERROR(ReadPartHeader(header, rules.strict, part));
    const size_t end = body.find(between);
    if (end == std::string_view::npos) {
      return Malformed("the part '" + Shortened(part.name, 100) +
                       "' has no end");
    }
    part.data = body.substr(0, end);
    body.remove_prefix(end + between.size());
    parts.push_back(std::move(part));
  }
  body.remove_prefix(2);
  if (rules.strict && !body.empty() && body != kLineEnd) {
    return Malformed("bytes follow its last boundary");
  }
  return parts;
}

const FormPart* FindPart(const std::vector<FormPart>& parts,
                         std::string_view name) {
  const auto found =
      std::find_if(parts.begin(), parts.end(),
                   [name](const FormPart& part) { return part.name == name; });
  return found == parts.end() ? nullptr : &*found;
}

}  // namespace millrace::server::http

// Addresses come from people and from files of settings, so each part is
// checked before it becomes a path or a URL.
#include "server/pull/source.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

#include "server/key_file.h"

namespace millrace::server {
namespace {

constexpr size_t kMaxAddress = 4096;

constexpr std::string_view kForms =
    "an address is hf://org/repo[@revision][/file], https://host/file, "
    "s3://bucket/key or file:///path";

bool IsControl(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

bool IsWord(std::string_view text) {
  return !text.empty() && text != "." && text != ".." &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

// A branch may have slashes, which stand as %2F.
bool IsRevision(std::string_view text) {
  std::string plain(text);
  for (size_t at = plain.find("%2F"); at != std::string::npos;
       at = plain.find("%2F")) {
    plain.replace(at, 3, "-");
  }
  return IsWord(plain);
}

std::string_view AfterLast(std::string_view text, char mark) {
  const size_t at = text.rfind(mark);
  return at == std::string_view::npos ? text : text.substr(at + 1);
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char low = static_cast<char>(std::tolower(static_cast<int>(c)));
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

std::string PercentDecode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && HexValue(text[i + 1]) >= 0 &&
        HexValue(text[i + 2]) >= 0) {
      out +=
          static_cast<char>(HexValue(text[i + 1]) * 16 + HexValue(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

Status Wrong(const Source& source, std::string_view why) {
  return InvalidArgument("'" + source.text + "' " + std::string(why) + "; " +
                         std::string(kForms));
}

Status ParseHub(std::string_view rest, Source* source) {
  const size_t org_end = std::min(rest.find('/'), rest.size());
  const size_t repo_end = std::min(rest.find('/', org_end + 1), rest.size());
  std::string_view repo = rest.substr(0, repo_end);
  source->revision = "main";
  if (const size_t at = repo.find('@'); at != std::string_view::npos) {
    source->revision = repo.substr(at + 1);
    repo = repo.substr(0, at);
  }
  if (org_end == rest.size() || !IsWord(rest.substr(0, org_end)) ||
      repo.size() <= org_end || !IsWord(repo.substr(org_end + 1))) {
    return Wrong(*source, "names no repository as org/repo");
  }
  if (!IsRevision(source->revision)) {
    return Wrong(*source,
                 "has a revision that is no branch, tag or commit (a slash in "
                 "it is written %2F)");
  }
  source->repo = repo;
  if (repo_end < rest.size()) source->path = rest.substr(repo_end + 1);
  source->name = source->path.empty() ? AfterLast(repo, '/')
                                      : AfterLast(source->path, '/');
  if (!source->path.empty() && !IsSafePath(source->path)) {
    return Wrong(*source, "has a file that is no path within the repository");
  }
  return OkStatus();
}

Status ParseHttp(std::string_view text, Source* source) {
  source->url = text.substr(0, text.find('#'));
  const size_t host = text.find("://") + 3;
  const size_t host_end =
      std::min(text.find_first_of("/?#", host), text.size());
  std::string_view authority = text.substr(host, host_end - host);
  authority = AfterLast(authority, '@');
  const size_t path_end =
      std::min(text.find_first_of("?#", host_end), text.size());
  const std::string_view path = text.substr(host_end, path_end - host_end);
  // Users and passwords, and queries, which may be signatures, stay out of
  // messages.
  source->text = std::string(text.substr(0, host)).append(authority);
  source->text.append(path);
  if (authority.empty()) return Wrong(*source, "names no host");
  source->name = PercentDecode(AfterLast(path, '/'));
  if (source->name.empty()) return Wrong(*source, "names no file");
  return OkStatus();
}

Status ParseS3(std::string_view rest, Source* source) {
  const size_t slash = std::min(rest.find('/'), rest.size());
  source->bucket = rest.substr(0, slash);
  if (!IsWord(source->bucket)) return Wrong(*source, "names no bucket");
  if (slash < rest.size()) source->path = rest.substr(slash + 1);
  source->name = AfterLast(source->path, '/');
  if (source->name.empty()) {
    return Wrong(*source, "names no object (a prefix cannot be pulled)");
  }
  return OkStatus();
}

Status ParseFile(std::string_view rest, Source* source) {
  if (rest.starts_with("localhost/")) rest.remove_prefix(9);
  source->path = PercentDecode(rest);
  if (!source->path.starts_with('/')) {
    return Wrong(*source,
                 "is no absolute path (file:///path has three slashes)");
  }
  source->name = AfterLast(source->path, '/');
  if (source->name.empty()) return Wrong(*source, "names no file");
  return OkStatus();
}

// Readable, and one of its own for each address.
std::string CacheKeyOf(std::string_view text, const Source& source) {
  std::string slug;
  for (const char c : source.text) {
    if (slug.size() == 60) break;
    const bool plain =
        std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_';
    if (plain) slug += c;
    if (!plain && !slug.empty() && slug.back() != '-') slug += '-';
  }
  return slug + "-" + HexText(Sha256(text)).substr(0, 12);
}

}  // namespace

bool IsAddress(std::string_view path) {
  constexpr std::string_view kSchemes[] = {"hf://", "https://", "http://",
                                           "s3://", "file://"};
  return std::any_of(
      std::begin(kSchemes), std::end(kSchemes),
      [&](std::string_view scheme) { return path.starts_with(scheme); });
}

bool IsPickleName(std::string_view file) {
  constexpr std::string_view kEndings[] = {".bin",    ".pt",   ".pth",   ".pkl",
                                           ".pickle", ".ckpt", ".joblib"};
  std::string lower(file);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return std::any_of(
      std::begin(kEndings), std::end(kEndings),
      [&](std::string_view ending) { return lower.ends_with(ending); });
}

Status RefusePickle(std::string_view file) {
  if (!IsPickleName(file)) return OkStatus();
  return InvalidArgument(
      "'" + std::string(file) +
      "' is by its name a pickle, which may run any code, so millrace reads "
      "none; take the .safetensors or .gguf of the same model, or export a "
      "graph as .onnx or .pt2 (torch.export.save)");
}

bool IsSafePath(std::string_view path) {
  if (path.empty() || path.size() > 1024) return false;
  size_t start = 0;
  while (start <= path.size()) {
    const size_t end = std::min(path.find('/', start), path.size());
    const std::string_view part = path.substr(start, end - start);
    if (part.empty() || part == "." || part == ".." || part.size() > 200 ||
        std::any_of(part.begin(), part.end(), IsControl)) {
      return false;
    }
    start = end + 1;
  }
  return true;
}

std::string PercentEncode(std::string_view path) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || c == '-' || c == '_' || c == '.' || c == '~' ||
        c == '/') {
      out += c;
    } else {
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

StatusOr<Source> ParseSource(std::string_view text) {
  Source source;
  if (text.size() > kMaxAddress) {
    return InvalidArgument("the address has " + std::to_string(text.size()) +
                           " characters; at most " +
                           std::to_string(kMaxAddress) + " are allowed");
  }
  if (std::any_of(text.begin(), text.end(), IsControl)) {
    return InvalidArgument("the address has a control character");
  }
  source.text = text;
  const size_t mark = std::min(text.find("://"), text.size());
  const std::string_view rest = text.substr(std::min(mark + 3, text.size()));
  if (!IsAddress(text)) return Wrong(source, "is no address");
  switch (text[0]) {
    case 's':
      source.kind = SourceKind::kS3;
      RETURN_IF_ERROR(ParseS3(rest, &source));
      break;
    case 'f':
      source.kind = SourceKind::kFile;
      RETURN_IF_ERROR(ParseFile(rest, &source));
      break;
    default:
      source.kind = text[1] == 'f' ? SourceKind::kHub : SourceKind::kHttp;
      RETURN_IF_ERROR(source.kind == SourceKind::kHub
                          ? ParseHub(rest, &source)
                          : ParseHttp(text, &source));
  }
  if (!IsSafePath(source.name) || source.name.find('/') != std::string::npos) {
    return Wrong(source, "ends with no name of a file");
  }
  RETURN_IF_ERROR(RefusePickle(source.name));
  source.cache_key = CacheKeyOf(text, source);
  return source;
}

}  // namespace millrace::server

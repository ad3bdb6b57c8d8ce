#include "server/pull/hub.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"

namespace millrace::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxFiles = 10'000;

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isxdigit(c) && !std::isupper(c);
         });
}

std::string TextAt(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>()
                                                     : "";
}

int64_t SizeAt(const Json& object) {
  const auto found = object.find("size");
  if (found == object.end() || !found->is_number_integer()) return -1;
  if (found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{1}
                                                                  << 60) {
    return -1;
  }
  return std::max<int64_t>(found->get<int64_t>(), -1);
}

StatusOr<HubFile> FileOf(const Json& entry) {
  if (!entry.is_object()) return DataLoss("the list has an entry of no file");
  HubFile file;
  file.path = TextAt(entry, "rfilename");
  if (!IsSafePath(file.path)) {
    return DataLoss("the list has a file whose name is no path within it");
  }
  file.size = SizeAt(entry);
  if (const std::string sha1 = TextAt(entry, "blobId"); IsHex(sha1, 40)) {
    file.git_sha1 = sha1;
  }
  const auto lfs = entry.find("lfs");
  if (lfs == entry.end() || !lfs->is_object()) return file;
  // There the blob is a pointer to the file, not the file.
  file.git_sha1.clear();
  file.sha256 = TextAt(*lfs, "sha256");
  if (!IsHex(file.sha256, 64)) {
    return DataLoss("the list has no checksum of '" + file.path + "'");
  }
  file.size = SizeAt(*lfs);
  return file;
}

bool IsTopLevel(const HubFile& file) {
  return file.path.find('/') == std::string::npos;
}

bool BelongsToWeights(const HubFile& file) {
  constexpr std::string_view kEndings[] = {".safetensors", ".json", ".jinja",
                                           ".txt"};
  if (!IsTopLevel(file)) return false;
  return file.path == "tokenizer.model" ||
         std::any_of(std::begin(kEndings), std::end(kEndings),
                     [&](std::string_view ending) {
                       return file.path.ends_with(ending);
                     });
}

std::vector<HubFile> WithEnding(const HubListing& listing,
                                std::string_view ending) {
  std::vector<HubFile> out;
  for (const HubFile& file : listing.files) {
    if (file.path.ends_with(ending)) out.push_back(file);
  }
  return out;
}

std::string Some(const std::vector<HubFile>& files) {
  constexpr size_t kMostShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(files.size(), kMostShown); ++i) {
    text += (i == 0 ? "" : ", ") + files[i].path;
  }
  return text + (files.size() > kMostShown ? ", …" : "");
}

Status NothingToServe(const HubListing& listing, const Source& source) {
  std::vector<HubFile> graphs = WithEnding(listing, ".onnx");
  for (HubFile& file : WithEnding(listing, ".pt2")) {
    graphs.push_back(std::move(file));
  }
  std::string why = " holds no safetensors and no GGUF file";
  if (!graphs.empty()) {
    return NotFound(source.text + why +
                    "; name one of its graphs: " + Some(graphs));
  }
  for (const HubFile& file : listing.files) {
    if (!IsPickleName(file.path)) continue;
    why +=
        ", only pickles such as " + file.path +
        ", which may run any code, so millrace reads none; take a "
        "repository with safetensors, or convert this one with transformers' "
        "save_pretrained(safe_serialization=True)";
    return FailedPrecondition(source.text + why);
  }
  return NotFound(source.text + why);
}

}  // namespace

StatusOr<HubListing> ParseHubListing(std::string_view json) {
  const StatusOr<Json> parsed = ParseJson(json);
  if (!parsed.ok()) {
    return DataLoss("the list of files is no JSON: " +
                    std::string(parsed.status().message()));
  }
  if (!parsed->is_object()) return DataLoss("the list of files is no object");
  HubListing listing;
  listing.commit = TextAt(*parsed, "sha");
  if (!IsHex(listing.commit, 40)) {
    return DataLoss("the list of files names no commit");
  }
  const auto siblings = parsed->find("siblings");
  if (siblings == parsed->end() || !siblings->is_array()) {
    return DataLoss("the list of files has no files");
  }
  if (siblings->size() > kMaxFiles) {
    return ResourceExhausted(
        "the repository has " + std::to_string(siblings->size()) +
        " files; at most " + std::to_string(kMaxFiles) + " are read");
  }
  for (const Json& entry : *siblings) {
    ASSIGN_OR_RETURN(HubFile file, FileOf(entry));
    listing.files.push_back(std::move(file));
  }
  return listing;
}

StatusOr<std::vector<HubFile>> ChooseFiles(const HubListing& listing,
                                           const Source& source) {
  if (!source.path.empty()) {
    for (const HubFile& file : listing.files) {
      if (file.path == source.path) return std::vector<HubFile>{file};
    }
    return NotFound("'" + source.path + "' is not in hf://" + source.repo +
                    "@" + source.revision + "; it has " + Some(listing.files));
  }
  std::vector<HubFile> chosen;
  bool has_weights = false;
  for (const HubFile& file : listing.files) {
    if (!BelongsToWeights(file)) continue;
    has_weights |= file.path.ends_with(".safetensors");
    chosen.push_back(file);
  }
  if (has_weights) return chosen;
  std::vector<HubFile> gguf = WithEnding(listing, ".gguf");
  if (gguf.size() == 1) return gguf;
  if (gguf.empty()) return NothingToServe(listing, source);
  return InvalidArgument(source.text + " holds " + std::to_string(gguf.size()) +
                         " GGUF files; name one, as in hf://" + source.repo +
                         "/" + gguf[0].path + "; there are " + Some(gguf));
}

}  // namespace millrace::server

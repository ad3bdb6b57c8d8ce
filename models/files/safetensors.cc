// The header is JSON, so most faults are of types: a number where a list should
// be, a name twice. Offsets count from the end of the header, not from the
// start of the file.
#include "models/files/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxElements = int64_t{1} << 50;

struct Dtype {
  std::string_view name;
  int32_t bits;
};
constexpr Dtype kDtypes[] = {
    {"BOOL", 8},    {"F4", 4},          {"F6_E2M3", 6},     {"F6_E3M2", 6},
    {"U8", 8},      {"I8", 8},          {"F8_E5M2", 8},     {"F8_E4M3", 8},
    {"F8_E8M0", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E4M3FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},        {"BF16", 16},       {"I32", 32},
    {"U32", 32},    {"F32", 32},        {"C64", 64},        {"F64", 64},
    {"I64", 64},    {"U64", 64},
};

const Dtype* FindDtype(std::string_view name) {
  for (const Dtype& dtype : kDtypes) {
    if (dtype.name == name) return &dtype;
  }
  return nullptr;
}

std::string Quoted(std::string_view name) {
  std::string out = "'";
  for (const char c : name.substr(0, 200)) {
    out += c >= 32 && c < 127 ? c : '?';
  }
  return out + "'";
}

// A list of integers from 0 on.
StatusOr<std::vector<int64_t>> Numbers(const Json& tensor,
                                       const std::string& name, const char* key,
                                       size_t most) {
  const auto found = tensor.find(key);
  if (found == tensor.end() || !found->is_array() || found->size() > most) {
    return InvalidArgument(name + " has no list '" + key + "' of at most " +
                           std::to_string(most) + " numbers");
  }
  std::vector<int64_t> out;
  for (const Json& item : *found) {
    if (!item.is_number_unsigned() ||
        item.get<uint64_t>() > static_cast<uint64_t>(kMaxElements)) {
      return InvalidArgument(name + " has " + Shortened(DumpJson(item), 40) +
                             " in '" + key +
                             "'; integers from 0 to 2^50 are allowed");
    }
    out.push_back(item.get<int64_t>());
  }
  return out;
}

struct Place {
  int64_t begin;
  int64_t end;
};

StatusOr<std::pair<SafetensorsTensor, Place>> ReadTensor(
    const std::string& key, const Json& value,
    const SafetensorsFile::Limits& limits) {
  const std::string name = "tensor " + Quoted(key);
  if (!value.is_object()) {
    return InvalidArgument(name + " is no object in the header");
  }
  SafetensorsTensor tensor{};
  tensor.name = key;
  const auto type = value.find("dtype");
  const Dtype* dtype = type != value.end() && type->is_string()
                           ? FindDtype(type->get_ref<const std::string&>())
                           : nullptr;
  if (dtype == nullptr) {
    return InvalidArgument(
        name + " has the unknown dtype " +
        (type == value.end() ? "(none)" : Shortened(DumpJson(*type), 40)));
  }
  tensor.dtype = dtype->name;
  ASSIGN_OR_RETURN(tensor.shape,
                   Numbers(value, name, "shape",
                           static_cast<size_t>(limits.max_dimensions)));
  tensor.num_elements = 1;
  for (const int64_t n : tensor.shape) {
    if (n > 0 && tensor.num_elements > kMaxElements / n) {
      return InvalidArgument(name +
                             " has an impossible shape of more than "
                             "2^50 values");
    }
    tensor.num_elements *= n;
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> offsets,
                   Numbers(value, name, "data_offsets", 2));
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    return InvalidArgument(name +
                           " has data_offsets that are no begin and end");
  }
  const int64_t bits = tensor.num_elements * dtype->bits;
  const int64_t size = offsets[1] - offsets[0];
  if (bits % 8 != 0 || bits / 8 != size) {
    return InvalidArgument(
        name + " has " + std::to_string(tensor.num_elements) + " values of " +
        std::string(dtype->name) + ", but " + std::to_string(size) + " bytes");
  }
  return std::pair(std::move(tensor), Place{offsets[0], offsets[1]});
}

Status ReadMetadata(const Json& value,
                    std::map<std::string, std::string>& out) {
  if (!value.is_object()) {
    return InvalidArgument("'__metadata__' in the header is no object");
  }
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      return InvalidArgument("'__metadata__' holds " + Quoted(key) +
                             ", which is no string");
    }
    out.emplace(key, text.get<std::string>());
  }
  return OkStatus();
}

// The header's text and the data behind it.
StatusOr<std::pair<std::string_view, std::span<const std::byte>>> CutHeader(
    std::span<const std::byte> bytes, int64_t max_header_bytes) {
  uint64_t length = 0;
  if (bytes.size() < sizeof length) {
    return DataLoss("the file has " + std::to_string(bytes.size()) +
                    " bytes, too few for safetensors; it is truncated");
  }
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > static_cast<uint64_t>(max_header_bytes)) {
    return InvalidArgument("the header is " + std::to_string(length) +
                           " bytes long, the limit is " +
                           std::to_string(max_header_bytes) +
                           "; is this a safetensors file?");
  }
  bytes = bytes.subspan(sizeof length);
  if (length > bytes.size()) {
    return DataLoss("the header is " + std::to_string(length) +
                    " bytes long, but the file has only " +
                    std::to_string(bytes.size()) +
                    " left; it is truncated: fetch it again");
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              static_cast<size_t>(length));
  if (!text.starts_with('{')) {
    return InvalidArgument(
        "the header does not begin with '{'; this is no "
        "safetensors file");
  }
  return std::pair(text, bytes.subspan(text.size()));
}

}  // namespace

StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path,
                                                const Limits& limits) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  StatusOr<SafetensorsFile> file = Parse(mapped.bytes(), limits);
  if (!file.ok()) return file.status().Prefixed("'" + path + "'");
  file->file_ = std::move(mapped);
  return file;
}

StatusOr<SafetensorsFile> SafetensorsFile::Parse(
    std::span<const std::byte> bytes, const Limits& limits) {
  ASSIGN_OR_RETURN(const auto parts, CutHeader(bytes, limits.max_header_bytes));
  const std::span<const std::byte> data = parts.second;
  StatusOr<Json> header =
      ParseJson(parts.first,
                {.max_depth = 4, .max_values = 8'000'000, .unique_keys = true});
  if (!header.ok()) return header.status().Prefixed("the header");
  if (static_cast<int64_t>(header->size()) > limits.max_tensors) {
    return InvalidArgument("the file has " + std::to_string(header->size()) +
                           " tensors, the limit is " +
                           std::to_string(limits.max_tensors));
  }

  SafetensorsFile file;
  file.bytes_ = bytes;
  std::vector<std::pair<SafetensorsTensor, Place>> found;
  for (const auto& [key, value] : header->items()) {
    if (key == "__metadata__") {
      RETURN_IF_ERROR(ReadMetadata(value, file.metadata_));
      continue;
    }
    ASSIGN_OR_RETURN(auto tensor, ReadTensor(key, value, limits));
    found.push_back(std::move(tensor));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) {
                     return std::pair(a.second.begin, a.second.end) <
                            std::pair(b.second.begin, b.second.end);
                   });
  const auto data_bytes = static_cast<int64_t>(data.size());
  int64_t covered = 0;
  file.tensors_.reserve(found.size());
  for (auto& [tensor, place] : found) {
    const std::string name = "tensor " + Quoted(tensor.name);
    if (place.end > data_bytes) {
      return DataLoss(name + " ends at byte " + std::to_string(place.end) +
                      " of the data, which have " + std::to_string(data_bytes) +
                      "; the file is truncated or corrupt: fetch it again");
    }
    if (place.begin != covered) {
      return InvalidArgument(
          name + " begins at byte " + std::to_string(place.begin) +
          " of the data, but the one before it ends at " +
          std::to_string(covered) + ": there must be neither gap nor overlap");
    }
    covered = place.end;
    tensor.data = data.subspan(static_cast<size_t>(place.begin),
                               static_cast<size_t>(place.end - place.begin));
    file.tensors_.push_back(std::move(tensor));
  }
  if (covered != data_bytes) {
    return InvalidArgument("the file has " +
                           std::to_string(data_bytes - covered) +
                           " bytes behind its last tensor; it is corrupt");
  }
  for (size_t i = 0; i < file.tensors_.size(); ++i) {
    file.index_.emplace(file.tensors_[i].name, i);
  }
  return file;
}

const SafetensorsTensor* SafetensorsFile::FindTensor(
    std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

}  // namespace millrace::models

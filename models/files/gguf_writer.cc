#include "models/files/gguf_writer.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace millrace::models {
namespace {

// Numbers of value types as in the file.
constexpr uint32_t kFloat32 = 6, kBool = 7, kString = 8, kArray = 9,
                   kInt64 = 11, kFloat64 = 12;

template <typename T>
void Append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void AppendText(std::string& out, std::string_view text) {
  Append(out, static_cast<uint64_t>(text.size()));
  out += text;
}

uint64_t RoundUp(uint64_t n, uint64_t unit) {
  return (n + unit - 1) / unit * unit;
}

}  // namespace

GgufWriter::GgufWriter(uint32_t alignment) : alignment_(alignment) {
  constexpr uint32_t kUint32 = 4;
  BeginKey("general.alignment", kUint32);
  Append(keys_, alignment);
}

void GgufWriter::BeginKey(std::string_view key, uint32_t type) {
  ++num_keys_;
  AppendText(keys_, key);
  Append(keys_, type);
}

void GgufWriter::AddString(std::string_view key, std::string_view value) {
  BeginKey(key, kString);
  AppendText(keys_, value);
}

void GgufWriter::AddBool(std::string_view key, bool value) {
  BeginKey(key, kBool);
  Append(keys_, static_cast<uint8_t>(value));
}

void GgufWriter::AddInt(std::string_view key, int64_t value) {
  BeginKey(key, kInt64);
  Append(keys_, value);
}

void GgufWriter::AddFloat(std::string_view key, double value) {
  BeginKey(key, kFloat64);
  Append(keys_, value);
}

void GgufWriter::AddInts(std::string_view key,
                         std::span<const int64_t> values) {
  BeginKey(key, kArray);
  Append(keys_, kInt64);
  Append(keys_, static_cast<uint64_t>(values.size()));
  for (const int64_t value : values) Append(keys_, value);
}

void GgufWriter::AddFloats(std::string_view key,
                           std::span<const float> values) {
  BeginKey(key, kArray);
  Append(keys_, kFloat32);
  Append(keys_, static_cast<uint64_t>(values.size()));
  for (const float value : values) Append(keys_, value);
}

void GgufWriter::AddDoubles(std::string_view key,
                            std::span<const double> values) {
  BeginKey(key, kArray);
  Append(keys_, kFloat64);
  Append(keys_, static_cast<uint64_t>(values.size()));
  for (const double value : values) Append(keys_, value);
}

void GgufWriter::AddStrings(std::string_view key,
                            std::span<const std::string> values) {
  BeginKey(key, kArray);
  Append(keys_, kString);
  Append(keys_, static_cast<uint64_t>(values.size()));
  for (const std::string& value : values) AppendText(keys_, value);
}

void GgufWriter::AddTensor(std::string_view name, GgmlType type,
                           std::span<const int64_t> dims,
                           std::span<const std::byte> data) {
  AppendText(infos_, name);
  Append(infos_, static_cast<uint32_t>(dims.size()));
  for (const int64_t dim : dims) Append(infos_, static_cast<uint64_t>(dim));
  Append(infos_, static_cast<uint32_t>(type));
  Append(infos_, data_bytes_);
  data_bytes_ = RoundUp(data_bytes_ + data.size(), alignment_);
  tensors_.push_back(data);
}

Status GgufWriter::Write(const std::string& path) const {
  std::string head = "GGUF";
  Append(head, uint32_t{3});
  Append(head, static_cast<uint64_t>(tensors_.size()));
  Append(head, num_keys_);
  head += keys_;
  head += infos_;
  head.resize(RoundUp(head.size(), alignment_));

  const std::string part = path + ".part";
  std::FILE* file = std::fopen(part.c_str(), "wb");
  bool good = file != nullptr;
  const std::string padding(alignment_, '\0');
  const auto put = [&](const void* data, size_t bytes) {
    good = good && std::fwrite(data, 1, bytes, file) == bytes;
  };
  put(head.data(), head.size());
  for (const std::span<const std::byte> data : tensors_) {
    put(data.data(), data.size());
    put(padding.data(), RoundUp(data.size(), alignment_) - data.size());
  }
  int error = good ? 0 : errno;
  if (file != nullptr && std::fclose(file) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(part.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return OkStatus();
  if (file != nullptr) std::remove(part.c_str());
  return FailedPrecondition("'" + path +
                            "' cannot be written: " + std::strerror(error));
}

}  // namespace millrace::models

// Every record carries its ZIP64 field, needed or not: one shape for all sizes,
// and readers must know the field anyway.
#include "models/files/zip_writer.h"

#include <zlib.h>

#include <utility>

namespace millrace::models {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint16_t kVersion = 45;       // the one that has ZIP64
constexpr uint32_t kDate = 0x00210000;  // 1 January 1980, the format's first
constexpr uint32_t kIn64 = 0xffffffff;
constexpr uint16_t kPadding = 0x4246;  // a private field: zeros

void Put(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    out += static_cast<char>(value >> (8 * i) & 0xff);
  }
}

}  // namespace

void ZipWriter::Write(const std::string& bytes) {
  out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  at_ += bytes.size();
}

void ZipWriter::Add(const std::string& name,
                    std::vector<std::span<const std::byte>> parts) {
  Written entry{.name = name, .crc32 = 0, .size = 0, .offset = at_};
  for (const auto part : parts) {
    entry.crc32 = static_cast<uint32_t>(::crc32_z(
        entry.crc32, reinterpret_cast<const Bytef*>(part.data()), part.size()));
    entry.size += part.size();
  }
  const uint64_t before = at_ + 30 + name.size() + 20 + 4;
  const uint64_t padding = (kAlignment - before % kAlignment) % kAlignment;
  std::string head;
  Put(head, 0x04034b50, 4);
  Put(head, kVersion, 2);
  Put(head, 0, 2);  // flags
  Put(head, 0, 2);  // stored
  Put(head, kDate, 4);
  Put(head, entry.crc32, 4);
  Put(head, kIn64, 4);
  Put(head, kIn64, 4);
  Put(head, name.size(), 2);
  Put(head, 20 + 4 + padding, 2);
  head += name;
  Put(head, 1, 2);
  Put(head, 16, 2);
  Put(head, entry.size, 8);
  Put(head, entry.size, 8);
  Put(head, kPadding, 2);
  Put(head, padding, 2);
  head.append(padding, '\0');
  Write(head);
  for (const auto part : parts) {
    out_.write(reinterpret_cast<const char*>(part.data()),
               static_cast<std::streamsize>(part.size()));
    at_ += part.size();
  }
  written_.push_back(std::move(entry));
}

Status ZipWriter::Finish() {
  const uint64_t begin = at_;
  for (const Written& entry : written_) {
    std::string record;
    Put(record, 0x02014b50, 4);
    Put(record, kVersion, 2);
    Put(record, kVersion, 2);
    Put(record, 0, 4);  // flags, stored
    Put(record, kDate, 4);
    Put(record, entry.crc32, 4);
    Put(record, kIn64, 4);
    Put(record, kIn64, 4);
    Put(record, entry.name.size(), 2);
    Put(record, 28, 2);
    Put(record, 0, 2);  // comment
    Put(record, 0, 2);  // disk
    Put(record, 0, 2);
    Put(record, 0, 4);
    Put(record, kIn64, 4);
    record += entry.name;
    Put(record, 1, 2);
    Put(record, 24, 2);
    Put(record, entry.size, 8);
    Put(record, entry.size, 8);
    Put(record, entry.offset, 8);
    Write(record);
  }
  const uint64_t end = at_;
  std::string tail;
  Put(tail, 0x06064b50, 4);
  Put(tail, 44, 8);
  Put(tail, kVersion, 2);
  Put(tail, kVersion, 2);
  Put(tail, 0, 8);  // this disk, the directory's disk
  Put(tail, written_.size(), 8);
  Put(tail, written_.size(), 8);
  Put(tail, end - begin, 8);
  Put(tail, begin, 8);
  Put(tail, 0x07064b50, 4);
  Put(tail, 0, 4);
  Put(tail, end, 8);
  Put(tail, 1, 4);
  Put(tail, 0x06054b50, 4);
  Put(tail, 0, 4);
  Put(tail, 0xffff, 2);
  Put(tail, 0xffff, 2);
  Put(tail, kIn64, 4);
  Put(tail, kIn64, 4);
  Put(tail, 0, 2);
  Write(tail);
  out_.flush();
  return out_ ? OkStatus() : DataLoss("the archive could not be written");
}

}  // namespace millrace::models

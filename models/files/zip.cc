// Sizes and checksums come from the directory at the end of the file (local
// headers may hold zeros), but where the data begin only the local header says,
// for its extra field has a length of its own.
#include "models/files/zip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "config/base/utf8.h"

namespace millrace::models {
namespace {

constexpr uint32_t kLocalMagic = 0x04034b50;
constexpr uint32_t kDirectoryMagic = 0x02014b50;
constexpr uint32_t kEndMagic = 0x06054b50;
constexpr uint32_t kEnd64Magic = 0x06064b50;
constexpr uint32_t kLocator64Magic = 0x07064b50;
constexpr uint64_t kLocalBytes = 30;
constexpr uint64_t kDirectoryBytes = 46;
constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kEnd64Bytes = 56;
constexpr uint64_t kLocator64Bytes = 20;
constexpr uint64_t kMaxCommentBytes = 0xffff;
constexpr uint32_t kIn64 = 0xffffffff;  // the value is in the ZIP64 field

using Bytes = std::span<const std::byte>;

// Little-endian, of bytes known to be there.
template <typename T>
T At(Bytes bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::string Shown(std::string_view name) {
  return "'" + ReplaceInvalidUtf8(Shortened(name, 200)) + "'";
}

Status Corrupt(std::string_view what) {
  return DataLoss("the ZIP archive is truncated or corrupt: " +
                  std::string(what));
}

struct Directory {
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t count = 0;
};

StatusOr<uint64_t> FindEnd(Bytes file) {
  if (file.size() >= kEndBytes) {
    const uint64_t last = file.size() - kEndBytes;
    const uint64_t first = last - std::min(last, kMaxCommentBytes);
    for (uint64_t at = last + 1; at-- > first;) {
      if (At<uint32_t>(file, at) == kEndMagic &&
          At<uint16_t>(file, at + 20) == last - at) {
        return at;
      }
    }
  }
  return Corrupt("it has no end-of-directory record");
}

StatusOr<Directory> ReadEnd64(Bytes file, uint64_t end) {
  if (end < kLocator64Bytes ||
      At<uint32_t>(file, end - kLocator64Bytes) != kLocator64Magic) {
    return Corrupt("the ZIP64 locator is missing");
  }
  const uint64_t at = At<uint64_t>(file, end - kLocator64Bytes + 8);
  if (end < kLocator64Bytes + kEnd64Bytes ||
      at > end - kLocator64Bytes - kEnd64Bytes ||
      At<uint32_t>(file, at) != kEnd64Magic) {
    return Corrupt("the ZIP64 end-of-directory record is missing");
  }
  if (At<uint32_t>(file, at + 16) != 0 || At<uint32_t>(file, at + 20) != 0) {
    return Unimplemented("the ZIP archive is split over several files");
  }
  return Directory{.offset = At<uint64_t>(file, at + 48),
                   .size = At<uint64_t>(file, at + 40),
                   .count = At<uint64_t>(file, at + 32)};
}

StatusOr<Directory> ReadEnd(Bytes file) {
  ASSIGN_OR_RETURN(const uint64_t end, FindEnd(file));
  Directory directory{.offset = At<uint32_t>(file, end + 16),
                      .size = At<uint32_t>(file, end + 12),
                      .count = At<uint16_t>(file, end + 10)};
  if (directory.offset == kIn64 || directory.size == kIn64 ||
      directory.count == 0xffff) {
    ASSIGN_OR_RETURN(directory, ReadEnd64(file, end));
  } else if (At<uint16_t>(file, end + 4) != 0 ||
             At<uint16_t>(file, end + 6) != 0) {
    return Unimplemented("the ZIP archive is split over several files");
  }
  if (directory.offset > end || directory.size > end - directory.offset) {
    return Corrupt("the directory lies outside of the file");
  }
  return directory;
}

Status CheckName(std::string_view name, const ZipFile::Limits& limits) {
  if (name.empty() ||
      static_cast<int64_t>(name.size()) > limits.max_name_bytes) {
    return InvalidArgument("a ZIP entry has a name of " +
                           std::to_string(name.size()) + " bytes; 1 to " +
                           std::to_string(limits.max_name_bytes) +
                           " are allowed");
  }
  bool leads_out = name.front() == '/' || name.find('\\') != name.npos ||
                   (name.size() > 1 && name[1] == ':');
  for (size_t begin = 0; begin <= name.size();) {
    const size_t slash = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, slash - begin);
    leads_out |= part == "." || part == "..";
    begin = slash + 1;
  }
  const bool control = std::any_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 32 || c == 127;
  });
  if (leads_out || control) {
    return InvalidArgument("the ZIP entry " + Shown(name) +
                           " has a name that is no plain relative path");
  }
  return OkStatus();
}

// The ZIP64 field in an extra area: the values that did not fit, in a fixed
// order, only those that did not fit.
class Extra64 {
 public:
  explicit Extra64(Bytes extra) {
    for (uint64_t at = 0; at + 4 <= extra.size();) {
      const uint64_t size = At<uint16_t>(extra, at + 2);
      if (size > extra.size() - at - 4) break;
      if (At<uint16_t>(extra, at) == 1) {
        field_ = extra.subspan(at + 4, size);
        break;
      }
      at += 4 + size;
    }
  }

  std::optional<uint64_t> Value(uint32_t short_value) {
    if (short_value != kIn64) return short_value;
    if (field_.size() < 8) return std::nullopt;
    const auto value = At<uint64_t>(field_, 0);
    field_ = field_.subspan(8);
    return value;
  }

 private:
  Bytes field_;
};

struct Place {
  uint64_t begin;
  uint64_t end;
};

// One record of the directory, without the data's place.
struct Record {
  ZipEntry entry;
  uint64_t packed = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;  // of the record itself
};

StatusOr<Record> ReadRecord(Bytes rest, const ZipFile::Limits& limits) {
  if (rest.size() < kDirectoryBytes ||
      At<uint32_t>(rest, 0) != kDirectoryMagic) {
    return Corrupt("an entry of the directory is missing");
  }
  const uint64_t name_bytes = At<uint16_t>(rest, 28);
  const uint64_t extra_bytes = At<uint16_t>(rest, 30);
  const uint64_t comment_bytes = At<uint16_t>(rest, 32);
  Record record;
  record.bytes = kDirectoryBytes + name_bytes + extra_bytes + comment_bytes;
  if (record.bytes > rest.size()) {
    return Corrupt("an entry of the directory is cut off");
  }
  ZipEntry& entry = record.entry;
  entry.name.assign(
      reinterpret_cast<const char*>(rest.data() + kDirectoryBytes), name_bytes);
  RETURN_IF_ERROR(CheckName(entry.name, limits));
  if ((At<uint16_t>(rest, 8) & 1) != 0) {
    return Unimplemented("the ZIP entry " + Shown(entry.name) +
                         " is encrypted; write the archive without");
  }
  const uint16_t method = At<uint16_t>(rest, 10);
  if (method != 0 && method != 8) {
    return Unimplemented("the ZIP entry " + Shown(entry.name) +
                         " is packed by method " + std::to_string(method) +
                         "; stored (0) and deflated (8) can be read");
  }
  entry.deflated = method == 8;
  entry.crc32 = At<uint32_t>(rest, 16);
  Extra64 extra(rest.subspan(kDirectoryBytes + name_bytes, extra_bytes));
  const auto size = extra.Value(At<uint32_t>(rest, 24));
  const auto packed = extra.Value(At<uint32_t>(rest, 20));
  const auto offset = extra.Value(At<uint32_t>(rest, 42));
  if (!size || !packed || !offset || *size > (uint64_t{1} << 62)) {
    return Corrupt("the sizes of " + Shown(entry.name) + " are missing");
  }
  if (!entry.deflated && *size != *packed) {
    return Corrupt("the stored entry " + Shown(entry.name) + " has two sizes");
  }
  entry.size = static_cast<int64_t>(*size);
  record.packed = *packed;
  record.offset = *offset;
  return record;
}

// Where the entry lies, header and data; `files` is what is before the
// directory.
StatusOr<Place> FindData(Record& record, Bytes files) {
  const std::string name = Shown(record.entry.name);
  const uint64_t at = record.offset;
  if (at > files.size() || files.size() - at < kLocalBytes ||
      At<uint32_t>(files, at) != kLocalMagic) {
    return Corrupt("the header of " + name + " is not where it should be");
  }
  const uint64_t name_bytes = At<uint16_t>(files, at + 26);
  const uint64_t header =
      kLocalBytes + name_bytes + At<uint16_t>(files, at + 28);
  const uint64_t left = files.size() - at;
  if (header > left || record.packed > left - header) {
    return Corrupt("the data of " + name + " reach beyond the files' part");
  }
  const std::string_view local_name(
      reinterpret_cast<const char*>(files.data() + at + kLocalBytes),
      name_bytes);
  if (local_name != record.entry.name) {
    return Corrupt("the entry " + name + " is called " + Shown(local_name) +
                   " in its own header");
  }
  record.entry.bytes = files.subspan(at + header, record.packed);
  return Place{at, at + header + record.packed};
}

Status CheckDisjoint(std::vector<Place> places) {
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i].begin < places[i - 1].end) {
      return InvalidArgument("entries of the ZIP archive overlap at byte " +
                             std::to_string(places[i].begin));
    }
  }
  return OkStatus();
}

uint32_t Crc(const void* data, uint64_t size) {
  return static_cast<uint32_t>(
      ::crc32_z(0, static_cast<const Bytef*>(data), size));
}

Status CheckCrc(const ZipEntry& entry, uint32_t crc) {
  if (crc == entry.crc32) return OkStatus();
  return DataLoss("the ZIP entry " + Shown(entry.name) +
                  " does not match its checksum; fetch the file again");
}

constexpr size_t kPieceBytes = size_t{1} << 20;

// Pieces of what deflate packed; as many bytes as the entry's size.
Status Inflate(const ZipEntry& entry, const TakePiece& take) {
  z_stream stream = {};
  if (::inflateInit2(&stream, -MAX_WBITS) != Z_OK) {
    return ResourceExhausted("zlib cannot be started");
  }
  const std::unique_ptr<z_stream, decltype(&::inflateEnd)> ended(&stream,
                                                                 ::inflateEnd);
  constexpr uint64_t kMostAtOnce = uint64_t{1} << 30;
  auto* in = reinterpret_cast<const Bytef*>(entry.bytes.data());
  uint64_t in_left = entry.bytes.size();
  auto left = static_cast<uint64_t>(entry.size);
  std::vector<std::byte> piece(std::min<uint64_t>(left, kPieceBytes));
  // One byte more shows data that go on beyond the promised size.
  Bytef beyond = 0;
  int code = Z_OK;
  while (code == Z_OK) {
    const bool full = left == 0;
    const uInt room =
        full ? 1 : static_cast<uInt>(std::min<uint64_t>(left, piece.size()));
    stream.next_out = full ? &beyond : reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = room;
    while (code == Z_OK && stream.avail_out > 0) {
      stream.next_in = const_cast<Bytef*>(in);
      stream.avail_in = static_cast<uInt>(std::min(in_left, kMostAtOnce));
      const uInt avail_in = stream.avail_in;
      const uInt avail_out = stream.avail_out;
      code = ::inflate(&stream, Z_NO_FLUSH);
      const uInt read = avail_in - stream.avail_in;
      in += read;
      in_left -= read;
      if (code == Z_OK && read == 0 && stream.avail_out == avail_out) {
        code = Z_BUF_ERROR;  // the data end before deflate does
      }
    }
    const uInt wrote = room - stream.avail_out;
    if (full && wrote > 0) {
      code = Z_DATA_ERROR;
    } else if (wrote > 0) {
      RETURN_IF_ERROR(take(std::span(piece).first(wrote)));
      left -= wrote;
    }
  }
  if (code != Z_STREAM_END || left != 0) {
    return Corrupt("the entry " + Shown(entry.name) + " cannot be unpacked");
  }
  return OkStatus();
}

}  // namespace

bool ZipFile::LooksLikeZip(std::span<const std::byte> bytes) {
  return bytes.size() >= 4 && At<uint32_t>(bytes, 0) == kLocalMagic;
}

StatusOr<ZipFile> ZipFile::Parse(std::span<const std::byte> bytes,
                                 const Limits& limits) {
  ASSIGN_OR_RETURN(const Directory directory, ReadEnd(bytes));
  if (directory.count > static_cast<uint64_t>(limits.max_entries)) {
    return InvalidArgument(
        "the ZIP archive has " + std::to_string(directory.count) +
        " entries, the limit is " + std::to_string(limits.max_entries));
  }
  Bytes rest = bytes.subspan(directory.offset, directory.size);
  const Bytes files = bytes.first(directory.offset);
  if (directory.count > directory.size / kDirectoryBytes) {
    return Corrupt("the directory is too small for its entries");
  }
  ZipFile zip;
  std::vector<Place> places;
  zip.entries_.reserve(directory.count);
  for (uint64_t i = 0; i < directory.count; ++i) {
    ASSIGN_OR_RETURN(Record record, ReadRecord(rest, limits));
    rest = rest.subspan(record.bytes);
    ASSIGN_OR_RETURN(const Place place, FindData(record, files));
    places.push_back(place);
    zip.entries_.push_back(std::move(record.entry));
    const std::string& name = zip.entries_.back().name;
    if (!zip.index_.emplace(name, i).second) {
      return InvalidArgument("the ZIP archive has two entries called " +
                             Shown(name));
    }
  }
  RETURN_IF_ERROR(CheckDisjoint(std::move(places)));
  return zip;
}

const ZipEntry* ZipFile::Find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

Status UnpackEntry(const ZipEntry& entry, int64_t max_bytes,
                   const TakePiece& take) {
  if (entry.size > max_bytes) {
    return ResourceExhausted("the ZIP entry " + Shown(entry.name) + " has " +
                             std::to_string(entry.size) +
                             " bytes, the limit is " +
                             std::to_string(max_bytes));
  }
  // Deflate packs 1032 to 1 at best: what claims more lies, and would make us
  // take room for nothing.
  if (entry.deflated &&
      entry.size / 1032 > static_cast<int64_t>(entry.bytes.size()) + 1) {
    return Corrupt("the size of " + Shown(entry.name) + " is impossible");
  }
  auto crc = static_cast<uint32_t>(::crc32_z(0, nullptr, 0));
  const auto take_and_sum = [&](Bytes piece) {
    crc = static_cast<uint32_t>(::crc32_z(
        crc, reinterpret_cast<const Bytef*>(piece.data()), piece.size()));
    return take(piece);
  };
  if (entry.deflated) {
    RETURN_IF_ERROR(Inflate(entry, take_and_sum));
  } else {
    for (Bytes rest = entry.bytes; !rest.empty();) {
      const Bytes piece = rest.first(std::min(rest.size(), kPieceBytes));
      RETURN_IF_ERROR(take_and_sum(piece));
      rest = rest.subspan(piece.size());
    }
  }
  return CheckCrc(entry, crc);
}

StatusOr<std::string> ReadEntry(const ZipEntry& entry, int64_t max_bytes) {
  std::string out;
  RETURN_IF_ERROR(UnpackEntry(entry, max_bytes, [&](Bytes piece) {
    // Memory is taken once the size was checked.
    if (out.empty()) out.reserve(static_cast<size_t>(entry.size));
    out.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return OkStatus();
  }));
  return out;
}

Status CheckEntry(const ZipEntry& entry) {
  CHECK(!entry.deflated, "only stored entries can be checked in place");
  return CheckCrc(entry, Crc(entry.bytes.data(), entry.bytes.size()));
}

}  // namespace millrace::models

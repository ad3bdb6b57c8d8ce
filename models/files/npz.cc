// The header of an array is the text of a Python dictionary with three keys in
// any order; a small scanner reads just that.
#include "models/files/npz.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include "config/base/utf8.h"
#include "models/files/zip.h"
#include "models/files/zip_writer.h"
#include "models/memory/mapped_file.h"
#include "models/tensor/float16.h"
#include "models/tensor/strings.h"

namespace millrace::models {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr int64_t kMaxHeaderBytes = 64 << 10;

struct Kind {
  std::string_view code;  // without the byte order
  DType dtype;
};
constexpr Kind kKinds[] = {
    {"b1", DType::kBool}, {"u1", DType::kU8},  {"u2", DType::kU16},
    {"u4", DType::kU32},  {"u8", DType::kU64}, {"i1", DType::kI8},
    {"i2", DType::kI16},  {"i4", DType::kI32}, {"i8", DType::kI64},
    {"f2", DType::kF16},  {"f4", DType::kF32}, {"f8", DType::kF64},
};

struct Header {
  DType dtype = DType::kF32;
  // Of strings: bytes of each, and whether a character takes four of them.
  int64_t width = 0;
  bool wide = false;
  bool fortran = false;
  Shape shape;

  int64_t element_bytes() const {
    return dtype == kString ? width : DTypeBytes(dtype);
  }
};

// "|S5": bytes, "<U5": characters.
bool ReadStringType(std::string_view descr, Header& header) {
  if (descr.size() < 3 || (descr[1] != 'S' && descr[1] != 'U')) return false;
  const std::string_view digits = descr.substr(2);
  const auto [end, error] = std::from_chars(
      digits.data(), digits.data() + digits.size(), header.width);
  constexpr int64_t kMostCharacters = 1 << 24;
  if (error != std::errc() || end != digits.data() + digits.size() ||
      header.width < 0 || header.width > kMostCharacters) {
    return false;
  }
  header.dtype = kString;
  header.wide = descr[1] == 'U';
  if (header.wide) header.width *= 4;
  return descr[0] == '|' || descr[0] == '<';
}

Status ReadType(std::string_view descr, Header& header) {
  if (ReadStringType(descr, header)) return OkStatus();
  const bool native = descr.starts_with('<') || descr.starts_with('|') ||
                      (descr.starts_with('=') && descr.size() == 3);
  for (const Kind& kind : kKinds) {
    if (!native || descr.substr(1) != kind.code) continue;
    header.dtype = kind.dtype;
    return OkStatus();
  }
  return Unimplemented("arrays of type '" +
                       ReplaceInvalidUtf8(Shortened(descr, 40)) +
                       "' cannot be read; save little-endian numbers");
}

// {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
class HeaderScanner {
 public:
  explicit HeaderScanner(std::string_view text) : rest_(text) {}

  StatusOr<Header> Scan() {
    Header header;
    int seen = 0;
    if (!Eat('{')) return Malformed();
    while (!Eat('}')) {
      const auto key = Quoted();
      if (!key || !Eat(':')) return Malformed();
      if (*key == "descr") {
        const auto descr = Quoted();
        if (!descr) {
          return Unimplemented("structured arrays cannot be read");
        }
        RETURN_IF_ERROR(ReadType(*descr, header));
        seen |= 1;
      } else if (*key == "fortran_order") {
        header.fortran = EatWord("True");
        if (!header.fortran && !EatWord("False")) return Malformed();
        seen |= 2;
      } else if (*key == "shape") {
        ASSIGN_OR_RETURN(header.shape, Tuple());
        seen |= 4;
      } else {
        return Malformed();
      }
      if (!Eat(',') && Peek() != '}') return Malformed();
    }
    if (seen != 7 || Peek() != '\0') return Malformed();
    return header;
  }

 private:
  static Status Malformed() {
    return InvalidArgument(
        "the array's header is no dictionary of descr, "
        "fortran_order and shape");
  }
  char Peek() {
    const size_t start = rest_.find_first_not_of(" \n\t");
    rest_.remove_prefix(std::min(start, rest_.size()));
    return rest_.empty() ? '\0' : rest_.front();
  }
  bool Eat(char c) {
    if (Peek() != c || c == '\0') return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool EatWord(std::string_view word) {
    (void)Peek();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  std::optional<std::string_view> Quoted() {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') return std::nullopt;
    const size_t end = rest_.find(quote, 1);
    if (end == rest_.npos) return std::nullopt;
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }
  StatusOr<Shape> Tuple() {
    std::vector<int64_t> dims;
    if (!Eat('(')) return Malformed();
    while (!Eat(')')) {
      int64_t size = 0;
      size_t digits = 0;
      for (char c = Peek(); digits < rest_.size() && digits < 18; ++digits) {
        c = rest_[digits];
        if (c < '0' || c > '9') break;
        size = size * 10 + (c - '0');
      }
      if (digits == 0) return Malformed();
      rest_.remove_prefix(digits);
      (void)Eat('L');  // Python 2
      dims.push_back(size);
      if (dims.size() > 32) return Malformed();
      if (!Eat(',') && Peek() != ')') return Malformed();
    }
    return Shape::Checked(dims);
  }

  std::string_view rest_;
};

// Row-major from column-major: the last index of the target runs fastest, the
// first index of the source does.
void FromFortran(const Shape& shape, int64_t element_bytes,
                 const std::byte* from, std::byte* to) {
  Shape strides = shape;  // of the source, in elements
  int64_t stride = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    strides[i] = stride;
    stride *= shape[i];
  }
  Shape at = shape;
  for (int i = 0; i < shape.rank(); ++i) at[i] = 0;
  int64_t source = 0;
  for (int64_t n = shape.num_elements(); n > 0; --n) {
    std::memcpy(to, from + source * element_bytes,
                static_cast<size_t>(element_bytes));
    to += element_bytes;
    for (int i = shape.rank() - 1; i >= 0; --i) {
      source += strides[i];
      if (++at[i] < shape[i]) break;
      source -= strides[i] * shape[i];
      at[i] = 0;
    }
  }
}

void AppendUtf8(uint32_t code, std::string& text) {
  const auto byte = [&](uint32_t value) { text += static_cast<char>(value); };
  if (code < 0x80) return byte(code);
  if (code < 0x800) {
    byte(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      byte(0xe0 | code >> 12);
    } else {
      byte(0xf0 | (code >> 18 & 7));
      byte(0x80 | (code >> 12 & 0x3f));
    }
    byte(0x80 | (code >> 6 & 0x3f));
  }
  byte(0x80 | (code & 0x3f));
}

// An element of numpy ends where nothing but zeros follow. Characters of four
// bytes become UTF-8.
std::string StringOf(std::string_view bytes, bool wide) {
  if (!wide)
    return std::string(bytes.substr(0, bytes.find_last_not_of('\0') + 1));
  std::string text;
  size_t zeros = 0;  // that may be followed by something
  for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    uint32_t code = 0;
    std::memcpy(&code, bytes.data() + i, 4);
    if (code == 0) {
      ++zeros;
      continue;
    }
    text.append(std::exchange(zeros, 0), '\0');
    AppendUtf8(code, text);
  }
  return text;
}

StatusOr<Tensor> StringsOf(const Header& header,
                           std::span<const std::byte> data) {
  if (header.fortran) {
    return Unimplemented("strings in Fortran's order cannot be read");
  }
  std::vector<std::string> texts;
  const std::string_view all(reinterpret_cast<const char*>(data.data()),
                             data.size());
  for (int64_t i = 0; i < header.shape.num_elements(); ++i) {
    texts.push_back(StringOf(all.substr(static_cast<size_t>(i * header.width),
                                        static_cast<size_t>(header.width)),
                             header.wide));
  }
  return MakeStrings(header.shape,
                     std::vector<std::string_view>(texts.begin(), texts.end()));
}

// Strings of one width, as numpy has them.
struct Padded {
  Padded() = default;  // of other types
  explicit Padded(const Tensor& tensor) {
    const std::span views(tensor.data<std::string_view>(),
                          static_cast<size_t>(tensor.num_elements()));
    for (const std::string_view view : views) {
      width = std::max(width, view.size());
    }
    for (const std::string_view view : views) {
      bytes.append(view).append(width - view.size(), '\0');
    }
  }

  size_t width = 1;
  std::string bytes;
};

// A header such that the data begin at a multiple of 64 bytes.
std::string HeaderOf(const Tensor& tensor, size_t string_width) {
  std::string text;
  if (tensor.dtype() == kString) {
    text = "{'descr': '|S" + std::to_string(string_width) +
           "', 'fortran_order': False, 'shape': (";
  }
  for (const Kind& kind : kKinds) {
    if (kind.dtype != tensor.dtype()) continue;
    text = "{'descr': '" + std::string(kind.code[1] == '1' ? "|" : "<") +
           std::string(kind.code) + "', 'fortran_order': False, 'shape': (";
  }
  for (const int64_t size : tensor.shape()) text += std::to_string(size) + ", ";
  text += "), }";
  // numpy writes (3,) but reads "(3, )", too; "(, )" there never is.
  const size_t unpadded = kMagic.size() + 4 + text.size() + 1;
  text.append((64 - unpadded % 64) % 64, ' ');
  text += '\n';
  std::string header(kMagic);
  header += '\x01';
  header += '\0';
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

Tensor WithoutBFloat16(const Tensor& tensor) {
  if (tensor.dtype() != DType::kBF16) return tensor.Share();
  Tensor wide = Tensor::Make(DType::kF32, tensor.shape());
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    wide.data<float>()[i] = BFloat16ToFloat(tensor.data<uint16_t>()[i]);
  }
  return wide;
}

}  // namespace

StatusOr<Tensor> ParseNpy(std::span<const std::byte> bytes,
                          const NpzLimits& limits) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              bytes.size());
  if (text.size() < 10 || !text.starts_with(kMagic)) {
    return InvalidArgument("this is no .npy array: its magic is missing");
  }
  const int version = text[6];
  if (version < 1 || version > 3) {
    return Unimplemented("the array is of .npy version " +
                         std::to_string(version) + "; 1 to 3 can be read");
  }
  const size_t length_bytes = version == 1 ? 2 : 4;
  uint32_t length = 0;
  if (text.size() < 8 + length_bytes) return DataLoss("the array is cut off");
  std::memcpy(&length, text.data() + 8, length_bytes);
  const size_t head = 8 + length_bytes;
  if (length > kMaxHeaderBytes || length > text.size() - head) {
    return DataLoss("the array's header is cut off or longer than " +
                    std::to_string(kMaxHeaderBytes) + " bytes");
  }
  ASSIGN_OR_RETURN(const Header header,
                   HeaderScanner(text.substr(head, length)).Scan());
  // A string costs memory even when it is empty.
  constexpr int64_t kLeastOfString = 64;
  const bool strings = header.dtype == kString;
  const int64_t count = header.shape.num_elements();
  const int64_t each =
      strings ? std::max(header.width, kLeastOfString) : header.element_bytes();
  // Their product may be beyond int64_t where strings are wide.
  if (count > limits.max_bytes / each) {
    return ResourceExhausted("the array " +
                             TypeText(header.dtype, header.shape) +
                             " is larger than the limit of " +
                             std::to_string(limits.max_bytes) + " bytes");
  }
  const auto data = bytes.subspan(head + length);
  if (static_cast<int64_t>(data.size()) < count * header.element_bytes()) {
    return DataLoss("the array " + TypeText(header.dtype, header.shape) +
                    " has only " + std::to_string(data.size()) +
                    " bytes; the file is truncated");
  }
  if (strings) return StringsOf(header, data);
  const int64_t size = count * each;
  Tensor tensor = Tensor::Make(header.dtype, header.shape);
  if (header.fortran) {
    FromFortran(header.shape, DTypeBytes(header.dtype), data.data(),
                tensor.bytes());
  } else if (size > 0) {
    std::memcpy(tensor.bytes(), data.data(), static_cast<size_t>(size));
  }
  if (header.dtype == DType::kBool) {
    // Foreign bytes: whatever is not 0 is true.
    auto* values = tensor.data<uint8_t>();
    std::transform(values, values + size, values,
                   [](uint8_t v) -> uint8_t { return v != 0; });
  }
  return tensor;
}

StatusOr<std::vector<NamedTensor>> ParseNpz(std::span<const std::byte> bytes,
                                            const NpzLimits& limits) {
  ASSIGN_OR_RETURN(const ZipFile zip,
                   ZipFile::Parse(bytes, {.max_entries = limits.max_arrays}));
  std::vector<NamedTensor> arrays;
  NpzLimits left = limits;
  for (const ZipEntry& entry : zip.entries()) {
    std::string_view name = entry.name;
    if (!name.ends_with(".npy")) {
      return InvalidArgument("'" + ReplaceInvalidUtf8(Shortened(name, 200)) +
                             "' is no array: its name does not end in .npy");
    }
    name.remove_suffix(4);
    ASSIGN_OR_RETURN(const std::string npy,
                     ReadEntry(entry, left.max_bytes + kMaxHeaderBytes + 12));
    StatusOr<Tensor> tensor = ParseNpy(std::as_bytes(std::span(npy)), left);
    if (!tensor.ok()) {
      return tensor.status().Prefixed(
          "'" + ReplaceInvalidUtf8(Shortened(name, 200)) + "'");
    }
    left.max_bytes -= tensor->num_bytes();
    arrays.push_back({std::string(name), std::move(*tensor)});
  }
  return arrays;
}

StatusOr<std::vector<NamedTensor>> ReadNpz(const std::string& path,
                                           const NpzLimits& limits) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (!ZipFile::LooksLikeZip(file.bytes())) {
    return InvalidArgument("'" + path +
                           "' is no .npz file; numpy.savez(\"x.npz\", "
                           "name=array) writes one");
  }
  auto arrays = ParseNpz(file.bytes(), limits);
  if (!arrays.ok()) return arrays.status().Prefixed("'" + path + "'");
  return arrays;
}

Status WriteNpz(const std::string& path,
                const std::vector<NamedTensor>& arrays) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (!out) return InvalidArgument("'" + path + "' cannot be written");
  ZipWriter zip(out);
  for (const NamedTensor& array : arrays) {
    const Tensor tensor = WithoutBFloat16(array.tensor);
    const bool strings = tensor.dtype() == kString;
    const Padded padded = strings ? Padded(tensor) : Padded();
    const std::string header = HeaderOf(tensor, padded.width);
    std::span<const std::byte> data(tensor.bytes(),
                                    static_cast<size_t>(tensor.num_bytes()));
    if (strings) data = std::as_bytes(std::span(padded.bytes));
    zip.Add(array.name + ".npy", {std::as_bytes(std::span(header)), data});
  }
  return zip.Finish().Prefixed("'" + path + "'");
}

}  // namespace millrace::models

// The header of a .npy file is a line of Python: a dictionary with the keys
// descr, fortran_order and shape (NEP 1).
#include <cstring>

#include "loadtest/tensors.h"

namespace millrace::loadtest {
namespace {

struct NpyType {
  std::string_view descr;
  std::string_view datatype;
  int64_t bytes;
};
constexpr NpyType kTypes[] = {
    {"|b1", "BOOL", 1},   {"|u1", "UINT8", 1},  {"<u2", "UINT16", 2},
    {"<u4", "UINT32", 4}, {"<u8", "UINT64", 8}, {"|i1", "INT8", 1},
    {"<i2", "INT16", 2},  {"<i4", "INT32", 4},  {"<i8", "INT64", 8},
    {"<f2", "FP16", 2},   {"<f4", "FP32", 4},   {"<f8", "FP64", 8}};

// The text after "'key':" up to `end`.
std::string_view ValueOf(std::string_view header, std::string_view key,
                         char end) {
  const size_t at = header.find("'" + std::string(key) + "'");
  if (at == header.npos) return {};
  const size_t colon = header.find(':', at);
  if (colon == header.npos) return {};
  std::string_view value = header.substr(colon + 1);
  while (value.starts_with(' ')) value.remove_prefix(1);
  return value.substr(0, value.find(end));
}

Status Wrong(std::string_view why) {
  return InvalidArgument("this is no .npy file that can be sent: " +
                         std::string(why));
}

}  // namespace

StatusOr<Tensor> ParseNpy(std::string_view file) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  if (!file.starts_with(kMagic) || file.size() < 12) {
    return Wrong("it does not begin as one");
  }
  const bool first = file[6] == 1;  // the length of the header has 2 bytes
  const size_t length_bytes = first ? 2 : 4;
  uint32_t length = 0;
  std::memcpy(&length, file.data() + 8, length_bytes);
  const size_t begin = 8 + length_bytes;
  if (length > file.size() - begin) return Wrong("its header is cut short");
  const std::string_view header = file.substr(begin, length);
  const std::string_view data = file.substr(begin + length);

  Tensor tensor;
  int64_t expected = 0;
  std::string_view descr = ValueOf(header, "descr", ',');
  if (descr.size() > 2) descr = descr.substr(1, descr.size() - 2);
  for (const NpyType& type : kTypes) {
    if (descr != type.descr) continue;
    tensor.spec.datatype = type.datatype;
    expected = type.bytes;
  }
  if (expected == 0) {
    return Wrong("its values are of type '" + std::string(descr) + "'");
  }
  if (ValueOf(header, "fortran_order", ',') != "False") {
    return Wrong("its values are in Fortran order; save a C-ordered copy");
  }
  std::string_view shape = ValueOf(header, "shape", ')');
  if (!shape.starts_with('(')) return Wrong("it has no shape");
  shape.remove_prefix(1);
  while (shape.find_first_of("0123456789") != shape.npos) {
    int64_t size = 0;
    while (!shape.empty() && shape[0] != ',') {
      if (shape[0] >= '0' && shape[0] <= '9') size = size * 10 + shape[0] - '0';
      if (size > (int64_t{1} << 40)) return Wrong("a dimension is too large");
      shape.remove_prefix(1);
    }
    if (!shape.empty()) shape.remove_prefix(1);
    tensor.spec.shape.push_back(size);
    if (size > 0 && expected > (int64_t{1} << 40) / size) {
      return Wrong("it is larger than 1 TiB");
    }
    expected *= size;
  }
  if (expected != static_cast<int64_t>(data.size())) {
    return Wrong("it holds " + std::to_string(data.size()) +
                 " bytes of values and its shape needs " +
                 std::to_string(expected));
  }
  tensor.bytes = data;
  return tensor;
}

}  // namespace millrace::loadtest

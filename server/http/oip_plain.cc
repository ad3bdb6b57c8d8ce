// simdjson's DOM chooses its instructions when the program runs, as our kernels
// do; its on-demand API would be compiled for the oldest processor. Each
// function says false for what it does not know; the first false declines.
#include "server/http/oip_plain.h"

#include <simdjson.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "server/tensor_bytes.h"

namespace millrace::server::http {
namespace {

namespace dom = simdjson::dom;

// A longer text has its data in JSON.
constexpr size_t kMostJsonBytes = 8 << 10;
// An input's parameters are the deepest: {[{{ }}]}.
constexpr size_t kMostDepth = 8;

// Keys of one object, which may not stand twice.
class SeenKeys {
 public:
  bool Has(uint32_t key) const { return (keys_ & key) != 0; }
  bool Once(uint32_t key) {
    const bool is_first = !Has(key);
    keys_ |= key;
    return is_first;
  }

 private:
  uint32_t keys_ = 0;
};
enum InputKey : uint32_t {
  kName = 1,
  kDatatype = 2,
  kShape = 4,
  kParameters = 8,
  kBinary = 16
};
enum BodyKey : uint32_t { kInputs = 1, kOutputs = 2, kOptions = 4, kId = 8 };

// Owns what the elements point into, until its next text. Its memory is taken
// once, 13 bytes for each of the longest text. Null where there is none.
dom::parser* ParserOfThread() {
  thread_local dom::parser parser(kMostJsonBytes);
  if (parser.capacity() < kMostJsonBytes &&
      parser.allocate(kMostJsonBytes, kMostDepth) != simdjson::SUCCESS) {
    return nullptr;
  }
  return &parser;
}

bool Read(dom::element value, std::string_view& text) {
  return value.get_string().get(text) == simdjson::SUCCESS;
}
// Whole and without a sign.
bool Read(dom::element value, int64_t& number) {
  return value.is_int64() &&
         value.get_int64().get(number) == simdjson::SUCCESS && number >= 0;
}
bool Read(dom::element value, bool& flag) {
  return value.get_bool().get(flag) == simdjson::SUCCESS;
}

// `member` takes each key with its value.
template <typename Member>
bool Object(dom::element value, Member member) {
  dom::object object;
  if (value.get_object().get(object) != simdjson::SUCCESS) return false;
  for (const dom::key_value_pair field : object) {
    if (!member(field.key, field.value)) return false;
  }
  return true;
}

template <typename Element>
bool Array(dom::element value, Element element) {
  dom::array array;
  if (value.get_array().get(array) != simdjson::SUCCESS) return false;
  for (const dom::element each : array) {
    if (!element(each)) return false;
  }
  return true;
}

struct Input {
  std::string_view name, datatype;
  std::vector<int64_t> shape;
  int64_t num_bytes = -1;
};

bool ReadShape(dom::element value, std::vector<int64_t>& shape) {
  return Array(value, [&](dom::element size) {
    return shape.size() < models::Shape::kMaxRank &&
           Read(size, shape.emplace_back());
  });
}

bool ReadInput(dom::element value, Input& input) {
  SeenKeys seen;
  const auto parameter = [&](std::string_view key, dom::element of) {
    return key == "binary_data_size" && seen.Once(kBinary) &&
           Read(of, input.num_bytes);
  };
  const auto member = [&](std::string_view key, dom::element of) {
    if (key == "name") return seen.Once(kName) && Read(of, input.name);
    if (key == "shape") return seen.Once(kShape) && ReadShape(of, input.shape);
    if (key == "datatype") {
      return seen.Once(kDatatype) && Read(of, input.datatype);
    }
    return key == "parameters" && seen.Once(kParameters) &&
           Object(of, parameter);
  };
  return Object(value, member) && !input.name.empty() && seen.Has(kShape) &&
         seen.Has(kBinary);
}

bool ReadOutput(dom::element value, InferBody& body) {
  SeenKeys seen;
  std::string_view name;
  std::optional<bool> binary;
  const auto parameter = [&](std::string_view key, dom::element of) {
    return key == "binary_data" && seen.Once(kBinary) &&
           Read(of, binary.emplace());
  };
  const auto member = [&](std::string_view key, dom::element of) {
    if (key == "name") return seen.Once(kName) && Read(of, name);
    return key == "parameters" && seen.Once(kParameters) &&
           Object(of, parameter);
  };
  if (!Object(value, member) || name.empty()) return false;
  body.forms[std::string(name)].binary = binary;
  body.request.outputs.emplace_back(name);
  return true;
}

bool ReadBody(dom::element root, InferBody& body, std::vector<Input>& inputs) {
  SeenKeys seen, seen_options;
  const auto option = [&](std::string_view key, dom::element of) {
    return key == "binary_data_output" && seen_options.Once(kBinary) &&
           Read(of, body.binary);
  };
  const auto member = [&](std::string_view key, dom::element of) {
    if (key == "inputs") {
      return seen.Once(kInputs) && Array(of, [&](dom::element input) {
               return ReadInput(input, inputs.emplace_back());
             });
    }
    if (key == "outputs") {
      return seen.Once(kOutputs) && Array(of, [&](dom::element output) {
               return ReadOutput(output, body);
             });
    }
    if (key == "id") {
      std::string_view id;
      if (!seen.Once(kId) || !Read(of, id)) return false;
      body.id = std::string(id);
      return true;
    }
    return key == "parameters" && seen.Once(kOptions) && Object(of, option);
  };
  return Object(root, member) && seen.Has(kInputs);
}

bool AddTensor(const Input& input, std::string_view& tail, InferBody& body) {
  if (input.num_bytes > static_cast<int64_t>(tail.size())) return false;
  StatusOr<TensorHead> head =
      ReadTensorHead(input.name, input.datatype, input.shape);
  if (!head.ok()) return false;
  const auto num_bytes = static_cast<size_t>(input.num_bytes);
  StatusOr<models::Tensor> tensor =
      TensorFromBytes(*head, tail.substr(0, num_bytes));
  if (!tensor.ok()) return false;
  tail.remove_prefix(num_bytes);
  body.request.inputs.push_back({std::move(head->name), *std::move(tensor)});
  return true;
}

}  // namespace

std::optional<InferBody> ReadPlainInfer(std::string_view json,
                                        std::string_view tail) {
  // Of escapes simdjson 3.0 takes one that the other reader refuses: half of a
  // pair of surrogates.
  if (json.size() > kMostJsonBytes || json.find('\\') != json.npos) {
    return std::nullopt;
  }
  dom::parser* const parser = ParserOfThread();
  dom::element root;
  // parse() copies the text to where it is padded.
  if (parser == nullptr ||
      parser->parse(json.data(), json.size()).get(root) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  InferBody body;
  std::vector<Input> inputs;
  if (!ReadBody(root, body, inputs)) return std::nullopt;
  for (const Input& input : inputs) {
    if (!AddTensor(input, tail, body)) return std::nullopt;
  }
  if (!tail.empty()) return std::nullopt;
  if (!body.request.outputs.empty()) body.binary = false;
  return body;
}

}  // namespace millrace::server::http

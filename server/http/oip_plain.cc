// Each function moves on in the text, or says false; the first false declines.
#include "server/http/oip_plain.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "server/tensor_bytes.h"

namespace millrace::server::http {
namespace {

constexpr size_t kMostDigits = 18;  // fit into 64 bits

class PlainReader {
 public:
  PlainReader(std::string_view json, std::string_view tail)
      : json_(json), tail_(tail) {}

  bool Read(InferBody& body) {
    std::string_view id;
    const bool read =
        Object([&](std::string_view key) {
          if (key == "inputs") {
            return Once(kInputs) && Array([&] { return ReadInput(); });
          }
          if (key == "outputs") {
            return Once(kOutputs) && Array([&] { return ReadOutput(body); });
          }
          if (key == "parameters") {
            return Once(kParameters) && Object([&](std::string_view name) {
                     return name == "binary_data_output" &&
                            Once(kBinaryOutput) && Bool(body.binary);
                   });
          }
          if (key == "id") {
            if (!Once(kId) || !Text(id)) return false;
            body.id = std::string(id);
            return true;
          }
          return false;
        }) &&
        AtEnd();
    if (!read || (seen_ & kInputs) == 0) return false;
    for (Input& input : inputs_) {
      if (!AddTensor(input, body)) return false;
    }
    if (!body.request.outputs.empty()) body.binary = false;
    return tail_.empty();
  }

 private:
  struct Input {
    std::string_view name, datatype;
    std::vector<int64_t> shape;
    int64_t num_bytes = -1;
  };
  enum Key : uint32_t {
    kInputs = 1,
    kOutputs = 2,
    kParameters = 4,
    kBinaryOutput = 8,
    kId = 16
  };

  bool Once(Key key) {
    if ((seen_ & key) != 0) return false;
    seen_ |= key;
    return true;
  }

  bool ReadInput() {
    Input input;
    bool has_shape = false;
    const bool read = Object([&](std::string_view key) {
      if (key == "name") return input.name.empty() && Text(input.name);
      if (key == "datatype") {
        return input.datatype.empty() && Text(input.datatype);
      }
      if (key == "shape") {
        return !std::exchange(has_shape, true) && Array([&] {
          int64_t size = 0;
          if (input.shape.size() == models::Shape::kMaxRank || !Number(size)) {
            return false;
          }
          input.shape.push_back(size);
          return true;
        });
      }
      return key == "parameters" && input.num_bytes < 0 &&
             Object([&](std::string_view name) {
               return name == "binary_data_size" && input.num_bytes < 0 &&
                      Number(input.num_bytes);
             });
    });
    if (!read || input.name.empty() || !has_shape || input.num_bytes < 0) {
      return false;
    }
    inputs_.push_back(std::move(input));
    return true;
  }

  bool ReadOutput(InferBody& body) {
    std::string_view name;
    bool has_parameters = false;
    std::optional<bool> binary;
    const bool read = Object([&](std::string_view key) {
      if (key == "name") return name.empty() && Text(name);
      return key == "parameters" && !std::exchange(has_parameters, true) &&
             Object([&](std::string_view of) {
               bool value = false;
               if (of != "binary_data" || binary.has_value() || !Bool(value)) {
                 return false;
               }
               binary = value;
               return true;
             });
    });
    if (!read || name.empty()) return false;
    body.forms[std::string(name)].binary = binary;
    body.request.outputs.emplace_back(name);
    return true;
  }

  bool AddTensor(const Input& input, InferBody& body) {
    if (input.num_bytes > static_cast<int64_t>(tail_.size())) return false;
    StatusOr<TensorHead> head =
        ReadTensorHead(input.name, input.datatype, input.shape);
    if (!head.ok()) return false;
    const auto num_bytes = static_cast<size_t>(input.num_bytes);
    StatusOr<models::Tensor> tensor =
        TensorFromBytes(*head, tail_.substr(0, num_bytes));
    if (!tensor.ok()) return false;
    tail_.remove_prefix(num_bytes);
    body.request.inputs.push_back({std::move(head->name), *std::move(tensor)});
    return true;
  }

  // ---- JSON ----
  void SkipSpace() {
    while (at_ < json_.size() && (json_[at_] == ' ' || json_[at_] == '\n' ||
                                  json_[at_] == '\r' || json_[at_] == '\t')) {
      ++at_;
    }
  }

  bool Take(char c) {
    SkipSpace();
    if (at_ == json_.size() || json_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool AtEnd() {
    SkipSpace();
    return at_ == json_.size();
  }

  // `member` reads the value of a key.
  template <typename Member>
  bool Object(Member member) {
    if (!Take('{')) return false;
    if (Take('}')) return true;
    do {
      std::string_view key;
      if (!Text(key) || !Take(':') || !member(key)) return false;
    } while (Take(','));
    return Take('}');
  }

  template <typename Element>
  bool Array(Element element) {
    if (!Take('[')) return false;
    if (Take(']')) return true;
    do {
      if (!element()) return false;
    } while (Take(','));
    return Take(']');
  }

  bool Text(std::string_view& text) {
    if (!Take('"')) return false;
    const size_t begin = at_;
    for (; at_ < json_.size(); ++at_) {
      const char c = json_[at_];
      if (c == '"') {
        text = json_.substr(begin, at_++ - begin);
        return true;
      }
      if (c < ' ' || c > '~' || c == '\\') return false;
    }
    return false;
  }

  // Whole and without a sign.
  bool Number(int64_t& number) {
    SkipSpace();
    const size_t begin = at_;
    int64_t value = 0;
    while (at_ < json_.size() && json_[at_] >= '0' && json_[at_] <= '9') {
      if (at_ - begin == kMostDigits) return false;
      value = value * 10 + (json_[at_++] - '0');
    }
    const size_t digits = at_ - begin;
    if (digits == 0 || (digits > 1 && json_[begin] == '0')) return false;
    if (at_ < json_.size() &&
        (json_[at_] == '.' || json_[at_] == 'e' || json_[at_] == 'E')) {
      return false;
    }
    number = value;
    return true;
  }

  bool Bool(bool& value) {
    SkipSpace();
    const std::string_view rest = json_.substr(at_);
    value = rest.starts_with("true");
    if (!value && !rest.starts_with("false")) return false;
    at_ += value ? 4 : 5;
    return true;
  }

  const std::string_view json_;
  std::string_view tail_;
  size_t at_ = 0;
  uint32_t seen_ = 0;
  std::vector<Input> inputs_;
};

}  // namespace

std::optional<InferBody> ReadPlainInfer(std::string_view json,
                                        std::string_view tail) {
  InferBody body;
  if (!PlainReader(json, tail).Read(body)) return std::nullopt;
  return body;
}

}  // namespace millrace::server::http

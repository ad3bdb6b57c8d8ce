// Base of an external handler in C++17: this header alone, on Linux.
//
//   int main() {
//     millrace::Handler handler;
//     handler.inputs = {{"x", "FP32", {-1}}};
//     handler.outputs = {{"y", "FP32", {-1}}};
//     handler.Serve([](const millrace::Tensors& in, millrace::Context&) {
//       millrace::Tensor y = in.at(0);           // shape and type of x
//       for (float& v : y.Values<float>()) v *= 2;
//       y.name = "y";
//       return millrace::Tensors{y};
//     });                                        // throw: the request fails
//   }
//
// The messages are those of handler.proto.
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace millrace {

struct Tensor {
  std::string name;
  std::string datatype;  // as in the Open Inference Protocol: "FP32"
  std::vector<int64_t> shape;
  std::string bytes;  // row major

  // Elements of BYTES, which stand in `bytes` each behind its length.
  std::vector<std::string> Strings() const {
    std::vector<std::string> strings;
    for (size_t at = 0; at < bytes.size();) {
      uint32_t size = 0;
      if (bytes.size() - at >= sizeof size)
        std::memcpy(&size, &bytes[at], sizeof size);
      if (bytes.size() - at < sizeof size + size)
        throw std::runtime_error("'" + name + "' holds no strings");
      strings.push_back(bytes.substr(at + sizeof size, size));
      at += sizeof size + size;
    }
    return strings;
  }
  void SetStrings(const std::vector<std::string>& strings) {
    datatype = "BYTES";
    bytes.clear();
    for (const std::string& each : strings) {
      const auto size = uint32_t(each.size());
      bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
      bytes += each;
    }
  }
  template <typename T>
  struct Span {
    T* first;
    size_t size;
    T* begin() const { return first; }
    T* end() const { return first + size; }
    T& operator[](size_t i) const { return first[i]; }
  };
  template <typename T>
  Span<T> Values() {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};
using Tensors = std::vector<Tensor>;

namespace wire {

inline void PutNumber(std::string* out, uint64_t value) {
  for (; value > 127; value >>= 7) out->push_back(char((value & 127) | 128));
  out->push_back(char(value));
}
inline void PutNumber(std::string* out, int key, uint64_t value) {
  PutNumber(out, uint64_t(key) << 3);
  PutNumber(out, value);
}
inline void PutBytes(std::string* out, int key, const std::string& value) {
  PutNumber(out, (uint64_t(key) << 3) | 2);
  PutNumber(out, value.size());
  *out += value;
}
inline uint64_t Number(const char*& at, const char* end) {
  uint64_t value = 0;
  for (int shift = 0; at < end && shift < 64; shift += 7) {
    const auto byte = static_cast<uint8_t>(*at++);
    value |= uint64_t(byte & 127) << shift;
    if (byte < 128) return value;
  }
  throw std::runtime_error("a broken message");
}
// Calls field(key, number, bytes) for each field.
template <typename Field>
void Read(const std::string& message, Field field) {
  const char *at = message.data(), *end = at + message.size();
  while (at < end) {
    const uint64_t key = Number(at, end);
    const uint64_t value = Number(at, end);
    std::string bytes;
    if ((key & 7) == 2) {
      if (value > uint64_t(end - at))
        throw std::runtime_error("a short message");
      bytes.assign(at, value);
      at += value;
    }
    field(int(key >> 3), value, bytes);
  }
}

}  // namespace wire

// What a request's handler may use: parameters, and other models of the server.
class Context {
 public:
  std::string parameters;  // JSON; empty: none

  Tensors Call(const std::string& model, const Tensors& inputs,
               const std::string& version = "") {
    std::string message;
    wire::PutNumber(&message, 1, 4);
    wire::PutNumber(&message, 2, ++calls_);
    for (const Tensor& each : inputs) wire::PutBytes(&message, 3, Pack(each));
    wire::PutBytes(&message, 8, model);
    wire::PutBytes(&message, 9, version);
    Send(message);
    Tensors tensors;
    std::string error;
    wire::Read(Receive(), [&](int key, uint64_t, const std::string& bytes) {
      if (key == 3) tensors.push_back(Unpack(bytes));
      if (key == 6) error = bytes;
    });
    if (!error.empty()) throw std::runtime_error(error);
    return tensors;
  }

 private:
  friend class Handler;
  Context() {
    struct stat status {};
    if (fstat(4, &status) != 0) throw std::runtime_error("no shared memory");
    size_ = size_t(status.st_size);
    void* memory =
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, 4, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
    memory_ = static_cast<char*>(memory);
  }

  // Throws where it is too large: nothing of it was sent.
  void Send(const std::string& message) {
    constexpr size_t kMostBytes = size_t{64} << 20;
    if (message.size() > kMostBytes) {
      throw std::runtime_error(
          "the message has " + std::to_string(message.size()) +
          " bytes but may have " + std::to_string(kMostBytes) +
          "; raise shared_memory of the handler, or send "
          "less at once");
    }
    const auto length = uint32_t(message.size());
    std::string bytes(reinterpret_cast<const char*>(&length), 4);
    bytes += message;
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t size = send(3, bytes.data() + sent, bytes.size() - sent, 0);
      if (size <= 0) std::exit(0);  // the server has gone
      sent += size_t(size);
    }
  }
  std::string Exactly(size_t wanted) {
    std::string bytes(wanted, '\0');
    for (size_t got = 0; got < wanted;) {
      const ssize_t size = recv(3, bytes.data() + got, wanted - got, 0);
      if (size <= 0) std::exit(0);
      got += size_t(size);
    }
    return bytes;
  }
  std::string Receive() {
    uint32_t length = 0;
    std::memcpy(&length, Exactly(4).data(), 4);
    return Exactly(length);
  }
  static std::string Head(const Tensor& tensor) {
    std::string out, shape;
    wire::PutBytes(&out, 1, tensor.name);
    wire::PutBytes(&out, 2, tensor.datatype);
    for (const int64_t size : tensor.shape) {
      wire::PutNumber(&shape, uint64_t(size));
    }
    wire::PutBytes(&out, 3, shape);
    return out;
  }
  static std::string Pack(const Tensor& tensor) {
    std::string out = Head(tensor);
    wire::PutBytes(&out, 4, tensor.bytes);
    return out;
  }
  // Through the shared memory where it is large and there is room.
  std::string PackShared(const Tensor& tensor) {
    if (tensor.bytes.size() <= 16384 || tensor.bytes.size() > space_left_) {
      return Pack(tensor);
    }
    std::string out = Head(tensor);
    std::memcpy(memory_ + space_, tensor.bytes.data(), tensor.bytes.size());
    wire::PutNumber(&out, 5, space_);
    wire::PutNumber(&out, 6, tensor.bytes.size());
    const size_t used = (tensor.bytes.size() + 63) / 64 * 64;
    space_ += used;
    space_left_ -= used < space_left_ ? used : space_left_;
    return out;
  }
  Tensor Unpack(const std::string& message) {
    Tensor tensor;
    uint64_t begin = 0, size = 0;
    wire::Read(message, [&](int key, uint64_t value, const std::string& bytes) {
      if (key == 1) tensor.name = bytes;
      if (key == 2) tensor.datatype = bytes;
      if (key == 3) {
        const char *at = bytes.data(), *end = at + bytes.size();
        while (at < end) tensor.shape.push_back(int64_t(wire::Number(at, end)));
      }
      if (key == 4) tensor.bytes = bytes;
      if (key == 5) begin = value;
      if (key == 6) size = value;
    });
    if (size > 0 && begin <= size_ && size <= size_ - begin) {
      tensor.bytes.assign(memory_ + begin, size);
    }
    return tensor;
  }

  char* memory_ = nullptr;
  size_t size_ = 0;
  uint64_t space_ = 0;
  uint64_t space_left_ = 0;
  uint64_t calls_ = 0;
};

class Handler {
 public:
  Tensors inputs, outputs;  // names, types and shapes; -1: any size

  // Answers requests until the server ends the process.
  void Serve(const std::function<Tensors(const Tensors&, Context&)>& handle) {
    Context context;
    std::string ready;
    wire::PutNumber(&ready, 1, 1);
    for (const Tensor& each : inputs) {
      wire::PutBytes(&ready, 4, Context::Head(each));
    }
    for (const Tensor& each : outputs) {
      wire::PutBytes(&ready, 3, Context::Head(each));
    }
    context.Send(ready);
    while (true) {
      uint64_t id = 0;
      Tensors given;
      context.parameters.clear();
      context.space_ = context.space_left_ = 0;
      wire::Read(context.Receive(),
                 [&](int key, uint64_t value, const std::string& bytes) {
                   if (key == 2) id = value;
                   if (key == 3) given.push_back(context.Unpack(bytes));
                   if (key == 7) context.parameters = bytes;
                   if (key == 10) context.space_ = value;
                   if (key == 11) context.space_left_ = value;
                 });
      std::string head;
      wire::PutNumber(&head, 1, 3);
      wire::PutNumber(&head, 2, id);
      try {
        std::string response = head;
        for (const Tensor& each : handle(given, context)) {
          wire::PutBytes(&response, 3, context.PackShared(each));
        }
        context.Send(response);
      } catch (const std::exception& error) {
        constexpr size_t kMostError = 1 << 16;
        wire::PutBytes(&head, 6,
                       std::string(error.what()).substr(0, kMostError));
        context.Send(head);
      }
    }
  }
};

}  // namespace millrace

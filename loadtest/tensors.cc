#include "loadtest/tensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "loadtest/dataset.h"
#include "loadtest/fetch.h"

namespace millrace::loadtest {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kNumInputs = 8;  // different random requests
constexpr int64_t kMaxTensorBytes = int64_t{1} << 30;
constexpr int64_t kStringBytes = 16;  // of a random element of BYTES

int64_t ElementBytes(std::string_view datatype) {
  static constexpr std::pair<std::string_view, int64_t> kBytes[] = {
      {"BOOL", 1},   {"UINT8", 1},
      {"UINT16", 2}, {"UINT32", 4},
      {"UINT64", 8}, {"INT8", 1},
      {"INT16", 2},  {"INT32", 4},
      {"INT64", 8},  {"FP16", 2},
      {"BF16", 2},   {"FP32", 4},
      {"FP64", 8},   {"BYTES", 4 + kStringBytes}};
  for (const auto& [name, bytes] : kBytes) {
    if (name == datatype) return bytes;
  }
  return 0;
}

template <typename T>
void Append(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

// Floats in [0, 1); integers 0 or 1, which are indices that any table has.
void AppendRandom(std::string_view datatype, std::mt19937_64& random,
                  std::string& out) {
  const uint64_t bits = random();
  const double real = static_cast<double>(bits >> 11) * 0x1.0p-53;
  if (datatype == "FP32") return Append(out, static_cast<float>(real));
  if (datatype == "FP64") return Append(out, real);
  if (datatype == "BF16" || datatype == "FP16") {
    // 0, or the halves' bit pattern of 1.
    const uint16_t one = datatype == "BF16" ? 0x3f80 : 0x3c00;
    return Append(out, static_cast<uint16_t>(bits & 1 ? one : 0));
  }
  if (datatype == "BYTES") {
    Append(out, static_cast<uint32_t>(kStringBytes));
    for (int64_t i = 0; i < kStringBytes; ++i) {
      out += static_cast<char>('a' + random() % 26);
    }
    return;
  }
  const int64_t bytes = ElementBytes(datatype);
  out += static_cast<char>(bits & 1);
  out.append(static_cast<size_t>(bytes - 1), '\0');
}

template <typename Entry>
const Entry* FindNamed(const std::vector<Entry>& entries,
                       const std::string& name) {
  for (const Entry& entry : entries) {
    if (entry.first == name) return &entry;
  }
  return nullptr;
}

Status FillShape(const Options& options, TensorSpec& spec) {
  const auto* shape = FindNamed(options.shapes, spec.name);
  const bool has_rows = !spec.shape.empty() && spec.shape[0] < 0;
  if (shape != nullptr) spec.shape = shape->second;
  if (has_rows && !spec.shape.empty() &&
      (shape == nullptr || options.exact_rows)) {
    spec.shape[0] = options.batch_size;
  }
  int64_t bytes = ElementBytes(spec.datatype);
  if (bytes == 0) {
    return Unimplemented("input '" + spec.name + "' is of datatype '" +
                         spec.datatype + "', which is not known here");
  }
  for (const int64_t size : spec.shape) {
    if (size < 0) {
      return InvalidArgument("input '" + spec.name +
                             "' has a variable size; say which one with "
                             "--shape " +
                             spec.name + ":1,128 (all its sizes)");
    }
    if (size > 0 && bytes > kMaxTensorBytes / size) {
      return InvalidArgument("input '" + spec.name +
                             "' is larger than 1 GiB; "
                             "give smaller sizes with --shape");
    }
    bytes *= size;
  }
  return OkStatus();
}

std::vector<std::string> FilesOf(const Options& options,
                                 const std::string& name) {
  std::vector<std::string> files;
  for (const auto& [input, path] : options.input_files) {
    if (input == name) files.push_back(path);
  }
  return files;
}

// Whole files as elements of BYTES: those from the first one on, in turn.
StatusOr<Tensor> TensorOfFiles(const Options& options, const TensorSpec& spec,
                               const std::vector<std::string>& files,
                               int64_t index) {
  Tensor tensor{spec, ""};
  RETURN_IF_ERROR(FillShape(options, tensor.spec));
  int64_t count = 1;
  for (const int64_t size : tensor.spec.shape) count *= size;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(index * count + i) % files.size();
    ASSIGN_OR_RETURN(const std::string file, ReadFile(files[at]));
    if (static_cast<int64_t>(tensor.bytes.size() + file.size()) >
        kMaxTensorBytes) {
      return InvalidArgument("--input " + spec.name +
                             ": the files of one request are larger than 1 "
                             "GiB; lower --batch-size");
    }
    Append(tensor.bytes, static_cast<uint32_t>(file.size()));
    tensor.bytes += file;
  }
  return tensor;
}

StatusOr<Tensor> TensorFromFile(const std::string& path,
                                const TensorSpec& spec) {
  ASSIGN_OR_RETURN(const std::string file, ReadFile(path));
  StatusOr<Tensor> tensor = ParseNpy(file);
  if (!tensor.ok()) {
    return std::move(tensor).status().Prefixed("--input " + spec.name + ":" +
                                               path);
  }
  if (tensor->spec.datatype != spec.datatype) {
    return InvalidArgument("--input " + spec.name + ":" + path + " holds " +
                           tensor->spec.datatype + ", the model takes " +
                           spec.datatype);
  }
  tensor->spec.name = spec.name;
  return tensor;
}

// Files keep their sizes, and so do inputs whose sizes the model fixes.
Status CheckRows(const std::vector<Tensor>& tensors, int64_t rows) {
  std::string shapes;
  for (const Tensor& tensor : tensors) {
    const std::vector<int64_t>& shape = tensor.spec.shape;
    if (!shape.empty() && shape[0] == rows) return OkStatus();
    shapes += (shapes.empty() ? "" : ", ") + tensor.spec.name + " " +
              Json(shape).dump();
  }
  return InvalidArgument("no input of a request has " + std::to_string(rows) +
                         " rows (" + shapes +
                         "): the file of an --input or the model fixes the "
                         "first size; leave out --input, give that size alone "
                         "with --rows, or --rows 1 alone, which sends shapes "
                         "and files as they are");
}

// One element as JSON.
Json Element(std::string_view datatype, const char* at) {
  const auto read = [at](auto value) {
    std::memcpy(&value, at, sizeof(value));
    return Json(value);
  };
  if (datatype == "BOOL") return *at != 0;
  if (datatype == "UINT8") return read(uint8_t{});
  if (datatype == "UINT16") return read(uint16_t{});
  if (datatype == "UINT32") return read(uint32_t{});
  if (datatype == "UINT64") return read(uint64_t{});
  if (datatype == "INT8") return read(int8_t{});
  if (datatype == "INT16") return read(int16_t{});
  if (datatype == "INT32") return read(int32_t{});
  if (datatype == "INT64") return read(int64_t{});
  if (datatype == "FP32") return read(float{});
  return read(double{});
}

StatusOr<Json> DataJson(const Tensor& tensor) {
  const std::string& type = tensor.spec.datatype;
  Json data = Json::array();
  if (type == "FP16" || type == "BF16") {
    return InvalidArgument("input '" + tensor.spec.name + "' is of datatype " +
                           type +
                           ", which JSON cannot carry; use "
                           "--tensor-format binary");
  }
  if (type == "BYTES") {
    for (size_t at = 0; at + 4 <= tensor.bytes.size();) {
      uint32_t length = 0;
      std::memcpy(&length, tensor.bytes.data() + at, sizeof(length));
      data.push_back(tensor.bytes.substr(at + 4, length));
      at += 4 + length;
    }
    try {
      const std::string unused = data.dump();
    } catch (const Json::exception&) {
      return InvalidArgument("input '" + tensor.spec.name +
                             "' is no UTF-8, which JSON cannot carry; use "
                             "--tensor-format binary");
    }
    return data;
  }
  const auto step = static_cast<size_t>(ElementBytes(type));
  for (size_t at = 0; at < tensor.bytes.size(); at += step) {
    data.push_back(Element(type, tensor.bytes.data() + at));
  }
  return data;
}

StatusOr<std::vector<std::string>> KserveRequests(const Options& options) {
  ASSIGN_OR_RETURN(const auto declared, InputsOf(options));
  const std::vector<TensorSpec> specs = SentInputs(options, declared);
  const std::string path =
      !options.path.empty()
          ? options.path
          : EndpointPath(options.endpoint, options.model, options.url.prefix);
  std::vector<std::string> requests;
  const int64_t count = NumTensorRequests(options, specs);
  for (int64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const auto tensors, MakeTensors(options, specs, i));
    int64_t json_bytes = 0;
    ASSIGN_OR_RETURN(const std::string body,
                     KserveBody(tensors, options.binary_tensors, &json_bytes));
    if (options.binary_tensors) {
      requests.push_back(HttpRequest(
          options, "POST", path, body, "application/octet-stream",
          "Inference-Header-Content-Length: " + std::to_string(json_bytes) +
              "\r\n"));
    } else {
      requests.push_back(HttpRequest(options, "POST", path, body));
    }
  }
  return requests;
}

}  // namespace

StatusOr<std::vector<TensorSpec>> ParseMetadata(std::string_view json) {
  const Json body = Json::parse(json, nullptr, false);
  const auto wrong = [&] {
    return FailedPrecondition("the model's metadata has no list of inputs: " +
                              std::string(json.substr(0, 200)));
  };
  if (!body.is_object() || !body.contains("inputs") ||
      !body["inputs"].is_array()) {
    return wrong();
  }
  std::vector<TensorSpec> specs;
  for (const Json& input : body["inputs"]) {
    if (!input.is_object() || !input.contains("name") ||
        !input.contains("datatype") || !input.contains("shape") ||
        !input["name"].is_string() || !input["datatype"].is_string() ||
        !input["shape"].is_array()) {
      return wrong();
    }
    TensorSpec spec{input["name"], input["datatype"], {}};
    for (const Json& size : input["shape"]) {
      if (!size.is_number_integer()) return wrong();
      spec.shape.push_back(size);
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

StatusOr<std::vector<TensorSpec>> InputsOf(const Options& options) {
  // The path of infer requests without its last part.
  std::string path =
      EndpointPath(EndpointType::kKserve, options.model, options.url.prefix);
  path.resize(path.rfind('/'));
  ASSIGN_OR_RETURN(const FetchReply reply, Fetch(options, "GET", path));
  if (reply.status != 200) {
    return NotFound("GET " + path + " gave " + reply.body +
                    "; is --model right?");
  }
  return ParseMetadata(reply.body);
}

StatusOr<std::vector<Tensor>> MakeTensors(const Options& options,
                                          const std::vector<TensorSpec>& specs,
                                          int64_t index) {
  const auto known = [&](const std::string& flag, const std::string& name) {
    for (const TensorSpec& spec : specs) {
      if (spec.name == name) return OkStatus();
    }
    std::string names;
    for (const TensorSpec& spec : specs) {
      names += (names.empty() ? "" : ", ") + spec.name;
    }
    return InvalidArgument(flag + " names '" + name +
                           "'; the model's inputs are " + names);
  };
  for (const auto& [name, shape] : options.shapes) {
    RETURN_IF_ERROR(known("--shape", name));
  }
  for (const auto& [name, path] : options.input_files) {
    RETURN_IF_ERROR(known("--input", name));
  }
  std::mt19937_64 random(options.seed + static_cast<uint64_t>(index));
  std::vector<Tensor> tensors;
  for (const TensorSpec& spec : specs) {
    const auto files = FilesOf(options, spec.name);
    if (!files.empty()) {
      const auto& file = files[static_cast<size_t>(index) % files.size()];
      const bool whole = spec.datatype == "BYTES" && !file.ends_with(".npy");
      ASSIGN_OR_RETURN(Tensor tensor,
                       whole ? TensorOfFiles(options, spec, files, index)
                             : TensorFromFile(file, spec));
      tensors.push_back(std::move(tensor));
      continue;
    }
    Tensor tensor{spec, ""};
    RETURN_IF_ERROR(FillShape(options, tensor.spec));
    int64_t count = 1;
    for (const int64_t size : tensor.spec.shape) count *= size;
    for (int64_t i = 0; i < count; ++i) {
      AppendRandom(spec.datatype, random, tensor.bytes);
    }
    tensors.push_back(std::move(tensor));
  }
  if (options.exact_rows) {
    RETURN_IF_ERROR(CheckRows(tensors, options.batch_size));
  }
  return tensors;
}

std::vector<TensorSpec> SentInputs(const Options& options,
                                   const std::vector<TensorSpec>& specs) {
  std::vector<TensorSpec> sent;
  bool raw = false;
  for (const auto& [name, path] : options.input_files) {
    const auto is_it = [&](const TensorSpec& spec) {
      return spec.name == name;
    };
    if (std::any_of(sent.begin(), sent.end(), is_it)) continue;
    const auto declared = std::find_if(specs.begin(), specs.end(), is_it);
    if (declared != specs.end()) {
      sent.push_back(*declared);
    } else if (!path.ends_with(".npy")) {
      sent.push_back({name, "BYTES", {-1}});
      raw = true;
    }
  }
  return raw ? sent : specs;
}

int64_t NumTensorRequests(const Options& options,
                          const std::vector<TensorSpec>& specs) {
  int64_t most = 0;
  bool random = false;
  for (const TensorSpec& spec : specs) {
    const auto files = static_cast<int64_t>(FilesOf(options, spec.name).size());
    random |= files == 0;
    most = std::max(most, files);
  }
  return random ? std::max(most, kNumInputs) : std::max<int64_t>(most, 1);
}

StatusOr<std::string> KserveBody(const std::vector<Tensor>& tensors,
                                 bool binary, int64_t* json_bytes) {
  Json inputs = Json::array();
  for (const Tensor& tensor : tensors) {
    Json input = {{"name", tensor.spec.name},
                  {"shape", tensor.spec.shape},
                  {"datatype", tensor.spec.datatype}};
    if (binary) {
      input["parameters"] = {{"binary_data_size", tensor.bytes.size()}};
    } else {
      ASSIGN_OR_RETURN(input["data"], DataJson(tensor));
    }
    inputs.push_back(std::move(input));
  }
  Json body = {{"inputs", std::move(inputs)}};
  if (binary) body["parameters"] = {{"binary_data_output", true}};
  std::string out = body.dump();
  *json_bytes = static_cast<int64_t>(out.size());
  if (binary) {
    for (const Tensor& tensor : tensors) out += tensor.bytes;
  }
  return out;
}

StatusOr<std::unique_ptr<Requests>> MakeTensorRequests(const Options& options) {
  if (options.endpoint == EndpointType::kTorchserve) {
    if (options.exact_rows && options.batch_size != 1) {
      return InvalidArgument(
          "a request of --endpoint-type torchserve is one row; say --rows 1");
    }
    const std::string path =
        !options.path.empty()
            ? options.path
            : EndpointPath(options.endpoint, options.model, options.url.prefix);
    std::vector<std::string> requests;
    for (const std::string& file : options.data_files) {
      ASSIGN_OR_RETURN(const std::string data, ReadFile(file));
      requests.push_back(
          HttpRequest(options, "POST", path, data, options.content_type));
    }
    return MakeFixedRequests(std::move(requests));
  }
  if (options.endpoint == EndpointType::kKserveGrpc) {
    return MakeGrpcRequests(options);
  }
  ASSIGN_OR_RETURN(auto requests, KserveRequests(options));
  return MakeFixedRequests(std::move(requests));
}

}  // namespace millrace::loadtest

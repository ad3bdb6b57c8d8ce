#include "models/graph/sample_inputs.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "models/files/npz.h"
#include "models/graph/infer_and_fold.h"
#include "models/graph/jagged.h"
#include "models/graph/op.h"
#include "models/tensor/float16.h"
#include "models/tensor/strings.h"

namespace millrace::models::graph {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 28;

// splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", 2014).
class Uniform {
 public:
  explicit Uniform(uint64_t seed) : state_(seed) {}
  float Next() {  // in [-1, 1)
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return static_cast<float>(z >> 40) / static_cast<float>(1 << 23) - 1;
  }

 private:
  uint64_t state_;
};

void Fill(Tensor& tensor, Uniform& uniform) {
  const int64_t n = tensor.num_elements();
  const auto each = [&](auto* to, auto value) {
    for (int64_t i = 0; i < n; ++i) to[i] = value();
  };
  if (tensor.dtype() == kString) return;  // empty ones
  switch (tensor.dtype()) {
    case DType::kF32:
      return each(tensor.data<float>(), [&] { return uniform.Next(); });
    case DType::kF64:
      return each(tensor.data<double>(), [&] { return uniform.Next(); });
    case DType::kF16:
      return each(tensor.data<uint16_t>(),
                  [&] { return FloatToHalf(uniform.Next()); });
    case DType::kBF16:
      return each(tensor.data<uint16_t>(),
                  [&] { return FloatToBFloat16(uniform.Next()); });
    default:
      break;
  }
  // One in the lowest byte of each integer: little endian, as everywhere here.
  const int64_t size = DTypeBytes(tensor.dtype());
  for (int64_t i = 0; i < n; ++i) tensor.bytes()[i * size] = std::byte{1};
}

StatusOr<int64_t> SizeOf(const Symbol& symbol, const SampleOptions& options) {
  const auto given = options.sizes.find(symbol.name);
  if (given == options.sizes.end()) return std::max<int64_t>(symbol.min, 1);
  if (given->second >= symbol.min && given->second <= symbol.max) {
    return given->second;
  }
  return InvalidArgument("size " + std::to_string(given->second) + " of '" +
                         symbol.name + "' is outside of its range, " +
                         std::to_string(symbol.min) + " to " +
                         std::to_string(symbol.max));
}

StatusOr<Shape> ShapeOf(const Port& port, const std::vector<Symbol>& symbols,
                        const SampleOptions& options) {
  if (!port.rank_known || port.is_sequence) {
    return Unimplemented("input '" + port.name +
                         "' has no rank or is a sequence: give it in a file");
  }
  std::vector<int64_t> dims;
  for (const PortDim& dim : port.dims) {
    int64_t size = dim.size >= 0 ? dim.size : 1;
    if (dim.symbol >= 0) {
      ASSIGN_OR_RETURN(
          size, SizeOf(symbols[static_cast<size_t>(dim.symbol)], options));
    }
    dims.push_back(size);
  }
  ASSIGN_OR_RETURN(const Shape shape, Shape::Checked(dims));
  if (shape.num_elements() > kMostElements) {
    return InvalidArgument("input '" + port.name + "' would be " +
                           shape.ToString() + ", more than " +
                           std::to_string(kMostElements) +
                           " elements: choose smaller sizes");
  }
  return shape;
}

Status CheckNames(const std::vector<Port>& ports,
                  const std::vector<Symbol>& symbols,
                  const SampleOptions& options) {
  const std::vector<std::string> names = SizeNames(ports, symbols);
  for (const auto& [name, size] : options.sizes) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    std::string known;
    for (const std::string& one : names) known += " '" + one + "'";
    return InvalidArgument(
        "no dimension is called '" + name + "'; there " +
        (known.empty() ? "is none that varies" : "are" + known));
  }
  return OkStatus();
}

// Sizes to try for what varies besides rows: lengths, and sides of images.
struct Likely {
  int64_t length;
  int64_t side;
};
constexpr Likely kLikelySizes[] = {{128, 224}, {64, 64},   {16, 32},   {32, 48},
                                   {256, 256}, {512, 512}, {1000, 320}};

// An image or a volume: floats with two dimensions behind rows and channels.
bool HasSides(const Port& port) {
  return port.dims.size() >= 4 &&
         (port.dtype == DType::kF32 || port.dtype == DType::kF16 ||
          port.dtype == DType::kBF16 || port.dtype == DType::kU8);
}

// Exporters name some dimensions by a sum: "past_length + 1". What it is with
// these sizes of its parts; nothing when the name is none.
std::optional<int64_t> SumOf(std::string_view name,
                             const std::map<std::string, int64_t>& sizes) {
  if (name.find(" + ") == name.npos) return std::nullopt;
  int64_t sum = 0;
  while (!name.empty()) {
    const size_t end = std::min(name.find(" + "), name.size());
    const std::string part(name.substr(0, end));
    name.remove_prefix(std::min(end + 3, name.size()));
    int64_t size = 0;
    const char* last = part.data() + part.size();
    const auto read = std::from_chars(part.data(), last, size);
    if (read.ec != std::errc() || read.ptr != last) {
      const auto found = sizes.find(part);
      if (found == sizes.end()) return std::nullopt;
      size = found->second;
    }
    if (size < 0 || size > kMostElements) return std::nullopt;
    sum += size;
  }
  return sum;
}

// `given`, and for every other symbol of an input a likely size in its range.
std::map<std::string, int64_t> WithLikely(
    const Graph& graph, const std::map<std::string, int64_t>& given,
    const Likely& likely) {
  std::map<std::string, int64_t> sizes = given;
  for (const Port& port : graph.inputs) {
    for (size_t axis = 0; axis < port.dims.size(); ++axis) {
      if (port.dims[axis].symbol < 0) continue;
      const Symbol& symbol =
          graph.symbols[static_cast<size_t>(port.dims[axis].symbol)];
      const int64_t size = axis == 0        ? 1
                           : HasSides(port) ? likely.side
                                            : likely.length;
      sizes.emplace(symbol.name, std::clamp(size, symbol.min, symbol.max));
    }
  }
  for (auto& [name, size] : sizes) {
    if (given.contains(name)) continue;
    size = SumOf(name, sizes).value_or(size);
  }
  return sizes;
}

// OK when the graph has shapes with these sizes, or when that is not known
// before it runs. A symbol that is left out is as SampleInputs has it.
Status Accepts(const Graph& graph, const SampleOptions& options) {
  std::vector<ValueType> types;
  std::string tried;
  for (const Port& port : graph.inputs) {
    ASSIGN_OR_RETURN(const Shape shape, ShapeOf(port, graph.symbols, options));
    types.push_back({port.dtype, shape});
    tried += (tried.empty() ? "'" : ", '") + port.name + "' " +
             TypeText(port.dtype, shape);
  }
  const Status status = InferAndFold(graph, types).status();
  if (status.ok() || IsNeedsBytes(status)) return OkStatus();
  return InvalidArgument(std::string(status.message()) +
                         "; the made-up inputs were " + tried);
}

// "in0_x" → "x": how the tools that write such files keep the order.
std::string_view WithoutOrder(std::string_view name) {
  const size_t end = name.find('_');
  if (!name.starts_with("in") || end == name.npos || end == 2) return name;
  const std::string_view digits = name.substr(2, end - 2);
  const bool counted = digits.find_first_not_of("0123456789") == digits.npos;
  return counted ? name.substr(end + 1) : name;
}

// What numpy cannot hold stands in files as FP32.
Tensor AsBFloat16(const Tensor& wide) {
  Tensor narrow = Tensor::Make(DType::kBF16, wide.shape());
  for (int64_t i = 0; i < wide.num_elements(); ++i) {
    narrow.data<uint16_t>()[i] = FloatToBFloat16(wide.data<float>()[i]);
  }
  return narrow;
}

// By name when every port finds its own, and then there may be more of them:
// exporters drop inputs that nothing reads. Else in order.
StatusOr<std::vector<Tensor>> Arrange(std::vector<NamedTensor> arrays,
                                      const std::vector<Port>& ports) {
  std::map<std::string_view, size_t> by_name;
  for (size_t i = 0; i < arrays.size(); ++i) {
    by_name[arrays[i].name] = i;
    by_name.emplace(WithoutOrder(arrays[i].name), i);
  }
  const bool named = std::all_of(
      ports.begin(), ports.end(),
      [&](const Port& port) { return by_name.contains(port.name); });
  if (arrays.size() < ports.size() ||
      (arrays.size() > ports.size() && !named)) {
    return InvalidArgument("the file has " + std::to_string(arrays.size()) +
                           " arrays, the model has " +
                           std::to_string(ports.size()) + " inputs");
  }
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < ports.size(); ++i) {
    const size_t at = named ? by_name.find(ports[i].name)->second : i;
    const Tensor& given = arrays[at].tensor;
    const bool narrow =
        ports[i].dtype == DType::kBF16 && given.dtype() == DType::kF32;
    inputs.push_back(narrow ? AsBFloat16(given) : given.Share());
  }
  return inputs;
}

}  // namespace

std::vector<std::string> SizeNames(const std::vector<Port>& ports,
                                   const std::vector<Symbol>& symbols) {
  std::vector<std::string> names;
  for (const Port& port : ports) {
    for (const PortDim& dim : port.dims) {
      if (dim.symbol < 0) continue;
      const auto& name = symbols[static_cast<size_t>(dim.symbol)].name;
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        names.push_back(name);
      }
    }
  }
  return names;
}

StatusOr<std::vector<Tensor>> SampleInputs(const std::vector<Port>& ports,
                                           const std::vector<Symbol>& symbols,
                                           const SampleOptions& options) {
  RETURN_IF_ERROR(CheckNames(ports, symbols, options));
  Uniform uniform(options.seed);
  std::vector<Tensor> inputs;
  for (const Port& port : ports) {
    ASSIGN_OR_RETURN(const Shape shape, ShapeOf(port, symbols, options));
    Fill(inputs.emplace_back(Tensor::Make(port.dtype, shape)), uniform);
  }
  return inputs;
}

StatusOr<std::vector<Tensor>> SampleInputs(const Graph& graph,
                                           const SampleOptions& options,
                                           LeftOutSizes left_out) {
  RETURN_IF_ERROR(CheckNames(graph.inputs, graph.symbols, options));
  std::vector<Likely> rows(std::begin(kLikelySizes), std::end(kLikelySizes));
  constexpr Likely kLeast = {1, 1};
  rows.insert(left_out == LeftOutSizes::kLeast ? rows.begin() : rows.end(),
              kLeast);
  std::optional<Status> failure;
  SampleOptions tried = options;
  for (const Likely& likely : rows) {
    tried.sizes = options.sizes;
    SizeJaggedEnds(graph, tried.sizes);
    tried.sizes = WithLikely(graph, tried.sizes, likely);
    const Status status = Accepts(graph, tried);
    if (status.ok()) {
      ASSIGN_OR_RETURN(std::vector<Tensor> inputs,
                       SampleInputs(graph.inputs, graph.symbols, tried));
      FillJagged(graph, inputs);
      return inputs;
    }
    if (status.code() == StatusCode::kUnimplemented) return status;
    if (!failure) failure = status;
  }
  return *failure;
}

StatusOr<std::vector<Tensor>> ReadInputs(const std::string& path,
                                         const std::vector<Port>& ports) {
  ASSIGN_OR_RETURN(std::vector<NamedTensor> arrays, ReadNpz(path));
  return Arrange(std::move(arrays), ports);
}

StatusOr<std::vector<std::vector<Tensor>>> ReadSamples(
    std::string_view paths, const std::vector<Port>& ports) {
  std::vector<std::vector<Tensor>> samples;
  while (!paths.empty()) {
    const size_t end = std::min(paths.find(','), paths.size());
    const std::string path(paths.substr(0, end));
    paths.remove_prefix(std::min(end + 1, paths.size()));
    if (path.empty()) continue;
    ASSIGN_OR_RETURN(samples.emplace_back(), ReadInputs(path, ports));
  }
  return samples;
}

}  // namespace millrace::models::graph

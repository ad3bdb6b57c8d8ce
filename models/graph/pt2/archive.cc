// A weight's file is the whole storage of the tensor, of which the tensor may
// be a part with strides of its own.
#include "models/graph/pt2/archive.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "models/graph/ops/dispatch.h"
#include "models/graph/pt2/json_fields.h"

namespace millrace::models::graph::pt2 {
namespace {

constexpr int64_t kSmallEntryBytes = 1 << 20;

// How many elements of storage the tensor reaches over, from its first on.
StatusOr<int64_t> Reach(const TensorMeta& meta) {
  int64_t last = meta.storage_offset;
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    if (meta.sizes[i].hint == 0) return 0;
    const int64_t steps = meta.sizes[i].hint - 1;
    if (meta.storage_offset < 0 || meta.strides[i] > Shape::kMaxElements ||
        (steps > 0 && meta.strides[i] > Shape::kMaxElements / steps)) {
      return InvalidArgument("its strides reach beyond 2^48 elements");
    }
    last += steps * meta.strides[i];
  }
  if (meta.storage_offset < 0 || last < 0 || last >= Shape::kMaxElements) {
    return InvalidArgument("it reaches beyond 2^48 elements");
  }
  return last + 1;
}

bool IsDense(const TensorMeta& meta, const Shape& shape) {
  const Shape dense = shape.Strides();
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] > 1 && meta.strides[static_cast<size_t>(i)] != dense[i]) {
      return false;
    }
  }
  return true;
}

// Strided elements, one behind the other in row-major order.
void Gather(const TensorMeta& meta, const std::byte* from, Tensor& to) {
  DispatchBytes(DTypeBytes(meta.dtype), [&]<typename T>() {
    T* out = to.data<T>();
    Shape at = to.shape();
    for (int i = 0; i < at.rank(); ++i) at[i] = 0;
    int64_t offset = meta.storage_offset;
    for (int64_t n = to.num_elements(); n > 0; --n) {
      std::memcpy(out++, from + offset * int64_t{sizeof(T)}, sizeof(T));
      for (int i = at.rank() - 1; i >= 0; --i) {
        const int64_t stride = meta.strides[static_cast<size_t>(i)];
        offset += stride;
        if (++at[i] < to.shape()[i]) break;
        offset -= stride * to.shape()[i];
        at[i] = 0;
      }
    }
  });
}

bool HasForeignBools(const Tensor& tensor) {
  const auto* values = tensor.data<uint8_t>();
  return tensor.dtype() == DType::kBool &&
         std::any_of(values, values + tensor.num_elements(),
                     [](uint8_t v) { return v > 1; });
}

}  // namespace

StatusOr<std::shared_ptr<Pt2Archive>> Pt2Archive::Open(
    const std::string& path, const ImportLimits& limits) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  auto file = std::make_shared<const MappedFile>(std::move(mapped));
  ASSIGN_OR_RETURN(auto archive, Parse(file->bytes(), limits));
  archive->file_ = std::move(file);
  return archive;
}

StatusOr<std::shared_ptr<Pt2Archive>> Pt2Archive::Parse(
    std::span<const std::byte> bytes, const ImportLimits& limits) {
  ASSIGN_OR_RETURN(ZipFile zip, ZipFile::Parse(bytes));
  std::shared_ptr<Pt2Archive> archive(new Pt2Archive(limits, std::move(zip)));
  RETURN_IF_ERROR(archive->Read());
  return archive;
}

StatusOr<std::string> Pt2Archive::Text(std::string_view name,
                                       int64_t max_bytes) const {
  const ZipEntry* entry = zip_.Find(root_ + std::string(name));
  if (entry == nullptr) {
    return InvalidArgument("the archive has no entry '" + Shown(root_) +
                           std::string(name) + "'");
  }
  return ReadEntry(*entry, max_bytes);
}

Status Pt2Archive::Read() {
  if (zip_.entries().empty()) return InvalidArgument("the archive is empty");
  const std::string& first = zip_.entries()[0].name;
  root_ = first.substr(0, first.find('/') + 1);
  if (zip_.Find(root_ + "archive_format") == nullptr) {
    const bool old =
        zip_.Find("serialized_exported_program.json") != nullptr ||
        zip_.Find(root_ + "serialized_exported_program.json") != nullptr;
    const bool script = zip_.Find(root_ + "constants.pkl") != nullptr ||
                        zip_.Find(root_ + "data.pkl") != nullptr;
    return Unimplemented(
        old ? "the archive was written by torch.export of PyTorch 2.7 or "
              "earlier; load and save it with a later one"
        : script
            ? "the archive is a TorchScript module or pickled weights, not "
              "an exported program; use torch.export.save"
            : "the archive is no exported program: it has no entry "
              "'archive_format'");
  }
  ASSIGN_OR_RETURN(const std::string format, Text("archive_format", 64));
  ASSIGN_OR_RETURN(const std::string version, Text("archive_version", 64));
  if (!format.starts_with("pt2") || !version.starts_with("0")) {
    return Unimplemented("the archive is of format '" + Shown(format) +
                         "', version '" + Shown(version) +
                         "'; read is pt2, version 0");
  }
  ASSIGN_OR_RETURN(const std::string order, Text("byteorder", 64));
  if (!order.starts_with("little")) {
    return Unimplemented("the archive has the byte order '" + Shown(order) +
                         "'; only little is read");
  }
  ASSIGN_OR_RETURN(const std::string model, ModelName());
  ASSIGN_OR_RETURN(const std::string json,
                   Text("models/" + model + ".json", limits_.max_json_bytes));
  ASSIGN_OR_RETURN(program_, ParseProgram(json, limits_));
  ASSIGN_OR_RETURN(
      weights_, ReadConfig("data/weights/" + model + "_weights_config.json"));
  ASSIGN_OR_RETURN(constants_, ReadConfig("data/constants/" + model +
                                          "_constants_config.json"));
  return OkStatus();
}

StatusOr<std::string> Pt2Archive::ModelName() const {
  std::string found;
  int count = 0;
  const std::string folder = root_ + "models/";
  for (const ZipEntry& entry : zip_.entries()) {
    std::string_view name = entry.name;
    if (!name.starts_with(folder) || !name.ends_with(".json")) continue;
    name.remove_prefix(folder.size());
    name.remove_suffix(5);
    if (name.find('/') != name.npos) continue;
    if (count++ == 0 || name == "model") found = name;
  }
  if (count == 0) {
    return Unimplemented(
        "the archive holds no program, only what was compiled for one "
        "machine; use torch.export.save");
  }
  if (count > 1 && found != "model") {
    return Unimplemented("the archive holds " + std::to_string(count) +
                         " programs, none of which is called 'model'");
  }
  return found;
}

StatusOr<Pt2Archive::Config> Pt2Archive::ReadConfig(
    const std::string& name) const {
  if (zip_.Find(root_ + name) == nullptr) return Config();
  ASSIGN_OR_RETURN(const std::string json, Text(name, limits_.max_json_bytes));
  return ParseStored(json);
}

StatusOr<Tensor> Pt2Archive::Weight(const std::string& key) {
  return Load(weights_, "data/weights/", key);
}

StatusOr<Tensor> Pt2Archive::Constant(const std::string& key) {
  return Load(constants_, "data/constants/", key);
}

StatusOr<Tensor> Pt2Archive::Load(const Config& config, const char* folder,
                                  const std::string& key) {
  const std::string what = "weight '" + Shown(key) + "'";
  const auto found = config.find(key);
  if (found == config.end()) {
    return InvalidArgument(what + " is in no configuration of the archive");
  }
  const TensorMeta& meta = found->second.meta;
  const ZipEntry* entry = zip_.Find(root_ + folder + found->second.path_name);
  if (entry == nullptr || entry->deflated) {
    return InvalidArgument(what + " lies in '" +
                           Shown(found->second.path_name) +
                           (entry ? "', which is packed; it must be stored"
                                  : "', which the archive has not"));
  }
  std::vector<int64_t> dims;
  for (const Dim& dim : meta.sizes) dims.push_back(dim.hint);
  const auto shape = Shape::Checked(dims);
  if (!shape.ok()) return shape.status().Prefixed(what);
  const auto reach = Reach(meta);
  if (!reach.ok()) return reach.status().Prefixed(what);
  const int64_t element = DTypeBytes(meta.dtype);
  const auto stored = static_cast<int64_t>(entry->bytes.size());
  if (*reach > stored / element) {
    return DataLoss(what + " reaches over " + std::to_string(*reach) +
                    " elements, but its file has " + std::to_string(stored) +
                    " bytes");
  }
  if (stored <= kSmallEntryBytes) RETURN_IF_ERROR(CheckEntry(*entry));
  const std::byte* begin = entry->bytes.data() + meta.storage_offset * element;
  const bool dense = IsDense(meta, *shape);
  // A stride of 0 repeats: few bytes of file may ask for many of memory.
  loaded_bytes_ += shape->num_elements() * element;
  const int64_t in_file =
      file_ == nullptr ? 0 : static_cast<int64_t>(file_->bytes().size());
  if (loaded_bytes_ > limits_.max_weight_bytes + in_file ||
      (!dense && shape->num_elements() > (int64_t{1} << 20) &&
       shape->num_elements() / 64 > stored / element)) {
    return ResourceExhausted(
        what + " makes the weights larger than " +
        std::to_string(limits_.max_weight_bytes + in_file) +
        " bytes or than their file explains");
  }
  Tensor tensor;
  if (dense && *reach > 0 && file_ != nullptr &&
      reinterpret_cast<uintptr_t>(begin) % static_cast<uintptr_t>(element) ==
          0) {
    tensor = Tensor::Borrow(meta.dtype, *shape, begin, file_, file_.get());
  } else {
    tensor = Tensor::Make(meta.dtype, *shape);
    if (*reach > 0) Gather(meta, entry->bytes.data(), tensor);
  }
  if (HasForeignBools(tensor)) {
    tensor = tensor.Copy();
    auto* values = tensor.data<uint8_t>();
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      values[i] = values[i] != 0;
    }
  }
  return tensor;
}

}  // namespace millrace::models::graph::pt2

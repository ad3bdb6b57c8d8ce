#include "server/lifecycle/warmup_samples.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <random>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "config/base/trace.h"
#include "config/base/utf8.h"
#include "config/sequence_settings.h"
#include "handlers/generate_tensors.h"
#include "handlers/handler.h"
#include "handlers/named_tensors.h"
#include "models/tensor/float16.h"
#include "models/tensor/strings.h"
#include "models/tensor/travel_bytes.h"
#include "server/tensor_bytes.h"

namespace millrace::server {
namespace {

namespace fs = std::filesystem;

using config::WarmupInput;
using config::WarmupSample;
using models::DType;
using models::Tensor;
using models::TensorSpec;

constexpr int64_t kMostBytes = int64_t{2} << 30;  // of a tensor

Status Wrong(const WarmupSample& sample, const std::string& why) {
  return InvalidArgument("model_warmup sample '" + sample.name + "', " + why)
      .At("model_warmup");
}

Status Wrong(const WarmupSample& sample, const WarmupInput& input,
             const std::string& why) {
  return Wrong(sample, "input '" + input.name + "' " + why);
}

// Within the folder; "../x" is not.
bool IsWithin(const fs::path& file) {
  return !file.empty() && file.is_relative() &&
         std::none_of(file.begin(), file.end(),
                      [](const fs::path& part) { return part == ".."; });
}

StatusOr<std::string> ReadSampleFile(const config::WarmupSettings& settings,
                                     const WarmupSample& sample,
                                     const WarmupInput& input) {
  if (!IsWithin(input.file)) {
    return Wrong(sample, input,
                 "has input_data_file '" + Shortened(input.file, 200) +
                     "' but must name a file within the folder " +
                     settings.folder);
  }
  const fs::path path = fs::path(settings.folder) / input.file;
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (!error && size > static_cast<uintmax_t>(kMostBytes)) {
    return Wrong(sample, input,
                 "has the file " + path.string() + " of " +
                     std::to_string(size) + " bytes, but at most " +
                     std::to_string(kMostBytes) + " are read");
  }
  std::string bytes(error ? 0 : static_cast<size_t>(size), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (error || !file) {
    return Wrong(sample, input,
                 "has the file " + path.string() + ", which cannot be read" +
                     (error ? " (" + error.message() + ")" : ""));
  }
  return bytes;
}

// Evenly over [-1, 1) for floats, else 0 or 1.
void FillRandom(std::minstd_rand& random, Tensor& tensor) {
  std::uniform_real_distribution<float> real(-1.0f, 1.0f);
  const int64_t count = tensor.num_elements();
  const DType dtype = tensor.dtype();
  for (int64_t i = 0; i < count; ++i) {
    switch (dtype) {
      case DType::kF32:
        tensor.data<float>()[i] = real(random);
        break;
      case DType::kF64:
        tensor.data<double>()[i] = real(random);
        break;
      case DType::kF16:
        tensor.data<uint16_t>()[i] = models::FloatToHalf(real(random));
        break;
      case DType::kBF16:
        tensor.data<uint16_t>()[i] = models::FloatToBFloat16(real(random));
        break;
      default:
        // Little-endian: the first byte is the lowest.
        tensor.bytes()[i * models::DTypeBytes(dtype)] =
            static_cast<std::byte>(random() >> 8 & 1);
    }
  }
}

Tensor Zeros(DType dtype, const models::Shape& shape) {
  if (dtype != models::kString) return Tensor::Make(dtype, shape);
  return models::MakeStrings(
      shape,
      std::vector<std::string_view>(static_cast<size_t>(shape.num_elements())));
}

// The same row again and again.
Tensor Repeated(const Tensor& row, int64_t rows) {
  models::Shape shape = row.shape();
  shape.Insert(0, rows);
  if (row.dtype() == models::kString) {
    std::vector<std::string_view> all;
    for (int64_t i = 0; i < rows; ++i) {
      const auto strings = models::StringsIn(row);
      all.insert(all.end(), strings.begin(), strings.end());
    }
    return models::MakeStrings(shape, all);
  }
  Tensor tensor = Tensor::Make(row.dtype(), shape);
  const auto bytes = static_cast<size_t>(row.num_bytes());
  for (int64_t i = 0; i < rows && bytes > 0; ++i) {
    std::memcpy(tensor.bytes() + static_cast<size_t>(i) * bytes, row.bytes(),
                bytes);
  }
  return tensor;
}

StatusOr<Tensor> MakeInput(const config::WarmupSettings& settings,
                           const WarmupSample& sample, const WarmupInput& input,
                           std::minstd_rand& random) {
  StatusOr<TensorHead> head =
      ReadTensorHead(input.name, input.datatype, input.dims);
  if (!head.ok()) {
    return Wrong(sample, std::string(head.status().message()));
  }
  const int64_t rows = std::max<int64_t>(sample.rows, 1);
  const bool is_text = head->dtype == models::kString;
  const int64_t bytes_each =
      is_text ? int64_t{sizeof(std::string_view)} : DTypeBytes(head->dtype);
  if (head->shape.num_elements() > kMostBytes / bytes_each / rows ||
      (sample.rows > 0 && head->shape.rank() == models::Shape::kMaxRank)) {
    return Wrong(sample, input,
                 "is " + TypeText(head->dtype, head->shape) + " in " +
                     std::to_string(rows) +
                     " rows, which is too large: at "
                     "most " +
                     std::to_string(kMostBytes) + " bytes and " +
                     std::to_string(models::Shape::kMaxRank) +
                     " dimensions are made");
  }
  Tensor row;
  if (input.data == WarmupInput::Data::kFile) {
    ASSIGN_OR_RETURN(const std::string bytes,
                     ReadSampleFile(settings, sample, input));
    StatusOr<Tensor> read = TensorFromBytes(*head, bytes);
    if (!read.ok()) {
      return Wrong(sample, std::string(read.status().message()) +
                               " (of the file " + input.file + ")");
    }
    row = *std::move(read);
  } else {
    row = Zeros(head->dtype, head->shape);
    if (input.data == WarmupInput::Data::kRandom && !is_text) {
      FillRandom(random, row);
    }
  }
  return sample.rows > 0 ? Repeated(row, sample.rows) : std::move(row);
}

Status CheckFits(const WarmupSample& sample, const WarmupInput& input,
                 const Tensor& tensor, const std::vector<TensorSpec>& inputs) {
  const auto spec = std::find_if(
      inputs.begin(), inputs.end(),
      [&](const TensorSpec& each) { return each.name == input.name; });
  if (spec == inputs.end()) {
    return Wrong(sample, input,
                 "is not in the model, which has " + handlers::NamesOf(inputs));
  }
  const models::Shape& shape = tensor.shape();
  bool fits = tensor.dtype() == spec->dtype &&
              (!spec->rank_known ||
               shape.rank() == static_cast<int>(spec->dims.size()));
  for (size_t i = 0; fits && spec->rank_known && i < spec->dims.size(); ++i) {
    fits = spec->dims[i] < 0 || spec->dims[i] == shape[static_cast<int>(i)];
  }
  if (fits) return OkStatus();
  return Wrong(sample, input,
               "is " + TypeText(tensor.dtype(), shape) +
                   (sample.rows > 0 ? " with its batch" : "") +
                   " but the model takes " + spec->text);
}

// What is wrong with a sample beyond its tensors.
Status OfSample(const WarmupSample& sample, const Status& status) {
  if (status.ok()) return status;
  return status.Prefixed("model_warmup sample '" + sample.name + "'")
      .At("model_warmup");
}

// Controls and states of sequences, which requests leave out.
bool IsMadeForSequences(const config::PipelineSettings& pipeline,
                        const std::string& name) {
  if (pipeline.sequences == nullptr) return false;
  const auto is_it = [&](const auto& each) { return each.input == name; };
  const auto& controls = pipeline.sequences->controls;
  const auto& states = pipeline.sequences->states;
  return std::any_of(controls.begin(), controls.end(), is_it) ||
         std::any_of(states.begin(), states.end(), is_it);
}

// With so many rows where the first size varies; other sizes that vary are 1.
handlers::NamedTensor ZerosFor(const TensorSpec& spec, int64_t rows) {
  models::Shape shape;
  for (size_t i = 0; i < spec.dims.size(); ++i) {
    shape.Append(spec.dims[i] >= 0 ? spec.dims[i] : i == 0 ? rows : 1);
  }
  return {spec.name, Zeros(spec.dtype, shape)};
}

Status Compute(handlers::TensorHandler& handler,
               std::vector<handlers::NamedTensor> inputs) {
  handlers::TensorRequest request;
  request.inputs = std::move(inputs);
  request.trace = std::make_shared<Trace>();
  std::promise<Status> ended;
  handler.Start(std::move(request),
                [&ended](const StatusOr<handlers::TensorResponse>& response) {
                  ended.set_value(response.status());
                },
                {});
  return ended.get_future().get();
}

// Waits for the end of a completion.
class EndSink final : public handlers::GenerateSink {
 public:
  void OnAccepted(const handlers::Usage&) override {}
  void OnDelta(handlers::OutputDelta) override {}
  void OnEnd(handlers::GenerateEnd end) override {
    ended_.set_value(std::move(end.status));
  }
  Status Wait() { return ended_.get_future().get(); }

 private:
  std::promise<Status> ended_;
};

Status Complete(const Servable& servable,
                const std::vector<handlers::NamedTensor>& inputs) {
  ASSIGN_OR_RETURN(handlers::GenerateHandler * handler, servable.ForText());
  ASSIGN_OR_RETURN(handlers::GenerateTensors call,
                   handlers::ReadGenerateTensors(inputs));
  handlers::GenerateRequest request;
  request.prompt = std::move(call.prompt);
  request.options = std::move(call.options);
  request.trace = std::make_shared<Trace>();
  const auto sink = std::make_shared<EndSink>();
  handler->Start(std::move(request), sink, {});
  return sink->Wait();
}

}  // namespace

StatusOr<std::vector<handlers::NamedTensor>> SampleTensors(
    const config::WarmupSettings& settings, const WarmupSample& sample,
    const std::vector<TensorSpec>& inputs) {
  std::minstd_rand random(1);  // each load computes the same
  std::vector<handlers::NamedTensor> tensors;
  for (const WarmupInput& input : sample.inputs) {
    ASSIGN_OR_RETURN(Tensor tensor, MakeInput(settings, sample, input, random));
    if (!inputs.empty()) {
      RETURN_IF_ERROR(CheckFits(sample, input, tensor, inputs));
    }
    tensors.push_back({input.name, std::move(tensor)});
  }
  return tensors;
}

StatusOr<GraphSamples> SamplesFor(const std::string& model,
                                  const config::PipelineSettings& pipeline,
                                  const std::vector<TensorSpec>& inputs,
                                  const handlers::TensorReshapes* reshapes) {
  auto samples = std::make_shared<std::vector<scheduler::WarmUpSample>>();
  for (const WarmupSample& sample : pipeline.warmup->samples) {
    ASSIGN_OR_RETURN(
        std::vector<handlers::NamedTensor> tensors,
        SampleTensors(*pipeline.warmup, sample,
                      reshapes == nullptr ? inputs : reshapes->inputs()));
    if (reshapes != nullptr) {
      RETURN_IF_ERROR(OfSample(sample, reshapes->ToModel(model, &tensors)));
    }
    int64_t rows = std::max<int64_t>(sample.rows, 1);
    if (sample.rows == 0 && !tensors.empty() &&
        tensors.front().tensor.shape().rank() > 0) {
      rows = tensors.front().tensor.shape()[0];
    }
    for (const TensorSpec& spec : inputs) {
      const bool is_given =
          std::any_of(tensors.begin(), tensors.end(),
                      [&](const auto& each) { return each.name == spec.name; });
      if (!is_given && IsMadeForSequences(pipeline, spec.name)) {
        tensors.push_back(ZerosFor(spec, rows));
      }
    }
    auto ordered = handlers::InputsInOrder(std::move(tensors), inputs, model);
    RETURN_IF_ERROR(OfSample(sample, ordered.status()));
    samples->push_back({sample.name, *std::move(ordered), sample.count});
  }
  return GraphSamples(std::move(samples));
}

Status RunSamples(const config::WarmupSettings& settings,
                  const Servable& servable) {
  const auto handler = servable.ForTensors();
  const bool is_text = !handler.ok() && servable.text_facts() != nullptr;
  if (!handler.ok() && !is_text) return handler.status();
  for (const WarmupSample& sample : settings.samples) {
    for (int64_t i = 0; i < sample.count; ++i) {
      // A language model's reader knows its tensors, of whatever rank.
      ASSIGN_OR_RETURN(std::vector<handlers::NamedTensor> tensors,
                       SampleTensors(settings, sample,
                                     is_text ? std::vector<TensorSpec>()
                                             : (*handler)->inputs()));
      RETURN_IF_ERROR(
          OfSample(sample, is_text ? Complete(servable, std::move(tensors))
                                   : Compute(**handler, std::move(tensors))));
    }
  }
  return OkStatus();
}

}  // namespace millrace::server

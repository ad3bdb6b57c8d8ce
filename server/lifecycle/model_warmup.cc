// model_warmup of a config.pbtxt, or of a config.yaml, as settings of ours.
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "model_config.pb.h"
#include "server/lifecycle/model_config.h"
#include "server/lifecycle/model_scheduling.h"

namespace millrace::server {
namespace {

using inference::ModelWarmup;

std::string NameOf(const ModelWarmup& sample) {
  return "sample '" + sample.name() + "'";
}

Status Wrong(const std::string& why) {
  return InvalidArgument("model_warmup " + why).At("model_warmup");
}

StatusOr<config::WarmupInput> InputOf(const std::string& where,
                                      const std::string& name,
                                      const ModelWarmup::Input& input) {
  using Data = config::WarmupInput::Data;
  const std::string what = where + ", input '" + name + "', ";
  config::WarmupInput read{.name = name,
                           .datatype = DatatypeOf(input.data_type()),
                           .dims = {input.dims().begin(), input.dims().end()}};
  if (read.datatype.empty()) return Wrong(what + "has no data_type");
  for (const int64_t size : read.dims) {
    if (size >= 0) continue;
    return Wrong(what + "has a size of " + std::to_string(size) +
                 " in dims, but sizes that vary are chosen here");
  }
  switch (input.input_data_type_case()) {
    case ModelWarmup::Input::kZeroData:
      read.data = Data::kZero;
      return read;
    case ModelWarmup::Input::kRandomData:
      read.data = Data::kRandom;
      return read;
    case ModelWarmup::Input::kInputDataFile:
      read.data = Data::kFile;
      read.file = input.input_data_file();
      return read;
    case ModelWarmup::Input::INPUT_DATA_TYPE_NOT_SET:
      break;
  }
  return Wrong(what + "has none of zero_data, random_data and input_data_file");
}

StatusOr<config::WarmupSample> SampleOf(const ModelWarmup& sample,
                                        int32_t max_batch_size) {
  const std::string where = NameOf(sample);
  const auto most = static_cast<uint32_t>(std::max(max_batch_size, 1));
  if (sample.batch_size() > most) {
    return Wrong(where + " has batch_size " +
                 std::to_string(sample.batch_size()) + " but " +
                 (max_batch_size > 0
                      ? "max_batch_size is " + std::to_string(max_batch_size)
                      : "the configuration has no max_batch_size, so that dims "
                        "have the batch's size; leave it out"));
  }
  config::WarmupSample read;
  read.name = sample.name();
  read.rows = max_batch_size > 0 ? sample.batch_size() : 0;
  read.count = std::max<int64_t>(sample.count(), 1);
  const std::map<std::string, ModelWarmup::Input> inputs(
      sample.inputs().begin(), sample.inputs().end());  // the map has no order
  for (const auto& [name, input] : inputs) {
    ASSIGN_OR_RETURN(config::WarmupInput one, InputOf(where, name, input));
    read.inputs.push_back(std::move(one));
  }
  return read;
}

}  // namespace

StatusOr<std::shared_ptr<const config::WarmupSettings>> WarmupOf(
    const inference::ModelConfig& message) {
  using Settings = std::shared_ptr<const config::WarmupSettings>;
  if (message.model_warmup().empty()) return Settings();
  if (message.has_ensemble_scheduling()) {
    return Wrong(
        "is set for an ensemble, which computes nothing itself; set it for the "
        "models of its steps");
  }
  auto settings = std::make_shared<config::WarmupSettings>();
  int64_t runs = 0;
  for (const ModelWarmup& sample : message.model_warmup()) {
    if (sample.batch_size() == 0) continue;  // as with Triton
    ASSIGN_OR_RETURN(config::WarmupSample read,
                     SampleOf(sample, message.max_batch_size()));
    runs += read.count;
    if (runs > config::WarmupSettings::kMostRuns) {
      return Wrong(NameOf(sample) + " makes them " + std::to_string(runs) +
                   " runs, but a load computes at most " +
                   std::to_string(config::WarmupSettings::kMostRuns) +
                   "; lower its count");
    }
    settings->samples.push_back(std::move(read));
  }
  if (settings->samples.empty()) return Settings();
  return Settings(std::move(settings));
}

std::string SamplesLeftOut(const inference::ModelConfig& message) {
  std::string text;
  for (const ModelWarmup& sample : message.model_warmup()) {
    if (sample.batch_size() > 0) continue;
    text += (text.empty() ? "" : ", ") + ("model_warmup " + NameOf(sample)) +
            " without batch_size";
  }
  return text;
}

StatusOr<std::shared_ptr<const config::WarmupSettings>> ModelConfig::AddWarmup(
    const std::string& json) {
  inference::ModelConfig read;
  const auto status = google::protobuf::util::JsonStringToMessage(
      "{\"model_warmup\":" + json + "}", &read, {});
  if (!status.ok()) {
    return Wrong("cannot be read: " + std::string(status.message()));
  }
  for (ModelWarmup& sample : *read.mutable_model_warmup()) {
    if (sample.batch_size() == 0) sample.set_batch_size(1);
  }
  *message_->mutable_model_warmup() = read.model_warmup();
  return WarmupOf(*message_);
}

}  // namespace millrace::server

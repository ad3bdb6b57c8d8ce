#include "server/http/session_message.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "handlers/json_fields.h"
#include "models/tensor/strings.h"
#include "server/lifecycle/session_port.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;
using handlers::NamedTensor;
using models::TensorSpec;

constexpr std::string_view kBinary = "a binary message";

bool Has(const std::vector<NamedTensor>& tensors, const std::string& name) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const auto& each) { return each.name == name; });
}

const TensorSpec* Find(const std::vector<TensorSpec>& specs,
                       const std::string& name) {
  const auto at =
      std::find_if(specs.begin(), specs.end(),
                   [&](const auto& each) { return each.name == name; });
  return at == specs.end() ? nullptr : &*at;
}

Status NoInput(const std::string& name, const std::vector<TensorSpec>& specs) {
  std::string all;
  for (const TensorSpec& spec : specs) {
    all += (all.empty() ? "'" : ", '") + spec.name + "'";
  }
  return InvalidArgument("input '" + Shortened(name, 100) +
                         "' is not one of the model, which has " + all)
      .At("input");
}

// 16-bit samples as the input has values; FP32 ones are within -1 and 1.
StatusOr<std::string> SamplesOf(std::string_view bytes,
                                const TensorSpec& spec) {
  RETURN_IF_ERROR(CheckTakesPcm16(spec));
  if (bytes.size() % 2 != 0) {
    return InvalidArgument("a message of pcm16 has " +
                           std::to_string(bytes.size()) +
                           " bytes, an odd number; send whole samples")
        .At("encoding");
  }
  if (spec.dtype == models::DType::kI16) return std::string(bytes);
  std::string values(bytes.size() * 2, '\0');
  for (size_t i = 0; i < bytes.size() / 2; ++i) {
    const auto low = static_cast<uint8_t>(bytes[2 * i]);
    const auto high = static_cast<uint8_t>(bytes[2 * i + 1]);
    const auto sample = static_cast<int16_t>(low | high << 8);
    const float real = static_cast<float>(sample) / 32768;
    const int32_t whole = sample;
    const void* from = spec.dtype == models::DType::kF32
                           ? static_cast<const void*>(&real)
                           : static_cast<const void*>(&whole);
    std::memcpy(values.data() + 4 * i, from, 4);
  }
  return values;
}

StatusOr<SessionText> ReadUpdate(std::string_view text, const Json& root,
                                 const SharedRegions& regions) {
  using config::SessionSettings;
  SessionUpdate update;
  ASSIGN_OR_RETURN(const Json* inputs, handlers::ReadArray(root, "inputs"));
  if (inputs != nullptr && !inputs->empty()) {
    ASSIGN_OR_RETURN(InferBody body,
                     ReadInferBody(text, std::nullopt, regions));
    update.inputs = std::move(body.request.inputs);
  }
  int64_t bytes = 0;
  for (const NamedTensor& input : update.inputs) {
    bytes += input.tensor.num_bytes() + models::NumCharacters(input.tensor);
  }
  if (bytes > kMaxKeptBytes) {
    return InvalidArgument(
               "inputs of session.update have " + std::to_string(bytes) +
               " bytes but a session keeps at most " +
               std::to_string(kMaxKeptBytes) + "; send them with each request")
        .At("inputs");
  }
  ASSIGN_OR_RETURN(update.input, handlers::ReadString(root, "input"));
  ASSIGN_OR_RETURN(const auto encoding, handlers::ReadString(root, "encoding"));
  if (encoding.has_value()) {
    ASSIGN_OR_RETURN(update.pcm16, config::IsPcm16(*encoding));
  }
  ASSIGN_OR_RETURN(
      update.context,
      handlers::ReadInt(root, "context",
                        {.min = 0, .max = SessionSettings::kMaxContext}));
  ASSIGN_OR_RETURN(
      update.sample_rate,
      handlers::ReadInt(root, "sample_rate",
                        {.min = 1, .max = SessionSettings::kMaxSampleRate}));
  return SessionText(std::move(update));
}

// What the answers of a session cannot say.
Status CheckInfer(const InferBody& body) {
  const handlers::SequencePlace& place = body.sequence;
  const auto* number = std::get_if<uint64_t>(&place.id);
  const bool has_id = number != nullptr
                          ? *number != 0
                          : !std::get<std::string>(place.id).empty();
  if (has_id || place.start) {
    return InvalidArgument(
               std::string(has_id ? "sequence_id" : "sequence_start") +
               " is the session's own; leave it out")
        .At(has_id ? "sequence_id" : "sequence_start");
  }
  bool binary = body.binary;
  for (const auto& [name, form] : body.forms) {
    binary = binary || form.binary.value_or(false);
  }
  if (!binary) return OkStatus();
  return InvalidArgument(
             "binary_data is asked for, but a session answers in JSON; leave "
             "it out")
      .At("outputs");
}

}  // namespace

StatusOr<SessionText> ReadSessionText(std::string_view text,
                                      const SharedRegions& regions) {
  // Long lists of numbers are not parsed twice.
  if (text.find("\"type\"") != std::string_view::npos) {
    ASSIGN_OR_RETURN(const Json root, ParseJson(text));
    ASSIGN_OR_RETURN(const auto type, handlers::ReadString(root, "type"));
    if (type == "session.update") return ReadUpdate(text, root, regions);
    if (type == "session.end") return SessionText(SessionEnd());
    if (type.has_value()) {
      return InvalidArgument("type is '" + Shortened(*type, 60) +
                             "' but must be session.update or session.end; an "
                             "infer request has none")
          .At("type");
    }
  }
  ASSIGN_OR_RETURN(InferBody body, ReadInferBody(text, std::nullopt, regions));
  RETURN_IF_ERROR(CheckInfer(body));
  return SessionText(std::move(body));
}

Status SessionInputs::Update(SessionUpdate update,
                             const config::SessionSettings& declared,
                             const std::vector<TensorSpec>& specs) {
  for (const NamedTensor& input : update.inputs) {
    if (Find(specs, input.name) == nullptr) return NoInput(input.name, specs);
  }
  const int64_t rate = update.sample_rate.value_or(declared.sample_rate);
  if (declared.only_rate && rate != declared.sample_rate) {
    return InvalidArgument("sample_rate is " + std::to_string(rate) +
                           " but the model hears " +
                           std::to_string(declared.sample_rate) +
                           " samples a second; send it those")
        .At("sample_rate");
  }
  const std::string& name =
      update.input.has_value() ? *update.input : declared.input;
  if (!name.empty()) {
    const TensorSpec* spec = Find(specs, name);
    if (spec == nullptr) return NoInput(name, specs);
    if (update.pcm16.value_or(declared.pcm16)) {
      RETURN_IF_ERROR(CheckTakesPcm16(*spec));
    }
  }
  now_ = std::move(update);
  context_.clear();
  return OkStatus();
}

void SessionInputs::AddTo(handlers::TensorRequest& request) const {
  for (const NamedTensor& input : now_.inputs) {
    if (Has(request.inputs, input.name)) continue;
    request.inputs.push_back({input.name, input.tensor.Share()});
  }
}

StatusOr<const TensorSpec*> SessionInputs::ChunkOf(
    const std::string& name, const std::vector<TensorSpec>& specs) const {
  if (!name.empty()) {
    const TensorSpec* named = Find(specs, name);
    if (named == nullptr) return NoInput(name, specs);
    return named;
  }
  const TensorSpec* chunk = nullptr;
  for (const TensorSpec& spec : specs) {
    if (Has(now_.inputs, spec.name)) continue;
    if (chunk != nullptr) {
      return InvalidArgument(
                 "a binary message is the values of one input, and the model "
                 "has '" +
                 chunk->name + "' and '" + spec.name +
                 "'; name one, or set the others, with session.update")
          .At("input");
    }
    chunk = &spec;
  }
  if (chunk != nullptr) return chunk;
  return InvalidArgument(
             "a binary message is the values of one input, and all are set by "
             "session.update; leave one out there")
      .At("input");
}

StatusOr<SessionInputs::Binary> SessionInputs::Read(
    std::string_view bytes, const config::SessionSettings& declared,
    const std::vector<TensorSpec>& specs) const {
  ASSIGN_OR_RETURN(const TensorSpec* chunk,
                   ChunkOf(now_.input.value_or(declared.input), specs));
  if (bytes.empty()) {
    return InvalidArgument(
               "a binary message has no bytes; send the values of "
               "input '" +
               chunk->name + "'")
        .At("input");
  }
  std::string values;
  if (now_.pcm16.value_or(declared.pcm16)) {
    ASSIGN_OR_RETURN(values, SamplesOf(bytes, *chunk));
    bytes = values;
  }
  Binary read;
  const int64_t context = now_.context.value_or(declared.context);
  const auto value_bytes = static_cast<size_t>(DTypeBytes(chunk->dtype));
  if (value_bytes > 0) {
    const int64_t rate = now_.sample_rate.value_or(declared.sample_rate);
    const auto count = static_cast<double>(bytes.size() / value_bytes);
    if (rate > 0) read.seconds = count / static_cast<double>(rate);
  }
  std::string joined;
  if (context > 0) {
    const size_t before = static_cast<size_t>(context) * value_bytes;
    joined = context_;
    joined.resize(before, '\0');
    joined += bytes;
    bytes = joined;
    read.context = joined.substr(joined.size() - before);
  }
  TensorSpec spec = *chunk;
  // A row of values alone: there is no batch before them.
  if (spec.dims.size() == 1 && spec.dims[0] < 0 && value_bytes > 0) {
    spec.dims[0] = static_cast<int64_t>(bytes.size() / value_bytes);
  }
  ASSIGN_OR_RETURN(read.body, ReadRawBody(bytes, {spec}, kBinary));
  read.body.binary = false;
  return read;
}

}  // namespace millrace::server::http

// Sizes are whole pages.
#include "models/llm/kv_plan.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "config/base/log.h"
#include "config/base/size_text.h"

namespace millrace::models {
namespace {

constexpr int64_t kPoolWithoutLimit = int64_t{1} << 30;

}  // namespace

PageGroups PlanPageGroups(const config::LlmSettings& settings,
                          const ModelConfig& model, bool several) {
  std::vector<int32_t> windows;
  for (const LayerSpec& spec : model.specs) windows.push_back(spec.window);
  if (!several || !settings.speculative_model.empty() ||
      !settings.kv_cache_dir.empty()) {
    return OnePageGroup(windows);
  }
  int64_t context = model.context;
  if (settings.max_model_len > 0) {
    context = std::min(context, settings.max_model_len);
  }
  return GroupPages(windows, static_cast<int32_t>(context));
}

KvShare ShareOfMemoryLimit(int64_t memory_limit_bytes) {
  if (memory_limit_bytes <= 0) {
    return {kPoolWithoutLimit, "no memory limit is known"};
  }
  return {memory_limit_bytes / 4,
          "a quarter of the memory limit of " + SizeText(memory_limit_bytes)};
}

int64_t WeightBytesOn(const Device& device, const FileTensor& tensor) {
  return device.WeightBytes(tensor.type, tensor.num_elements / tensor.dims[0],
                            tensor.dims[0]);
}

int64_t WeightBytesOn(const Device& device, const ModelSource& source) {
  int64_t bytes = 0;
  for (const FileTensor& tensor : source.tensors()) {
    bytes += WeightBytesOn(device, tensor);
  }
  return bytes;
}

KvShare ShareOfDevice(const Device& device, int64_t weight_bytes,
                      const BackendShape& shape, const StepLimits& limits) {
  const int64_t others = weight_bytes + device.StepBytes(shape, limits);
  return {device.memory_bytes() - others,
          "what weights and a step, " + SizeText(others) + ", leave of " +
              SizeText(device.memory_bytes()) + " of " + device.name()};
}

int64_t AdapterBytes(const config::LlmSettings& settings) {
  int64_t bytes = 0;
  for (const std::string& module : settings.lora_modules) {
    std::filesystem::path path = module.substr(module.find('=') + 1);
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) {
      path /= "adapter_model.safetensors";
    }
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    if (!error) bytes += static_cast<int64_t>(size);
  }
  return settings.compute_dtype == "f32" ? 2 * bytes : bytes;
}

StatusOr<KvPlan> PlanKv(const config::LlmSettings& settings,
                        const ModelConfig& model, int64_t page_bytes,
                        const KvShare& share, std::span<const int32_t> windows,
                        int32_t max_rows) {
  const bool asked = settings.max_model_len > 0;
  if (settings.max_model_len > model.context) {
    return InvalidArgument("max_model_len is " +
                           std::to_string(settings.max_model_len) +
                           ", but the model was trained for " +
                           std::to_string(model.context) + " tokens; lower it")
        .At("max_model_len");
  }
  int64_t context = asked ? settings.max_model_len : model.context;
  const bool sized = settings.kv_cache_memory_bytes > 0;
  const int64_t bytes = sized ? settings.kv_cache_memory_bytes
                              : std::max<int64_t>(share.bytes, 0);
  const std::string why = sized ? "--kv-cache-memory-bytes" : share.why;
  const int64_t affordable = bytes / page_bytes;
  const int64_t needed = MostPages(windows, max_rows, context);
  const int64_t longest =
      LongestSequence(windows, max_rows, affordable, context);
  if (longest < 1 || (asked && longest < context)) {
    return ResourceExhausted(
               "the KV cache of " + SizeText(bytes) + " (" + why + ") holds " +
               std::to_string(longest) + " tokens, but one sequence may have " +
               std::to_string(context) +
               "; lower --max-model-len or raise --kv-cache-memory-bytes to " +
               SizeSetting(needed * page_bytes))
        .At("kv_cache_memory_bytes");
  }
  if (longest < context) {
    context = longest;
    LogWarning("context cut to what the KV cache holds",
               {{"max_model_len", context},
                {"trained", model.context},
                {"kv_cache_memory_bytes", bytes}});
  }
  const int64_t useful =
      MostPages(windows, max_rows, context) * settings.max_num_seqs;
  const int64_t pages = std::min(
      {affordable, useful, int64_t{std::numeric_limits<int32_t>::max()}});
  return KvPlan{.max_context = static_cast<int32_t>(context),
                .num_pages = static_cast<int32_t>(pages),
                .bound_by = pages == useful
                                ? "max_num_seqs sequences of full length"
                                : why};
}

}  // namespace millrace::models

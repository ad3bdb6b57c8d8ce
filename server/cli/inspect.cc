// millrace inspect: what a model file or folder holds and whether it can be
// served. It is foreign: whatever it says is cleaned before it reaches a
// terminal.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "config/base/wrap.h"
#include "models/cpu/isa.h"
#include "models/files/gguf.h"
#include "models/llm/config.h"
#include "models/llm/draft_model.h"
#include "models/llm/families.h"
#include "models/llm/gguf_source.h"
#include "models/llm/kv_plan.h"
#include "models/llm/llm_plan.h"
#include "models/llm/lora_inspect.h"
#include "models/llm/page_groups.h"
#include "models/llm/step.h"
#include "models/text/chat_template.h"
#include "models/text/tokenizer.h"
#include "server/cli/args.h"
#include "server/cli/clean_text.h"
#include "server/cli/graph_inputs.h"
#include "server/cli/graph_options.h"
#include "server/cli/inspect_encoder.h"
#include "server/cli/inspect_graph.h"
#include "server/cli/inspect_lora.h"
#include "server/cli/inspect_mmproj.h"
#include "server/cli/inspect_sharding.h"
#include "server/cli/model_kind.h"

namespace millrace::server {
namespace {

using models::GgufFile;
using models::GgufValue;
using models::GgufValueType;

constexpr FlagSpec kFlags[] = {
    {"ctx", "N", "context to say the memory for (default: the model's own)"},
    {"template", "", "the whole chat template too"},
    {"speculative-model", "DRAFT", "whether DRAFT can be its draft model"},
    {"base", "MODEL", "of a LoRA adapter: whether it fits this model"},
    {"device", "NAME", "of a graph: which operators would run where on cuda:0"},
    {"tensor-parallel-size", "N", "how N processes share its tensors"},
    {"graph-backend", "NAME",
     "whose kernels compute each layer of a graph: millrace, onednn, or auto "
     "(measured first)"},
    kSizesFlag,
    kPrecisionFlag,
    kGemmFlag,
    kConvFlag,
    kQuantizationFlag,
    kThreadsFlag,
    kIsaFlag,
};
constexpr VerbSpec kVerb = {
    "inspect",
    "MODEL",
    "Metadata, tensors by type, memory at a context, chat template, and "
    "whether the\nmodel can be served or why not. Of a graph (ONNX, .pt2): "
    "inputs, outputs, operators,\nand every node that cannot be run. Exits "
    "with "
    "1 when the model cannot be served.",
    kFlags,
    1,
    1};

constexpr size_t kValueColumn = 45;  // of a line of metadata
constexpr int64_t kShownElements = 6;

template <typename T>
std::string NumberAt(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  if constexpr (std::is_floating_point_v<T>) {
    char text[40];
    std::snprintf(text, sizeof(text), "%g", static_cast<double>(value));
    return text;
  } else {
    return std::to_string(value);
  }
}

struct Scalar {
  size_t bytes;
  std::string (*show)(const char* at);
};

Scalar ScalarOf(GgufValueType type) {
  switch (type) {
    case GgufValueType::kUint8:
      return {1, NumberAt<uint8_t>};
    case GgufValueType::kInt8:
      return {1, NumberAt<int8_t>};
    case GgufValueType::kUint16:
      return {2, NumberAt<uint16_t>};
    case GgufValueType::kInt16:
      return {2, NumberAt<int16_t>};
    case GgufValueType::kUint32:
      return {4, NumberAt<uint32_t>};
    case GgufValueType::kInt32:
      return {4, NumberAt<int32_t>};
    case GgufValueType::kUint64:
      return {8, NumberAt<uint64_t>};
    case GgufValueType::kInt64:
      return {8, NumberAt<int64_t>};
    case GgufValueType::kFloat32:
      return {4, NumberAt<float>};
    case GgufValueType::kFloat64:
      return {8, NumberAt<double>};
    case GgufValueType::kBool:
      return {1, [](const char* at) {
                return std::string(*at != 0 ? "true" : "false");
              }};
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
  return {0, nullptr};
}

// Of what is too long to be shown whole, what fits the rest of a line.
std::string Show(const GgufFile& file, std::string_view name,
                 const GgufValue& value) {
  const size_t columns = std::max<size_t>(HelpWidth(), 80) - kValueColumn;
  if (value.type == GgufValueType::kString) {
    const bool whole = value.bytes.size() <= kShownBytes;
    const size_t most = whole ? kShownBytes : columns - 3;  // quotes and "…"
    return "\"" + Clean(value.bytes, most) + "\"";
  }
  if (value.type != GgufValueType::kArray) {
    const Scalar scalar = ScalarOf(value.type);
    return value.bytes.size() < scalar.bytes ? "?"
                                             : scalar.show(value.bytes.data());
  }
  std::vector<std::string> items;
  const auto most = static_cast<size_t>(std::min(value.count, kShownElements));
  if (value.element_type == GgufValueType::kString) {
    const auto strings = file.Strings(name);
    for (size_t i = 0; strings.ok() && i < most; ++i) {
      items.push_back("\"" + Clean((*strings)[i], 16) + "\"");
    }
  } else if (const Scalar scalar = ScalarOf(value.element_type);
             scalar.bytes > 0) {
    for (size_t i = 0; i < most; ++i) {
      if (value.bytes.size() < (i + 1) * scalar.bytes) break;
      items.push_back(scalar.show(value.bytes.data() + i * scalar.bytes));
    }
  }
  std::string text(models::GgufValueTypeName(value.element_type));
  text += "[" + std::to_string(value.count) + "]";
  constexpr std::string_view kMore = ", …";
  size_t shown = 0;
  for (const std::string& item : items) {
    const std::string next = (shown == 0 ? " " : ", ") + item;
    const size_t used = TextColumns(text + next) + TextColumns(kMore);
    if (shown > 0 && used > columns) break;
    text += next;
    ++shown;
  }
  if (shown < static_cast<size_t>(value.count)) text += kMore;
  return text;
}

double MiB(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

void PrintMetadata(const GgufFile& file) {
  std::printf("metadata (%zu keys)\n", file.keys().size());
  for (const models::GgufKey& key : file.keys()) {
    std::printf("  %-42s %s\n", Clean(key.name).c_str(),
                Show(file, key.name, key.value).c_str());
  }
}

// A folder's file, key by key.
Status PrintJson(const std::string& folder, const char* name) {
  const auto path = std::filesystem::path(folder) / name;
  if (!std::filesystem::exists(path)) return OkStatus();
  std::ifstream in(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  ASSIGN_OR_RETURN(const nlohmann::ordered_json json, ParseJson(text));
  std::printf("%s (%zu keys)\n", name, json.size());
  for (const auto& [key, value] : json.items()) {
    std::printf("  %-42s %s\n", Clean(key).c_str(),
                Clean(DumpJson(value)).c_str());
  }
  return OkStatus();
}

struct OfType {
  int64_t tensors = 0;
  int64_t values = 0;
  int64_t bytes = 0;
};

// Tensors of a packed file have no data of their own: as they were before they
// were packed.
int64_t BytesOf(const models::FileTensor& tensor) {
  if (!tensor.data.empty() || tensor.dims[0] == 0) {
    return static_cast<int64_t>(tensor.data.size());
  }
  return tensor.num_elements / tensor.dims[0] * tensor.row_bytes;
}

// Returns the bytes that all tensors take in memory.
int64_t PrintTensors(const models::ModelSource& source) {
  std::map<std::string_view, OfType> types;
  OfType all;
  for (const models::FileTensor& tensor : source.tensors()) {
    for (OfType* sum : {&types[models::InfoOf(tensor.type).name], &all}) {
      ++sum->tensors;
      sum->values += tensor.num_elements;
      sum->bytes += BytesOf(tensor);
    }
  }
  std::printf("\ntensors\n  %-8s %8s %16s %12s\n", "type", "count",
              "parameters", "MiB");
  for (const auto& [name, sum] : types) {
    std::printf("  %-8s %8lld %16lld %12.1f\n", std::string(name).c_str(),
                static_cast<long long>(sum.tensors),
                static_cast<long long>(sum.values), MiB(sum.bytes));
  }
  std::printf("  %-8s %8lld %16lld %12.1f\n", "all",
              static_cast<long long>(all.tensors),
              static_cast<long long>(all.values), MiB(all.bytes));
  const models::PackedWeights* packed = source.packed();
  if (packed == nullptr) return all.bytes;
  const auto packed_bytes = static_cast<int64_t>(packed->bytes.size());
  std::printf("  matrices are packed as %s, %.1f MiB of this file\n",
              Clean(packed->layout).c_str(), MiB(packed_bytes));
  return std::max(all.bytes, packed_bytes);
}

void PrintMemory(const models::ModelConfig& config, int64_t weight_bytes,
                 int64_t context) {
  const int64_t token_bytes = models::KvBytesPerToken(config, "f16");
  const int64_t int8_bytes = models::KvBytesPerToken(config, "int8");
  config::LlmSettings settings;
  settings.max_model_len = context;
  const models::PageGroups groups =
      models::PlanPageGroups(settings, config, true);
  const int64_t kv_bytes = models::MostPages(groups.windows, 1, context) *
                           models::kPageTokens * token_bytes / config.layers *
                           groups.layers_per_page;
  std::printf("\nmemory at a context of %lld tokens\n",
              static_cast<long long>(context));
  std::printf("  weights, about        %10.1f MiB\n", MiB(weight_bytes));
  std::printf(
      "  KV cache, a sequence  %10.1f MiB in f16\n"
      "    bytes of a token    %10lld in f16, %lld in f32, %lld in int8\n",
      MiB(kv_bytes), static_cast<long long>(token_bytes),
      static_cast<long long>(2 * token_bytes),
      static_cast<long long>(int8_bytes));
  std::printf("  together              %10.1f MiB\n",
              MiB(weight_bytes + kv_bytes));
}

void PrintTemplate(const models::ModelSource& source, bool whole) {
  const StatusOr<std::string> text = source.ChatTemplateText();
  if (!text.ok()) {
    std::printf("\nchat template  %s\n",
                Clean(text.status().message(), 300).c_str());
    return;
  }
  if (text->empty()) {
    std::printf(
        "\nchat template  none: /v1/chat/completions needs one "
        "(chat_template)\n");
    return;
  }
  const auto made = models::ChatTemplate::Create(*text);
  std::printf("\nchat template  %zu bytes, %s\n", text->size(),
              made.ok() ? "can be rendered"
                        : Clean(made.status().message(), 300).c_str());
  std::printf("%s\n",
              Clean(*text, whole ? text->size() : kShownBytes, whole).c_str());
}

// The flags with which this machine serves weights that are packed like this,
// behind a space each; or why none does.
StatusOr<std::string> FlagsToServe(const models::PackedWeights& packed) {
  std::string form = packed.layout.substr(0, packed.layout.find('/'));
  std::string flags;
  if (constexpr std::string_view kF32 = "-f32"; form.ends_with(kF32)) {
    form.resize(form.size() - kF32.size());
    flags = " --compute-dtype f32";
  }
  ASSIGN_OR_RETURN(const models::KernelTable* chosen,
                   models::ChooseKernels("auto"));
  if (form == chosen->packing) return flags;
  const std::vector<models::IsaChoice> choices = models::ListKernels();
  for (auto choice = choices.rbegin(); choice != choices.rend(); ++choice) {
    if (choice->missing.empty() && form == choice->kernels->packing) {
      return " --isa " + std::string(choice->name) + flags;
    }
  }
  return FailedPrecondition("its weights are packed as " +
                            Clean(packed.layout) +
                            ", which no kernels of this machine read; convert "
                            "the original file here");
}

// All that loading checks, short of the weights' values.
Status WhyNotServable(const models::ModelSource& source, int64_t weight_bytes,
                      int64_t wanted_context) {
  ASSIGN_OR_RETURN(const models::ModelConfig config,
                   models::ReadModelConfig(source));
  PrintMemory(config, weight_bytes,
              wanted_context > 0 ? wanted_context : config.context);
  RETURN_IF_ERROR(models::FindModelTensors(source, config).status());
  if (wanted_context > config.context) {
    return InvalidArgument("a context of " + std::to_string(wanted_context) +
                           " is more than the " +
                           std::to_string(config.context) +
                           " tokens the model was trained for");
  }
  ASSIGN_OR_RETURN(models::Vocabulary vocabulary,
                   models::VocabularyFor(source, config));
  return models::Tokenizer::Create(std::move(vocabulary)).status();
}

// What serving with this draft model would add.
Status PrintDraft(const models::ModelSource& source,
                  const models::ModelSource& draft) {
  ASSIGN_OR_RETURN(const models::LlmPlan plan, models::PlanLlm(source));
  ASSIGN_OR_RETURN(const models::LlmPlan draft_plan, models::PlanLlm(draft));
  ASSIGN_OR_RETURN(const models::Vocabulary vocabulary,
                   models::VocabularyFor(source, plan.config));
  ASSIGN_OR_RETURN(const models::Vocabulary draft_vocabulary,
                   models::VocabularyFor(draft, draft_plan.config));
  RETURN_IF_ERROR(models::CheckSameVocabulary(vocabulary, draft_vocabulary));
  std::printf(
      "yes: %s of %s, about %.1f MiB of weights,\n               %lld bytes of "
      "KV cache a token in f16\n",
      Clean(draft_plan.config.architecture).c_str(),
      models::MainWeightType(draft).c_str(), MiB(draft.file_bytes()),
      static_cast<long long>(
          models::KvBytesPerToken(draft_plan.config, "f16")));
  return OkStatus();
}

// An encoder of images, which is no model by itself.
Status InspectMmproj(const std::string& path) {
  const StatusOr<std::string> told = DescribeMmproj(path);
  if (told.ok()) {
    std::printf(
        "\nimage encoder  %s\nservable       yes: millrace serve MODEL.gguf "
        "--mmproj %s\n",
        told->c_str(), path.c_str());
    return OkStatus();
  }
  std::printf("\nservable       no: %s\n",
              Clean(told.status().message(), 1000).c_str());
  return FailedPrecondition("'" + path + "' cannot be served");
}

// Flags by what they are for. Of anything else they would tell nothing.
constexpr std::string_view kLlmFlags[] = {
    "ctx", "template", "speculative-model", "tensor-parallel-size"};
constexpr std::string_view kAdapterFlags[] = {"base"};
constexpr std::string_view kGraphFlags[] = {"device",
                                            kSizesFlag.name,
                                            "graph-backend",
                                            kPrecisionFlag.name,
                                            kGemmFlag.name,
                                            kConvFlag.name,
                                            kQuantizationFlag.name,
                                            kThreadsFlag.name,
                                            kIsaFlag.name};
struct FlagsFor {
  std::string_view kind;
  std::string_view kinds;
  std::span<const std::string_view> flags;
};
constexpr std::string_view kAdapter = "a LoRA adapter";
const FlagsFor kFlagsFor[] = {
    {KindName(FileKind::kLanguageModel), "language models", kLlmFlags},
    {kAdapter, "LoRA adapters", kAdapterFlags},
    {KindName(FileKind::kGraph), "graphs (ONNX, .pt2)", kGraphFlags},
};

// `kind`: what the path holds.
Status CheckFlags(const ParsedArgs& args, std::string_view kind) {
  for (const FlagsFor& each : kFlagsFor) {
    if (each.kind == kind) continue;
    for (const std::string_view flag : each.flags) {
      if (!args.Has(flag)) continue;
      return UsageError("--" + std::string(flag) + " is for " +
                        std::string(each.kinds) + ", and '" +
                        args.positional()[0] + "' is " + std::string(kind));
    }
  }
  return OkStatus();
}

Status Inspect(const ParsedArgs& args) {
  ASSIGN_OR_RETURN(const int64_t context, args.Int("ctx", 0, 1, 1 << 30));
  const std::string& path = args.positional()[0];
  if (models::IsLoraFile(path)) {
    RETURN_IF_ERROR(CheckFlags(args, kAdapter));
    return InspectLora(path, args.Text("base", ""));
  }
  ASSIGN_OR_RETURN(const FileKind kind, FileKindOf(path));
  RETURN_IF_ERROR(CheckFlags(
      args, IsMmprojFile(path) ? "an encoder of images" : KindName(kind)));
  if (kind == FileKind::kGraph) return InspectGraph(args);
  if (kind == FileKind::kEncoder) return InspectEncoder(path);
  ASSIGN_OR_RETURN(const auto source, models::OpenModelSource(path));
  std::printf("%s: %s, %.1f MiB\n\n", path.c_str(), source->format().c_str(),
              MiB(source->file_bytes()));
  if (const auto* gguf =
          dynamic_cast<const models::GgufSource*>(source.get())) {
    PrintMetadata(gguf->file());
  } else {
    RETURN_IF_ERROR(PrintJson(path, "config.json"));
    RETURN_IF_ERROR(PrintJson(path, "generation_config.json"));
  }
  const int64_t weight_bytes = PrintTensors(*source);
  if (IsMmprojFile(path)) return InspectMmproj(path);
  Status why_not = WhyNotServable(*source, weight_bytes, context);
  std::string flags;
  if (why_not.ok() && source->packed() != nullptr) {
    StatusOr<std::string> found = FlagsToServe(*source->packed());
    why_not = found.status();
    if (found.ok()) flags = *found;
  }
  PrintTemplate(*source, args.Has("template"));
  if (why_not.ok()) {
    std::printf("\nservable       yes: millrace serve %s%s\n", path.c_str(),
                flags.c_str());
  } else {
    std::printf("\nservable       no: %s\n",
                Clean(why_not.message(), 1000).c_str());
  }
  ASSIGN_OR_RETURN(const int64_t ranks,
                   args.Int("tensor-parallel-size", 0, 1, 64));
  if (why_not.ok() && ranks > 1) {
    RETURN_IF_ERROR(PrintSharding(*source, static_cast<int32_t>(ranks)));
  }
  if (args.Has("speculative-model")) {
    ASSIGN_OR_RETURN(const auto draft, models::OpenModelSource(
                                           args.Text("speculative-model", "")));
    std::printf("draft model    ");
    const Status drafts = PrintDraft(*source, *draft);
    if (!drafts.ok()) {
      std::printf("no: %s\n", Clean(drafts.message(), 1000).c_str());
      return FailedPrecondition("'" + args.Text("speculative-model", "") +
                                "' cannot be its draft model");
    }
  }
  if (why_not.ok()) return OkStatus();
  return FailedPrecondition("'" + path + "' cannot be served");
}

}  // namespace

const VerbSpec& InspectVerb() { return kVerb; }
int RunInspect(Args args) { return RunVerb(kVerb, args, Inspect); }

}  // namespace millrace::server

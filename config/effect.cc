#include "config/effect.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "config/settings_visitor.h"

namespace millrace::config {
namespace {

// What to say instead to a model of the other kind.
struct Instead {
  std::string_view name;
  std::string_view remedy;
};
constexpr Instead kInstead[] = {
    {"graph_backend", "language models have no other kernels"},
    {"precision", "language models have --compute-dtype and --quantize"},
    {"quantization", "language models have --quantize"},
    {"max_batch_size", "language models have --max-num-seqs"},
    {"preferred_batch_size", "language models have --max-num-seqs"},
    {"instance_count", "a language model has one engine"},
    {"max_model_len", "the sizes of a graph's inputs come with each request"},
    {"max_num_seqs", "graphs have --max-batch-size"},
    {"max_num_batched_tokens", "graphs have --max-batch-size"},
    {"quantize", "graphs have --precision"},
    {"compute_dtype", "graphs have --precision"},
    {"kv_cache_memory_bytes", "a graph keeps no keys and values"},
    {"kv_cache_dtype", "a graph keeps no keys and values"},
};

std::string_view InsteadOf(std::string_view name) {
  for (const Instead& instead : kInstead) {
    if (instead.name == name) return instead.remedy;
  }
  return {};
}

// A setting that another one makes meaningless. `without` sees the settings of
// the server, and those that hold for one model.
struct Rule {
  std::string_view name;
  bool (*without)(const ServerSettings& server, const ModelSettings& model);
  std::string_view why;
};

bool DraftsNothing(const ServerSettings&, const ModelSettings& model) {
  return model.llm.speculative_method == "none";
}
bool DraftsNoNgrams(const ServerSettings&, const ModelSettings& model) {
  return model.llm.speculative_method == "none" ||
         !model.llm.speculative_model.empty();
}
bool HasNoRepository(const ServerSettings& server, const ModelSettings&) {
  return server.model_repository.empty();
}
bool IsF32(const ServerSettings&, const ModelSettings& model) {
  return model.graph.precision == "f32" || model.graph.precision == "auto";
}
bool HasNoLevels(const ServerSettings&, const ModelSettings& model) {
  return model.graph.priority_levels == 0;
}
bool JoinsNothing(const ServerSettings&, const ModelSettings& model) {
  return model.graph.max_batch_size == 1;
}

bool RunsOnCpu(const ServerSettings&, const ModelSettings& model) {
  return model.common.device == "cpu";
}

constexpr Rule kRules[] = {
    {"gpu_memory_utilization", RunsOnCpu,
     "device is cpu; --kv-cache-memory-bytes sets the memory for keys and "
     "values"},
    {"enforce_eager", RunsOnCpu, "device is cpu"},
    {"async_scheduling", RunsOnCpu, "device is cpu"},
    {"async_scheduling",
     [](const ServerSettings&, const ModelSettings& model) {
       return model.llm.tensor_parallel_size > 1;
     },
     "tensor_parallel_size is above 1, and such steps are read one by one"},
    {"async_scheduling",
     [](const ServerSettings&, const ModelSettings& model) {
       return model.llm.speculative_method != "none" &&
              !model.llm.speculative_model.empty();
     },
     "there is a speculative_model, which computes between two steps"},
    {"async_scheduling",
     [](const ServerSettings&, const ModelSettings& model) {
       return !model.llm.kv_cache_dir.empty();
     },
     "there is a kv_cache_dir, which pages are written to between two steps"},
    {"gemm_backend", RunsOnCpu, "device is cpu"},
    {"conv_backend", RunsOnCpu, "device is cpu"},
    {"num_speculative_tokens", DraftsNothing, "speculative_method is none"},
    {"prompt_lookup_min", DraftsNoNgrams,
     "no tokens are drafted from the prompt: speculative_method is none or "
     "there is a speculative_model"},
    {"prompt_lookup_max", DraftsNoNgrams,
     "no tokens are drafted from the prompt: speculative_method is none or "
     "there is a speculative_model"},
    {"model_control_mode", HasNoRepository, "there is no model_repository"},
    {"load_model", HasNoRepository, "there is no model_repository"},
    {"load_model",
     [](const ServerSettings& server, const ModelSettings&) {
       return !server.model_repository.empty() &&
              server.model_control_mode != "explicit";
     },
     "model_control_mode is not explicit, so that all models are loaded"},
    {"repository_poll_interval", HasNoRepository,
     "there is no model_repository"},
    {"repository_poll_interval",
     [](const ServerSettings& server, const ModelSettings&) {
       return !server.model_repository.empty() &&
              server.model_control_mode != "poll";
     },
     "model_control_mode is not poll"},
    {"quantization",
     [](const ServerSettings&, const ModelSettings& model) {
       return model.graph.precision != "int8";
     },
     "precision is not int8"},
    {"precision_samples",
     [](const ServerSettings& server, const ModelSettings& model) {
       return IsF32(server, model) && model.graph.backend != "auto";
     },
     "precision is f32"},
    {"max_precision_error", IsF32, "precision is f32"},
    {"max_precision_error",
     [](const ServerSettings&, const ModelSettings& model) {
       return model.graph.precision == "tf32";
     },
     "precision is tf32, which is served without a comparison"},
    {"default_priority_level", HasNoLevels, "priority_levels is 0"},
    {"max_queue_delay", JoinsNothing, "max_batch_size is 1"},
    {"preferred_batch_size", JoinsNothing, "max_batch_size is 1"},
    {"prefix_cache_share_generated",
     [](const ServerSettings&, const ModelSettings& model) {
       return !model.llm.enable_prefix_caching;
     },
     "enable_prefix_caching is false"},
    {"kv_cache_dir",
     [](const ServerSettings&, const ModelSettings& model) {
       return !model.llm.enable_prefix_caching;
     },
     "enable_prefix_caching is false"},
    {"kv_cache_dir_max_size",
     [](const ServerSettings&, const ModelSettings& model) {
       return model.llm.kv_cache_dir.empty();
     },
     "there is no kv_cache_dir"},
    {"tensor_parallel_timeout",
     [](const ServerSettings&, const ModelSettings& model) {
       return model.llm.tensor_parallel_size == 1;
     },
     "tensor_parallel_size is 1"},
};

// Declared among the settings of language models, but graphs heed it, too.
constexpr std::string_view kOfBothKinds = "gemm_backend";

class Finder {
 public:
  Finder(const Loaded& loaded, const EffectFacts& facts)
      : loaded_(loaded), settings_(loaded.settings), facts_(facts) {}

  std::vector<std::string> Run() {
    const auto& models = settings_.models;
    const auto num_graphs =
        std::count(facts_.is_graph.begin(), facts_.is_graph.end(), true);
    const bool only_text = !models.empty() && num_graphs == 0;
    const bool only_graphs =
        !models.empty() && num_graphs == static_cast<long>(models.size());
    ModelSettings general{.common = settings_.common,
                          .llm = settings_.llm,
                          .graph = settings_.graph};
    CheckKind("", only_text, only_graphs, general);
    CheckRules("", general);
    CheckThreads("", settings_.common.threads);
    for (size_t i = 0; i < models.size(); ++i) {
      const std::string prefix = "models[" + std::to_string(i) + "].";
      const bool is_graph = i < facts_.is_graph.size() && facts_.is_graph[i];
      CheckKind(prefix, !is_graph, is_graph, models[i]);
      CheckRules(prefix, models[i]);
      CheckThreads(prefix, models[i].common.threads);
    }
    return std::move(sentences_);
  }

 private:
  bool IsGiven(const std::string& prefix, std::string_view name) const {
    const auto at = loaded_.origins.find(prefix + std::string(name));
    return at != loaded_.origins.end() && at->second != Origin::kDefault;
  }
  // Of a model, the words of the file; else as it was given.
  std::string Called(const std::string& prefix, std::string_view name) const {
    std::string text(name);
    if (!prefix.empty()) return text + " of " + NameOf(prefix);
    const Origin origin = loaded_.origins.at(text);
    if (origin == Origin::kFlag) {
      std::replace(text.begin(), text.end(), '_', '-');
      return "--" + text;
    }
    if (origin != Origin::kEnvironment) return text;
    for (char& c : text) {
      c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    }
    return "MILLRACE_" + text;
  }
  std::string NameOf(const std::string& prefix) const {
    const size_t index = std::stoul(prefix.substr(7));
    return "model '" + ModelId(settings_.models[index]) + "'";
  }

  void Say(const std::string& prefix, std::string_view name,
           const std::string& why) {
    if (!said_.insert(prefix + std::string(name)).second) return;
    sentences_.push_back(Called(prefix, name) + " has no effect: " + why);
  }

  void CheckKind(const std::string& prefix, bool only_text, bool only_graphs,
                 ModelSettings model) {
    const auto check = [&](const std::string& why) {
      return [this, prefix, why](const SettingInfo& info, SettingRef) {
        if (!IsGiven(prefix, info.name) || info.name == kOfBothKinds) return;
        const std::string_view instead = InsteadOf(info.name);
        Say(prefix, info.name,
            why + (instead.empty() ? "" : "; " + std::string(instead)));
      };
    };
    if (only_text) {
      VisitGraphSettings(
          model.graph,
          check(prefix.empty() ? "it is for graphs, and none is served"
                               : "it is for graphs, this is a language "
                                 "model"));
    }
    if (only_graphs) {
      VisitLlmSettings(
          model.llm,
          check(prefix.empty() ? "it is for language models, and none is served"
                               : "it is for language models, this is a graph"));
    }
  }

  void CheckRules(const std::string& prefix, const ModelSettings& model) {
    for (const Rule& rule : kRules) {
      if (!IsGiven(prefix, rule.name)) continue;
      // A general setting may serve one model that has the other one.
      if (prefix.empty() && AnyModelUses(rule)) continue;
      if (rule.without(settings_.server, model)) {
        Say(prefix, rule.name, std::string(rule.why));
      }
    }
  }
  bool AnyModelUses(const Rule& rule) const {
    return std::any_of(settings_.models.begin(), settings_.models.end(),
                       [&](const ModelSettings& model) {
                         return !rule.without(settings_.server, model);
                       });
  }

  void CheckThreads(const std::string& prefix, int64_t threads) {
    if (facts_.num_cores == 0 || threads <= facts_.num_cores ||
        !IsGiven(prefix, "threads")) {
      return;
    }
    const std::string cores = std::to_string(facts_.num_cores);
    sentences_.push_back(
        Called(prefix, "threads") + " is " + std::to_string(threads) +
        " but this process may use " + cores + " physical core" +
        (facts_.num_cores == 1 ? "" : "s") + ": " + cores + " compute");
  }

  const Loaded& loaded_;
  const Settings& settings_;
  const EffectFacts& facts_;
  std::vector<std::string> sentences_;
  std::set<std::string> said_;  // one reason is enough
};

}  // namespace

std::vector<std::string> SettingsWithoutEffect(const Loaded& loaded,
                                               const EffectFacts& facts) {
  return Finder(loaded, facts).Run();
}

}  // namespace millrace::config

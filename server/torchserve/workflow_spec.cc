// Source: TorchServe, docs/workflows.md.
#include "server/torchserve/workflow_spec.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "config/yaml.h"

#include <yaml-cpp/yaml.h>

namespace millrace::server::torchserve {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxNameBytes = 100;
constexpr int64_t kMaxNumber = 1'000'000'000;
constexpr int64_t kMaxAttempts = 100;

struct Key {
  std::string_view name;
  int64_t WorkflowLimits::*value;
  int64_t least, most;
};
constexpr Key kKeys[] = {
    {"min-workers", &WorkflowLimits::min_workers, 0, kMaxNumber},
    {"max-workers", &WorkflowLimits::max_workers, 0, kMaxNumber},
    {"batch-size", &WorkflowLimits::batch_size, 1, kMaxNumber},
    {"max-batch-delay", &WorkflowLimits::max_batch_delay_ms, 0, kMaxNumber},
    {"retry-attempts", &WorkflowLimits::retry_attempts, 1, kMaxAttempts},
    {"timeout-ms", &WorkflowLimits::timeout_ms, 1, kMaxNumber},
};

std::string Shown(std::string_view text) {
  return "'" + Shortened(text, kMaxNameBytes) + "'";
}

Status Wrong(const std::string& what) {
  return InvalidArgument("Invalid workflow specification: " + what)
      .Because("invalid_workflow");
}
Status WrongDag(const std::string& what) {
  return InvalidArgument(what).Because("invalid_dag");
}

// Of a workflow, a node, a file: a part of paths and of models' names.
bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && name != "." &&
         name != ".." && std::none_of(name.begin(), name.end(), [](char c) {
           return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20;
         });
}

StatusOr<std::string> ManifestText(const Json& workflow, const char* key,
                                   bool may_be_absent) {
  const auto at = workflow.find(key);
  const bool absent = at == workflow.end() || at->is_null() ||
                      (at->is_string() && at->get<std::string>().empty());
  if (absent && may_be_absent) return std::string();
  if (!absent && at->is_string() && IsName(at->get<std::string>())) {
    return at->get<std::string>();
  }
  return InvalidArgument(
             "the manifest's workflow." + std::string(key) +
             (absent ? " is not defined" : " is " + Shown(DumpJson(*at))) +
             "; expected a name of 1 to " + std::to_string(kMaxNameBytes) +
             " characters without a folder")
      .Because("invalid_workflow");
}

// True: it is one of the numbers.
StatusOr<bool> ReadNumber(const std::string& key, const YAML::Node& value,
                          const std::string& where, WorkflowLimits& limits) {
  const auto at =
      std::find_if(std::begin(kKeys), std::end(kKeys),
                   [&](const Key& each) { return each.name == key; });
  if (at == std::end(kKeys)) return false;
  const std::string text = value.IsScalar() ? value.Scalar() : "";
  int64_t number = 0;
  const auto [end, ec] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc() || end != text.data() + text.size() ||
      number < at->least || number > at->most) {
    return Wrong(where + key + " is " + Shown(text) +
                 "; expected a whole number from " + std::to_string(at->least) +
                 " to " + std::to_string(at->most));
  }
  limits.*(at->value) = number;
  return true;
}

class SpecReader {
 public:
  StatusOr<WorkflowSpec> Read(const YAML::Node& document) {
    if (!document.IsMap()) return Wrong("it has no keys 'models' and 'dag'");
    // Looked up before anything else is read: order means nothing in YAML.
    const YAML::Node models = document["models"];
    const YAML::Node dag = document["dag"];
    if (models.IsDefined() && !models.IsNull()) {
      RETURN_IF_ERROR(ReadModels(models));
    }
    if (!dag.IsDefined() || !dag.IsMap() || dag.size() == 0) {
      return Wrong("'dag' must say which node follows which");
    }
    RETURN_IF_ERROR(ReadDag(dag));
    return InOrder();
  }

 private:
  struct Model {
    std::string url;
    WorkflowLimits limits;
  };

  Status ReadModels(const YAML::Node& models) {
    if (!models.IsMap()) return Wrong("'models' must be a map of models");
    for (const auto& entry : models) {  // of all models, wherever they stand
      if (entry.second.IsMap()) continue;
      const std::string key = entry.first.as<std::string>();
      ASSIGN_OR_RETURN(const bool known,
                       ReadNumber(key, entry.second, "models.", spec_.limits));
      if (!known) {
        return Wrong("models." + Shortened(key, kMaxNameBytes) +
                     " is neither a model with its url nor a known number");
      }
    }
    for (const auto& entry : models) {
      if (!entry.second.IsMap()) continue;
      RETURN_IF_ERROR(ReadModel(entry.first.as<std::string>(), entry.second));
    }
    return OkStatus();
  }

  Status ReadModel(const std::string& name, const YAML::Node& fields) {
    RETURN_IF_ERROR(CheckNode(name));
    if (models_.size() == kMaxWorkflowNodes) return TooMany();
    const auto [at, is_new] =
        models_.emplace(name, Model{.url = {}, .limits = spec_.limits});
    if (!is_new) return Wrong("models has " + Shown(name) + " twice");
    const std::string where = "models." + name + ".";
    for (const auto& field : fields) {
      const std::string key = field.first.as<std::string>();
      if (key == "url" && field.second.IsScalar()) {
        at->second.url = field.second.Scalar();
        continue;
      }
      ASSIGN_OR_RETURN(const bool known,
                       ReadNumber(key, field.second, where, at->second.limits));
      if (!known) {
        return Wrong(where + Shortened(key, kMaxNameBytes) +
                     " is no key of a model; url and numbers such as "
                     "min-workers are");
      }
    }
    if (!at->second.url.empty()) return OkStatus();
    return Wrong(where + "url must name the model's archive");
  }

  static Status CheckNode(const std::string& name) {
    if (IsName(name)) return OkStatus();
    return Wrong("the node " + Shown(name) + " must have a name of 1 to " +
                 std::to_string(kMaxNameBytes) + " characters without slashes");
  }

  static Status TooMany() {
    return Wrong("it has more than " + std::to_string(kMaxWorkflowNodes) +
                 " nodes or " + std::to_string(kMaxWorkflowEdges) +
                 " edges, which are the limits");
  }

  StatusOr<size_t> NodeOf(const std::string& name) {
    const auto known = index_.find(name);
    if (known != index_.end()) return known->second;
    RETURN_IF_ERROR(CheckNode(name));
    if (nodes_.size() == kMaxWorkflowNodes) return TooMany();
    WorkflowNode node{.name = name, .url = {}, .limits = spec_.limits};
    if (const auto model = models_.find(name); model != models_.end()) {
      node.url = model->second.url;
      node.limits = model->second.limits;
    }
    index_.emplace(name, nodes_.size());
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
  }

  Status ReadDag(const YAML::Node& dag) {
    Json written = Json::object();
    std::set<std::string> froms;
    for (const auto& entry : dag) {
      const std::string from_name = entry.first.as<std::string>();
      ASSIGN_OR_RETURN(const size_t from, NodeOf(from_name));
      if (!froms.insert(from_name).second) {
        return Wrong("dag has " + Shown(from_name) + " twice");
      }
      if (!entry.second.IsSequence()) {
        return Wrong("dag." + from_name + " must be a list of nodes");
      }
      written[from_name] = Json::array();
      for (const YAML::Node& each : entry.second) {
        if (each.IsNull()) continue;
        const std::string to_name = each.as<std::string>();
        if (to_name.find_first_not_of(' ') == std::string::npos) continue;
        ASSIGN_OR_RETURN(const size_t to, NodeOf(to_name));
        if (from == to) {
          return WrongDag("Self loop exception: the node " + Shown(to_name) +
                          " follows itself");
        }
        auto& outputs = nodes_[from].outputs;
        if (std::find(outputs.begin(), outputs.end(), to) != outputs.end()) {
          continue;
        }
        if (++num_edges_ > kMaxWorkflowEdges) return TooMany();
        outputs.push_back(to);
        nodes_[to].inputs.push_back(from);
        written[from_name].push_back(to_name);
      }
    }
    spec_.dag = DumpJson(written);
    return OkStatus();
  }

  // Kahn's algorithm; nodes that are ready keep their order.
  StatusOr<WorkflowSpec> InOrder() {
    std::vector<size_t> order, missing(nodes_.size());
    for (size_t i = 0; i < nodes_.size(); ++i) {
      missing[i] = nodes_[i].inputs.size();
      if (missing[i] == 0) order.push_back(i);
    }
    const size_t num_starts = order.size();
    for (size_t next = 0; next < order.size(); ++next) {
      for (const size_t to : nodes_[order[next]].outputs) {
        if (--missing[to] == 0) order.push_back(to);
      }
    }
    if (order.size() < nodes_.size()) {
      const auto stuck = std::find_if(missing.begin(), missing.end(),
                                      [](size_t n) { return n > 0; });
      const size_t node = static_cast<size_t>(stuck - missing.begin());
      return WrongDag("Not a valid DAG: there is a cycle that " +
                      Shown(nodes_[node].name) + " waits for");
    }
    if (num_starts != 1) {
      return WrongDag("DAG should have only one start node, and has " +
                      std::to_string(num_starts));
    }
    std::vector<size_t> place(nodes_.size());
    for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
    for (const size_t from : order) {
      WorkflowNode node = std::move(nodes_[from]);
      for (size_t& each : node.inputs) each = place[each];
      for (size_t& each : node.outputs) each = place[each];
      spec_.nodes.push_back(std::move(node));
    }
    return std::move(spec_);
  }

  WorkflowSpec spec_;
  std::map<std::string, Model> models_;
  std::map<std::string, size_t> index_;
  std::vector<WorkflowNode> nodes_;  // as they are met
  size_t num_edges_ = 0;
};

}  // namespace

StatusOr<WorkflowManifest> ParseWorkflowManifest(std::string_view json) {
  ASSIGN_OR_RETURN(const Json document, ParseJson(json, {.max_depth = 16}));
  const auto at =
      document.is_object() ? document.find("workflow") : document.end();
  if (!document.is_object() || at == document.end() || !at->is_object()) {
    return InvalidArgument("Missing Workflow entry in manifest file.")
        .Because("invalid_workflow");
  }
  WorkflowManifest manifest;
  ASSIGN_OR_RETURN(manifest.name, ManifestText(*at, "workflowName", false));
  ASSIGN_OR_RETURN(manifest.spec_file, ManifestText(*at, "specFile", false));
  ASSIGN_OR_RETURN(manifest.handler, ManifestText(*at, "handler", true));
  return manifest;
}

StatusOr<WorkflowSpec> ParseWorkflowSpec(const std::string& yaml) {
  try {
    return SpecReader().Read(config::LoadYaml(yaml));
  } catch (const YAML::Exception& error) {
    return Wrong(std::string("the YAML is broken: ") + error.what());
  }
}

}  // namespace millrace::server::torchserve

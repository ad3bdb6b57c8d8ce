// What the repository asks of the world around it: which models exist and which
// of their versions are wanted (ModelSource), and how one of those becomes a
// servable (ModelLoader). Tests fake both.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "config/schema.h"
#include "config/traffic_settings.h"
#include "server/lifecycle/servable.h"

namespace millrace::server {

// A version that shall be served, and how.
struct VersionPlan {
  std::string version;
  config::ModelSettings settings;  // name and path included
  std::string config = {};         // the model's configuration as JSON
  // Changes when the files or the settings do: an equal one is not loaded
  // again. Labels and the number of instances are not part of it: those change
  // while the version serves. Empty: always loaded.
  std::string stamp = {};
  std::vector<std::string> labels = {};  // names that requests may call it by
  // Of the model: how its versions share requests; null: the highest serves.
  // Not part of the stamp either.
  std::shared_ptr<const config::TrafficSettings> traffic = {};
};

// A LoRA adapter, served as a model of its own name.
struct AdapterPlan {
  std::string name;
  std::string path;
  std::string base = {};  // empty: the only language model
  bool in_place = false;  // one of this name gives way
};

class ModelSource {
 public:
  virtual ~ModelSource() = default;
  // Every model there is, loaded or not; an error when that is not known.
  virtual StatusOr<std::vector<std::string>> Names() = 0;
  // The wanted versions of a model, at least one. `config` in JSON replaces the
  // model's own configuration; empty: none. NOT_FOUND when there is no such
  // model, INVALID_ARGUMENT when its configuration or folder is wrong.
  virtual StatusOr<std::vector<VersionPlan>> Find(
      const std::string& name, const std::string& config) = 0;
  // Whether versions go on serving that are wanted no more while a wanted one
  // cannot be loaded.
  virtual bool VersionsReplaceEachOther() const { return true; }
};

class ModelLoader {
 public:
  virtual ~ModelLoader() = default;
  // Loads and warms; blocks as long as that takes. Repository's thread only,
  // one at a time.
  virtual StatusOr<std::shared_ptr<Servable>> Load(const VersionPlan& plan) = 0;
  // A LoRA adapter of a model that Load made; the same thread.
  virtual StatusOr<std::shared_ptr<Servable>> LoadAdapter(
      std::shared_ptr<Servable> base, const AdapterPlan& plan) {
    return InvalidArgument("the model '" + base->id() +
                           "' takes no adapters, such as '" + plan.name + "'");
  }
};

}  // namespace millrace::server

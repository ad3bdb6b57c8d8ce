// From settings to a language model that serves; the one place that knows how
// it is put together. Graphs: load_graph.h.
#pragma once

#include <functional>
#include <memory>

#include "config/base/status.h"
#include "config/schema.h"
#include "config/shadow_settings.h"
#include "config/topology.h"
#include "server/lifecycle/load.h"
#include "server/lifecycle/servable.h"

namespace millrace::server {

// On the CPUs `leased`. `shadow`: null: its completions have none. `progress`
// hears 0…1 on the calling thread. Errors may leave the file unnamed.
StatusOr<std::shared_ptr<Servable>> LoadLanguageModel(
    ModelFacts facts, const config::ModelSettings& settings,
    const config::CpuSet& leased, const LoaderParts& common,
    const std::shared_ptr<const config::ShadowSettings>& shadow,
    std::function<void(double)> progress);

}  // namespace millrace::server

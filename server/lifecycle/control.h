// What REST and gRPC share of the extensions that manage models: which
// parameters loads and unloads know, and whose statistics are asked for.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "server/lifecycle/repository.h"
#include "server/lifecycle/statistics.h"

namespace millrace::server {

// UNIMPLEMENTED for "file:…", whose place is the repository's folder;
// INVALID_ARGUMENT for a name that is not known.
Status CheckLoadParameter(const std::string& name);
Status CheckUnloadParameter(const std::string& name);

// Takes the model out and, `with_members`, the models that it is made of.
void RequestUnload(Repository* repository, const std::string& name,
                   bool with_members, Repository::Done done);

using CountedModel = std::pair<std::shared_ptr<Servable>, ModelStatistics>;

// Of one version, of all versions of a model, or of all models, as far as the
// names are given. NOT_FOUND; INVALID_ARGUMENT for a model that generates text,
// which has none.
StatusOr<std::vector<CountedModel>> CollectStatistics(
    const Repository& repository, std::string_view name,
    std::string_view version);

}  // namespace millrace::server

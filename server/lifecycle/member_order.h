// In which order the models of a repository are loaded.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace millrace::server {

// The same names, each behind those of its steps that are among them. `names`
// are sorted; `steps_of` gives the models of an ensemble and none for another
// model. Ensembles in a cycle come in the order of their names: their load
// refuses them.
std::vector<std::string> MembersFirst(
    std::vector<std::string> names,
    const std::function<std::vector<std::string>(const std::string&)>&
        steps_of);

}  // namespace millrace::server

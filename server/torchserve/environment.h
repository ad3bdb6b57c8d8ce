// Variables of the environment in properties: "$$HOME$$" in a value, and
// TS_MODEL_STORE in place of model_store.
//
// Pure functions but for what `getenv` does.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "config/base/status.h"
#include "server/torchserve/properties.h"

namespace millrace::server::torchserve {

// None: the variable is not set.
using GetVariable =
    std::function<std::optional<std::string>(const std::string& name)>;

// "$$NAME$$" in a value becomes that variable. INVALID_ARGUMENT: it is not set.
Status PutNamedVariables(const GetVariable& getenv, Properties& properties);

// TS_KEY, in capitals, of each key that is set becomes its value.
void PutVariables(const GetVariable& getenv,
                  std::span<const std::string_view> keys,
                  Properties& properties);

}  // namespace millrace::server::torchserve

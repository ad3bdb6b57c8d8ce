// A JSON Schema as a grammar of values that are not written as JSON: the
// arguments of calls as models of the Llama and Gemma families write them.
//
//   ASSIGN_OR_RETURN(std::string ebnf, ArgumentsEbnf(normal, "pythonic"));
//
//   notation  arguments of {"city": "Paris", "days": 3}   between brackets of
//   pythonic  city="Paris", days=3                        f(...)
//   gemma     city:<escape>Paris<escape>,days:3           call:f{...}
//   gemma4    city:<|"|>Paris<|"|>,days:3                 call:f{...}
//
// Every text that the grammar takes means a value that fits the schema; it
// takes fewer. Properties come in the order of the schema, free names only
// where the schema names none, numbers without exponents and with at most 18
// digits on each side of the point, strings without control characters, those
// of Gemma without the tags that end a string or a call, those of bounded
// length without '<'.
//
// Held: type, enum, const, anyOf (also what NormalSchema makes of allOf and
// oneOf), $ref, properties, required, additionalProperties, items, prefixItems,
// minItems, maxItems, minLength, maxLength, and the bounds of integers.
// Refused by name: pattern, format, patternProperties, propertyNames,
// minProperties and maxProperties that say more than `required` does,
// multipleOf, and bounds of numbers that may have fractions.
//
// Pure.
#pragma once

#include <string>
#include <string_view>

#include "config/base/status.h"

namespace millrace::models {

bool IsNotation(std::string_view name);

// `schema` as NormalSchema writes it, of objects, in the words of xgrammar.
// INVALID_ARGUMENT names the keyword and its place. The notation is one of
// those above.
StatusOr<std::string> ArgumentsEbnf(std::string_view schema,
                                    std::string_view notation);

}  // namespace millrace::models

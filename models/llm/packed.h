// The packed form of a model: weights as a backend lays them out in memory, so
// that a start copies them instead of re-laying them. The file is a GGUF with
// the model's own keys (under their GGUF names, whatever it came from), its
// vectors and biases, one tensor of packed bytes, and these keys:
//
//   millrace.packed.version        1
//   millrace.packed.layout         Backend::PackedLayout() of the writer
//   millrace.packed.qk_as_trained  ModelSource::as_trained
//   millrace.packed.eog_ids        ids that end an answer
//   millrace.packed.splits, .drop_gaps, .whole_pieces_first, .nfc
//                                  how text is cut, where no name says it
//   millrace.packed.temperature, .top_k, .top_p, .min_p, .repetition_penalty
//                                  what requests get that leave them out
//   millrace.packed.names, .types, .dims   the matrices: name, number of the
//                                  GGUF type, two dims each
//
// A file serves machines whose kernel tables read the same packing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "models/files/gguf.h"
#include "models/llm/backend.h"
#include "models/llm/source.h"

namespace millrace::models {

inline constexpr std::string_view kPackedWeights = "millrace.packed.weights";

// What is special about a packed file; views into it.
struct PackedForm {
  PackedWeights weights;
  bool as_trained = false;
  std::vector<FileTensor> matrices;  // without data
};

// Nothing when the file is an ordinary one; INVALID_ARGUMENT when its packed
// part contradicts itself, UNIMPLEMENTED for a version of another time.
StatusOr<std::optional<PackedForm>> ReadPackedForm(const GgufFile& file);

// Writes the model with the weights that the backend has packed. UNIMPLEMENTED
// for a model of vectors of texts that keys of a GGUF cannot describe.
Status WritePacked(const ModelSource& source, const Backend& backend,
                   const std::string& path);

}  // namespace millrace::models

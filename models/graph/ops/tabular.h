// Operators of tables and strings, one group a file: the part of the table in
// op_groups.h that scikit-learn's models need.
#pragma once

#include <span>

#include "models/graph/op.h"

namespace millrace::models::graph {

std::span<const OpDef> ScoreOps();          // scores.cc: ml.Trees, ml.Classify
std::span<const OpDef> SupportVectorOps();  // support_vectors.cc
std::span<const OpDef> LabelOps();          // labels.cc: ml.Labels, ml.OneHot
std::span<const OpDef> StringOps();         // strings.cc: StringConcat, …
std::span<const OpDef> TextOps();           // tfidf.cc: TfIdfVectorizer

inline constexpr std::span<const OpDef> (*kTabularGroups[])() = {
    ScoreOps, SupportVectorOps, LabelOps, StringOps, TextOps,
};

}  // namespace millrace::models::graph

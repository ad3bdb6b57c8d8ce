// A profile as a picture: the steps of a plan as boxes, layer under layer, and
// what flows between them.
#pragma once

#include <string>

#include "server/cli/profile_report.h"

namespace millrace::server {

// For Graphviz (dot -Tsvg); the more of the time a step takes, the redder it
// is.
std::string PictureDot(const Profile& profile);

// The same as a drawing that every browser shows (SVG 1.1), laid out here.
// Source of the method: Sugiyama, Tagawa and Toda, "Methods for visual
// understanding of hierarchical system structures", 1981: layers, bends where
// an edge passes a layer, order by the mean of neighbours, then places.
std::string PictureSvg(const Profile& profile);

}  // namespace millrace::server

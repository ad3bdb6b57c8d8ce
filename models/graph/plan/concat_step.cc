// Concats of which some parts lie in their place already: the others are copied
// there.
#include <cstring>
#include <string>
#include <vector>

#include "models/graph/plan/joined.h"
#include "models/graph/plan/makers.h"

namespace millrace::models::graph {
namespace {

class ConcatStep : public Step {
 public:
  ConcatStep(const Node& node, const LowerContext& context)
      : y_(context.slot(node.outputs[0])), text_("Concat") {
    const std::vector<Place> wanted =
        WantedPlaces(node, context.graph, context.places);
    const Place& y = context.place(node.outputs[0]);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (LiesAt(id, wanted[i], context.graph, context.places)) continue;
      const ValueType& type = context.type(id);
      const int64_t bytes = DTypeBytes(type.dtype);
      Piece piece{.from = context.slot(id),
                  .rows = type.shape.Product(0, type.shape.rank() - 1),
                  .row_bytes = type.shape.back() * bytes,
                  .from_step = context.place(id).distance * bytes,
                  .to = (wanted[i].offset - y.offset) * bytes,
                  .to_step = wanted[i].distance * bytes};
      if (piece.from_step == piece.row_bytes &&
          piece.to_step == piece.row_bytes) {
        piece.row_bytes *= piece.rows;
        piece.rows = 1;
      }
      pieces_.push_back(piece);
      text_ += " " + TypeText(type.dtype, type.shape);
    }
    const ValueType& out = context.type(node.outputs[0]);
    text_ += " -> " + TypeText(out.dtype, out.shape);
  }

  Status Run(const Slots& slots, const Team& team) const override {
    for (const Piece& piece : pieces_) {
      const std::byte* from = slots.at[piece.from];
      std::byte* to = slots.at[y_] + piece.to;
      if (piece.rows == 1) {
        const auto [begin, end] = team.Share(piece.row_bytes, 64);
        std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
        continue;
      }
      const auto [begin, end] = team.Share(piece.rows);
      for (int64_t row = begin; row < end; ++row) {
        std::memcpy(to + row * piece.to_step, from + row * piece.from_step,
                    static_cast<size_t>(piece.row_bytes));
      }
    }
    return OkStatus();
  }

  std::string Text() const override { return text_; }

 private:
  struct Piece {
    Slot from;
    int64_t rows;
    int64_t row_bytes;
    int64_t from_step;
    int64_t to;  // from where the result begins
    int64_t to_step;
  };

  const Slot y_;
  std::vector<Piece> pieces_;
  std::string text_;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeConcatStep(const Node& node,
                                               const LowerContext& context) {
  // Of what lies apart, and of what does not lie in rows, the plain function.
  if (WantedPlaces(node, context.graph, context.places).empty()) {
    return std::unique_ptr<Step>();
  }
  return std::unique_ptr<Step>(std::make_unique<ConcatStep>(node, context));
}

}  // namespace millrace::models::graph

// When an operator keeps the rows of a batch apart, for the rows of the table
// (OpFacts::keeps_rows). Some operands have rows when a rule is asked.
#pragma once

#include "models/graph/row_view.h"

namespace millrace::models::graph::rows {

// Elementwise with broadcasting: each operand has rows or is the same for all.
bool ElementByElement(const RowView& node);
// Operand 0 has rows; what the others have does not matter.
bool FirstHasRows(const RowView& node);
// Operand 0 alone has rows.
bool OnlyFirst(const RowView& node);
// The same, and `axis` (-1 by default) is not the first.
bool AxisBehindRows(const RowView& node);
// QuantizeLinear, DequantizeLinear: one scale for all.
bool OneScale(const RowView& node);
// MatMul of two stacks of as many matrices.
bool StackedProduct(const RowView& node);
bool Permuted(const RowView& node);  // Transpose
bool Joined(const RowView& node);    // Concat
bool Parted(const RowView& node);    // Split
bool Padded(const RowView& node);    // Pad
bool Sliced(const RowView& node);    // Slice
bool Reduced(const RowView& node);   // Reduce…
bool Expanded(const RowView& node);  // Expand
// Gather from rows behind the first axis, or by indices that have rows.
bool Gathered(const RowView& node);
// GatherND, Index: every row is taken from itself, and the results stand in the
// order of rows. Index also of axes behind the rows alone.
bool IndexedByRow(const RowView& node);

}  // namespace millrace::models::graph::rows

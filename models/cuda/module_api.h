// What libmillrace_cuda.so gives a program that opens it: one C function that
// returns this table. Memory, transfers and kernels, and nothing of models.
//
//   const auto entry = (cuda::ModuleEntry)dlsym(so, cuda::kModuleEntryName);
//   const cuda::Module* module = entry(cuda::kModuleVersion);  // null: another
//   cuda::Device device;
//   const cuda::Outcome opened = module->open(0, &device);
//
// A device is used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cuda/blas_kernels.h"
#include "models/cuda/drawn_kernels.h"
#include "models/cuda/graph_byte_kernels.h"
#include "models/cuda/graph_kernels.h"
#include "models/cuda/kernels.h"
#include "models/cuda/lora_kernels.h"

namespace millrace::cuda {

inline constexpr uint32_t kModuleVersion = 14;
inline constexpr char kModuleFile[] = "libmillrace_cuda.so";
inline constexpr char kModuleEntryName[] = "millrace_cuda_module";

enum class Outcome : int32_t {
  kFine,
  kNoDriver,
  kDriverTooOld,
  kNoDevice,      // there is none at all
  kNoSuchDevice,  // none with this number
  kDeviceTooOld,
  kNoMemory,
  kFault,  // text says what
  kNotYet,
  kLost,  // a fault that each later call of this process meets; text says what
};

struct Device {
  Stream stream = nullptr;
  int32_t ordinal = 0;
  int32_t count = 0;  // of devices
  int32_t major = 0;  // compute capability
  int32_t minor = 0;
  int32_t multiprocessors = 0;
  int32_t driver_version = 0;  // 1000 * major + 10 * minor, of CUDA
  int32_t needed_version = 0;
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
  char name[256] = {};
  char text[256] = {};  // of a fault
};

// The oldest GPU that kernels are built for: Ampere.
inline constexpr int32_t kOldestMajor = 8;

using Graph = void*;
using Event = void*;

struct Module {
  uint32_t version;

  Outcome (*open)(int32_t ordinal, Device* device);
  void (*close)(Device* device);
  // Zeroed. kNoMemory or kFault.
  Outcome (*allocate)(Device* device, int64_t bytes, void** memory);
  void (*release)(Device* device, void* memory);
  // Memory of the host that transfers run from without a copy.
  Outcome (*allocate_host)(Device* device, int64_t bytes, void** memory);
  void (*release_host)(Device* device, void* memory);
  // Asynchronous on the device's stream. The first call of a step also makes
  // the device the calling thread's.
  Outcome (*upload)(Device* device, void* to, const void* from, int64_t bytes);
  Outcome (*download)(Device* device, void* to, const void* from,
                      int64_t bytes);
  // All that was asked for has run; tells the first fault of it.
  Outcome (*wait)(Device* device);
  // Does not wait: kFine where all that was asked for has run, or kNotYet.
  Outcome (*ask)(Device* device);
  // Makes the device the calling thread's, for libraries that take it from
  // there.
  Outcome (*make_current)(Device* device);
  // What is asked for between the two is kept as a graph (CUDA graphs) instead
  // of run; nothing may be allocated or waited for there. A graph runs on the
  // device's stream, with the pointers it was made with.
  Outcome (*begin_capture)(Device* device);
  Outcome (*end_capture)(Device* device, Graph* graph);
  Outcome (*run_graph)(Device* device, Graph graph);
  void (*release_graph)(Device* device, Graph graph);
  // Marks on the device's stream (CUDA events). Recorded again, an event stands
  // at its new place; captured, it stands where each run of the graph set it.
  Outcome (*create_event)(Device* device, Event* event);
  Outcome (*record_event)(Device* device, Event event);
  // From one mark to another, once the stream has passed both.
  Outcome (*elapsed)(Device* device, Event from, Event to, double* seconds);
  // The stream has passed the mark where it was recorded last; not for events
  // within graphs. Tells the first fault of what was asked for.
  Outcome (*await_event)(Device* device, Event event);
  void (*release_event)(Device* device, Event event);
  // The text of a number that a kernel's launch returned, and whether it is
  // that of a device which is lost (kLost).
  const char* (*error_text)(int error);
  bool (*is_lost)(int error);

  int (*take_drawn)(Stream, const TakeDrawnArgs&);
  int (*embed)(Stream, const EmbedArgs&);
  int (*norm_rows)(Stream, const NormArgs&);
  int (*round_rows)(Stream, const RoundArgs&);
  int (*multiply_rows)(Stream, const LinearArgs&);
  int (*multiply_on_tensors)(Stream, const LinearArgs&);
  int (*multiply_int8)(Stream, const LinearArgs&);
  int (*finish_product)(Stream, const FinishProductArgs&);
  int (*compare_rows)(Stream, const CompareRowsArgs&);
  int (*add_lora)(Stream, const LoraArgs&);
  int (*route_rows)(Stream, const RouteArgs&);
  int (*order_uses)(Stream, const OrderUsesArgs&);
  int (*combine_experts)(Stream, const CombineArgs&);
  int (*rope_write_kv)(Stream, const RopeArgs&);
  int (*attend)(Stream, const AttendArgs&);
  int (*activate)(Stream, const ActivateArgs&);
  int (*gather_rows)(Stream, const GatherArgs&);
  int (*add_rows)(Stream, const AddRowsArgs&);
  int (*copy_pages)(Stream, const CopyPagesArgs&);
  int (*finish_logits)(Stream, const HeadArgs&);
  int (*draw_tokens)(Stream, const DrawArgs&);
  int (*read_bytes)(Stream, const PeakArgs&);
  int (*multiply_fragments)(Stream, const PeakArgs&);

  int (*graph_pointwise)(Stream, const PointwiseArgs&);
  int (*graph_product)(Stream, const ProductArgs&);
  int (*graph_conv)(Stream, const GraphConvArgs&);
  int (*graph_join_pieces)(Stream, const JoinPiecesArgs&);
  int (*graph_pool)(Stream, const GraphPoolArgs&);
  int (*graph_softmax)(Stream, const SoftmaxArgs&);
  int (*graph_normalize)(Stream, const NormalizeArgs&);
  int (*graph_reduce)(Stream, const ReduceArgs&);
  int (*graph_attention)(Stream, const GraphAttentionArgs&);
  int (*graph_gather)(Stream, const GatherSlicesArgs&);
  int (*graph_check_indices)(Stream, const CheckIndicesArgs&);
  int (*graph_copy_strided)(Stream, const CopyStridedArgs&);
  int (*graph_cast)(Stream, const CastArgs&);
  int (*graph_byte_layer)(Stream, const GraphByteLayerArgs&);
  int (*graph_byte_depthwise)(Stream, const GraphByteLayerArgs&);
  int (*graph_byte_max_pool)(Stream, const GraphBytePoolArgs&);
  int (*graph_byte_mean)(Stream, const GraphByteMeanArgs&);
  int (*graph_quantize)(Stream, const GraphQuantizeArgs&);
  int (*graph_measure)(Stream, const GraphMeasureArgs&);
  int (*graph_dequantize)(Stream, const GraphDequantizeArgs&);
  int (*graph_lookup)(Stream, const GraphLookupArgs&);
};

using ModuleEntry = const Module* (*)(uint32_t version);

// The part of the table that is the same with every way to compile kernels.
inline void SetKernels(Module& table) {
  table.take_drawn = TakeDrawn;
  table.embed = Embed;
  table.norm_rows = NormRows;
  table.round_rows = RoundRows;
  table.multiply_rows = MultiplyRows;
  table.multiply_on_tensors = MultiplyOnTensors;
  table.multiply_int8 = MultiplyInt8;
  table.finish_product = FinishProduct;
  table.compare_rows = CompareRows;
  table.add_lora = AddLora;
  table.route_rows = RouteRows;
  table.order_uses = OrderUses;
  table.combine_experts = CombineExperts;
  table.rope_write_kv = RopeWriteKv;
  table.attend = Attend;
  table.activate = Activate;
  table.gather_rows = GatherRows;
  table.add_rows = AddRows;
  table.copy_pages = CopyPages;
  table.finish_logits = FinishLogits;
  table.draw_tokens = DrawTokens;
  table.read_bytes = ReadBytes;
  table.multiply_fragments = MultiplyFragments;
  table.graph_pointwise = GraphPointwise;
  table.graph_product = GraphProduct;
  table.graph_conv = GraphConv;
  table.graph_join_pieces = GraphJoinPieces;
  table.graph_pool = GraphPool;
  table.graph_softmax = GraphSoftmax;
  table.graph_normalize = GraphNormalize;
  table.graph_reduce = GraphReduce;
  table.graph_attention = GraphAttention;
  table.graph_gather = GraphGather;
  table.graph_check_indices = GraphCheckIndices;
  table.graph_copy_strided = GraphCopyStrided;
  table.graph_cast = GraphCast;
  table.graph_byte_layer = GraphByteLayer;
  table.graph_byte_depthwise = GraphByteDepthwise;
  table.graph_byte_max_pool = GraphByteMaxPool;
  table.graph_byte_mean = GraphByteMean;
  table.graph_quantize = GraphQuantize;
  table.graph_measure = GraphMeasure;
  table.graph_dequantize = GraphDequantize;
  table.graph_lookup = GraphLookup;
}

}  // namespace millrace::cuda

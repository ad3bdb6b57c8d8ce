// Backend on a GPU: a recipe's phases become a list of kernel launches that one
// stream runs in order. Weights keep the bits of their file's type, in the
// layout that the kernels read; activations are f32, keys and values f16, int8
// or f32.
//
// Two steps may be in flight. What they have on the host is there twice; on the
// device they run one after the other, in the same memory.
//
// Until Bind all is on the host: weights are packed there, and the copy goes
// once they are uploaded. Nothing here needs CUDA to compile: kernels are
// reached through the module's table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/cuda/module_api.h"
#include "models/gpu/blas_products.h"
#include "models/gpu/cuda_context.h"
#include "models/gpu/stream_timer.h"
#include "models/llm/backend.h"
#include "models/llm/cuda/cuda_lora.h"
#include "models/llm/cuda/lora_step.h"
#include "models/llm/cuda/nccl_group.h"
#include "models/llm/cuda/phase_clock.h"
#include "models/llm/cuda/step_graphs.h"
#include "models/llm/cuda/step_message.h"
#include "models/llm/lora.h"
#include "models/llm/step.h"
#include "models/llm/step_account.h"

namespace millrace::models {

// What products of activations are computed in; compute_dtype. kAuto: rows of
// prompts in f16 (weights in BF16: bf16) on tensor cores, others in int8 where
// weights are quantised, else in f32. kInt8: as kAuto, but rows of prompts in
// int8, too, where weights are quantised. In f32 always: weights in F32,
// routers, and what would be int8 where rounding twice is asked for (f32 is as
// good).
enum class CudaCompute { kAuto, kInt8, kF32 };

struct CudaBackendOptions {
  BackendShape shape;
  StepLimits limits;
  std::shared_ptr<CudaContext> context;
  std::shared_ptr<NcclGroup> gpus;  // null: this one computes all
  // For rows of prompts by weights in F16 or BF16; null: kernels do those, too.
  std::shared_ptr<BlasProducts> blas;
  cuda::KvFormat kv_format = cuda::KvFormat::kF16;
  CudaCompute compute = CudaCompute::kAuto;
  bool graphs = true;   // CUDA graphs of steps that draw in each row
  bool ahead = true;    // two steps may be in flight
  int32_t threads = 1;  // that pack weights
};

int64_t CudaPageBytes(const BackendShape& shape, cuda::KvFormat format);

// Of a row that leaves: its logits, or the row itself.
inline int64_t LogitsWidth(const BackendShape& shape) {
  return shape.hidden_rows ? shape.hidden : shape.vocab;
}

// What the buffers of a step take at most, estimated from shapes.
int64_t CudaStepBytes(const BackendShape& shape, const StepLimits& limits);
// What products of prompts by cuBLASLt take beside them.
int64_t CudaBlasBytes(const BackendShape& shape, const StepLimits& limits);
// Of a step, A x of rows with adapters.
int64_t CudaLoraBytes(const BackendShape& shape, const StepLimits& limits);

cuda::RowFunction RowFunctionOf(Activation activation);

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaBackendOptions& options);
  ~CudaBackend() override;

  Status PackWeights(const std::function<void(double)>& progress) override;
  int64_t weight_bytes() const override { return weight_bytes_; }
  std::string PackedLayout() const override;
  // Empty once bound.
  std::span<const std::byte> packed_weights() const override { return packed_; }
  Status TakePacked(std::span<const std::byte> bytes,
                    const std::function<void(double)>& progress) override;

  // Whether rows of prompts are computed in another way than others.
  bool HasRoles() const;
  // Ends recording: memory on the device for weights, pages and activations.
  // UNIMPLEMENTED names what no kernel does; RESOURCE_EXHAUSTED what did not
  // fit.
  Status Bind(int32_t num_pages);

  // ---- run; one thread ----
  // Sequences of the slot have it from the next step on; null: none. It lives
  // as long as steps name the slot.
  void SetAdapter(int32_t slot,
                  const std::shared_ptr<const LoraAdapter>& adapter);
  // Of the step that ended last, whose batch it was.
  StepAccount Account(const StepBatch& batch) const;
  // Reads weights and multiplies for some milliseconds, between steps.
  StatusOr<RunnerRoofline> MeasureRoofline();
  std::string device() const {  // "cuda:0"
    return "cuda:" + std::to_string(context_->device().ordinal);
  }
  // Of the GPUs that compute a step together. Only rank 0 has logits and ids.
  int32_t rank() const { return gpus_ == nullptr ? 0 : gpus_->rank(); }
  // Starts all phases of a step; returns before they have run. `draws`: of each
  // sample, whose logits are overwritten then; empty: all take the greatest.
  // Tokens may be DrawnBy the step launched before.
  Status Launch(const StepBatch& batch,
                std::span<const cuda::DrawRow> draws = {});
  // Starts the copying of logits of the step launched last, of all samples.
  Status DownloadLogits();
  // One step is in flight, and another one may be launched before it has ended
  // if no logits of it are downloaded.
  bool MayLaunchAhead() const;
  // Ends the step in flight, the older one of two. The ids are those of the
  // greatest logits, or drawn.
  Status Wait();
  // From the next step on; see Runner. Its steps are no graphs.
  void TraceSteps(StepTrace* trace) { trace_ = trace; }
  std::span<const int32_t> ids() const;
  // Of one sample, LogitsWidth of them, once downloaded; may be written.
  std::span<float> logits(int32_t sample);

 private:
  class CudaLinear;
  // What a step that was launched leaves until it has ended.
  struct Launched {
    explicit Launched(CudaContext& context) : timer(context) {}

    CudaBuffer message, adapter_message, ids;  // on the host, for transfers
    std::vector<std::shared_ptr<const LoraAdapter>> adapters;
    CudaEvent end;         // behind all of it but logits
    bool has_end = false;  // it stands there
    int32_t num_samples = 0;
    int32_t num_prompt_rows = 0;
    PhaseClock::Kind kind = PhaseClock::kCompletions;
    bool is_timed = false;   // there are marks before and behind it
    bool is_marked = false;  // and behind each of its phases
    StreamTimer timer;
  };
  // What a phase knows of the step that runs.
  struct Step {
    const int32_t* message = nullptr;  // on the device
    int32_t num_tokens = 0;            // and rows of the padding
    int32_t num_prompt_rows = 0;
    int32_t first_prompt_row = 0;  // these are in [first, end)
    int32_t end_prompt_row = 0;
    int32_t num_samples = 0;
    int32_t num_copies = 0;
    bool all_sample = false;  // the rows kept for the head are all rows
  };
  struct Phase {
    StepPhase phase;
    int32_t layer;
    std::function<int(const Step&)> launch;
  };
  // Rows that are computed in the same way.
  struct RowSet {
    const int32_t* ids = nullptr;  // on the device; null: 0, 1, ...
    int32_t count = 0;
    bool prompt = false;
    int32_t first = 0;  // all are in [first, end)
    int32_t end = 0;
  };
  // A norm's vectors among the constants; below 0: none.
  struct NormAt {
    int64_t weight = -1;
    int64_t bias = -1;
  };
  // Rows of activations on the device: where they are, and as memory.
  struct RowsAt {
    float* data = nullptr;
    int64_t pitch = 0;
  };
  struct RowsOnDevice {
    CudaBuffer memory;
    int64_t pitch = 0;
    float* data() const { return memory.as<float>(); }
    RowsAt From(int64_t row) const { return {data() + row * pitch, pitch}; }
  };
  // Rows that a product reads: there as f32, or made by a norm or an
  // activation, whose args lack only which rows and where to. `rows` is room
  // for them then.
  struct Input {
    RowsAt rows;
    std::optional<cuda::NormArgs> norm = {};
    std::optional<cuda::ActivateArgs> activation = {};
  };
  // A mixture of experts of one layer.
  struct Experts {
    ExpertsOptions options;
    int32_t competing = 0;  // the first ones; behind them the shared one
    bool kept = false;      // of rows that are kept for the head
    // Where among ids_ stands how many of them a step read, for rows that are
    // no prompts', and behind it for those of prompts.
    int64_t num_read_at = 0;
    // Of those one behind the other, among the constants; below 0: none.
    int64_t gate_up_bias = -1;
    int64_t down_bias = -1;
    CudaBuffer matrices;  // pointers to those of gate, up, down: [3][competing]
  };
  // Of an expert.
  enum UseMatrix : int32_t { kGate, kUp, kDown };

  const Linear* DoAddLinear(const WeightRows& rows, Rounding rounding,
                            std::vector<float> bias) override;
  const Linear* DoAddQkv(const WeightRows& q, const WeightRows& k,
                         const WeightRows& v, std::vector<float> bias_qkv,
                         Rounding rounding) override;
  const Linear* DoAddGateUp(const WeightRows& gate, const WeightRows& up,
                            Rounding rounding, std::span<const float> bias_gate,
                            std::span<const float> bias_up) override;
  const Linear* DoAddUp(const WeightRows& up, std::vector<float> bias,
                        Rounding rounding) override;
  const Linear* DoAddRouter(const WeightRows& router, const WeightRows& last,
                            std::vector<float> bias) override;
  void DoEmbed(const Linear& table, const EmbedOptions& options) override;
  void DoNormLinear(const Norm& norm, const Linear& qkv) override;
  void DoRopeWriteKv(int32_t layer, const RopeOptions& options) override;
  void DoAttend(int32_t layer, const AttendOptions& options) override;
  void DoKeepSampleRows() override;
  void DoLinearResidual(Branch branch, const Linear& w,
                        const ResidualOptions& options) override;
  void DoNormGateUpAct(const Norm& norm, const Linear& gate_up,
                       Activation activation) override;
  void DoNormExperts(const Norm& norm, const ExpertsOptions& experts,
                     const ResidualOptions& options) override;
  void DoHiddenRows(const Norm& norm) override;
  void DoHead(const Norm& norm, const Linear& w,
              const HeadOptions& options) override;

  CudaLinear* NewLinear(int64_t inputs, int64_t outputs, Rounding rounding,
                        std::span<const WeightRows> parts,
                        std::span<const float> bias);
  int64_t PlaceWeights();
  // Where the values will be among the constants.
  int64_t AddConstant(std::span<const float> values);
  NormAt AddNorm(const Norm& norm);
  // What is recorded from here on is told as this.
  void Enter(StepPhase phase) { phase_ = phase; }
  void Record(std::function<int(const Step&)> launch) {
    phases_.push_back({phase_, layer_, std::move(launch)});
  }
  // Of the message that was filled.
  Status LaunchStep(const StepBatch& batch);
  Status LaunchPhases(const Step& step);
  Status DownloadIds();
  // When phases ran: for step_seconds_, and for trace_ while a capture traces
  // steps.
  void BeginTimes(Launched& launched);
  void KeepTimes(const Status& marked, Launched& launched);
  void KeepSeconds(const std::vector<StreamTimer::Time>& times,
                   const Launched& launched);
  Status AllocateRows(RowsOnDevice& rows, int64_t count, int64_t width);

  StatusOr<double> SecondsOf(int (*launch)(cuda::Stream, const cuda::PeakArgs&),
                             const cuda::PeakArgs& args);
  // ---- parts of phases ----
  const float* constant(int64_t at) const {
    return at < 0 ? nullptr : constants_on_device_.as<float>() + at;
  }
  // Where they are kept apart only if they are not all rows.
  RowsOnDevice& x(const Step& step, bool kept) {
    return kept && !step.all_sample ? x_kept_ : x_;
  }
  RowsOnDevice& attn(const Step& step, bool kept) {
    return kept && !step.all_sample ? attn_kept_ : attn_;
  }
  // Of the samples; before them stand what mixtures of experts read.
  int32_t* drawn_ids() const { return ids_.as<int32_t>() + num_counts(); }
  int64_t num_counts() const {
    return 2 * static_cast<int64_t>(experts_.size());
  }
  static int32_t RowsOf(const Step& step, bool kept) {
    return kept ? step.num_samples : step.num_tokens;
  }
  // Rows of a step, those that are computed in one way together; without rows a
  // set is nothing.
  std::array<RowSet, 2> RowSets(const Step& step, bool kept,
                                bool has_roles) const;
  // ---- products of prompts by cuBLASLt: blas_phases.cc ----
  // Rows of prompts may be multiplied by it.
  void NotePrompts(const Linear& linear);
  int64_t BlasRows() const;  // that rounded_ has behind those of a step
  Status BindBlas();
  // What failed, of a phase that gave this number.
  Status WhyNotLaunched(int error) const;
  // What a product with weights of the format reads of a row.
  cuda::InputFormat InputOf(const CudaLinear& linear, cuda::WeightFormat format,
                            bool prompt) const;
  bool HasRoles(const CudaLinear& linear) const;
  // y = W · x, or with `adds` y += scale * W · x. Rows of a step go by their
  // role. Those kept for the head are all computed as generated ones: they are
  // few.
  int Multiply(const Step& step, bool kept, const CudaLinear& w, const Input& x,
               const RowsOnDevice& y, bool adds = false, float scale = 1);
  int MultiplySet(const RowSet& rows, const CudaLinear& w, const Input& x,
                  const RowsAt& y, bool adds, float scale);
  // Makes rows of x: in rounded_ unless `input` is kF32, and as f32 if
  // `floats`.
  int MakeInput(const RowSet& rows, const Input& x, int64_t inputs,
                cuda::InputFormat input, bool floats);
  // Rows of x to rounded_, unless the product reads f32.
  int Round(const RowSet& rows, const RowsAt& x, int64_t inputs,
            cuda::InputFormat input);
  cuda::RoundedRows Rounded(cuda::InputFormat input, int64_t inputs) const;
  cuda::NormArgs NormOf(const NormAt& norm, const RowsOnDevice& x) const;
  // Rows of norm(x), or of x itself where there is no norm.
  Input Normed(const NormAt& norm, const RowsOnDevice& x) const;
  // y += scale * norm(branch_).
  int AddBranch(const NormAt& norm, int32_t rows, float scale,
                const RowsOnDevice& y);
  cuda::Weights WeightsOf(const CudaLinear& linear, size_t part) const;
  cuda::KvCache Kv() const;
  // ---- adapters: lora_phases.cc ----
  Status BindAdapters();
  // Adapters change the matrices of these targets, which `linear` holds.
  void Adapt(const Linear& linear, std::span<const LoraTarget> targets);
  // Of the step whose message is filled.
  Status UploadAdapters(const StepBatch& batch);
  // Whether rows of the step have what is added to its product.
  bool IsAdapted(const CudaLinear& linear) const;
  // y += scale * (what adapters add to W · x).
  int AddAdapters(bool kept, const CudaLinear& w, const RowsAt& x,
                  const RowsOnDevice& y, float scale);
  // ---- mixtures of experts: expert_phases.cc ----
  // For `rows` rows at most.
  Status BindExperts(int64_t rows);
  int64_t AddBiases(const Experts& experts, const Linear* Expert::*matrix);
  // Sets unsupported_ where no kernel does it.
  void CheckExperts(const ExpertsOptions& experts, int32_t competing);
  // Calls body(linear, of_all_rows) for the matrices of an expert that competes
  // and of the shared one.
  static void ForMatrices(
      const Experts& experts,
      const std::function<void(const CudaLinear&, bool)>& body);
  bool HasRoles(const Experts& experts) const;
  int32_t UsedExperts() const;      // by a row at most; 0: there are none
  int64_t SharedFfn() const;        // of the widest; 0: there is none
  int64_t RoundedUseBytes() const;  // of a use, between gate and down
  void AccountExperts(const StepBatch& batch, StepAccount& account) const;
  static const CudaLinear& DownOf(const Experts& experts);
  cuda::InputFormat InputOfUses(const Experts& experts, UseMatrix matrix,
                                bool prompt) const;
  // The rows through the experts to those of `out`.
  int RunExperts(const Experts& experts, const RowSet& rows, const Input& x,
                 const RowsAt& out, bool adds, float scale);
  int ChooseExperts(const Experts& experts, const RowSet& rows,
                    const RowsAt& normed);
  // use_in_ becomes the rows, each times the weights of its uses.
  int WeighInputs(const Experts& experts, const RowSet& rows,
                  const RowsAt& normed);
  int OrderUses(const Experts& experts, const RowSet& rows, int32_t tile_rows);
  // y = W · x of each use, W its expert's matrix. `tile_rows` is of the tiles
  // that are there, and of those that are there then.
  int MultiplyUses(const Experts& experts, UseMatrix matrix, const RowSet& rows,
                   const RowsAt& x, int32_t& tile_rows);
  static cuda::ActivateArgs Activated(const Experts& experts,
                                      const RowsOnDevice& gate_up,
                                      const CudaLinear& down);
  int RunSharedExpert(const Experts& experts, const RowSet& rows,
                      const RowsAt& normed);
  // ---- ranks of a group: group_phases.cc ----
  Status BindGroup();
  // Logits of a rank, with those that it lacks to have as many as others.
  int64_t WidthOfPart() const;
  // branch_ becomes its sum over the ranks. False: the group is broken.
  bool SumBranch(int32_t rows);
  // The rows of the head that this rank multiplies by.
  const CudaLinear& HeadOf(const CudaLinear& whole);
  // All logits of rows, at rank 0.
  int MultiplyHead(const Step& step, const CudaLinear& w, const Input& x);
  // Ranks capture the same steps, so a message of rank 0 always has draws:
  // whether there are any must not choose its layout.
  std::span<const cuda::DrawRow> DrawsOf(const StepBatch& batch,
                                         std::span<const cuda::DrawRow> draws);
  // A rank that cannot launch breaks its group.
  Status EndOfLaunch(const Status& launched);
  int RopeRows(const Step& step, int32_t layer, const RopeOptions& options,
               int64_t frequencies, int64_t q_norm, int64_t k_norm);

  // Constant after construction.
  const StepLimits limits_;
  const std::shared_ptr<CudaContext> context_;
  const cuda::Module& module_;
  const std::shared_ptr<NcclGroup> gpus_;  // outlives graphs_
  const std::shared_ptr<BlasProducts> blas_;
  const cuda::KvFormat kv_format_;
  const CudaCompute compute_;
  const bool ahead_;  // two steps may be in flight
  const int32_t threads_;
  const int64_t q_dim_;
  const int64_t qkv_dim_;

  // Made at load.
  std::vector<std::unique_ptr<CudaLinear>> linears_;
  std::vector<std::byte> packed_;
  int64_t weight_bytes_ = 0;
  std::vector<float> constants_;
  std::vector<int64_t> frequencies_;  // of each rope, among the constants
  std::vector<Phase> phases_;
  StepPhase phase_ = StepPhase::kEmbed;  // that is recorded
  int32_t layer_ = -1;                   // likewise
  bool keeping_ = false;                 // recording after KeepSampleRows
  bool has_branch_ = false;
  cuda::ActivateArgs activation_;  // of the layer that is recorded
  // What adds the attention of that layer, once the feed-forward has read x.
  std::function<int(const Step&)> waiting_;
  std::vector<std::unique_ptr<Experts>> experts_;
  std::vector<const CudaLinear*> of_prompts_;
  std::string unsupported_;  // what no kernel does
  StepMessage message_;
  LoraStep lora_;
  StepGraphs graphs_;

  // Adapters. A slot does not keep one that was unloaded; a step does.
  std::vector<std::weak_ptr<const LoraAdapter>> adapter_of_slot_;
  std::vector<const CudaLora*> lora_of_seq_;

  // On the device, after Bind.
  CudaBuffer weights_, constants_on_device_, pages_, step_, ids_, head_parts_;
  CudaBuffer partial_max_, partial_sum_, partial_out_;
  CudaBuffer rounded_;  // rows of one product's input
  CudaBuffer lora_step_, lora_hidden_;
  RowsOnDevice x_, x_kept_, normed_, qkv_, attn_, attn_kept_, gate_up_, ffn_,
      branch_, logits_, own_logits_, all_logits_;
  // Of rows that go through experts, and of their uses.
  RowsOnDevice router_logits_, use_in_, use_gate_up_, use_ffn_, use_out_,
      shared_out_;
  CudaBuffer chosen_, use_weights_, use_order_, use_counts_, use_tiles_;
  // On the host, for transfers.
  CudaBuffer logits_on_host_;
  // Used in turn while steps overlap, else the first one.
  std::array<Launched, 2> launched_;
  size_t newest_ = 0;  // of the step launched last
  size_t ended_ = 0;   // of the step that ended last
  int32_t num_in_flight_ = 0;
  std::vector<cuda::DrawRow> no_draws_;
  PhaseClock::Seconds step_seconds_ = {};  // of the step that ended last
  PhaseClock clock_;
  bool clock_failed_ = false;   // then only traced steps are timed
  StepTrace* trace_ = nullptr;  // null: steps are not traced
};

}  // namespace millrace::models

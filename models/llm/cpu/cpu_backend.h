// Backend on CPU cores: phases run on a pinned team with about five barriers a
// layer. Activations are rounded by whoever produces them, to int8 rows when
// the next weights are integers and to bf16 rows when these are BF16 and the
// table multiplies such; they stay f32 otherwise.
//
// With few rows (decode) each worker normalises and quantises all rows for
// itself: that is cheaper than one more barrier. With many, rows are shared out
// and a barrier follows. Both do the same arithmetic, so results are the same
// bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "models/cpu/compute_pool.h"
#include "models/cpu/llm_kernels.h"
#include "models/group/group.h"
#include "models/llm/backend.h"
#include "models/llm/cpu/attention.h"
#include "models/llm/cpu/line_vector.h"
#include "models/llm/cpu/linear.h"
#include "models/llm/cpu/lora_int8.h"
#include "models/llm/lora.h"
#include "models/llm/step.h"
#include "models/llm/step_account.h"
#include "models/memory/huge_buffer.h"

namespace millrace::models {

struct CpuBackendOptions {
  BackendShape shape;
  StepLimits limits;
  const KernelTable* kernels = nullptr;
  // Models that take turns on the same CPUs share it.
  std::shared_ptr<ComputePool> team;
  // The shape is one rank's part of the model; null: all of it.
  std::shared_ptr<Group> group = nullptr;
  KvFormat kv_format = KvFormat::kF16;
  bool compute_f32 = false;  // weights dequantised, activations f32
  // Rows of prompts may be computed in bf16; see ChoosePromptWay.
  bool prompts_in_bf16 = false;
  bool huge_pages = true;
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuBackendOptions& options);
  ~CpuBackend() override;

  Status PackWeights(const std::function<void(double)>& progress) override;
  int64_t weight_bytes() const override { return weights_.size(); }
  std::string PackedLayout() const override;
  std::span<const std::byte> packed_weights() const override {
    return {weights_.data(), static_cast<size_t>(weights_.size())};
  }
  Status TakePacked(std::span<const std::byte> bytes,
                    const std::function<void(double)>& progress) override;
  int64_t KvPageBytes() const { return kv_.page_bytes(); }
  void BindKv(std::byte* pages, int32_t num_pages);
  // Ends recording. Rows of prompts go in bf16, up to the last layer's
  // attention, if that was wanted and the kernel table has a way of its own for
  // them and for all matrices of the layers. True then: bits depend on which
  // rows a StepBatch calls prompt_rows.
  bool ChoosePromptWay();
  // Whether logits are known here behind a step: not at the ranks of a group
  // but the first.
  bool has_logits() const { return group_ == nullptr || group_->rank() == 0; }

  // ---- run; always the same thread, which is worker 0 of the team ----
  // What the slot's sequence adds to the weights from the next Run on; null:
  // nothing.
  void SetAdapter(int32_t slot, std::shared_ptr<const LoraAdapter> adapter);
  // What stands in place of embeddings of the slot's sequence from the next Run
  // on; null: nothing.
  void SetEmbeddings(int32_t slot,
                     std::shared_ptr<const PromptEmbeddings> embeddings);
  // Runs the recorded phases, then `after` on every worker once all logits are
  // known.
  using AfterStep = std::function<void(Worker&)>;
  // UNAVAILABLE: a rank of the group is gone; later steps fail likewise.
  Status Run(const StepBatch& batch, const AfterStep& after);
  // Of the last Run's sample, [vocab] or of hidden rows [hidden]; may be
  // written until the next Run.
  std::span<float> logits(int32_t sample);
  // Of the last Run; lives until the next.
  const StepAccount& account() const { return account_; }
  // See Runner.
  void TraceSteps(StepTrace* trace) { trace_ = trace; }
  // Measures the machine, once, before the first Run and on its thread; takes
  // tens of milliseconds and changes no result.
  RunnerRoofline MeasureRoofline();

 private:
  // Rows up to which each worker prepares its own activations, at most and
  // until the cost of a barrier has been measured.
  static constexpr int32_t kMostFewRows = 16;
  static constexpr int32_t kFewRows = 4;
  // Rows of one pass over a matrix: its outputs stay in L2 until finished.
  static constexpr int32_t kRowTile = 64;
  // Rows and outputs of one pass over a matrix for rows of prompts in bf16:
  // many rows, as weights are converted once a pass; results stay in L2.
  static constexpr int32_t kPromptTile = 512;
  static constexpr int64_t kPromptColumns = 256;
  // Outputs of one pass when rows are rounded twice.
  static constexpr int64_t kTermColumns = 1024;

  // Rows [begin, end) of a step, all of prompts or none.
  struct Rows {
    int32_t begin = 0;
    int32_t end = 0;
    bool prompt = false;

    int32_t count() const { return end - begin; }
  };

  // One recorded phase.
  struct Command {
    void (CpuBackend::*run)(Worker&, const Command&);
    const CpuLinear* linear = nullptr;
    const CpuLinear* reader = nullptr;  // of what NormGateUpAct writes
    Norm norm = {};
    StepPhase phase = StepPhase::kEmbed;
    int32_t layer = 0;
    KvPlace place = {};  // the layer's, of RopeWriteKv and Attend
    int32_t block = 0;   // the layer that its matrix belongs to
    float scale = 1;     // of Embed, LinearResidual and Head
    float softcap = 0;   // of Head
    const CpuLinear* positions = nullptr;       // of Embed
    RopeOptions rope = {};                      // of RopeWriteKv
    Norm post_norm = {};                        // of LinearResidual
    bool waits = false;                         // branch_ holds what it adds
    bool adds_waiting = false;                  // and this adds it to x
    Activation activation = Activation::kSilu;  // of NormGateUpAct
    // Of Attend, and of what reads its rows.
    CpuAttention::Variant attend = {};
    Branch branch = Branch::kAttention;
    bool sample_rows = false;   // rows are those kept
    bool gathers_rows = false;  // the first phase whose rows are
    bool ropes = false;         // NormLinear that also does RopeWriteKv
    bool gated = true;          // NormGateUpAct whose matrix has a gate
    const ExpertsOptions* experts = nullptr;  // of NormExperts
  };

  const Linear* DoAddLinear(const WeightRows& rows, Rounding rounding,
                            std::vector<float> bias) override;
  const Linear* DoAddQkv(const WeightRows& q, const WeightRows& k,
                         const WeightRows& v, std::vector<float> bias_qkv,
                         Rounding rounding) override;
  const Linear* DoAddGateUp(const WeightRows& gate, const WeightRows& up,
                            Rounding rounding, std::span<const float> bias_gate,
                            std::span<const float> bias_up) override;
  const Linear* DoAddRouter(const WeightRows& router, const WeightRows& last,
                            std::vector<float> bias) override;
  void DoNormExperts(const Norm& norm, const ExpertsOptions& experts,
                     const ResidualOptions& options) override;
  const Linear* DoAddUp(const WeightRows& up, std::vector<float> bias,
                        Rounding rounding) override;
  void DoEmbed(const Linear& table, const EmbedOptions& options) override;
  void DoNormLinear(const Norm& norm, const Linear& qkv) override;
  void DoRopeWriteKv(int32_t layer, const RopeOptions& options) override;
  void DoAttend(int32_t layer, const AttendOptions& options) override;
  void DoKeepSampleRows() override;
  void DoLinearResidual(Branch branch, const Linear& w,
                        const ResidualOptions& options) override;
  void DoNormGateUpAct(const Norm& norm, const Linear& gate_up,
                       Activation activation) override;
  void DoHiddenRows(const Norm& norm) override;
  void DoHead(const Norm& norm, const Linear& w,
              const HeadOptions& options) override;
  // Memory for all matrices, and the place of each in it.
  Status PlaceWeights();
  CpuLinear* NewLinear(int64_t inputs, int64_t outputs, Rounding rounding);
  Command& Record(StepPhase phase,
                  void (CpuBackend::*run)(Worker&, const Command&));
  // Parts of MeasureRoofline; seconds, or units a second.
  double MeasureMacs();
  double RunMacs(const CpuLinear& linear, int64_t outputs, int32_t rows,
                 bool prompt);
  double MeasurePromptMacs();
  CpuLinear* Widest();  // null where its inputs are wider than any row
  int64_t ChoosePassBytes();
  double MeasureRowPreparation();
  // What the step that begins will read and multiply.
  void BeginAccount();
  void AccountExperts(const Command& command);

  // Phases; each ends with a barrier unless it says otherwise.
  void RunEmbed(Worker& worker, const Command& command);
  void RunNormLinear(Worker& worker, const Command& command);
  void RunRopeWriteKv(Worker& worker, const Command& command);
  void RunAttend(Worker& worker, const Command& command);
  void RunLinearResidual(Worker& worker, const Command& command);
  void RunNormGateUpAct(Worker& worker, const Command& command);
  void RunHiddenRows(Worker& worker, const Command& command);
  void RunHead(Worker& worker, const Command& command);
  // ---- of a rank of a group (group_phases.cc) ----
  void MakeBranch();
  // branch_ becomes its sum over the ranks, then joins x.
  void RunAllReduce(Worker& worker, const Command& command);
  // Behind the head: the ranks' logits come to the first one.
  void GatherLogits(Worker& worker, const Command& command);
  void PlaceLogits(int64_t rows, int64_t width);
  // ---- adapters (lora_phases.cc) ----
  // The outputs [begin, end) of a target's own matrix; they stand from `first`
  // on among the outputs of the command's.
  struct LoraSegment {
    int64_t first;
    int64_t begin;
    int64_t end;
  };
  // Rows that have an adapter, by adapter: those of one stand in a run of
  // places, ascending, so that its matrices are read once for all of them.
  struct LoraRun {
    const LoraAdapter* adapter;
    int32_t begin;  // places
    int32_t end;
  };
  struct LoraOrder {
    std::vector<LoraRun> runs;  // none: no row has an adapter
    std::vector<int32_t> row_of_place;
    std::vector<int32_t> place_of_row;  // -1: without an adapter
  };
  void FindAdapters(const StepBatch& batch);
  void OrderRows(std::span<const int32_t> seq_of_row, LoraOrder& order) const;
  const LoraOrder& LoraOrderOf(const Command& command) const {
    return command.sample_rows ? lora_samples_ : lora_tokens_;
  }
  // Of a row of the command that has one.
  const LoraAdapter& AdapterOfRow(const Command& command, int32_t row) const {
    const int32_t seq = command.sample_rows
                            ? batch_->sample_seqs()[static_cast<size_t>(row)]
                            : seq_of_row_[static_cast<size_t>(row)];
    return *adapter_of_seq_[static_cast<size_t>(seq)];
  }
  std::span<const LoraTarget> TargetsOf(const Command& command) const;
  // Whether any row of the command adds B (A x) to its matrix's outputs.
  bool Adapts(const Command& command) const {
    return !LoraOrderOf(command).runs.empty() && !TargetsOf(command).empty();
  }
  void MakeRoomForAdapters(LoraDtype dtype);
  // Keeps x, a row of inputs of the command's matrix, or a part of one from
  // value `first` on: for the worker alone (`few`) or for all.
  void LoraKeep(Worker& worker, const Command& command, int32_t row,
                std::span<const float> x, int64_t first, bool few);
  // A x of all rows kept, shared out among the workers, with a barrier behind.
  void LoraShrink(Worker& worker, const Command& command, bool few);
  // y += B (A x) for outputs [begin, end) of the command's matrix.
  void LoraExpand(Worker& worker, const Command& command, const Rows& rows,
                  int64_t begin, int64_t end, float* y, int64_t ld_y);
  // Of the target's segments those that meet [begin, end), cut to it.
  template <typename Body>
  void ForEachSegment(const Command& command, LoraTarget target, int64_t begin,
                      int64_t end, Body body) const;
  float* LoraHidden(int32_t place, size_t target) {
    return lora_hidden_.data() +
           (place * 3 + static_cast<int64_t>(target)) * kMaxLoraRank;
  }

  // Rows [begin, end) go through the experts that each of them uses; parts,
  // with a barrier after each: norm and choice, order by expert, and so on.
  void RunExperts(Worker& worker, const Command& command);
  void ChooseExperts(Worker& worker, const Command& command, int32_t begin,
                     int32_t end);
  void OrderByExpert(const Command& command, int32_t begin, int32_t end);
  // Of row `row` of the rows in work, which uses the expert.
  float WeightOfUse(const Command& command, int32_t row, int64_t expert) const;
  void GateUpOfExperts(Worker& worker, const Command& command);
  void DownOfExperts(Worker& worker, const Command& command, int32_t begin,
                     int32_t end);

  // Rows that a command computes, and where row i's x is.
  int32_t RowsOf(const Command& command) const;
  // What stands in place of the row's embedding, [hidden]; null: nothing.
  const float* EmbeddingOf(const StepBatch& batch, int64_t row) const;
  // Finds the runs of rows with one role in the batch.
  void FindRuns(const StepBatch& batch);
  // Whether a row goes through the command's matrix, or that of the command
  // behind it, in bf16.
  bool InBf16(const Command& command, const CpuLinear& linear,
              int32_t row) const;
  // body(rows) for all rows of the command, some at a time: those that share
  // one pass over its matrix.
  template <typename Body>
  void ForEachTile(const Command& command, Body body) const;
  float* X(const Command& command, int32_t row);
  // out = norm(x) of one row of hidden values; `out` may be x.
  void Normalise(const Norm& norm, const float* x, float* out) const;
  // y += bias for outputs [begin, begin + columns) of some rows, if any.
  void AddBias(const CpuLinear& linear, int64_t begin, int64_t columns,
               int32_t rows, float* y, int64_t ld_y) const;
  // norm(x), or the attention rows, ready for the command's matrix: in the
  // worker's own buffer when rows are few, else in a shared one.
  ActBuffer& NormRows(Worker& worker, const Command& command);
  ActBuffer& AttentionRows(Worker& worker, const Command& command);
  // Where a worker computes a row for the matrix: in `act` if floats are read,
  // else in a row of its own, which stays in L1 until Quantize has read it.
  float* Values(Worker& worker, const CpuLinear& linear, ActBuffer& act,
                int32_t row);
  // Rounds values[begin…end - 1] of a row as the matrix takes it; whole blocks.
  void Quantize(const CpuLinear& linear, const float* values, ActBuffer& act,
                int32_t row, int64_t begin, int64_t end, bool in_bf16) const;
  // y[i][output - begin] of rows.begin + i, outputs [begin, end).
  void Multiply(Worker& worker, const CpuLinear& linear, int64_t begin,
                int64_t end, const ActBuffer& act, const Rows& rows, float* y,
                int64_t ld_y);
  // out = activation(gate) * up for n values; `gate` and `up` may be changed.
  void Activate(Activation activation, float* gate, float* up, int64_t n,
                float* out) const;
  // x += norm(branch_) for the command's rows, shared out among the workers.
  void AddBranch(Worker& worker, const Command& command);
  // Row `row` of the step as the first command of the rows kept finds it.
  void GatherRow(int32_t row, int64_t begin, int64_t end);
  // Normalises, rotates and scales one row's q heads [q0, q1); normalises,
  // rotates and stores kv heads [kv0, kv1).
  void RopeHeads(int32_t row, const Command& command, int32_t q0, int32_t q1,
                 int32_t kv0, int32_t kv1);
  // Norms over all heads of q, and all of k, of one row.
  void NormaliseWhole(Worker& worker, int32_t row, const RopeOptions& options);
  void RunRopeWholeRows(Worker& worker, const Command& command);

  // Constant after construction.
  const StepLimits limits_;
  const KernelTable& kernels_;
  const bool compute_f32_;
  const bool wants_prompts_in_bf16_;
  const bool huge_pages_;
  const int64_t q_dim_;
  const int64_t qkv_dim_;
  const int64_t padded_ffn_;  // of gate and of up, a multiple of 32
  const int32_t rope_dims_;   // values of a head that are rotated
  // A worker's heads in NormLinear when it also ropes: q heads
  // [q_bounds_[w], q_bounds_[w + 1]) and kv heads likewise; empty when there
  // are too few heads to share out evenly.
  std::vector<int32_t> q_bounds_, kv_bounds_;
  bool kv_interleaved_ = true;  // outputs are q…, k0, v0, k1, v1, …

  // Rows that go through experts at once.
  static constexpr int32_t kExpertRows = 1024;

  // Made at load.
  std::vector<std::unique_ptr<CpuLinear>> linears_;
  HugeBuffer weights_;
  std::vector<Command> commands_;
  std::deque<ExpertsOptions> experts_;             // of the commands
  std::deque<std::vector<float>> router_weights_;  // read while packing
  int32_t num_blocks_ = 0;                         // recorded so far
  bool branch_waits_ = false;   // of the LinearResidual recorded last
  bool keeping_ = false;        // recording after KeepSampleRows
  bool keep_is_fresh_ = false;  // and nothing recorded since

  bool prompts_in_bf16_ = false;
  int32_t few_rows_ = kFewRows;

  // Of the step that runs.
  StepAccount account_;
  // Of slots; of the step's sequences.
  std::vector<std::shared_ptr<const LoraAdapter>> adapter_of_slot_;
  std::vector<const LoraAdapter*> adapter_of_seq_;
  LoraOrder lora_tokens_;   // of the step's rows
  LoraOrder lora_samples_;  // of those kept
  // Of slots; empty until one has any.
  std::vector<std::shared_ptr<const PromptEmbeddings>> embeddings_of_slot_;
  StepTrace* trace_ = nullptr;  // or null: none is recorded
  const StepBatch* batch_ = nullptr;
  std::vector<int32_t> seq_of_row_;
  std::vector<Rows> runs_;  // of all tokens, ascending
  std::vector<bool> prompt_of_row_;
  CpuAttention attention_;
  KvLayout kv_;

  // Activations. Rows of x, qkv and attention are written by one worker each
  // between barriers; see the phases.
  LineVector<float> x_;       // [max_tokens][hidden]
  LineVector<float> x_kept_;  // [max_samples][hidden]
  LineVector<float> qkv_;     // [max_tokens][qkv_dim_]
  LineVector<float> attn_;    // [max_tokens][q_dim_]
  // [max_tokens][hidden], before a post-norm, while it waits, or one rank's
  // part of a sum
  std::span<float> branch_;
  LineVector<float> own_branch_;  // where the group has no memory for it
  LineVector<float> cos_, sin_;   // [ropes][max_tokens][rope_dims_ / 2]
  LineVector<float> ones_;    // [padded_ffn_], of a feed-forward without gate
  LineVector<float> logits_;  // [max_samples][ld_logits_], or hidden rows
  int64_t ld_logits_;
  ActBuffer wide_act_;  // shared rows of norm(x) or attention
  ActBuffer ffn_act_;   // shared rows of silu(gate) * up
  // Once some slot has had an adapter, by place: A x of each row, one after the
  // other for up to three targets, and inputs of a matrix.
  LineVector<float> lora_hidden_;  // [rows][3][kMaxLoraRank]
  LineVector<float> lora_rows_;    // [rows][lora_width_]
  LoraInt8Rows lora_int8_rows_;    // the same, of adapters in int8
  int64_t lora_width_ = 0;         // of the widest input
  // Of layers with experts. A row that uses an expert is a use; uses are
  // ordered by expert, then by row.
  struct Use {
    int32_t expert;
    float weight;
  };
  std::vector<Use> chosen_;          // [kExpertRows][used], experts ascending
  std::vector<int32_t> row_of_use_;  // in order
  std::vector<int32_t> first_use_;   // [experts + 1], of each expert
  LineVector<float> expert_norms_;   // [kExpertRows][hidden], norm(x)
  ActBuffer expert_in_;              // of each use, norm(x)
  ActBuffer expert_ffn_;             // of each use, act(gate) * up
  struct Private {
    ActBuffer act;             // [kMostFewRows] norm(x) or attention
    LineVector<float> row;     // [widest input] to be rounded
    LineVector<float> kept;    // [kMostFewRows][lora_width_]
    LineVector<float> lora_y;  // some rows of B (A x)
    LoraInt8Rows kept_int8;    // as `kept`, of adapters in int8
    LoraInt8Scratch lora_int8;
    LineVector<float> y;  // [kRowTile][outputs], or of a prompt's pass
    HugeBuffer prompt_scratch;
    LineVector<float> terms;  // [2 * kRowTile][kTermColumns], if rounded twice
  };
  std::vector<Private> private_;
  int64_t ld_y_;

  // Of a rank of a group, worker 0's: logits on their way, and how the ranks'
  // calls ended.
  LineVector<float> sent_;
  LineVector<float> received_;
  Status group_status_;

  const std::shared_ptr<Group> group_;  // or null
  const std::shared_ptr<ComputePool> pool_;
};

}  // namespace millrace::models

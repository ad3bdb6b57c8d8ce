// From encoded frames of sound to tokens: the search of an RNN transducer,
// whose predictor and joiner are graphs that the caller computes. The search
// says what it needs next and is given it:
//
//   TransducerSearch search(options, std::move(kept), num_frames);
//   while (search.wants() != TransducerSearch::Want::kNothing) { ... }
//   kept = search.Take();                      // for the next frames
//
// A frame is joined with the prediction of each hypothesis that is alive; each
// ends the frame there with the blank, and the best ones go on with another
// token. The greedy search has one hypothesis: the best token until that is the
// blank.
// Source: Graves 2012, "Sequence Transduction with Recurrent Neural Networks";
// the beam does what torchaudio's RNNTBeamSearch does. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "config/base/status.h"

namespace millrace::handlers {

struct TransducerOptions {
  int64_t num_tokens = 1;  // with the blank
  int64_t blank = 0;
  bool greedy = true;
  size_t beam_width = 1;     // of the search that is not greedy
  int64_t max_symbols = 10;  // tokens of one frame
};

// What the predictor makes of one token: a row of each of its outputs.
struct Prediction {
  std::vector<float> encoding;             // for the joiner
  std::vector<std::vector<float>> states;  // for the token behind it
};

struct Hypothesis {
  struct Token {
    int32_t id = 0;
    int32_t frame = 0;  // counted from the beginning of the sound
  };
  std::vector<Token> tokens;                     // without blanks
  double score = 0;                              // log-probability
  std::shared_ptr<const Prediction> prediction;  // behind the last token
};

class TransducerSearch {
 public:
  // `kept`: the hypotheses of the frames before, best first; none: the sound
  // begins. `first_frame` is the number of the first of the frames.
  TransducerSearch(const TransducerOptions& options,
                   std::vector<Hypothesis> kept, size_t num_frames,
                   int64_t first_frame = 0);

  enum class Want { kNothing, kPredictions, kLogits };
  Want wants() const { return wants_; }

  // kPredictions: of these tokens, each with the states before it.
  struct Ask {
    int64_t token = 0;
    std::shared_ptr<const Prediction> before;  // null: zeros
  };
  const std::vector<Ask>& asks() const { return asks_; }
  void GivePredictions(std::vector<std::shared_ptr<const Prediction>> made);

  // kLogits: of the frame, one of those of the constructor, with the prediction
  // of each of these: [hypotheses, tokens]. INTERNAL where one is NaN.
  size_t frame() const { return frame_; }
  const std::vector<Hypothesis>& alive() const { return alive_; }
  Status GiveLogits(std::span<const float> logits);

  // The best first; when nothing is wanted.
  std::vector<Hypothesis> Take() { return std::move(ended_); }

 private:
  struct Candidate {
    size_t from = 0;  // of the alive ones
    int64_t token = 0;
    double score = 0;
  };

  void BeginFrame();
  void EndFrame();
  void EndWithBlank(const std::vector<double>& log_probs);
  std::vector<Candidate> BestTokens(const std::vector<double>& log_probs) const;
  void GoOnWith(const std::vector<Candidate>& candidates);
  void Greedy(const std::vector<double>& log_probs);

  const TransducerOptions options_;
  const size_t num_frames_;
  const int64_t first_frame_;
  Want wants_ = Want::kNothing;
  size_t frame_ = 0;
  int64_t symbols_ = 0;  // of the frame
  std::vector<Ask> asks_;
  // Of a frame: those that take further tokens, those that are through with it.
  std::vector<Hypothesis> alive_;
  std::vector<Hypothesis> ended_;
  std::vector<Hypothesis> next_;  // wait for their predictions
};

}  // namespace millrace::handlers

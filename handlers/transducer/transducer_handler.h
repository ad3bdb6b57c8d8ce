// A recogniser as a model of tensors with a state, for sequence_handler.h,
// which keeps the state of each session:
//
//   audio  FP32 [-1]   samples of one channel, -1 to 1; may be left out
//   → text BYTES [1]   of the session so far; a beam may still change its end
//     is_final BOOL [1]  the session has ended
//     score FP32 [1]   log-probability of the text
#pragma once

#include <memory>

#include "config/sequence_settings.h"
#include "handlers/handler.h"
#include "handlers/transducer/transducer_recogniser.h"

namespace millrace::handlers {

inline constexpr const char* kTransducerAudio = "audio";

// Which of its inputs and outputs are the state, and the end of a sequence.
config::SequenceSettings TransducerSequences();

// The recogniser outlives the handler and its requests.
std::unique_ptr<TensorHandler> MakeTransducerHandler(
    const TransducerRecogniser* recogniser);

}  // namespace millrace::handlers

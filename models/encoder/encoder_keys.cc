// Keys of a GGUF as llama.cpp writes them for encoders. RoBERTa is one of the
// architecture "bert" whose table of positions begins at the first token.
#include <algorithm>
#include <iterator>
#include <string>

#include "config/base/utf8.h"
#include "models/encoder/encoder_config.h"

namespace millrace::models::encoder {
namespace {

struct Known {
  std::string_view architecture;
  Family family;
  const char* activation;
};
constexpr Known kKnown[] = {
    {"bert", Family::kBert, "gelu"},
    {"nomic-bert", Family::kNomic, "silu"},
    {"modern-bert", Family::kModernBert, "gelu"},
};

// Other encoders of llama.cpp.
constexpr std::string_view kOthers[] = {
    "eurobert", "jina-bert-v2",   "jina-bert-v3",
    "neo-bert", "nomic-bert-moe", "t5encoder",
};

const Known* FindKnown(std::string_view architecture) {
  for (const Known& known : kKnown) {
    if (known.architecture == architecture) return &known;
  }
  return nullptr;
}

class Keys {
 public:
  Keys(const GgufFile& file, std::string_view prefix)
      : file_(file), prefix_(std::string(prefix) + ".") {}

  StatusOr<int64_t> Count(const char* key, int64_t most,
                          int64_t otherwise = -1) const {
    const std::string name = prefix_ + key;
    if (otherwise >= 0 && file_.FindKey(name) == nullptr) return otherwise;
    ASSIGN_OR_RETURN(const int64_t n, file_.Int(name));
    if (n < 1 || n > most) {
      return InvalidArgument(name + " is " + std::to_string(n) + ", 1 to " +
                             std::to_string(most) + " is allowed");
    }
    return n;
  }
  StatusOr<double> Real(const char* key, double otherwise) const {
    const std::string name = prefix_ + key;
    if (file_.FindKey(name) == nullptr) return otherwise;
    ASSIGN_OR_RETURN(const double x, file_.Float(name));
    if (!(x > 0) || !(x < 1e12)) {
      return InvalidArgument(name + " is " + std::to_string(x) +
                             "; expected a number above 0");
    }
    return x;
  }

 private:
  const GgufFile& file_;
  const std::string prefix_;
};

// Rows of a matrix.
StatusOr<int64_t> RowsOf(const GgufFile& file, const char* name) {
  const GgufTensor* tensor = file.FindTensor(name);
  if (tensor == nullptr || tensor->num_dims != 2) {
    return InvalidArgument("the file has no matrix '" + std::string(name) +
                           "'");
  }
  return tensor->dims[1];
}

}  // namespace

bool IsEncoderGgufName(std::string_view architecture) {
  return FindKnown(architecture) != nullptr ||
         std::find(std::begin(kOthers), std::end(kOthers), architecture) !=
             std::end(kOthers);
}

StatusOr<EncoderConfig> ReadEncoderKeys(const GgufFile& file) {
  ASSIGN_OR_RETURN(const std::string_view architecture,
                   file.String("general.architecture"));
  const Known* known = FindKnown(architecture);
  if (known == nullptr) {
    std::string names;
    for (const Known& each : kKnown) {
      names += (names.empty() ? "" : ", ") + std::string(each.architecture);
    }
    return Unimplemented("the encoder '" + Shortened(architecture, 60) +
                         "' is not served; these are: " + names);
  }
  EncoderConfig out;
  out.architecture = architecture;
  out.family = known->family;
  out.activation = known->activation;
  const Keys keys(file, architecture);
  ASSIGN_OR_RETURN(out.hidden, keys.Count("embedding_length", 1 << 16));
  ASSIGN_OR_RETURN(out.layers, keys.Count("block_count", 1024));
  ASSIGN_OR_RETURN(out.heads, keys.Count("attention.head_count", 1 << 12));
  ASSIGN_OR_RETURN(out.positions, keys.Count("context_length", 1 << 20));
  ASSIGN_OR_RETURN(out.epsilon,
                   keys.Real("attention.layer_norm_epsilon", 1e-12));
  ASSIGN_OR_RETURN(out.vocabulary, RowsOf(file, "token_embd.weight"));
  if (out.hidden % out.heads != 0) {
    return InvalidArgument("embedding_length is " + std::to_string(out.hidden) +
                           ", which " + std::to_string(out.heads) +
                           " heads do not divide");
  }
  if (file.FindTensor("token_types.weight") != nullptr) {
    const GgufTensor* types = file.FindTensor("token_types.weight");
    out.types = types->num_dims == 2 ? types->dims[1] : 1;
  }
  if (out.family == Family::kBert) {
    ASSIGN_OR_RETURN(const int64_t rows, RowsOf(file, "position_embd.weight"));
    out.positions = rows;
    if (const GgufTensor* bias = file.FindTensor("cls.output.bias")) {
      out.head = Head::kClassify;
      out.classes = bias->num_elements;
    }
    return out;
  }
  ASSIGN_OR_RETURN(out.rope_base, keys.Real("rope.freq_base", 10000));
  if (out.family != Family::kModernBert) return out;
  ASSIGN_OR_RETURN(out.local_rope_base, keys.Real("rope.freq_base_swa", 10000));
  ASSIGN_OR_RETURN(out.window,
                   keys.Count("attention.sliding_window", 1 << 20, 128));
  const std::string pattern =
      std::string(architecture) + ".attention.sliding_window_pattern";
  const GgufValue* given = file.FindKey(pattern);
  if (given != nullptr && given->type == GgufValueType::kArray &&
      given->element_type == GgufValueType::kBool) {
    for (const char flag : given->bytes) out.windowed.push_back(flag != 0);
  } else {
    ASSIGN_OR_RETURN(const int64_t every,
                     keys.Count("attention.sliding_window_pattern", 1024, 3));
    for (int64_t i = 0; i < out.layers; ++i) {
      out.windowed.push_back(i % every != 0);
    }
  }
  if (static_cast<int64_t>(out.windowed.size()) != out.layers) {
    return InvalidArgument(
        pattern + " has " + std::to_string(out.windowed.size()) +
        " entries for " + std::to_string(out.layers) + " layers");
  }
  return out;
}

}  // namespace millrace::models::encoder

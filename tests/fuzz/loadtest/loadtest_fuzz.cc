// What millrace-loadtest reads from outside: bodies of replies, datasets,
// .npy files, reports to compare, words of flags.
//
// The first byte chooses the parser, the second one in which pieces a body
// arrives. A body must be judged alike whatever the pieces.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "loadtest/body_reader.h"
#include "loadtest/compare.h"
#include "loadtest/dataset.h"
#include "loadtest/slo.h"
#include "loadtest/tensors.h"
#include "loadtest/url.h"

namespace millrace::loadtest {
namespace {

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

RequestRecord ReadInPieces(EndpointType type, bool streaming,
                           std::string_view body, size_t piece_bytes,
                           std::string* text) {
  const auto reader = MakeBodyReader(type, streaming);
  RequestRecord record;
  reader->Begin(piece_bytes % 3 == 0 ? -1 : 20);
  for (size_t at = 0; at < body.size(); at += piece_bytes) {
    reader->Add(body.substr(at, piece_bytes), Time(), record);
  }
  reader->End(record);
  *text = reader->text();
  return record;
}

void FuzzBody(uint8_t choice, uint8_t piece, std::string_view body) {
  static constexpr EndpointType kTypes[] = {
      EndpointType::kChat, EndpointType::kCompletions,
      EndpointType::kEmbeddings, EndpointType::kKserve};
  const EndpointType type = kTypes[choice % 4];
  const bool streaming = choice >= 4 && Generates(type);
  // Both sizes leave the same remainder by 3, hence the same header.
  const size_t small = static_cast<size_t>(piece % 30) * 3 + 1 + choice % 2;
  const size_t large = 3'000'000 + small % 3;
  std::string text_of_pieces;
  std::string text_of_whole;
  const RequestRecord pieces =
      ReadInPieces(type, streaming, body, small, &text_of_pieces);
  const RequestRecord whole =
      ReadInPieces(type, streaming, body, large, &text_of_whole);
  Require(pieces.outcome == whole.outcome, "the pieces change the outcome");
  Require(pieces.chunk_times.size() == whole.chunk_times.size(),
          "the pieces change the number of chunks");
  Require(pieces.output_tokens == whole.output_tokens,
          "the pieces change the number of tokens");
  Require(text_of_pieces == text_of_whole, "the pieces change the text");
}

}  // namespace
}  // namespace millrace::loadtest

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::loadtest;
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2,
                              size - 2);
  switch (data[0] % 16) {
    case 8:
      if (const auto dataset = ParseJsonl(text); dataset.ok()) {
        TraceOf(*dataset, 1 + data[1]).ok();
      }
      break;
    case 9:
      ParseNpy(text).ok();
      break;
    case 10:
      CompareReports(text, text).ok();
      break;
    case 11:
      ParseSlo(text).ok();
      ParseUrl(text, "80").ok();
      break;
    default:
      FuzzBody(data[0] % 8, data[1], text);
  }
  return 0;
}

// Every file goes through the demuxer: a still picture is an animation of one
// frame. A frame may cover a part of the canvas; the rest is black then.
#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "models/image/decode_formats.h"
#include "models/image/exif.h"

namespace millrace::models {
namespace {

struct DeleteDemuxer {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};

// Frees what the demuxer lent.
struct Frame : WebPIterator {
  Frame() : WebPIterator{} {}
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  ~Frame() { WebPDemuxReleaseIterator(this); }
};

int OrientationOf(const WebPDemuxer* demuxer) {
  WebPChunkIterator chunk{};
  if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk) == 0) return 1;
  const int orientation =
      ExifOrientation({chunk.chunk.bytes, chunk.chunk.size});
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

}  // namespace

StatusOr<RgbImage> DecodeWebp(std::span<const uint8_t> bytes,
                              const DecodeOptions& options) {
  const WebPData data{bytes.data(), bytes.size()};
  WebPDemuxState state = WEBP_DEMUX_PARSING_HEADER;
  const std::unique_ptr<WebPDemuxer, DeleteDemuxer> demuxer(
      WebPDemuxPartial(&data, &state));
  if (demuxer == nullptr || state == WEBP_DEMUX_PARSE_ERROR) {
    return InvalidArgument("the WebP cannot be read: its chunks are damaged");
  }
  if (state != WEBP_DEMUX_DONE) {
    return InvalidArgument("the WebP cannot be read: it ends early");
  }
  ASSIGN_OR_RETURN(
      RgbImage image,
      MakeImage("the WebP", WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH),
                WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT),
                options.max_pixels));
  Frame frame;
  if (WebPDemuxGetFrame(demuxer.get(), 1, &frame) == 0) {
    return InvalidArgument("the WebP has no frame");
  }
  const int64_t left = std::max(frame.x_offset, 0);
  const int64_t top = std::max(frame.y_offset, 0);
  if (left + frame.width > image.width || top + frame.height > image.height) {
    return InvalidArgument("the WebP has a frame beyond its canvas");
  }
  const int64_t first = top * image.row_bytes() + left * RgbImage::kChannels;
  const auto stride = static_cast<int>(image.row_bytes());
  if (WebPDecodeRGBInto(frame.fragment.bytes, frame.fragment.size,
                        image.pixels.data() + first,
                        image.pixels.size() - static_cast<size_t>(first),
                        stride) == nullptr) {
    return InvalidArgument("the WebP cannot be read: its pixels are damaged");
  }
  return Oriented(std::move(image), OrientationOf(demuxer.get()));
}

}  // namespace millrace::models

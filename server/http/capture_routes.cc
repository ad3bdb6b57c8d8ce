// POST /debug/trace?seconds=5: what all threads do for so long, as a trace for
// Perfetto; ?format=text gives the breakdown in words alone.
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "config/base/utf8.h"
#include "server/http/message.h"
#include "server/http/routes.h"
#include "server/tracing/breakdown.h"
#include "server/tracing/capture.h"
#include "server/tracing/timeline_json.h"

namespace millrace::server::http {
namespace {

StatusOr<double> ReadSeconds(std::string_view query) {
  const std::string_view text = QueryValue(query, "seconds");
  double seconds = kDefaultCaptureSeconds;
  if (text.empty()) return seconds;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() ||
      !(seconds > 0) || seconds > kMostCaptureSeconds) {
    return InvalidArgument("seconds is '" + Shortened(text, 40) +
                           "'; give a number above 0 and up to " +
                           std::to_string(kMostCaptureSeconds))
        .At("seconds");
  }
  return seconds;
}

std::string Lines(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& line : words) text += line + "\n";
  return text;
}

}  // namespace

void ServeCapture(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  const std::string_view query = exchange->request().query;
  const StatusOr<double> seconds = ReadSeconds(query);
  const std::string_view format = QueryValue(query, "format");
  Status status = seconds.status();
  if (status.ok() && !format.empty() && format != "json" && format != "text") {
    status = InvalidArgument("format is '" + Shortened(format, 40) +
                             "'; choose json or text")
                 .At("format");
  }
  if (status.ok() && site.services.capturer == nullptr) {
    status = Unimplemented("this server captures nothing");
  }
  if (status.ok()) {
    status = site.services.capturer->Start(
        std::chrono::milliseconds(static_cast<int64_t>(*seconds * 1e3)),
        exchange->stop_token(),
        [exchange, text = format == "text"](
            const TimelineCapture& capture) -> Capturer::Send {
          const std::vector<std::string> words = Breakdown(capture);
          HttpResponse response =
              JsonResponse(200, text ? "" : TimelineJson(capture, words));
          if (text) {
            response.content_type = "text/plain; charset=utf-8";
            response.body = Lines(words);
          }
          return [exchange,
                  made = std::make_shared<HttpResponse>(std::move(response))] {
            exchange->Send(std::move(*made));
          };
        });
  }
  if (!status.ok()) exchange->Send(ErrorResponse(status));
}

}  // namespace millrace::server::http

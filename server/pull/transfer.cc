#include "server/pull/transfer.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <memory>
#include <utility>

#include "config/base/utf8.h"
#include "server/pull/curl_library.h"

namespace millrace::server {
namespace {

constexpr size_t kMaxErrorBody = 4096;
constexpr size_t kMaxHeaders = 200;

std::string Trimmed(std::string_view text) {
  const auto is_space = [](char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
  };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return std::string(text);
}

std::string Unquoted(std::string text) {
  if (text.starts_with("W/")) text.erase(0, 2);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
    text = text.substr(1, text.size() - 2);
  }
  return text;
}

struct State {
  const CurlLibrary* curl = nullptr;
  CURL* handle = nullptr;
  TransferSink* sink = nullptr;
  TransferReply reply;
  bool is_first = true;  // no redirect was followed yet
  bool has_begun = false;
  Status failed;  // of the sink
  std::string error_body;
};

void TakeHeader(std::string_view line, State* state) {
  if (line.starts_with("HTTP/")) {
    if (!state->reply.headers.empty()) state->is_first = false;
    state->reply.headers.clear();
    return;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos ||
      state->reply.headers.size() >= kMaxHeaders) {
    return;
  }
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  std::string value = Trimmed(line.substr(colon + 1));
  if (name == "x-linked-etag" && state->is_first) {
    state->reply.linked_etag = Unquoted(value);
  }
  state->reply.headers[std::move(name)] = std::move(value);
}

size_t OnHeader(char* bytes, size_t size, size_t count, void* state) {
  TakeHeader({bytes, size * count}, static_cast<State*>(state));
  return size * count;
}

// Called about once a second, of a silent server, too.
int OnProgress(void* stop, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const std::stop_token*>(stop)->stop_requested() ? 1 : 0;
}

void ReadStatus(State* state) {
  long status = 0, redirects = 0;
  state->curl->easy_getinfo(state->handle, CURLINFO_RESPONSE_CODE, &status);
  state->curl->easy_getinfo(state->handle, CURLINFO_REDIRECT_COUNT, &redirects);
  state->reply.status = static_cast<int>(status);
  state->reply.was_redirected = redirects > 0;
}

size_t OnBody(char* bytes, size_t size, size_t count, void* opaque) {
  State* state = static_cast<State*>(opaque);
  const std::string_view body(bytes, size * count);
  ReadStatus(state);
  if (state->reply.status != 200 && state->reply.status != 206) {
    const size_t room = kMaxErrorBody - state->error_body.size();
    state->error_body.append(body.substr(0, room));
    return body.size();
  }
  if (!state->has_begun) {
    state->has_begun = true;
    state->failed = state->sink->Begin(state->reply);
  }
  if (state->failed.ok()) state->failed = state->sink->Write(body);
  return state->failed.ok() ? body.size() : 0;
}

// The server's own word: <Code> of S3, X-Error-Code and X-Error-Message of
// Hugging Face, "error" of a JSON body.
std::string ServersWord(const State& state) {
  const std::string& body = state.error_body;
  std::string word;
  if (const size_t at = body.find("<Code>"); at != std::string::npos) {
    const size_t end = body.find('<', at + 6);
    if (end != std::string::npos) word = body.substr(at + 6, end - at - 6);
  }
  if (word.empty()) word = state.reply.Header("x-error-code");
  if (word.empty()) word = state.reply.Header("x-error-message");
  word = word.substr(0, 100);
  std::replace_if(
      word.begin(), word.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return word.empty() ? "" : " (" + word + ")";
}

int64_t RetryAfterMs(const State& state) {
  const std::string text = state.reply.Header("retry-after");
  int64_t seconds = 0;
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  return std::clamp<int64_t>(seconds, 0, 60) * 1000;
}

Status OfHttpStatus(const TransferRequest& request, const State& state) {
  const int status = state.reply.status;
  const std::string said = request.what + " was answered with " +
                           std::to_string(status) + ServersWord(state);
  const bool is_s3 = !request.aws_region.empty();
  switch (status) {
    case 401:
    case 403: {
      const std::string remedy =
          is_s3 ? "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
                  "AWS_SESSION_TOKEN and their dates"
                : "the address may need a token: for Hugging Face set HF_TOKEN "
                  "and accept the model's terms there";
      Status refused(status == 401 ? StatusCode::kUnauthenticated
                                   : StatusCode::kPermissionDenied,
                     said + "; " + remedy);
      // A signed address that a redirect gave has run out: the next try gets
      // a new one.
      return state.reply.was_redirected ? refused.Because(kTransient) : refused;
    }
    case 404:
    case 410:
      return NotFound(said + "; check the address");
    case 416:
      return OutOfRange(said);
    case 408:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
      return Unavailable(said)
          .Because(kTransient)
          .RetryAfterMs(RetryAfterMs(state));
    default:
      break;
  }
  if (status >= 300 && status < 400 && is_s3) {
    const std::string region = state.reply.Header("x-amz-bucket-region");
    return FailedPrecondition(
        said + ": the bucket is in another region; set AWS_REGION" +
        (region.empty() ? "" : "=" + Shortened(region, 40)));
  }
  return FailedPrecondition(said);
}

Status OfCurl(const TransferRequest& request, const State& state, CURLcode code,
              const char* detail) {
  const std::string why =
      *detail != '\0' ? detail : state.curl->easy_strerror(code);
  const std::string said = request.what + " cannot be read: " + why;
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
      return FailedPrecondition(
          said + "; set SSL_CERT_FILE to the authority of its certificate");
    case CURLE_SSL_CACERT_BADFILE:
      return FailedPrecondition(
          said + "; check the file of authorities (SSL_CERT_FILE)");
    case CURLE_URL_MALFORMAT:
      return InvalidArgument(said);
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_TOO_MANY_REDIRECTS:
      return FailedPrecondition(said + "; a redirect leads where none may");
    case CURLE_OPERATION_TIMEDOUT:
      return DeadlineExceeded(said).Because(kTransient);
    default:
      return Unavailable(said).Because(kTransient);
  }
}

}  // namespace

std::string TransferReply::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

StatusOr<TransferReply> Transfer(const TransferRequest& request,
                                 TransferSink* sink) {
  ASSIGN_OR_RETURN(const CurlLibrary* curl, OpenCurl());
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> handle(
      curl->easy_init(), curl->easy_cleanup);
  if (handle == nullptr) return Internal("libcurl gives no handle");
  State state;
  state.curl = curl;
  state.handle = handle.get();
  state.sink = sink;
  char detail[CURL_ERROR_SIZE] = "";

  CURLcode wrong = CURLE_OK;
  const auto set = [&](CURLoption option, auto value) {
    const CURLcode code = curl->easy_setopt(handle.get(), option, value);
    if (wrong == CURLE_OK) wrong = code;
  };
  set(CURLOPT_ERRORBUFFER, static_cast<char*>(detail));
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_USERAGENT, "millrace");
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  // From https, never down to what others can read and change.
  set(CURLOPT_REDIR_PROTOCOLS_STR,
      request.url.starts_with("https:") ? "https" : "http,https");
  set(CURLOPT_FOLLOWLOCATION, request.follow ? 1L : 0L);
  set(CURLOPT_MAXREDIRS, 10L);
  set(CURLOPT_CONNECTTIMEOUT, 15L);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.stall_s));
  set(CURLOPT_TIMEOUT, static_cast<long>(request.timeout_s));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, OnProgress);
  set(CURLOPT_XFERINFODATA,
      const_cast<void*>(static_cast<const void*>(&request.stop)));
  // What a proxy says to CONNECT is no answer of the server.
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_HEADERFUNCTION, OnHeader);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&state));
  set(CURLOPT_WRITEFUNCTION, OnBody);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&state));
  if (!request.ca_file.empty()) {
    set(CURLOPT_CAINFO, request.ca_file.c_str());
  }
  const std::string range = std::to_string(request.offset) + "-";
  if (request.offset > 0) set(CURLOPT_RANGE, range.c_str());
  const std::string signature = "aws:amz:" + request.aws_region + ":s3";
  if (!request.aws_key_id.empty()) {
    set(CURLOPT_AWS_SIGV4, signature.c_str());
    set(CURLOPT_USERNAME, request.aws_key_id.c_str());
    set(CURLOPT_PASSWORD, request.aws_secret.c_str());
  }
  std::vector<std::string> lines = request.headers;
  if (request.offset > 0 && !request.if_range.empty()) {
    lines.push_back("If-Range: " + request.if_range);
  }
  curl_slist* headers = nullptr;
  for (const std::string& line : lines) {
    headers = curl->slist_append(headers, line.c_str());
  }
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> owned(
      headers, curl->slist_free_all);
  set(CURLOPT_HTTPHEADER, headers);
  if (wrong != CURLE_OK) {
    return Internal("libcurl refuses an option: " +
                    std::string(curl->easy_strerror(wrong)));
  }

  const CURLcode code = curl->easy_perform(handle.get());
  ReadStatus(&state);
  if (!state.failed.ok()) return state.failed;
  if (code == CURLE_ABORTED_BY_CALLBACK) {
    return Cancelled(request.what + " is not wanted any more");
  }
  if (code != CURLE_OK) return OfCurl(request, state, code, detail);
  const int status = state.reply.status;
  if (status != 200 && status != 206 && status != 304) {
    return OfHttpStatus(request, state);
  }
  if (!state.has_begun && status != 304) {
    RETURN_IF_ERROR(sink->Begin(state.reply));  // an empty body
  }
  return std::move(state.reply);
}

}  // namespace millrace::server

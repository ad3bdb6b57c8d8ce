// One keep-alive HTTP/1.1 connection, over TCP or TLS. Beast parses the
// replies.
//
//   co_await connection.Exchange(bytes, reader, record);
//
// Exchange ends with a complete record, whatever happens. The owner watches
// `deadline` and calls Abort, which makes the exchange end at once. One thread
// only, that of the io_context.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <string>
#include <string_view>

#include "config/base/status.h"
#include "loadtest/body_reader.h"
#include "loadtest/detail/transport.h"
#include "loadtest/record.h"
#include "loadtest/url.h"

namespace millrace::loadtest {

// Blocks while the name is looked up. INVALID_ARGUMENT when the file of
// authorities cannot be used.
StatusOr<Endpoints> Resolve(const Url& url);

class HttpConnection {
 public:
  // `endpoints` outlives the connection.
  HttpConnection(boost::asio::io_context& context, const Endpoints& endpoints);

  // Fills sent, end, outcome, status and what the reader finds. A connection
  // that the server closed between two requests is opened again, once.
  boost::asio::awaitable<void> Exchange(std::string_view bytes,
                                        BodyReader& reader,
                                        RequestRecord& record);

  // Ends the exchange under way with that outcome.
  void Abort(Outcome why);
  void Close();

  Time deadline = Time::max();  // of the exchange under way

 private:
  enum class Step { kDone, kStale };

  boost::asio::awaitable<bool> Connect(RequestRecord& record);
  boost::asio::awaitable<Step> Attempt(std::string_view bytes,
                                       BodyReader& reader,
                                       RequestRecord& record);
  boost::asio::awaitable<Step> ReadReply(BodyReader& reader,
                                         RequestRecord& record);
  Step Lost(bool any_byte, const boost::system::error_code& ec,
            RequestRecord& record);

  const Endpoints& endpoints_;
  Transport transport_;
  boost::beast::flat_buffer buffer_;
  bool reused_ = false;  // it has carried an exchange before
  Outcome aborted_ = Outcome::kOk;
};

}  // namespace millrace::loadtest

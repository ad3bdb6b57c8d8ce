// A server on loopback that answers each connection with the next of its
// scripted replies, whatever is asked, and remembers what was asked.
#pragma once

#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace millrace::server {

struct ScriptedReply {
  // Sent one by one, each in a packet of its own as far as TCP lets us.
  std::vector<std::string> pieces;
  bool hang = false;  // keep the connection open until the client closes it
};

// "HTTP/1.1 STATUS …" with a JSON body.
ScriptedReply JsonReply(int status, const std::string& body);
// A chunked stream of events, one chunk each.
ScriptedReply EventReply(const std::vector<std::string>& data);
// An event with this text.
std::string Delta(const std::string& text);

class ScriptedServer {
 public:
  explicit ScriptedServer(std::vector<ScriptedReply> replies);
  ~ScriptedServer();

  std::string url() const {
    return "http://127.0.0.1:" + std::to_string(port_);
  }
  // Requests so far, header and body.
  std::vector<std::string> requests();

 private:
  void Serve(const ScriptedReply& reply);

  const std::vector<ScriptedReply> replies_;
  int listener_ = -1;
  int port_ = 0;
  std::mutex mu_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace millrace::server

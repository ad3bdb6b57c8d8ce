// The flags with which the client verbs trust a server and show a certificate
// of their own; named as curl names them.
#pragma once

#include <string>

#include "config/base/variable.h"
#include "server/cli/args.h"
#include "server/cli/chat/http_client.h"

namespace millrace::server {

inline constexpr FlagSpec kCaCertFlag = {
    "cacert", "FILE",
    "PEM file of the authorities that an https:// server's certificate is "
    "checked against (default: the system's)"};
inline constexpr FlagSpec kCertFlag = {
    "cert", "FILE",
    "PEM file of our own certificate, where the server asks for one"};
inline constexpr FlagSpec kKeyFlag = {"key", "FILE",
                                      "PEM file of its private key"};
inline constexpr FlagSpec kInsecureFlag = {
    "insecure", "", "take any certificate of an https:// server", "k"};

inline TlsOptions TlsOptionsOf(const ParsedArgs& args) {
  TlsOptions options;
  options.ca_file = args.Text("cacert", "");
  options.cert_file = args.Text("cert", "");
  options.key_file = args.Text("key", "");
  options.insecure = args.Has("insecure");
  return options;
}

// A server of this machine, as the variables of its settings say. Where they
// name a certificate, the server must show that one: its name is seldom that of
// a loopback address.
inline std::string LocalServer(const std::string& host, std::string port,
                               TlsOptions* options) {
  if (port.empty()) port = VariableOr("MILLRACE_HTTP_PORT", "8000");
  const char* certificate = Variable("MILLRACE_SSL_CERT_FILE");
  const bool is_tls = certificate != nullptr;
  if (is_tls && options->ca_file.empty()) options->pinned_file = certificate;
  return (is_tls ? "https://" : "http://") + host + ":" + port;
}

}  // namespace millrace::server

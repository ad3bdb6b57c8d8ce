#include "loadtest/option_flags.h"

#include <boost/program_options.hpp>
#include <string>
#include <vector>

namespace millrace::loadtest {
namespace {

namespace po = boost::program_options;

using Text = std::string;
using Texts = std::vector<std::string>;

po::options_description TargetFlags() {
  po::options_description flags("Target");
  auto add = flags.add_options();
  add("url,u", po::value<Text>(),
      "address of the server (http://127.0.0.1:8000; kserve-grpc: "
      "127.0.0.1:8001)");
  add("model,m", po::value<Text>(),
      "name of the model, as the server knows it");
  add("endpoint-type", po::value<Text>(),
      "chat (default), completions, embeddings, kserve, kserve-grpc or "
      "torchserve");
  add("endpoint", po::value<Text>(), "path, where it is not the usual one");
  add("streaming", po::bool_switch(), "ask for token streams (SSE)");
  add("header,H", po::value<Texts>(), "one more header, as in 'Name: value'");
  add("cacert", po::value<Text>(),
      "PEM file of the authorities that an https:// or grpcs:// server's "
      "certificate is checked against; default: the system's");
  add("insecure", po::bool_switch(),
      "take any certificate of an https:// server");
  add("api-key", po::value<Text>(), "sent as Authorization: Bearer KEY");
  add("request-timeout", po::value<Text>(),
      "a request that takes longer is a failure (120s)");
  return flags;
}

po::options_description LoadFlags() {
  po::options_description flags("Load");
  auto add = flags.add_options();
  add("concurrency", po::value<Text>(),
      "closed loop: so many requests are always under way (1)");
  add("request-rate", po::value<Text>(),
      "open loop: requests/s, sent when they are due whether or not earlier "
      "ones were answered");
  add("arrival", po::value<Text>(),
      "of the open loop: constant (default), poisson, burst or trace");
  add("burst-size", po::value<Text>(), "requests of one burst (10)");
  add("trace-speed", po::value<Text>(),
      "replays a trace so many times faster (1)");
  add("max-connections", po::value<Text>(),
      "of the open loop; further requests wait, and their waiting counts "
      "(1024)");
  add("num-requests,n", po::value<Text>(),
      "so many requests are measured (100 where no --duration is given)");
  add("duration", po::value<Text>(),
      "requests are sent for so long, as in 30s");
  add("grace-period", po::value<Text>(),
      "time for requests under way at the end; later ones count as failures "
      "(30s)");
  add("warmup", po::value<Text>(),
      "requests (10) or time (5s) before the measurement, not reported (0)");
  add("repetitions", po::value<Text>(),
      "measures so many times and reports 95 % confidence intervals (1)");
  add("sweep", po::value<Text>(),
      "concurrency=1,2,4 or request-rate=5,10,20: measures each value and "
      "finds the knee and the highest load that meets the SLO");
  add("client-threads", po::value<Text>(), "threads of the client (1)");
  add("client-cpus", po::value<Text>(),
      "pins the threads to these CPUs, as in 0,1 (not pinned)");
  add("random-seed", po::value<Text>(),
      "seed of arrivals, prompts and tensors (0)");
  return flags;
}

po::options_description DataFlags() {
  po::options_description flags("Requests");
  auto add = flags.add_options();
  add("dataset", po::value<Text>(),
      "JSONL file of prompts, conversations or a trace; see README.md");
  add("input-tokens", po::value<Text>(),
      "synthetic prompts of MEAN or MEAN:STDDEV tokens (128)");
  add("output-tokens", po::value<Text>(),
      "asks for MEAN or MEAN:STDDEV tokens");
  add("no-ignore-eos", po::bool_switch(),
      "with --output-tokens: the model may end earlier");
  add("shared-prefix-tokens", po::value<Text>(),
      "all synthetic prompts begin with the same so many tokens (0)");
  add("num-prompts", po::value<Text>(),
      "different synthetic prompts (as many as requests, at least 1000)");
  add("turns", po::value<Text>(),
      "turns of a synthetic conversation; each sends the replies before it "
      "(1)");
  add("extra-input", po::value<Texts>(),
      "one more field of the body, as in temperature:0 (value: JSON or text)");
  add("batch-size,b", po::value<Text>(), "first dimension of tensors (1)");
  add("shape", po::value<Texts>(),
      "sizes of an input with variable ones, as in input:1,3,224,224");
  add("input", po::value<Texts>(),
      "values of an input, as in input:FILE.npy; of BYTES any file (a "
      "picture) is an element. A folder, or the flag again: in turn");
  add("tensor-format", po::value<Text>(),
      "of kserve: binary (default) or json");
  add("data", po::value<Texts>(),
      "file whose bytes torchserve is sent; a folder, or the flag again: in "
      "turn");
  add("content-type", po::value<Text>(),
      "of --data (application/octet-stream)");
  return flags;
}

po::options_description ReportFlags() {
  po::options_description flags("Report");
  auto add = flags.add_options();
  add("slo", po::value<Text>(),
      "objectives, as in ttft:p99:500ms,itl:p99:50ms,latency:p99:2s; the exit "
      "status is 3 when one is missed");
  add("max-error-rate", po::value<Text>(),
      "with --slo: share of failed requests that is still met (0.01)");
  add("json", po::value<Text>(), "writes the figures as JSON");
  add("csv", po::value<Text>(), "writes the figures as CSV");
  add("html", po::value<Text>(), "writes a page with plots");
  add("no-progress", po::bool_switch(), "no live line on the terminal");
  add("help,h", po::bool_switch(), "this text");
  return flags;
}

}  // namespace

po::options_description AllFlags() {
  po::options_description all;
  all.add(TargetFlags()).add(LoadFlags()).add(DataFlags()).add(ReportFlags());
  return all;
}

}  // namespace millrace::loadtest

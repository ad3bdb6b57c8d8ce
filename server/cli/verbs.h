// The subcommands ("verbs") of the command line: `millrace VERB ARGS…`, one
// file each. A verb gets the arguments after its name and returns the process'
// exit code: 0 done, 1 it failed (one sentence on stderr), 2 the command line
// is wrong, or a file or variable with its settings. A model's file that is not
// there, is none or cannot be served is 1 with every verb, and so is what its
// config.yaml or config.pbtxt says.
#pragma once

#include <span>
#include <string>

namespace millrace::server {

using Args = std::span<const std::string>;

int RunServe(Args args);       // the server
int RunChat(Args args);        // a terminal chat with a running server
int RunHealth(Args args);      // whether a running server is ready
int RunTrace(Args args);       // what a running server does for seconds
int RunPull(Args args);        // a model from elsewhere into the cache
int RunKeys(Args args);        // API keys for the file of keys
int RunInspect(Args args);     // what a model file holds, servable or why not
int RunTopology(Args args);    // what would be pinned where
int RunBench(Args args);       // tokens/s beside the machine's limits
int RunLogits(Args args);      // teacher-forced logits
int RunGraph(Args args);       // a graph on arrays of a file
int RunProfile(Args args);     // where a graph's time goes
int RunQuantize(Args args);    // ranges of a graph's layers, for int8
int RunConvert(Args args);     // a model in the form that loads fastest
int RunMigrate(Args args);     // a TorchServe archive as our folder
int RunCompletion(Args args);  // completions of a shell

// What each takes; serve takes the settings.
struct VerbSpec;
const VerbSpec& ChatVerb();
const VerbSpec& HealthVerb();
const VerbSpec& TraceVerb();
const VerbSpec& PullVerb();
const VerbSpec& KeysVerb();
const VerbSpec& InspectVerb();
const VerbSpec& TopologyVerb();
const VerbSpec& BenchVerb();
const VerbSpec& LogitsVerb();
const VerbSpec& GraphVerb();
const VerbSpec& ProfileVerb();
const VerbSpec& QuantizeVerb();
const VerbSpec& ConvertVerb();
const VerbSpec& MigrateVerb();
const VerbSpec& CompletionVerb();

}  // namespace millrace::server

// The functions behind the routes, one protocol per source file; the table
// that names their paths is in routes.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "server/http/exchange.h"
#include "server/http/site.h"
#include "server/http/socket_handler.h"

namespace millrace::server::http {

// health_routes.cc: cheap, answered on the I/O thread.
void ServeHealth(const Site&, const std::shared_ptr<Exchange>&);
void ServeLive(const Site&, const std::shared_ptr<Exchange>&);
void ServeReady(const Site&, const std::shared_ptr<Exchange>&);
void ServeVersion(const Site&, const std::shared_ptr<Exchange>&);
void ServeMetrics(const Site&, const std::shared_ptr<Exchange>&);

// front_page.cc, openapi.cc: for people and for programs, on the handler pool.
void ServeFrontPage(const Site&, const std::shared_ptr<Exchange>&);
void ServeOpenApi(const Site&, const std::shared_ptr<Exchange>&);

// model_routes.cc: cheap, answered on the I/O thread.
void ServeModels(const Site&, const std::shared_ptr<Exchange>&);
void ServeModel(const Site&, const std::shared_ptr<Exchange>&);

// oip_routes.cc: likewise, but for infer, which runs on the handler pool.
void ServeOipServer(const Site&, const std::shared_ptr<Exchange>&);
void ServeOipModels(const Site&, const std::shared_ptr<Exchange>&);
void ServeOipModel(const Site&, const std::shared_ptr<Exchange>&);
void ServeOipModelReady(const Site&, const std::shared_ptr<Exchange>&);
void ServeOipInfer(const Site&, const std::shared_ptr<Exchange>&);
// oip_generate_routes.cc: on the handler pool.
void ServeOipGenerate(const Site&, const std::shared_ptr<Exchange>&);
void ServeOipGenerateStream(const Site&, const std::shared_ptr<Exchange>&);
// Whether the model has a place: a large body is not read to be refused.
Status GuardOipInfer(const Site&, const std::vector<std::string>& params);

// session_routes.cc: over a WebSocket, short messages on the I/O thread.
void ServeSession(const Site&, const std::shared_ptr<Exchange>&);
StatusOr<std::shared_ptr<SocketHandler>> OpenSession(
    const Site&, const std::shared_ptr<Exchange>&);

// task_routes.cc: on the handler pool.
void ServeTask(const Site&, const std::shared_ptr<Exchange>&);
// As GuardOipInfer.
Status GuardTask(const Site&, const std::vector<std::string>& params);

// drift_routes.cc: the predictions of a classifier's latest requests, in the
// form of its baseline; answered on the I/O thread.
void ServeModelDrift(const Site&, const std::shared_ptr<Exchange>&);

// audio_routes.cc: on the handler pool.
void ServeTranscriptions(const Site&, const std::shared_ptr<Exchange>&);

// repository_routes.cc: likewise; bodies are read on the handler pool, loads
// and unloads run on the repository's thread.
void ServeRepositoryIndex(const Site&, const std::shared_ptr<Exchange>&);
void ServeRepositoryLoad(const Site&, const std::shared_ptr<Exchange>&);
void ServeRepositoryUnload(const Site&, const std::shared_ptr<Exchange>&);
void ServeOipModelConfig(const Site&, const std::shared_ptr<Exchange>&);
void ServeOipModelStats(const Site&, const std::shared_ptr<Exchange>&);

// settings_routes.cc, shared_memory_routes.cc: what reads is answered on the
// I/O thread, what has a body on the handler pool.
void ServeLogSettings(const Site&, const std::shared_ptr<Exchange>&);
void ServeChangeLog(const Site&, const std::shared_ptr<Exchange>&);
void ServeTraceSettings(const Site&, const std::shared_ptr<Exchange>&);
void ServeChangeTrace(const Site&, const std::shared_ptr<Exchange>&);
void ServeSharedMemoryStatus(const Site&, const std::shared_ptr<Exchange>&);
void ServeSharedMemoryRegister(const Site&, const std::shared_ptr<Exchange>&);
void ServeSharedMemoryUnregister(const Site&, const std::shared_ptr<Exchange>&);
void ServeCudaMemoryStatus(const Site&, const std::shared_ptr<Exchange>&);
void ServeCudaMemoryRegister(const Site&, const std::shared_ptr<Exchange>&);
void ServeCudaMemoryUnregister(const Site&, const std::shared_ptr<Exchange>&);

// console_routes.cc: cheap, answered on the I/O thread.
void ServeConsole(const Site&, const std::shared_ptr<Exchange>&);
void ServeCores(const Site&, const std::shared_ptr<Exchange>&);

// capture_routes.cc: on the capture's thread.
void ServeCapture(const Site&, const std::shared_ptr<Exchange>&);

// generate_routes.cc, token_routes.cc: on the handler pool.
void ServeChatCompletions(const Site&, const std::shared_ptr<Exchange>&);
void ServeCompletions(const Site&, const std::shared_ptr<Exchange>&);
void ServeTokenize(const Site&, const std::shared_ptr<Exchange>&);
void ServeCountChatTokens(const Site&, const std::shared_ptr<Exchange>&);
void ServeDetokenize(const Site&, const std::shared_ptr<Exchange>&);
void ServeApplyTemplate(const Site&, const std::shared_ptr<Exchange>&);

// embeddings_routes.cc, rerank_routes.cc: on the handler pool.
void ServeEmbeddings(const Site&, const std::shared_ptr<Exchange>&);
void ServeOllamaEmbed(const Site&, const std::shared_ptr<Exchange>&);
void ServeOllamaEmbeddings(const Site&, const std::shared_ptr<Exchange>&);
void ServeLlamaEmbeddings(const Site&, const std::shared_ptr<Exchange>&);
void ServeRerank(const Site&, const std::shared_ptr<Exchange>&);
void ServeScore(const Site&, const std::shared_ptr<Exchange>&);
void ServeClassify(const Site&, const std::shared_ptr<Exchange>&);

// responses_routes.cc: created on the handler pool; the rest is answered on the
// I/O thread.
void ServeCreateResponse(const Site&, const std::shared_ptr<Exchange>&);
void ServeCountResponseTokens(const Site&, const std::shared_ptr<Exchange>&);
void ServeResponse(const Site&, const std::shared_ptr<Exchange>&);
void ServeDeleteResponse(const Site&, const std::shared_ptr<Exchange>&);
void ServeResponseInput(const Site&, const std::shared_ptr<Exchange>&);

// file_routes.cc, batch_routes.cc: on the handler pool.
void ServeUploadFile(const Site&, const std::shared_ptr<Exchange>&);
void ServeFiles(const Site&, const std::shared_ptr<Exchange>&);
void ServeFile(const Site&, const std::shared_ptr<Exchange>&);
void ServeFileContent(const Site&, const std::shared_ptr<Exchange>&);
void ServeDeleteFile(const Site&, const std::shared_ptr<Exchange>&);
void ServeCreateBatch(const Site&, const std::shared_ptr<Exchange>&);
void ServeBatches(const Site&, const std::shared_ptr<Exchange>&);
void ServeBatch(const Site&, const std::shared_ptr<Exchange>&);
void ServeCancelBatch(const Site&, const std::shared_ptr<Exchange>&);
// Whether there is a folder for files: a large body is not read to be refused.
Status GuardFiles(const Site&, const std::vector<std::string>& params);

// ollama_routes.cc, llama_routes.cc: what has a body, /props and /slots run on
// the handler pool.
void ServeOllamaChat(const Site&, const std::shared_ptr<Exchange>&);
void ServeOllamaGenerate(const Site&, const std::shared_ptr<Exchange>&);
void ServeOllamaShow(const Site&, const std::shared_ptr<Exchange>&);
void ServeOllamaTags(const Site&, const std::shared_ptr<Exchange>&);
void ServeOllamaRunning(const Site&, const std::shared_ptr<Exchange>&);
void ServeOllamaVersion(const Site&, const std::shared_ptr<Exchange>&);
void ServeLlamaCompletion(const Site&, const std::shared_ptr<Exchange>&);
void ServeLlamaInfill(const Site&, const std::shared_ptr<Exchange>&);
void ServeLlamaProps(const Site&, const std::shared_ptr<Exchange>&);
void ServeLlamaSlots(const Site&, const std::shared_ptr<Exchange>&);
void ServeLlamaSlotAction(const Site&, const std::shared_ptr<Exchange>&);
void ServeLoadLora(const Site&, const std::shared_ptr<Exchange>&);
void ServeUnloadLora(const Site&, const std::shared_ptr<Exchange>&);
void ServeLoraAdapters(const Site&, const std::shared_ptr<Exchange>&);
void ServeLoraScales(const Site&, const std::shared_ptr<Exchange>&);

// anthropic_routes.cc: on the handler pool.
void ServeMessages(const Site&, const std::shared_ptr<Exchange>&);
void ServeCountTokens(const Site&, const std::shared_ptr<Exchange>&);
// {"type": "error", "error": {"type", "message"}}.
HttpResponse AnthropicErrorResponse(const Status& status);

}  // namespace millrace::server::http

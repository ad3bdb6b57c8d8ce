// GET /: what is served here, for a person with a browser or curl.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/html.h"
#include "server/http/message.h"
#include "server/http/pool_work.h"
#include "server/http/router.h"
#include "server/http/routes.h"
#include "server/version.h"

namespace millrace::server::http {
namespace {

struct Row {
  std::vector<std::string> cells;
};
struct Table {
  std::string title;
  std::vector<Row> rows;
};

Table Models(const Repository& repository, const Exchange& exchange) {
  Table table{.title = "Models", .rows = {}};
  for (const std::shared_ptr<Servable>& model : repository.List()) {
    if (!MayUse(exchange, model->id())) continue;
    const bool is_text = model->kind() == ModelKind::kText;
    table.rows.push_back(
        {{model->id(), model->facts().platform,
          is_text ? "POST /v1/chat/completions"
                  : "POST /v2/models/" + model->id() + "/infer"}});
  }
  if (table.rows.empty()) {
    const std::string loading = repository.LoadSentence();
    table.rows.push_back({{loading.empty() ? "none is loaded" : loading}});
  }
  return table;
}

Table Routes() {
  Table table{.title = "Routes", .rows = {}};
  for (const Route& route : ServingRoutes()) {
    table.rows.push_back(
        {{std::string(route.method), std::string(route.pattern),
          std::string(route.summary)}});
  }
  return table;
}

std::string Title() { return "Millrace " + std::string(Version()); }

constexpr std::string_view kMore =
    "GET /console chats and shows what the server does, in a browser. GET "
    "/openapi.json describes all routes for programs. The gRPC port serves "
    "inference.GRPCInferenceService.";

std::string Text(const std::vector<Table>& tables) {
  std::string text = Title() + "\n";
  for (const Table& table : tables) {
    text += "\n" + table.title + "\n";
    std::vector<size_t> widths;
    for (const Row& row : table.rows) {
      widths.resize(std::max(widths.size(), row.cells.size()));
      for (size_t i = 0; i < row.cells.size(); ++i) {
        widths[i] = std::max(widths[i], row.cells[i].size());
      }
    }
    for (const Row& row : table.rows) {
      std::string line = " ";
      for (size_t i = 0; i < row.cells.size(); ++i) {
        line += " " + row.cells[i];
        if (i + 1 < row.cells.size()) {
          line.append(widths[i] - row.cells[i].size() + 1, ' ');
        }
      }
      text += line + "\n";
    }
  }
  return text.append("\n").append(kMore).append("\n");
}

std::string Html(const std::vector<Table>& tables) {
  std::string html =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width\">"
      "<meta name=\"color-scheme\" content=\"light dark\"><title>" +
      Title() +
      "</title><style>body{font:16px/1.5 sans-serif;max-width:60em;"
      "margin:2em auto;padding:0 1em}td{padding:0 1em 0 0;"
      "font-family:monospace;vertical-align:top}</style></head><body>\n<h1>" +
      Title() + "</h1>\n";
  for (const Table& table : tables) {
    html += "<h2>" + table.title + "</h2>\n<table>\n";
    for (const Row& row : table.rows) {
      html += "<tr>";
      // Names of models come from files and folders.
      for (const std::string& cell : row.cells) {
        html += "<td>" + EscapeHtml(cell) + "</td>";
      }
      html += "</tr>\n";
    }
    html += "</table>\n";
  }
  html += "<p><a href=\"/console\">Console</a>: chat and live view.</p>\n";
  return html.append("<p>").append(kMore).append("</p>\n</body></html>\n");
}

Status Answer(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  const std::vector<Table> tables = {
      Models(*site.services.repository, *exchange), Routes()};
  const bool html = exchange->request().Header("accept").find("text/html") !=
                    std::string_view::npos;
  HttpResponse response;
  response.content_type =
      html ? "text/html; charset=utf-8" : "text/plain; charset=utf-8";
  response.headers.emplace_back("Vary", "Accept");
  response.headers.emplace_back("Content-Security-Policy",
                                "default-src 'none'; style-src "
                                "'unsafe-inline'");
  response.body = html ? Html(tables) : Text(tables);
  exchange->Send(std::move(response));
  return OkStatus();
}

}  // namespace

void ServeFrontPage(const Site& site,
                    const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Answer);
}

}  // namespace millrace::server::http

"""A collector for tests: takes spans by OTLP/HTTP and keeps them decoded."""
import http.server
import threading
import time

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest)


class Collector:
    """`statuses` are answered one a request, then 200."""

    def __init__(self, *statuses):
        self.requests = []  # (path, headers, message) of those answered 200
        self.refused = 0
        statuses = list(statuses)
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = statuses.pop(0) if statuses else 200
                if status == 200:
                    message = ExportTraceServiceRequest.FromString(body)
                    collector.requests.append(
                        (self.path, dict(self.headers), message))
                else:
                    collector.refused += 1
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0),
                                                      Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self):
        return [span for _, _, message in list(self.requests)
                for resource in message.resource_spans
                for scope in resource.scope_spans for span in scope.spans]

    def wait_for(self, wanted, timeout=15):
        """Spans that `wanted` takes, once there are some."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            found = [span for span in self.spans() if wanted(span)]
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"not among {[s.name for s in self.spans()]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def attributes(of):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value"))
            for pair in of.attributes}

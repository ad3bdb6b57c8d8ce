"""Sends the corpus to a server and keeps of each response what should be the
same everywhere."""
import http.client
import json
import time

# Of these the values differ from run to run, or name the server.
VOLATILE = {"last_inference", "ns", "count", "inference_count",
            "execution_count", "log_file", "trace_file", "version"}


def shape(value, key=""):
    """The value with volatile numbers and all message texts left out."""
    if isinstance(value, dict):
        if set(value) == {"error"}:
            return {"error": "text" if isinstance(value["error"], str) else "?"}
        return {k: shape(v, k) for k, v in sorted(value.items())}
    if isinstance(value, list):
        return [shape(v) for v in value]
    if key in VOLATILE:
        return type(value).__name__
    return value


def response(reply, body):
    """Status, type and body of a reply, as far as they say something."""
    kept = {"status": reply.status}
    length = reply.getheader("Inference-Header-Content-Length")
    text = body
    if length is not None:
        text, tail = body[:int(length)], body[int(length):]
        kept["binary"] = tail.hex()
    try:
        kept["body"] = shape(json.loads(text)) if text else ""
    except ValueError:
        kept["body"] = "not json"
    if reply.status == 200 and text:
        kept["type"] = reply.getheader("Content-Type")
    return kept


def send(host, port, case):
    connection = http.client.HTTPConnection(host, port, timeout=30)
    try:
        headers = {"Content-Type": "application/json", **case.headers}
        connection.request(case.method, case.path, case.body, headers)
        reply = connection.getresponse()
        return response(reply, reply.read())
    except (ConnectionError, http.client.HTTPException) as error:
        return {"status": type(error).__name__}
    finally:
        connection.close()


def once_it_left(name, ask):
    """The response; of a model that was unloaded, once it has left."""
    for _ in range(100):
        response = ask()
        if not name.endswith(", unloaded") or \
                response["status"] not in (503, "UNAVAILABLE"):
            break
        time.sleep(0.02)
    return response


def replay(host, port, cases):
    return {case.name: once_it_left(case.name, lambda: send(host, port, case))
            for case in cases}

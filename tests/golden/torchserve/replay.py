"""Sends the corpus to a server and keeps of each response what should be the
same everywhere."""
import http.client
import json
import time

# Of these the values differ from run to run.
VOLATILE = {"id", "startTime", "memoryUsage", "pid", "gpuUsage", "message"}
# TorchServe's programs alone know these: how their worker processes live.
UNSAID = {"maxRetryTimeoutInSec", "clientTimeoutInMills", "parallelLevel",
          "continuousBatching", "useJobTicket", "useVenv", "stateful",
          "sequenceMaxIdleMSec", "sequenceTimeoutMSec", "maxNumSequence",
          "maxSequenceJobQueueSize", "parallelType", "deviceType"}
HEADERS = ("Pragma", "Cache-Control", "Expires")


def shape(value, key=""):
    """The value with volatile values left out."""
    if isinstance(value, dict):
        return {k: shape(v, k) for k, v in sorted(value.items())
                if k not in UNSAID}
    if isinstance(value, list):
        return [shape(v) for v in value]
    return type(value).__name__ if key in VOLATILE else value


def response(reply, body):
    """Status, headers and body of a reply, as far as they say something."""
    kept = {"status": reply.status}
    try:
        value = json.loads(body) if body else ""
        is_description = isinstance(value, dict) and "openapi" in value
        kept["body"] = sorted(value["paths"]) if is_description else shape(value)
    except ValueError:
        kept["body"] = "not json"
    kept["headers"] = [name for name in HEADERS if reply.getheader(name)]
    return kept


def fetch(host, port, method, path, body=b"", headers=None):
    connection = http.client.HTTPConnection(host, port, timeout=60)
    try:
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        return reply, reply.read()
    finally:
        connection.close()


def settle(host, port):
    """Until the workers of all models are there, and no more of them."""
    state = None
    for _ in range(300):
        _, body = fetch(host, port, "GET", "/models")
        done = True
        for model in json.loads(body).get("models", []):
            name = model["modelName"].replace(" ", "%20")
            for each in json.loads(
                    fetch(host, port, "GET", f"/models/{name}/all")[1]):
                ready = [w for w in each["workers"] if w["status"] == "READY"]
                state = each
                done &= len(ready) == len(each["workers"]) and \
                    each["minWorkers"] <= len(ready) <= max(each["maxWorkers"], 0)
        if done:
            return
        time.sleep(0.1)
    raise RuntimeError(f"the workers never came: {state}")


def send(host, ports, case):
    try:
        reply, body = fetch(host, ports[case.port], case.method, case.path,
                            case.body, case.headers)
        kept = response(reply, body)
    except (ConnectionError, TimeoutError, http.client.HTTPException) as error:
        return {"status": type(error).__name__}
    if case.port == "management" and case.method != "GET":
        try:
            settle(host, ports["management"])
        except RuntimeError as error:
            print(case.name, error)
    return kept


def replay(host, ports, cases):
    return {case.name: send(host, ports, case) for case in cases}

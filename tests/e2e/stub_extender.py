"""The thinnest extender: every node passes, bind posts one Binding. It shows that the suite works, nothing of ours.

It takes the flags of the real one and, like it, finds the API server as a program in a pod does.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Verbs(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer("ok")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        verb = self.path.rpartition("/")[2]
        self._answer({"filter": _filter, "prioritize": _prioritize, "bind": _bind}[verb](body))

    def _answer(self, answer: object) -> None:
        raw = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


def _filter(body: dict[str, Any]) -> object:
    return {"NodeNames": body["NodeNames"]}


def _prioritize(body: dict[str, Any]) -> object:
    return [{"Host": name, "Score": 0} for name in body["NodeNames"]]


def _bind(body: dict[str, Any]) -> object:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": body["PodName"], "uid": body["PodUID"], "annotations": {"e2e/bound-by": "stub"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": body["Node"]},
    }
    path = f"/api/v1/namespaces/{body['PodNamespace']}/pods/{body['PodName']}/binding"
    status, text = _post(path, binding)
    return {"Error": "" if status == http.client.CREATED else text}


def _post(path: str, body: object) -> tuple[int, str]:
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    connection = http.client.HTTPSConnection(host, port, timeout=3, context=context)
    headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "Content-Type": "application/json"}
    try:
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    for flag in ("--config", "--listen", "--health-listen"):
        parser.add_argument(flag, required=True)
    options = parser.parse_args()
    for address in (options.health_listen, options.listen):
        host, _, port = address.rpartition(":")
        server = ThreadingHTTPServer((host, int(port)), Verbs)
        threading.Thread(target=server.serve_forever).start()


if __name__ == "__main__":
    main()

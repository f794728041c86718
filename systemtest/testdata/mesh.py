"""A supervisor, and a caller of supervisors, on Mycelium: written from the documents alone, with the standard library.

    mesh.py supervise RPC SECRET               pops supervisor.rpc and answers job.run, job.status and job.result
    mesh.py run RPC PK SECRET CONTEXT ID SCRIPT    has a supervisor run one job and prints its answer

RPC is the address of a node's JSON-RPC API. supervise prints a line for every job.
"""
import base64
import json
import subprocess
import sys
import threading
import time
import urllib.request

TOPIC = base64.b64encode(b"supervisor.rpc").decode()


def node(rpc, method, params):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    request = urllib.request.Request(rpc, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        got = json.loads(answer.read())
    if "error" in got:
        raise RuntimeError("%s: %s" % (method, got["error"]))
    return got["result"]


def encoded(value):
    return base64.b64encode(json.dumps(value).encode()).decode()


ends = {}


def execute(job):
    if job["id"] in ends:
        return ends[job["id"]]
    for field in ("id", "caller_id", "context_id", "payload", "runner", "executor", "created_at", "updated_at"):
        assert isinstance(job[field], str), field
    done = subprocess.run([sys.executable, "-"], input=job["payload"], env=job["env_vars"], capture_output=True, text=True,
                          timeout=job["timeout"] or None)
    print("ran", job["id"], flush=True)
    ends[job["id"]] = {"success": done.stdout} if done.returncode == 0 else {"error": done.stderr.strip().splitlines()[-1]}
    return ends[job["id"]]


def answer(call, secret):
    params = call["params"]
    params = params[0] if isinstance(params, list) else params
    if params.get("secret") != secret:
        return {"error": {"code": -32003, "message": "wrong secret"}}
    if call["method"] == "job.run":
        return {"result": execute(params["job"])}
    if params.get("job_id") not in ends:
        return {"error": {"code": -32001, "message": "no such job"}}
    if call["method"] == "job.result":
        return {"result": ends[params["job_id"]]}
    if call["method"] == "job.status":
        return {"result": {"job_id": params["job_id"], "status": "finished", "created_at": "2025-08-29T10:29:32Z"}}
    return {"error": {"code": -32601, "message": "no such method"}}


def one(rpc, secret, message):
    call = json.loads(base64.b64decode(message["payload"]))
    reply = dict({"jsonrpc": "2.0", "id": call["id"]}, **answer(call, secret))
    node(rpc, "pushMessageReply", [message["id"], {"dst": {"pk": message["srcPk"]}, "payload": encoded(reply)}])


def supervise(rpc, secret):
    print("ready", flush=True)
    while True:
        message = node(rpc, "popMessage", [False, 0, TOPIC])  # a pop that waits keeps replies waiting
        if message is None:
            time.sleep(0.02)
        else:
            threading.Thread(target=one, args=(rpc, secret, message), daemon=True).start()


def run(rpc, pk, secret, context, number, script):
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    job = {"id": number, "caller_id": "12", "context_id": context, "payload": script, "runner": "python", "executor": "python",
           "timeout": 20, "env_vars": {"WHO": "mesh"}, "created_at": now, "updated_at": now}
    call = {"jsonrpc": "2.0", "id": "call-" + number, "method": "job.run", "params": [{"secret": secret, "job": job}]}
    sent = {"dst": {"pk": pk}, "topic": TOPIC, "payload": encoded(call)}
    got = node(rpc, "pushMessage", [sent, 40])
    print(json.dumps(json.loads(base64.b64decode(got["payload"]))))


if sys.argv[1] == "supervise":
    supervise(*sys.argv[2:])
else:
    run(*sys.argv[2:])

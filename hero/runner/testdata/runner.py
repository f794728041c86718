"""A runner written from the documents alone: the standard library and raw RESP.

usage: runner.py host port context runner_id type[,type...] [--jobs N] [--quiet]

It takes job keys with BRPOP from queue:<type>, sets the job started, runs its script with python3 or bash, and writes
its result and status. Unless it is quiet it then makes a message of type result and pushes its key on msg_out. It ends
after N jobs.
"""
import json
import socket
import subprocess
import sys
import time


class Redis:
    """As much of RESP as a runner needs."""

    def __init__(self, host, port):
        self.file = socket.create_connection((host, port)).makefile("rwb")

    def call(self, *words):
        self.file.write(b"*%d\r\n" % len(words))
        for word in words:
            data = word if isinstance(word, bytes) else str(word).encode()
            self.file.write(b"$%d\r\n%s\r\n" % (len(data), data))
        self.file.flush()
        return self.answer()

    def answer(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"+":
            return rest.decode()
        if kind == b":":
            return int(rest)
        if kind == b"$":
            size = int(rest)
            if size < 0:
                return None
            data = self.file.read(size + 2)[:-2]
            return data.decode("utf-8", "replace")
        if kind == b"*":
            return None if int(rest) < 0 else [self.answer() for _ in range(int(rest))]
        raise RuntimeError("no RESP: %r" % line)

    def hash(self, key):
        flat = self.call("HGETALL", key)
        return dict(zip(flat[::2], flat[1::2]))

    def set(self, key, fields):
        self.call("HSET", key, *[w for pair in fields.items() for w in pair])


COMMANDS = {"python": ["python3", "-"], "bash": ["bash", "-s"]}


def now():
    return int(time.time())


def execute(job):
    """The script's status and result."""
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", **json.loads(job.get("env_vars") or "{}")}
    try:
        done = subprocess.run(COMMANDS[job["script_type"]], input=job["script"].encode(), env=env, capture_output=True,
                              timeout=int(job.get("timeout") or 0) or None)
    except subprocess.TimeoutExpired:
        return "error", {"error": "timeout"}
    output = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        return "error", {"output": output, "error": "exit %d" % done.returncode}
    last = output.rstrip().rpartition("\n")[2]
    try:
        result = json.loads(last)
    except ValueError:
        result = None
    if isinstance(result, dict):
        return "finished", {k: v if isinstance(v, str) else json.dumps(v, separators=(",", ":")) for k, v in result.items()}
    return "finished", {"output": output}


def tell(redis, context, job, key):
    """The message that tells of the job's end, to the actor that wanted it."""
    message = now() % 1_000_000 * 1000 + int(job["id"]) % 1000
    name = "message:%s:%d" % (job["caller_id"], message)
    embedded = {
        "id": int(job["id"]), "caller_id": int(job["caller_id"]), "context_id": context, "script": job["script"],
        "script_type": job["script_type"], "timeout": int(job.get("timeout") or 0), "retries": int(job.get("retries") or 0),
        "env_vars": json.loads(job.get("env_vars") or "{}"), "result": json.loads(job["result"]), "prerequisites": [],
        "dependends": [], "created_at": int(job.get("created_at") or 0), "updated_at": now(), "status": job["status"],
    }
    redis.set(name, {
        "id": message, "caller_id": job["caller_id"], "context_id": context, "message": job["status"], "message_type": "result",
        "message_format_type": "text", "timeout": 60, "timeout_ack": 60, "timeout_result": 60, "job": json.dumps([embedded]),
        "nodes": "[]", "logs": "[]", "reply_to": key, "to": job["caller_id"], "created_at": now(), "updated_at": now(),
        "status": "dispatched",
    })
    redis.call("LPUSH", "msg_out", name)


def run(redis, context, key, quiet):
    job = redis.hash(key)
    if job.get("status") in ("finished", "error"):
        return
    redis.set(key, {"status": "started", "updated_at": now()})
    status, result = execute(job)
    job["status"], job["result"] = status, json.dumps(result)
    redis.set(key, {"result": job["result"], "status": status, "updated_at": now()})
    if not quiet:
        tell(redis, context, job, key)


def main(words):
    quiet, jobs = "--quiet" in words, -1
    if "--jobs" in words:
        jobs = int(words[words.index("--jobs") + 1])
    host, port, context, runner, types = words[:5]
    redis = Redis(host, int(port))
    redis.call("SELECT", context)
    redis.set("runner:" + runner, {"id": runner, "pubkey": "", "address": "", "topic": "", "local": "true",
                                   "created_at": now(), "updated_at": now()})
    queues = ["queue:" + t for t in types.split(",")]
    while jobs != 0:
        taken = redis.call("BRPOP", *queues, 1)
        if taken:
            run(redis, int(context), taken[1], quiet)
            jobs -= 1


if __name__ == "__main__":
    main(sys.argv[1:])

"""A client and a worker of the dispatcher protocol, written from the document alone:
standard library only, RESP by hand. They do what the document says, defects and all.

  foreign.py HOST PORT worker WORKER_ID SCHEME ORDER
  foreign.py HOST PORT run    WORKER_ID SCHEME ORDER SCRIPT TIMEOUT
  foreign.py HOST PORT stop   WORKER_ID SCHEME ORDER JOB
  foreign.py HOST PORT submit WORKER_ID SCHEME ORDER SCRIPT
"""
import datetime
import json
import socket
import subprocess
import sys
import time
import uuid


class Redis:
    def __init__(self, host, port):
        self.file = socket.create_connection((host, int(port))).makefile("rwb")

    def __call__(self, *words):
        out = b"*%d\r\n" % len(words)
        for word in words:
            word = str(word).encode()
            out += b"$%d\r\n%s\r\n" % (len(word), word)
        self.file.write(out)
        self.file.flush()
        return self.read()

    def read(self):
        line = self.file.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest.decode()
        if kind == b":":
            return int(rest)
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            if int(rest) < 0:
                return None
            text = self.file.read(int(rest) + 2)[:-2]
            return text.decode()
        if kind == b"*":
            return None if int(rest) < 0 else [self.read() for _ in range(int(rest))]
        raise RuntimeError("redis said %r" % line)


host, port, role, worker_id, scheme, order = sys.argv[1:7]
redis = Redis(host, port)
work = {"protocol": "hero:work_queue:", "unified": "hero:q:work:type:"}[scheme] + worker_id
reply = {"protocol": "hero:reply:", "unified": "hero:q:reply:"}[scheme]
stop = "hero:stop_queue:" + worker_id
take = {"lifo": "BLPOP", "fifo": "BRPOP"}[order]


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat()


def create(script, timeout):
    job = str(uuid.uuid4())
    redis("HSET", "hero:job:" + job, "id", job, "caller_id", "python", "worker_id", worker_id, "context_id", "1",
          "script", script, "timeout", timeout, "retries", "0", "concurrent", "false", "created_at", now(),
          "updated_at", now(), "status", "dispatched", "env_vars", json.dumps({"WHO": "python"}), "prerequisites", "[]",
          "dependents", "[]", "dependencies", "[]")
    return job


def run(script, timeout):
    job = create(script, timeout)
    redis("LPUSH", work, job)
    answer = redis("BLPOP", reply + job, timeout)
    return {"id": job, "reply": answer and answer[1], "hash": hash_of(job)}


def hash_of(job):
    flat = redis("HGETALL", "hero:job:" + job)
    return dict(zip(flat[::2], flat[1::2]))


def reply_queue_exists(job):
    return redis("EXISTS", reply + job) == 1


def execute(job):
    """Runs a script, and looks at the stop queue meanwhile."""
    data = hash_of(job)
    env = dict(json.loads(data.get("env_vars") or "{}"), PATH="/usr/bin:/bin:/usr/local/bin")
    process = subprocess.Popen([sys.executable, "-c", data["script"]], stdout=subprocess.PIPE, text=True, env=env)
    deadline = time.time() + (int(data["timeout"]) or 3600)
    while process.poll() is None:
        if time.time() > deadline:
            process.kill()
            return "error", "timeout"
        if redis("LLEN", stop) > 0 and job in redis("LRANGE", stop, "0", "-1"):
            process.kill()
            redis("LREM", stop, "1", job)
            return "error", "stopped_by_request"
        time.sleep(0.02)
    output = process.stdout.read().rstrip("\n")
    return ("finished", output) if process.returncode == 0 else ("error", "exit %d" % process.returncode)


def loop():
    print("ready", flush=True)
    while True:
        job = redis(take, work, "0")[1]
        redis("HGETALL", "hero:job:" + job)
        redis("HSET", "hero:job:" + job, "status", "started")
        if redis("LLEN", stop) > 0 and redis("LPOP", stop) == job:
            redis("HSET", "hero:job:" + job, "status", "error", "error", "stopped")
            continue
        status, result = execute(job)
        redis("HSET", "hero:job:" + job, "status", status, "output" if status == "finished" else "error", result)
        if reply_queue_exists(job):
            redis("LPUSH", reply + job, result)


if role == "worker":
    loop()
elif role == "run":
    print(json.dumps(run(sys.argv[7], sys.argv[8])))
elif role == "submit":
    name = create(sys.argv[7], "5")
    redis("LPUSH", work, name)
    print(json.dumps({"id": name}))
elif role == "stop":
    redis("LPUSH", stop, sys.argv[7])
    print("{}")

"""An actor written from the documents alone, beside a runner: it writes a job's hash, pushes its key on queue:<type>,
and waits for the job's end and for the message that tells of it. It prints the end as JSON.

usage: actor.py host port context job_id script [env-json]
"""
import json
import sys
import time

from runner import Redis, now

host, port, context, job, script = sys.argv[1:6]
redis = Redis(host, int(port))
redis.call("SELECT", context)
key = "job:12:" + job
redis.set(key, {
    "id": job, "caller_id": 12, "context_id": context, "script": script, "script_type": "python", "timeout": 10, "retries": 0,
    "env_vars": sys.argv[6] if len(sys.argv) > 6 else "{}", "result": "{}", "prerequisites": "[]", "dependends": "[]",
    "created_at": now(), "updated_at": now(), "status": "dispatched",
})
redis.call("LPUSH", "queue:python", key)
until = time.time() + 15
while redis.hash(key)["status"] not in ("finished", "error"):
    if time.time() > until:
        sys.exit("the job is still " + redis.hash(key)["status"])
    time.sleep(0.01)
told = redis.call("BRPOP", "msg_out", 10)
end = redis.hash(key)
message = redis.hash(told[1])
print(json.dumps({"status": end["status"], "result": json.loads(end["result"]), "message_type": message["message_type"],
                  "to": message["to"], "reply_to": message["reply_to"], "told": json.loads(message["job"])[0]["result"]}))

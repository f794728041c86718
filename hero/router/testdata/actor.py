"""An actor written from the documents alone, with raw RESP and the standard library.

It sends a job message by HSET and LPUSH msg_out, waits for its result on msg_in, and
prints the result message's hash as JSON. Arguments: port, database, message id, script.
"""
import json
import socket
import sys
import time

port, database, number, script = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
link = socket.create_connection(("127.0.0.1", port))
stream = link.makefile("rb")


def read():
    line = stream.readline().rstrip(b"\r\n")
    kind, rest = line[:1], line[1:]
    if kind == b"-":
        raise RuntimeError(rest.decode())
    if kind == b"+":
        return rest.decode()
    if kind == b":":
        return int(rest)
    n = int(rest)
    if n < 0:
        return None
    if kind == b"$":
        return stream.read(n + 2)[:-2].decode()
    return [read() for _ in range(n)]


def call(*words):
    parts = [f"*{len(words)}\r\n".encode()]
    for word in words:
        raw = str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(raw), raw))
    link.sendall(b"".join(parts))
    return read()


now = int(time.time())
job = {"id": 3000 + number, "caller_id": 12, "context_id": database, "script": script, "script_type": "Python", "timeout": 10,
       "retries": 0, "env_vars": {}, "result": {}, "prerequisites": [], "dependends": [], "created_at": now,
       "updated_at": now, "status": "Dispatched"}
key = f"message:12:{number}"
call("SELECT", database)
call("HSET", key, "id", number, "caller_id", 12, "context_id", database, "message", "", "message_type", "Job",
     "message_format_type", "Text", "timeout", 30, "timeout_ack", 10, "timeout_result", 20, "job", json.dumps([job]),
     "logs", "[]", "created_at", now, "updated_at", now, "status", "Dispatched")
call("LPUSH", "msg_out", key)
popped = call("BRPOP", "msg_in", 20)
if popped is None:
    sys.exit("no result came")
flat = call("HGETALL", popped[1])
print(json.dumps(dict(zip(flat[::2], flat[1::2]))))

"""Serves an effect of sagas with NATS alone and the standard library: worker.py EFFECT, as docs/NATS.md says."""
import json, os, socket, sys, time, urllib.parse, uuid


class NATS:
    """A connection for one request at a time."""

    def __init__(self, url):
        at = urllib.parse.urlparse(url)
        self.socket = socket.create_connection((at.hostname, at.port or 4222), timeout=30)
        self.lines, self.inbox, self.sid = self.socket.makefile("rb"), "_INBOX." + uuid.uuid4().hex, 0
        login = {"user": at.username, "pass": at.password} if at.username else {}
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, **login}
        self.socket.sendall(f"CONNECT {json.dumps(options)}\r\n".encode())

    def publish(self, subject, body=b"", reply="", headers=""):
        head = f"NATS/1.0\r\n{headers}\r\n".encode()
        sizes = f"{len(head)} {len(head) + len(body)}"
        self.socket.sendall(f"HPUB {subject} {reply} {sizes}\r\n".encode() + head + body + b"\r\n")

    def request(self, subject, body=b"", headers=""):
        """Returns subject, reply subject, status and body of the first reply."""
        self.sid += 1
        reply = f"{self.inbox}.{self.sid}"
        self.socket.sendall(f"SUB {reply} {self.sid}\r\nUNSUB {self.sid} 1\r\n".encode())
        self.publish(subject, body, reply, headers)
        while True:
            words = self.lines.readline().decode().split()
            if not words or words[0] == "-ERR":
                raise ConnectionError(" ".join(words) or "the server closed the connection")
            if words[0] == "PING":
                self.socket.sendall(b"PONG\r\n")
            if words[0] not in ("MSG", "HMSG"):
                continue
            data = self.lines.read(int(words[-1]) + 2)[:-2]
            if int(words[2]) != self.sid:
                continue  # the late reply to an earlier request
            counts = 2 if words[0] == "HMSG" else 1
            head = int(words[-2]) if counts == 2 else 0
            status = data[len("NATS/1.0"):head].split(b"\r\n")[0].decode().strip()
            return words[1], words[3] if len(words) == 4 + counts else "", status, data[head:]

    def api(self, what, body):
        """Calls the JetStream API."""
        answer = json.loads(self.request("$JS.API." + what, json.dumps(body).encode())[3])
        if answer.get("error", {}).get("code", 404) != 404:
            raise ConnectionError(answer["error"]["description"])
        return answer


def handle(nats, subject, body):
    """Returns when the stream has the result of the command."""
    try:
        command, metadata = json.loads(body), json.loads(body)["metadata"]
    except (ValueError, KeyError):
        return  # no command
    if command.get("revoke"):
        return  # the command's own result counts
    _, tenant, _, effect, token = subject.split(".")
    result_subject = f"tenant.{tenant}.effect_result.{effect}.{token}"
    if "message" in nats.api("STREAM.MSG.GET.WORKFLOW_EVENTS", {"last_by_subj": result_subject}):
        return  # the result is there
    not_after = metadata.get("not_after", "9999-12-31T23:59:59Z")
    if time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) < not_after[:19]:
        outcome, payload = call(metadata["idempotency_key"], command["payload"])
    else:
        outcome, payload = "TimedOut", {"code": "expired", "message": "not to be called after " + not_after}
    id = command["command_id"]
    result = json.dumps({"command_id": id, "result_type": outcome, "payload": payload, "metadata": metadata}).encode()
    stored = json.loads(nats.request(result_subject, result, f"Nats-Msg-Id: {tenant} {id}.result\r\n")[3])
    if "seq" not in stored or "error" in stored:
        raise ConnectionError(f"the result is not stored: {stored}")


def call(key, payload):
    """Does the work once for a key. Returns Succeeded, Failed if it is surely not done, or TimedOut."""
    print("call", key, json.dumps(payload), file=sys.stderr, flush=True)
    return "Succeeded", {"done": key}


def serve(nats, effect):
    name, stream = "worker_" + effect, "WORKFLOW_COMMANDS"
    config = {"durable_name": name, "filter_subject": f"tenant.*.effect.{effect}.*", "ack_policy": "explicit", "ack_wait": 60 * 10**9}
    nats.api(f"CONSUMER.CREATE.{stream}.{name}.{config['filter_subject']}", {"stream_name": stream, "config": config})
    while True:
        wait = json.dumps({"batch": 1, "expires": 5 * 10**9}).encode()
        subject, ack, status, body = nats.request(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", wait)
        if status:
            continue  # 408: there is no command
        handle(nats, subject, body)
        nats.publish(ack, b"+ACK")  # if it is lost, the command comes again, and its result is found


while True:
    try:
        serve(NATS(os.environ.get("NATS_URL", "nats://127.0.0.1:4222")), sys.argv[1])
    except (OSError, ValueError) as e:  # the command comes again after ack_wait
        print("again in a second:", e, file=sys.stderr, flush=True)
        time.sleep(1)

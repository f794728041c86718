"""A client of the coordinator, written from its documents alone, with nothing
but the standard library: one whole session over HTTP and one over WebSocket, in
every shape that parameters may have.

    session.py http://127.0.0.1:9652 127.0.0.1:9653
"""
import base64
import hashlib
import json
import os
import socket
import struct
import sys
import time
import urllib.request


class Http:
    def __init__(self, url):
        self.url = url

    def send(self, body):
        request = urllib.request.Request(self.url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = answer.read()
            assert answer.status == 200, answer.status
            return json.loads(text) if text else None


class WebSocket:
    """RFC 6455, as little of it as a client needs."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((
            "GET / HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n\r\n" % (address, key)).encode())
        self.rest = b""
        while b"\r\n\r\n" not in self.rest:
            self.rest += self.more()
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
        assert b" 101 " in head.split(b"\r\n")[0] and accept in head, head

    def more(self):
        chunk = self.socket.recv(65536)
        assert chunk, "the server closed the WebSocket"
        return chunk

    def take(self, n):
        while len(self.rest) < n:
            self.rest += self.more()
        taken, self.rest = self.rest[:n], self.rest[n:]
        return taken

    def frame(self, opcode, payload):
        mask = os.urandom(4)
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
        elif size < 65536:
            head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
        self.socket.sendall(head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload)))

    def send(self, body):
        self.frame(1, json.dumps(body).encode())
        if "id" not in body if isinstance(body, dict) else not any("id" in b for b in body):
            return None  # notifications have no answer
        text = b""
        while True:
            first, second = self.take(2)
            size = second & 0x7F
            if size == 126:
                size = struct.unpack("!H", self.take(2))[0]
            elif size == 127:
                size = struct.unpack("!Q", self.take(8))[0]
            payload = self.take(size)
            if first & 0x0F == 9:
                self.frame(10, payload)
            elif first & 0x0F in (0, 1):
                text += payload
                if first & 0x80:
                    return json.loads(text)


class Failed(Exception):
    def __init__(self, error):
        super().__init__(json.dumps(error))
        self.code, self.data = error["code"], error.get("data")


# What changes by itself: a message is sent as soon as it is there.
SENDING = ("updated_at", "status", "logs", "transport_id", "transport_status", "target_context", "topic")


class Client:
    def __init__(self, transport):
        self.transport, self.last, self.turn = transport, 0, 0

    def request(self, method, params):
        self.last += 1
        return {"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}

    def raw(self, method, params):
        sent = self.request(method, params)
        answer = self.transport.send(sent)
        assert answer["jsonrpc"] == "2.0" and answer["id"] == sent["id"], answer
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["result"]

    def call(self, method, params):
        """Calls in the next of the four shapes, so that a session has them all."""
        self.turn += 1
        return self.raw(method, shapes(params)[self.turn % 4])

    def create(self, method, params, wrapper):
        """Creates in every shape, with and without the wrapper: an upsert, so each
        returns the same object."""
        flat = {k: v for k, v in params.items() if k != wrapper}
        flat.update(params[wrapper])
        seen = []
        for p in (params, flat):
            for shape in shapes(p):
                got = self.raw(method, shape)
                seen.append(got)
        by_itself = SENDING if wrapper == "message" else ("updated_at",)
        same = [{k: v for k, v in s.items() if k not in by_itself} for s in seen]
        assert all(s == same[0] for s in same), (method, seen)
        return seen[0]

    def refused(self, code, method, params):
        try:
            got = self.call(method, params)
        except Failed as e:
            assert e.code == code, (method, params, e)
            assert e.data, (method, "has no detail", e)
            return e.data
        raise AssertionError("%s %s was not refused: %s" % (method, params, got))


def shapes(p):
    return [p, [p], {"params": p}, [{"params": p}]]


# Nobody else's: actors are of the whole Redis, and the session gives them addresses.
ACTOR, EXECUTOR, STRANGER = 41, 42, 43


def ended(c, context, number):
    """The flow once it has ended: its status and result come to Redis a little later."""
    until = time.time() + 20
    while True:
        flow = c.call("flow.load", {"context_id": context, "id": number})
        if flow["status"] in ("finished", "error") or time.time() > until:
            return flow
        time.sleep(0.01)


def emptied(c, context):
    """Deletes the context with what it still holds: where a router runs, it may be at
    work on the messages of the session and of its flows, and keep their jobs."""
    until = time.time() + 20
    while True:
        try:
            for kind in ("message", "job"):
                for o in c.call(kind + ".list", {"context_id": context}):
                    c.call(kind + ".delete", {"context_id": context, "caller_id": o["caller_id"], "id": o["id"]})
            assert c.call("context.delete", {"id": context, "caller_id": ACTOR}) is True
            return
        except Failed as e:
            assert e.code in (-32001, -32011) and time.time() < until, (e.code, e.data)
        time.sleep(0.01)


def session(c, context):
    now = int(time.time())
    for actor in (ACTOR, EXECUTOR, STRANGER):
        made = c.create("actor.create", {"actor": {"id": actor, "pubkey": "%064x" % actor, "address": ["200::%x" % actor]}}, "actor")
        assert made["address"] == ["200::%x" % actor] and abs(made["created_at"] - now) < 3600, made
    assert c.call("actor.load", {"id": ACTOR})["pubkey"] == "%064x" % ACTOR

    lists = {"id": context, "admins": [ACTOR], "readers": [], "executors": [EXECUTOR]}
    assert c.create("context.create", {"context": lists}, "context")["executors"] == [EXECUTOR]
    assert c.call("context.load", {"id": context})["admins"] == [ACTOR]
    c.refused(-32602, "context.create", {"context": {"id": 0, "admins": [ACTOR]}})
    c.refused(-32003, "context.load", {"id": context, "actor_id": STRANGER})

    runner = {"id": 20, "pubkey": "ab", "address": "http://127.0.0.1:1", "topic": "supervisor.rpc", "local": False, "secret": "s3cret"}
    made = c.create("runner.create", {"context_id": context, "runner": runner}, "runner")
    assert "s3cret" not in json.dumps([made, c.call("runner.load", {"context_id": context, "id": 20}), c.call("runner.list", {"context_id": context})])

    def job(number, **more):
        j = {"id": number, "caller_id": ACTOR, "context_id": context, "script": "print(%d)" % number, "script_type": "Python",
             "timeout": 60, "retries": 0, "env_vars": {"N": str(number)}, "prerequisites": [], "dependends": []}
        j.update(more)
        return c.create("job.create", {"context_id": context, "job": j}, "job")

    flow = {"id": 33, "caller_id": ACTOR, "context_id": context, "jobs": [2001, 2002, 2003], "env_vars": {"FLOW": "33"}}
    made = c.create("flow.create", {"context_id": context, "flow": flow}, "flow")
    assert made["status"] == "dispatched" and made["result"] == {}, made
    data = c.refused(-32020, "flow.start", {"context_id": context, "id": 33})
    assert data["ids"] == [2001, 2002, 2003], data
    made = job(2001)
    assert made["script_type"] == made["executor"] == "python" and made["status"] == "dispatched", made
    job(2002, dependends=[2001])
    job(2003, dependends=[2001, 2002], prerequisites=["paid"])

    dag = c.call("flow.dag", {"context_id": context, "id": 33})
    assert dag["edges"] == [[2001, 2002], [2001, 2003], [2002, 2003]], dag
    assert dag["reverse_edges"] == [[2002, 2001], [2003, 2001], [2003, 2002]], dag
    assert (dag["roots"], dag["leaves"], dag["levels"]) == ([2001], [2003], [[2001], [2002], [2003]]), dag
    assert dag["nodes"]["2003"]["prerequisites"] == ["paid"] and dag["failed_job"] is None, dag

    assert c.call("flow.start", {"context_id": context, "id": 33}) is True
    assert c.call("flow.start", {"context_id": context, "id": 33}) is False
    assert c.call("flow.load", {"context_id": context, "id": 33})["status"] == "started"
    c.refused(-32011, "flow.create", {"context_id": context, "flow": dict(flow, jobs=[2001])})

    def does(number, **result):
        for status in ("started", "finished"):
            p = {"context_id": context, "caller_id": ACTOR, "id": number, "status": status, "actor_id": EXECUTOR}
            if status == "finished":
                p["result"] = result
            assert c.call("job.update", p)["status"] == status

    does(2001, sum="1")
    does(2002, sum="2")
    c.refused(-32602, "job.update", {"context_id": context, "caller_id": ACTOR, "id": 2001, "status": "started", "actor_id": EXECUTOR})
    c.refused(-32003, "job.update", {"context_id": context, "caller_id": ACTOR, "id": 2003, "status": "started", "actor_id": STRANGER})
    assert c.call("flow.prerequisite_met", {"context_id": context, "id": 33, "name": "paid"}) == [2003]
    dag = c.call("flow.dag", {"context_id": context, "id": 33})
    assert dag["completed"] == [2001, 2002] and dag["started"] == [2003], dag
    does(2003, sum="3")
    done = ended(c, context, 33)
    assert done["status"] == "finished", done
    assert (done["result"]["2001.sum"], done["result"]["2003.sum"]) == ("1", "3"), done

    job(2101)
    c.create("flow.create", {"context_id": context, "flow": {"id": 34, "caller_id": ACTOR, "nodes": [{"id": 2101, "depends": [], "prerequisites": [], "supervisor_url": "http://127.0.0.1:1"}]}}, "flow")
    assert c.call("flow.dag", {"context_id": context, "id": 34})["nodes"]["2101"]["supervisor_url"] == "http://127.0.0.1:1"
    assert c.call("flow.start", {"context_id": context, "id": 34}) is True
    assert c.call("flow.cancel", {"context_id": context, "id": 34}) is True
    assert c.call("flow.cancel", {"context_id": context, "id": 34}) is False
    assert ended(c, context, 34)["status"] == "error"
    data = c.refused(-32020, "flow.create", {"context_id": context, "flow": {"id": 35, "caller_id": ACTOR, "nodes": [{"id": 1, "depends": [2]}, {"id": 2, "depends": [1]}]}})
    assert data["cycle"] == [1, 2, 1], data

    message = {"id": 101, "caller_id": ACTOR, "context_id": context, "message": "run it", "message_type": "Job", "message_format_type": "text", "timeout": 60,
               "timeout_ack": 10, "timeout_result": 60, "job": [{"id": 3001, "caller_id": ACTOR, "context_id": context, "script": "x", "script_type": "v"}]}
    made = c.create("message.create", {"context_id": context, "message": message}, "message")
    assert "transport_status" in made or made["status"] == "dispatched" and made["logs"] == [], made
    assert made["job"][0]["script_type"] == "v", made
    assert c.call("message.load", {"context_id": context, "caller_id": ACTOR, "id": 101})["message"] == "run it"

    for kind, want in (("actor", 3), ("context", 1), ("runner", 1), ("job", 4), ("flow", 2), ("message", 1)):
        params = {} if kind in ("actor", "context") else {"context_id": context}
        assert len(c.call(kind + ".list", dict(params, actor_id=ACTOR))) >= want, kind

    first, second, note = c.request("actor.load", {"id": ACTOR}), c.request("actor.load", {"id": 999}), c.request("actor.list", {})
    del note["id"]
    answers = {a["id"]: a for a in c.transport.send([first, second, note])}
    assert len(answers) == 2 and answers[first["id"]]["result"]["id"] == ACTOR and answers[second["id"]]["error"]["code"] == -32001, answers
    assert c.transport.send(note) is None

    c.refused(-32601, "no.method", {})
    c.refused(-32001, "job.load", {"context_id": context, "caller_id": ACTOR, "id": 1})
    c.refused(-32602, "job.load", {"context_id": context, "caller_id": ACTOR, "id": 4294967296})
    c.refused(-32010, "context.load", {"id": 2000000})
    methods = [m["name"] for m in c.raw("rpc.discover", {})["methods"]]
    assert "flow.dag" in methods and len(methods) == len(set(methods)), methods

    for number in (34, 33):
        assert c.call("flow.delete", {"context_id": context, "id": number}) is True
    for number in (2001, 2002, 2003, 2101):
        assert c.call("job.delete", {"context_id": context, "caller_id": ACTOR, "id": number}) is True
    c.refused(-32011, "context.delete", {"id": context, "caller_id": ACTOR})
    assert c.call("runner.delete", {"context_id": context, "id": 20, "caller_id": ACTOR}) is True
    emptied(c, context)
    assert c.call("actor.delete", {"id": STRANGER}) is True


if __name__ == "__main__":
    session(Client(Http(sys.argv[1])), 2)
    session(Client(WebSocket(sys.argv[2])), 3)
    print("ok")

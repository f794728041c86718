"""A JSON-RPC client over HTTP and over raw WebSocket frames, written from the
specifications alone (JSON-RPC 2.0, RFC 6455), with Python's standard library.

usage: client.py http://host:port ws://host:port
The server has flow.create, flow.load, message.create, none, panics and breaks.
"""
import base64, hashlib, http.client, json, os, socket, struct, sys
from urllib.parse import urlparse

failures = []


def check(what, ok, got=None):
    if not ok:
        failures.append(f"{what}: {got!r}")


# --- over HTTP ---------------------------------------------------------------
def post(url, body, kind="application/json", method="POST", path="/"):
    u = urlparse(url)
    c = http.client.HTTPConnection(u.hostname, u.port, timeout=20)
    headers = {"Content-Type": kind} if kind else {}
    c.request(method, path, body=body, headers=headers)
    r = c.getresponse()
    text = r.read().decode("utf-8")
    c.close()
    return r.status, text


def over_http(url):
    def send(text):
        status, answer = post(url, text)
        check("status of " + text[:60], status == 200, status)
        return answer

    return send


# --- over WebSocket ----------------------------------------------------------
class WebSocket:
    def __init__(self, url):
        u = urlparse(url)
        self.s = socket.create_connection((u.hostname, u.port), timeout=20)
        key = base64.b64encode(os.urandom(16)).decode()
        self.s.sendall((
            f"GET / HTTP/1.1\r\nHost: {u.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.s.recv(1)
        want = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
        check("handshake", b" 101 " in head.split(b"\r\n")[0] and want in head, head)

    def frame(self, opcode, payload, fin=True):
        mask = os.urandom(4)
        n = len(payload)
        head = bytes([(0x80 if fin else 0) | opcode])
        if n < 126:
            head += bytes([0x80 | n])
        elif n < 1 << 16:
            head += bytes([0x80 | 126]) + struct.pack(">H", n)
        else:
            head += bytes([0x80 | 127]) + struct.pack(">Q", n)
        self.s.sendall(head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload)))

    def exactly(self, n):
        out = b""
        while len(out) < n:
            more = self.s.recv(n - len(out))
            if not more:
                raise EOFError("the server closed")
            out += more
        return out

    def read(self):
        """One data or control frame; messages of this server are one frame or follow-ups."""
        data, kind = b"", None
        while True:
            a, b = self.exactly(2)
            check("a server does not mask", b & 0x80 == 0, b)
            n = b & 0x7F
            if n == 126:
                n = struct.unpack(">H", self.exactly(2))[0]
            elif n == 127:
                n = struct.unpack(">Q", self.exactly(8))[0]
            payload = self.exactly(n)
            if a & 0x0F >= 8:
                return a & 0x0F, payload
            kind = kind or a & 0x0F
            data += payload
            if a & 0x80:
                return kind, data

    def call(self, text):
        self.frame(1, text.encode())
        kind, data = self.read()
        check("an answer is text", kind == 1, kind)
        return data.decode()


# --- what both promise -------------------------------------------------------
def request(method, params=None, id=1):
    r = {"jsonrpc": "2.0", "id": id, "method": method}
    if params is not None:
        r["params"] = params
    return json.dumps(r)


def calls(send, name):
    def result(method, params, want):
        got = json.loads(send(request(method, params)))
        check(f"{name}: {method} {params}", got == {"jsonrpc": "2.0", "id": 1, "result": want}, got)

    def error(text, code, id=1):
        got = json.loads(send(text))
        e = got.get("error", {})
        check(f"{name}: {text[:80]}", got.get("jsonrpc") == "2.0" and got.get("id") == id and e.get("code") == code
              and isinstance(e.get("message"), str) and "result" not in got, got)
        return e

    flow = {"id": 7, "context_id": 2, "jobs": [1, 2], "env_vars": {"A": "<é>"}, "retries": 3}
    want = {"context_id": 2, "flow": flow}
    for params in (want, [want], {"params": want}, [{"params": want}], {"params": [want]}, flow, [flow], {"params": flow}):
        result("flow.create", params, want)
    result("flow.load", {"context_id": 1, "id": 2**32 - 1}, {"context_id": 1, "id": 2**32 - 1})
    result("message.create", {"id": 1, "message": "the text"}, {"message": {"id": 1, "message": "the text"}})
    result("none", None, None)
    result("none", [], None)

    for id in (1, 0, -5, 2**53, 1.5, "", "a", "é\n\"", None):
        got = json.loads(send(request("none", id=id)))
        check(f"{name}: id {id!r}", got == {"jsonrpc": "2.0", "id": id, "result": None}, got)

    e = error(request("flow.load", {"context_id": 1, "id": 2**32}), -32602)
    check(f"{name}: the field is named", e["data"]["field"] == "id" and "4294967295" in e["data"]["why"], e)
    e = error(request("flow.create", {"context_id": 1, "flow": {"retries": "3"}}), -32602)
    check(f"{name}: the field is named", e["data"]["field"] == "flow.retries", e)
    error(request("flow.load", {"context_id": 1}), -32602)
    error(request("flow.load", {"context_id": 1, "id": 404}), -32001)
    error(request("nowhere"), -32601)
    error(request("breaks"), -32603)
    error(request("panics"), -32603)
    error("{", -32700, None)
    error('"text"', -32600, None)
    error("[]", -32600, None)
    error('{"jsonrpc":"1.0","id":1,"method":"none"}', -32600)
    error('{"jsonrpc":"2.0","id":1,"method":1}', -32600)
    error('{"jsonrpc":"2.0","id":{},"method":"none"}', -32600, None)
    error('{"jsonrpc":"2.0","id":1,"id":2,"method":"none"}', -32600, None)
    error("[" * 5000 + "]" * 5000, -32700, None)

    batch = "[%s,%s,%s,5]" % (request("none", id="a"), '{"jsonrpc":"2.0","method":"none"}', request("nowhere", id="b"))
    got = json.loads(send(batch))
    check(f"{name}: batch", [(x["id"], "result" in x, x.get("error", {}).get("code")) for x in got]
          == [("a", True, None), ("b", False, -32601), (None, False, -32600)], got)

    doc = json.loads(send(request("rpc.discover")))["result"]
    check(f"{name}: document", doc["openrpc"].startswith("1.") and doc["info"]["title"]
          and {"flow.create", "flow.load"} <= {m["name"] for m in doc["methods"]}, doc)
    for m in doc["methods"]:
        check(f"{name}: params of {m['name']}", all("schema" in p and "name" in p for p in m["params"]) and "schema" in m["result"], m)


def main():
    http_url, ws_url = sys.argv[1:3]
    calls(over_http(http_url), "http")
    for what, want, args in (
            ("GET", 405, dict(method="GET")), ("DELETE", 405, dict(method="DELETE")), ("text", 415, dict(kind="text/plain")), ("no type", 415, dict(kind=None)),
            ("any path", 200, dict(path="/any/path?x=1")), ("charset", 200, dict(kind="application/json; charset=utf-8"))):
        status, text = post(http_url, request("none"), **args)
        check(what, status == want, (status, text))
    status, text = post(http_url, " " * (10 * 1024 * 1024 + 1))
    check("10 MiB and one", status == 413, status)
    status, text = post(http_url, '{"jsonrpc":"2.0","method":"none"}')
    check("a notification over HTTP", (status, text) == (200, ""), (status, text))

    ws = WebSocket(ws_url)
    calls(ws.call, "websocket")
    text = request("none", id="in pieces").encode()
    ws.frame(1, text[:10], fin=False)
    ws.frame(9, b"ping")  # a control frame may come between
    ws.frame(0, text[10:20], fin=False)
    ws.frame(0, text[20:])
    got = dict([ws.read(), ws.read()])
    check("pong", got.get(10) == b"ping", got)
    check("a message in pieces", json.loads(got[1])["id"] == "in pieces", got)
    ws.frame(1, b'{"jsonrpc":"2.0","method":"none"}')
    check("a notification has no answer", json.loads(ws.call(request("none", id="next")))["id"] == "next")
    for i in range(200):
        ws.frame(1, request("flow.load", {"context_id": 1, "id": i}, id=i).encode())
    ids = sorted(json.loads(ws.read()[1])["id"] for _ in range(200))
    check("two hundred at once", ids == list(range(200)), ids)
    ws.frame(8, struct.pack(">H", 1000))
    kind, payload = ws.read()
    check("close", kind == 8 and payload[:2] == struct.pack(">H", 1000), (kind, payload))

    for f in failures:
        print("FAIL", f[:2000])
    print("checked" if not failures else f"{len(failures)} failures")
    sys.exit(1 if failures else 0)


main()

"""Mycelium's two message APIs as a client sees them, written from the documents
alone with Python's standard library.

usage: node.py check  rpcA restA pkA ipA rpcB restB pkB ipB
       node.py supervise rpc rest      answers one job.run by each API
       node.py call rpc rest pk        makes one job.run by each API
"""
import base64, http.client, json, sys, threading, time
from urllib.parse import quote, urlparse

failures = []
b64 = lambda b: base64.b64encode(b).decode()
TOPIC = "c3VwZXJ2aXNvci5ycGM="


def check(what, ok, got=None):
    if not ok:
        failures.append(f"{what}: {got!r}")


def ask(url, method, path, body=None, kind="application/json"):
    u = urlparse(url)
    c = http.client.HTTPConnection(u.hostname, u.port, timeout=20)
    c.request(method, path, body=body, headers={"Content-Type": kind} if body is not None and kind else {})
    r = c.getresponse()
    text = r.read()
    c.close()
    return r.status, text


class RPC:
    """JSON-RPC, on 8990."""

    name = "jsonrpc"

    def __init__(self, url):
        self.url = url

    def raw(self, method, params):
        status, text = ask(self.url, "POST", "/rpc", json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
        check(f"status of {method}", status == 200, (status, text))
        return json.loads(text)

    def ok(self, method, params):
        got = self.raw(method, params)
        check(f"{method} {params}", "result" in got, got)
        return got.get("result")

    def code(self, method, params):
        return self.raw(method, params).get("error", {}).get("code")

    def push(self, dst, payload, topic=None, wait=None):
        m = {"dst": dst, "payload": b64(payload)}
        if topic is not None:
            m["topic"] = topic
        return self.ok("pushMessage", [m] if wait is None else [m, wait])

    def pop(self, topic=None, wait=0, peek=False):
        return self.ok("popMessage", [peek, wait, topic])

    def reply(self, id, dst, payload):
        check("reply is true", self.ok("pushMessageReply", [id, {"dst": dst, "payload": b64(payload)}]) is True)

    def status(self, id):
        got = self.raw("getMessageInfo", [id])
        if "error" in got:
            check("unknown", got["error"]["code"] == -32019, got)
            return None
        return got["result"]


class REST:
    """REST, on 8989."""

    name = "rest"

    def __init__(self, url):
        self.url = url

    def push(self, dst, payload, topic=None, wait=None):
        m = {"dst": dst, "payload": b64(payload)}
        if topic is not None:
            m["topic"] = topic
        status, text = ask(self.url, "POST", "/api/v1/messages" + ("" if wait is None else f"?reply_timeout={wait}"), json.dumps(m))
        got = json.loads(text)
        want = 201 if wait is None else 200 if "payload" in got else 408
        check("status of a push", status == want, (status, text))
        return got

    def pop(self, topic=None, wait=0, peek=False):
        path = f"/api/v1/messages?peek={'true' if peek else 'false'}&timeout={wait}"
        if topic is not None:
            path += "&topic=" + quote(topic, safe="")
        status, text = ask(self.url, "GET", path)
        check("status of a pop", status in (200, 204), (status, text))
        return json.loads(text) if status == 200 else None

    def reply(self, id, dst, payload):
        status, text = ask(self.url, "POST", f"/api/v1/messages/reply/{id}", json.dumps({"dst": dst, "payload": b64(payload)}))
        check("status of a reply", (status, text) == (204, b""), (status, text))

    def status(self, id):
        status, text = ask(self.url, "GET", f"/api/v1/messages/status/{id}")
        check("status of a status", status in (200, 404), (status, text))
        return json.loads(text) if status == 200 else None


def eventually(what, f):
    for _ in range(1000):
        if f():
            return
        time.sleep(0.01)
    check(what, False, "never")


def pair(a, b, A, B):
    """a speaks to node A, b to node B; each by one of the APIs."""
    name = f"{a.name} to {b.name}: "
    # A message, to a key, with a topic: popped by exactly that topic.
    id = a.push({"pk": B["pk"]}, b"\x00\xffjob", TOPIC)["id"]
    check(name + "id", len(id) == 16 and int(id, 16) >= 0, id)
    s = a.status(id)
    check(name + "received", s["state"] == "received" and s["dst"] == B["ip"] and s["msgLen"] == 5 and s["deadline"] >= s["created"] > 0, s)
    check(name + "a prefix is another topic", b.pop(b64(b"supervisor")) is None)
    check(name + "no topic is another topic", b.pop("") is None)
    m = b.pop(TOPIC, peek=True)
    check(name + "peek", m and m["id"] == id, m)
    check(name + "a peek is a read", a.status(id)["state"] == "read")
    m = b.pop(TOPIC)
    want = {"id": id, "srcIp": A["ip"], "srcPk": A["pk"], "dstIp": B["ip"], "dstPk": B["pk"], "topic": TOPIC, "payload": b64(b"\x00\xffjob")}
    check(name + "pop", m == want, m)
    check(name + "popped once", b.pop(TOPIC) is None and b.pop() is None)

    # To an address; without a topic it has none, and a pop without a filter takes it.
    id = a.push({"ip": B["ip"]}, b"")["id"]
    m = b.pop()
    check(name + "no topic", m and m["id"] == id and "topic" not in m and m["payload"] == "", m)

    # A reply keeps the id, and has no topic.
    b.reply(id, {"pk": A["pk"]}, b"pong")
    check(name + "a reply is not under the topic", a.pop(TOPIC) is None)
    m = a.pop("")
    check(name + "reply", m and m["id"] == id and "topic" not in m and m["srcPk"] == B["pk"] and m["payload"] == b64(b"pong"), m)

    # Somebody who waits gets the reply, and the inbox does not.
    def answer():
        m = b.pop(TOPIC, wait=5)
        b.reply(m["id"], {"ip": m["srcIp"]}, b"in time")

    t = threading.Thread(target=answer)
    t.start()
    m = a.push({"pk": B["pk"]}, b"ping", TOPIC, wait=5)
    t.join()
    check(name + "waited", m.get("payload") == b64(b"in time") and m["srcPk"] == B["pk"], m)
    check(name + "not in the inbox", a.pop() is None)

    # After the wait there is the id, and the reply lies in the inbox.
    got = a.push({"pk": B["pk"]}, b"ping", TOPIC, wait=0)
    check(name + "only the id", list(got) == ["id"], got)
    b.reply(b.pop(TOPIC)["id"], {"pk": A["pk"]}, b"late")
    m = a.pop("")
    check(name + "late", m and m["id"] == got["id"] and m["payload"] == b64(b"late"), m)

    # A second message of an id that lies unread is not taken.
    b.reply("00000000000000aa", {"pk": A["pk"]}, b"one")
    b.reply("00000000000000aa", {"pk": A["pk"]}, b"two")
    first, second = a.pop(""), a.pop("")
    check(name + "unread twin", first and first["payload"] == b64(b"one") and second is None, (first, second))

    # Nobody there: pending, then aborted, then unknown.
    id = a.push({"pk": "ab" * 32}, b"hello?")["id"]
    check(name + "pending", a.status(id)["state"] == "pending", a.status(id))
    eventually(name + "aborted", lambda: (a.status(id) or {}).get("state") == "aborted")
    eventually(name + "unknown", lambda: a.status(id) is None)
    check(name + "unknown id", a.status("0123456789abcdef") is None)

    # A pop that waits gets what comes meanwhile.
    got = []
    t = threading.Thread(target=lambda: got.append(b.pop(wait=5)))
    t.start()
    id = a.push({"pk": B["pk"]}, b"meanwhile")["id"]
    t.join()
    check(name + "waiting pop", got[0] and got[0]["id"] == id, got)
    check(name + "255 bytes of topic", b.pop(b64(b"t" * 255)) is None and len(a.push({"pk": B["pk"]}, b"", b64(b"t" * 255))["id"]) == 16)
    b.pop()


def refusals(rpc, rest, B):
    good = {"dst": {"pk": B["pk"]}, "payload": ""}
    for what, method, params, code in (
            ("topic of 256", "pushMessage", [dict(good, topic=b64(b"t" * 256))], -32015), ("no base64", "pushMessage", [dict(good, payload="*")], -32602),
            ("unpadded", "pushMessage", [dict(good, payload="YQ")], -32602), ("no payload", "pushMessage", [{"dst": {"pk": B["pk"]}}], -32602),
            ("no dst", "pushMessage", [{"payload": ""}], -32602), ("two dsts", "pushMessage", [{"dst": {"pk": B["pk"], "ip": B["ip"]}, "payload": ""}], -32602),
            ("short key", "pushMessage", [{"dst": {"pk": "ab"}, "payload": ""}], -32602), ("odd ip", "pushMessage", [{"dst": {"ip": "x"}, "payload": ""}], -32602),
            ("text as timeout", "pushMessage", [good, "1"], -32602), ("negative timeout", "popMessage", [False, -1], -32602), ("odd topic", "popMessage", [False, 0, "*"], -32013),
            ("odd id", "pushMessageReply", ["x", good], -32018), ("odd id", "getMessageInfo", ["x"], -32020), ("unknown id", "getMessageInfo", ["00" * 8], -32019),
            ("nothing", "pushMessage", [], -32602), ("unknown", "fetchMessage", [], -32601)):
        got = rpc.code(method, params)
        check(f"rpc: {what}", got == code, got)
    check("rpc: by name", "id" in rpc.ok("pushMessage", {"message": good}))
    check("rpc: pop by name", rpc.ok("popMessage", {"timeout": 0, "topic": TOPIC}) is None)
    j = json.dumps
    for what, method, path, body, kind, want in (
            ("topic of 256", "POST", "", j(dict(good, topic=b64(b"t" * 256))), "application/json", 400), ("no JSON", "POST", "", "{", "application/json", 400),
            ("no type", "POST", "", j(good), "text/plain", 415), ("no payload", "POST", "", j({"dst": good["dst"]}), "application/json", 422),
            ("no base64", "POST", "", j(dict(good, payload="*")), "application/json", 422), ("odd wait", "POST", "?reply_timeout=x", j(good), "application/json", 400),
            ("odd timeout", "GET", "?timeout=-1", None, None, 400), ("odd peek", "GET", "?peek=1", None, None, 400), ("odd topic", "GET", "?topic=*", None, None, 400),
            ("odd id", "GET", "/status/x", None, None, 400), ("odd reply", "POST", "/reply/x", j(good), "application/json", 400), ("unknown", "GET", "/status/" + "00" * 8, None, None, 404),
            ("method", "PUT", "", j(good), "application/json", 405), ("path", "GET", "/nowhere", None, None, 404)):
        status, text = ask(rest.url, method, "/api/v1/messages" + path, body, kind)
        check(f"rest: {what}", status == want, (status, text))


def supervise(apis):
    for api in apis:
        m = None
        while m is None:
            m = api.pop(TOPIC)
        call = json.loads(base64.b64decode(m["payload"]))
        check("method", call["method"] == "job.run", call)
        api.reply(m["id"], {"pk": m["srcPk"]}, json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": {"success": api.name}}).encode())


def call(apis, pk):
    for i, api in enumerate(apis):
        request = {"jsonrpc": "2.0", "id": i, "method": "job.run", "params": [{"job": {}}]}
        m = api.push({"pk": pk}, json.dumps(request).encode(), TOPIC, wait=10)
        got = json.loads(base64.b64decode(m.get("payload", "")) or "{}")
        check("answer by " + api.name, got.get("id") == i and "result" in got and m["srcPk"] == pk, (m, got))


def main():
    verb, args = sys.argv[1], sys.argv[2:]
    if verb == "check":
        ra, ea, pka, ipa, rb, eb, pkb, ipb = args
        A, B = {"pk": pka, "ip": ipa}, {"pk": pkb, "ip": ipb}
        for a in (RPC(ra), REST(ea)):
            for b in (RPC(rb), REST(eb)):
                pair(a, b, A, B)
        refusals(RPC(ra), REST(ea), B)
    elif verb == "supervise":
        supervise([RPC(args[0]), REST(args[1])])
    else:
        call([RPC(args[0]), REST(args[1])], args[2])
    for f in failures:
        print("FAIL", f[:2000])
    print("checked" if not failures else f"{len(failures)} failures")
    sys.exit(1 if failures else 0)


main()

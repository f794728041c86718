package effects

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda"
	"edda/internal/jsonvalue"
)

// charge3 is at its third version: cents became an amount, then got a reference.
const charge3 = charge + `
version: 3
upcast:
  1: {set: {amount.value: =payload.cents, amount.currency: EUR}, unset: [cents]}
  2: {set: {ref: "${tenant}-${id}", copy: =payload.ref}}
schema: {type: object, required: [amount, ref], properties: {amount: {type: object}}}
`

func versioned(id string, version int, payload string) Command {
	c := cmd(id)
	c.Version, c.Payload = version, json.RawMessage(payload)
	return c
}

func TestOlderPayloadsAreBroughtUpToDate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge3)
		h.send(
			versioned("c1", 1, `{"cents":250,"note":"x"}`),
			versioned("c2", 2, `{"amount":{"value":1},"ref":"old"}`),
			versioned("c3", 3, `{"amount":{"value":1},"ref":"own"}`),
			versioned("c0", 0, `{"amount":{"value":1},"ref":"own"}`),
		)
		synctest.Wait()
		got := map[string]string{}
		for _, c := range h.bank.all() {
			body, _ := jsonvalue.Encode(c.Config["body"])
			got[c.ID] = string(body)
		}
		for id, want := range map[string]string{
			"c1": `{"amount":{"currency":"EUR","value":250},"copy":null,"note":"x","ref":"acme-c1"}`,
			"c2": `{"amount":{"value":1},"copy":"old","ref":"acme-c2"}`,
			"c3": `{"amount":{"value":1},"ref":"own"}`,
			"c0": `{"amount":{"value":1},"ref":"own"}`,
		} {
			if got[id] != want {
				t.Errorf("%s was called with %s, want %s", id, got[id], want)
			}
		}
	})
}

// TestAVersionWithoutAnUpcastLeavesThePayload: versions may be dates, and a
// change may need nothing.
func TestAVersionWithoutAnUpcastLeavesThePayload(t *testing.T) {
	e := compile(t, "effect: charge\nversion: 99999999999\nhttp: {url: x}\nupcast: {20260131: {set: {n: =payload.n + 1}}, 20260301: {}, 20260401: {set: {m: =payload.n}}}\n")
	for version, want := range map[int]string{
		1: `{"m":2,"n":2}`, 20260131: `{"m":2,"n":2}`, 20260132: `{"m":1,"n":1}`, 20260402: `{"n":1}`, 99999999999: `{"n":1}`, 0: `{"n":1}`,
	} {
		got, err := e.upcast(Command{Version: version}, map[string]any{"n": 1})
		encoded, _ := jsonvalue.Encode(got)
		if err != nil || string(encoded) != want {
			t.Errorf("from version %d: %s %v, want %s", version, encoded, err, want)
		}
	}
}

func TestUpcastOfNothing(t *testing.T) {
	set := compile(t, "effect: a\nversion: 2\nhttp: {url: x}\nupcast: {1: {set: {n: 1}}}\n")
	if got, err := set.upcast(Command{Version: 1}, nil); err != nil || fmt.Sprint(got) != "map[n:1]" {
		t.Errorf("got %v, %v", got, err)
	}
	unset := compile(t, "effect: a\nversion: 2\nhttp: {url: x}\nupcast: {1: {unset: [n]}}\n")
	if got, err := unset.upcast(Command{Version: 1}, nil); err != nil || got != nil {
		t.Errorf("got %#v, %v", got, err)
	}
}

// TestAPayloadThatCannotBeUpcastFails: nothing is called with half of it.
func TestAPayloadThatCannotBeUpcastFails(t *testing.T) {
	for payload, code := range map[string]string{
		`[1]`:                      "upcast", // no map
		`"x"`:                      "upcast",
		`{"amount":5,"cents":1}`:   "upcast", // amount.value lies in a number
		`{"cents":null,"copy":{}}`: "",
	} {
		bubble(t, func(t *testing.T) {
			h := build(t, charge3)
			h.send(versioned("c1", 1, payload))
			if code == "" {
				wantResult(t, h.one(t), edda.Succeeded, "", 1)
				return
			}
			wantResult(t, h.one(t), edda.Failed, code, 0)
			if h.bank.count() != 0 || h.acks() != 1 {
				t.Errorf("%s: %d calls, %d acks", payload, h.bank.count(), h.acks())
			}
		})
	}
}

func TestAnUpcastThatDoesNotComputeFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge+"version: 2\nupcast: {1: {set: {n: =payload.a + payload.b}}}\n")
		h.send(versioned("c1", 1, `{"a":1}`))
		r := h.one(t)
		wantResult(t, r, edda.Failed, "upcast", 0)
		if !strings.Contains(string(r.Payload), "upcast from version 1") {
			t.Errorf("the failure does not say where: %s", r.Payload)
		}
	})
}

// TestTheSchemaIsOfTheUpcastPayload: an older one violates it before, not after.
func TestTheSchemaIsOfTheUpcastPayload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge3)
		h.send(versioned("c1", 3, `{"cents":250}`))
		wantResult(t, h.one(t), edda.Failed, "schema", 0)
	})
}

// TestANewerPayloadWaitsForANewerManifest: it is given back, never failed and
// never called, and the log hears of it once.
func TestANewerPayloadWaitsForANewerManifest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		h := build(t, charge3)
		h.log = zap.New(core)
		h.restart(t, nil, charge3)
		h.send(versioned("c1", 4, `{"n":1}`), versioned("c2", 4, `{"n":2}`))
		time.Sleep(20 * againAfter)
		synctest.Wait()
		if h.bank.count() != 0 || len(h.got()) != 0 || h.acks() != 0 {
			t.Fatalf("%d calls, results %v, %d acks", h.bank.count(), h.got(), h.acks())
		}
		if _, found, err := h.db.Claim("acme", "c1"); found || err != nil {
			t.Errorf("a claim is there, %v", err)
		}
		said := map[string]int{}
		for _, l := range logs.All() {
			said[fmt.Sprint(l.ContextMap()["command"], " ", l.ContextMap()["version"], " ", l.ContextMap()["manifest"])]++
		}
		if fmt.Sprint(said) != "map[c1 4 3:1 c2 4 3:1]" {
			t.Errorf("the log has %v", said)
		}
		if err := h.w.Replace(compile(t, charge+"version: 4\n")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * againAfter)
		synctest.Wait()
		if h.bank.count() != 2 || len(h.got()) != 2 || h.acks() != 2 {
			t.Errorf("with the newer manifest %d calls, results %v, %d acks", h.bank.count(), h.got(), h.acks())
		}
	})
}

// TestANewerPayloadStillExpiresAndIsRevoked: waiting for a worker takes no
// command out of its bounds.
func TestANewerPayloadStillExpiresAndIsRevoked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge3)
		late := versioned("c1", 4, `{}`)
		late.NotAfter = time.Now().Add(2 * againAfter)
		h.send(late)
		time.Sleep(4 * againAfter)
		wantResult(t, h.one(t), edda.TimedOut, "expired", 0)
	})
	bubble(t, func(t *testing.T) {
		h := build(t, charge3)
		h.send(versioned("c1", 4, `{}`))
		synctest.Wait()
		h.send(revoke("c1"))
		wantResult(t, h.one(t), edda.Failed, "revoked", 0)
		time.Sleep(2 * againAfter)
		synctest.Wait()
		if h.bank.count() != 0 || h.acks() != 2 {
			t.Errorf("%d calls, %d acks", h.bank.count(), h.acks())
		}
	})
}

// TestAWaitingPayloadHoldsNobodyUp: the others of its effect are called.
func TestAWaitingPayloadHoldsNobodyUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge3)
		for i := range 50 {
			h.send(versioned(fmt.Sprint("new", i), 4, `{}`))
		}
		h.send(versioned("c1", 1, `{"cents":1}`))
		time.Sleep(time.Second)
		if r := h.one(t); r.CommandID != "c1" || r.Outcome != edda.Succeeded {
			t.Errorf("result %+v", r)
		}
	})
}

// TestADoneCommandIsPublishedWhateverItsVersion: its result is known, also to a
// worker that could not call.
func TestADoneCommandIsPublishedWhateverItsVersion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge+"version: 4\n")
		h.send(versioned("c1", 4, `{}`))
		h.one(t)
		h.restart(t, nil, charge3)
		h.send(versioned("c1", 4, `{}`))
		synctest.Wait()
		if h.bank.count() != 1 || len(h.got()) != 2 || h.acks() != 2 {
			t.Errorf("%d calls, %d results, %d acks", h.bank.count(), len(h.got()), h.acks())
		}
	})
}

func TestWarnedForgetsTheOldest(t *testing.T) {
	var seen warned
	name := func(i int) taskName { return taskName{"acme", fmt.Sprint(i)} }
	for i := range maxWarned + 1 {
		if !seen.first(name(i)) || seen.first(name(i)) {
			t.Fatalf("%d is not first once", i)
		}
	}
	if len(seen.names) != maxWarned || len(seen.order) != maxWarned {
		t.Errorf("%d names, %d in order", len(seen.names), len(seen.order))
	}
	if seen.first(name(1)) || !seen.first(name(0)) || !seen.first(taskName{"globex", "1"}) {
		t.Error("the wrong one was forgotten")
	}
}

func TestCompileUpcastProblems(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"of the effect's own version", "version: 2\nupcast: {1: {}, 2: {set: {a: 1}}}\n", "4:17: error: this upcast makes version 3, and the effect is version 2: give it version: 3"},
		{"without a version", "upcast: {1: {set: {a: 1}}}\n", "3:10: error: this upcast makes version 2, and the effect is version 1: give it version: 2"},
		{"unknown name", "version: 2\nupcast: {1: {set: {a: =paylod.x}}}\n", `4:24: error: unknown name "paylod", did you mean "payload"?`},
		{"in a template", "version: 2\nupcast: {1: {set: {a: 'x ${paylod.x}'}}}\n", `4:28: error: unknown name "paylod"`},
		{"no secret", "version: 2\nupcast: {1: {set: {a: =secret.PAY}}}\n", `4:24: error: unknown name "secret"`},
		{"nothing of the answer", "version: 2\nupcast: {1: {set: {a: =body.x}}}\n", `4:24: error: unknown name "body"`},
		{"no expression", "version: 2\nupcast: {1: {set: {a: =1 +}}}\n", "4:2"},
		{"not a version", "version: 2\nupcast: {0: {set: {a: 1}}}\n", "upcast has the older version's number as its key"},
		{"twice", "version: 2\nupcast: {1: {}, 01: {}}\n", "version 1 is here twice"},
		{"one path within another", "version: 2\nupcast: {1: {set: {a: 1, a.b: 2}}}\n", "one lies within the other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, problems := compileText(t, "effect: a\nhttp: {url: x}\n"+tt.text)
			if e != nil || !problems.Failed() {
				t.Fatalf("compiled, problems %v", problems)
			}
			if got := fmt.Sprint(problems); !strings.Contains(got, tt.want) {
				t.Errorf("problems %s, want %s", got, tt.want)
			}
		})
	}
	if e, problems := compileText(t, charge3); e == nil || len(problems) != 0 {
		t.Errorf("a good one has problems: %v", problems)
	}
}

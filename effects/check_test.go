package effects

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edda"
	kindspec "edda/effects/spec"
	"edda/manifests"
	"edda/store"
)

const checked = charge + `check: {http: {url: "https://pay/find?key=${id}", method: GET}, ok: status == 200, again: status == 404, fail: status == 410}
`

// cashier answers charges and checks apart, and remembers the order.
type cashier struct {
	charge, find func(n int) (Response, error)
	seen         []string
}

func (d *cashier) answer(_ context.Context, _ int, c Call) (Response, error) {
	word, f := "charge", d.charge
	if strings.HasPrefix(c.Config["url"].(string), "https://pay/find") {
		word, f = "find", d.find
	}
	if c.Asks != (word == "find") {
		word += "?"
	}
	d.seen = append(d.seen, word)
	n := 0
	for _, s := range d.seen {
		if s == word {
			n++
		}
	}
	return f(n)
}

func answering(r Response) func(int) (Response, error) {
	return func(int) (Response, error) { return r, nil }
}

// found leaves a claim behind, as a run that was killed between claim and result.
func (h *house) found(t *testing.T, id string) {
	t.Helper()
	claim := edda.Claim{Tenant: "acme", CommandID: id, Effect: "charge", Owner: "another run", Claimed: time.Now().UTC()}
	if err := h.db.Commit(t.Context(), store.Change{Claims: []edda.Claim{claim}}); err != nil {
		t.Fatal(err)
	}
}

func TestCheckAfterACrash(t *testing.T) {
	lost := func(int) (Response, error) { return Response{}, errors.New("reset") }
	fails := func(n int) (Response, error) {
		if n < 3 {
			return status(503), nil
		}
		return status(404), nil
	}
	onceChecked := checked + "delivery: at_most_once\n"
	tests := []struct {
		name     string
		manifest string
		charge   func(int) (Response, error)
		find     func(int) (Response, error)
		seen     string
		kind     edda.Outcome
		code     string
		calls    int
	}{
		{"it happened", checked, nil, answering(ok200()), "find", edda.Succeeded, "", 0},
		{"it did not happen", checked, answering(ok200()), answering(status(404)), "find charge", edda.Succeeded, "", 1},
		{"it did not happen, at most once", onceChecked, answering(ok200()), answering(status(404)), "find charge", edda.Succeeded, "", 1},
		{"it failed", checked, nil, answering(status(410)), "find", edda.Failed, "oops", 0},
		{"the check needs patience", checked, answering(ok200()), fails, "find find find charge", edda.Succeeded, "", 1},
		{"the check never tells", checked, nil, answering(status(500)), "find find find find find", edda.TimedOut, "unknown", 0},
		{"the check is not there", checked, nil, lost, "find find find find find", edda.TimedOut, "unknown", 0},
		{"the check says something else", checked, nil, answering(status(403)), "find find find find find", edda.TimedOut, "unknown", 0},
		{"then it is refused", checked, answering(status(402)), answering(status(404)), "find charge", edda.Failed, "oops", 1},
		{"no check, at most once", once, nil, nil, "", edda.TimedOut, "unknown", 0},
		{"no check", charge, answering(ok200()), nil, "charge", edda.Succeeded, "", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h, d := build(t, tt.manifest), &cashier{charge: tt.charge, find: tt.find}
				h.bank.answers(d.answer)
				h.found(t, "c1")
				h.send(cmd("c1"))
				time.Sleep(time.Hour)
				wantResult(t, h.one(t), tt.kind, tt.code, tt.calls)
				if got := strings.Join(d.seen, " "); got != tt.seen {
					t.Errorf("calls %q, want %q", got, tt.seen)
				}
			})
		})
	}
}

// TestCheckWithinARun asks also where the worker itself lost an answer.
func TestCheckWithinARun(t *testing.T) {
	lost := func(int) (Response, error) { return Response{}, errors.New("reset") }
	tests := []struct {
		name   string
		more   string
		charge func(int) (Response, error)
		find   func(int) (Response, error)
		seen   string
		kind   edda.Outcome
		code   string
		calls  int
	}{
		{"it happened", "", lost, answering(ok200()), "charge find", edda.Succeeded, "", 1},
		{"it happened, at most once", "delivery: at_most_once\n", lost, answering(ok200()), "charge find", edda.Succeeded, "", 1},
		{"it never does", "", lost, answering(status(404)), "charge find charge find charge find charge find charge find", edda.Failed, "network", 5},
		{"the answer was too strange", "", func(int) (Response, error) { return Response{}, edda.Classify(edda.Permanent, "larger than 1 MiB") },
			answering(ok200()), "charge find", edda.Succeeded, "", 1},
		{"an answer in doubt, at most once", "delivery: at_most_once\n", answering(status(503)), answering(ok200()), "charge find", edda.Succeeded, "", 1},
		{"an answer in doubt that did nothing, at most once", "delivery: at_most_once\n", answering(status(503)), answering(status(404)),
			"charge find charge find charge find charge find charge find", edda.Failed, "oops", 5},
		{"an answer in doubt", "", answering(status(503)), answering(ok200()), "charge find", edda.Succeeded, "", 1},
		{"an answer in doubt that did nothing", "", answering(status(503)), answering(status(404)),
			"charge find charge find charge find charge find charge find", edda.Failed, "oops", 5},
		{"refused, so there is nothing to ask", "", answering(status(429)), nil, "charge charge charge charge charge", edda.Failed, "oops", 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h, d := build(t, checked+tt.more), &cashier{charge: tt.charge, find: tt.find}
				h.bank.answers(d.answer)
				h.send(cmd("c1"))
				time.Sleep(time.Hour)
				wantResult(t, h.one(t), tt.kind, tt.code, tt.calls)
				if got := strings.Join(d.seen, " "); got != tt.seen {
					t.Errorf("calls %q, want %q", got, tt.seen)
				}
			})
		})
	}
}

// TestCheckIsAskedAlsoAfterNotAfter, since asking is no call.
func TestCheckIsAskedAlsoAfterNotAfter(t *testing.T) {
	for want, find := range map[edda.Outcome]Response{edda.Succeeded: ok200(), edda.TimedOut: status(404)} {
		bubble(t, func(t *testing.T) {
			h, d := build(t, checked), &cashier{find: answering(find)}
			h.bank.answers(d.answer)
			h.found(t, "c1")
			late := cmd("c1")
			late.NotAfter = time.Now().Add(-time.Second)
			h.send(late)
			time.Sleep(time.Minute)
			code := map[edda.Outcome]string{edda.TimedOut: "expired"}[want]
			wantResult(t, h.one(t), want, code, 0)
			if !slices.Equal(d.seen, []string{"find"}) {
				t.Errorf("calls %v", d.seen)
			}
		})
	}
}

// TestOlderThanTheLedgerRemembers is a command whose claim may have been
// dropped: what came of it is not known.
func TestOlderThanTheLedgerRemembers(t *testing.T) {
	for manifest, calls := range map[string]int{charge: 1, once: 0} {
		bubble(t, func(t *testing.T) {
			h := build(t, manifest)
			old := cmd("c1")
			old.Sent = time.Now().Add(-DefaultRetention - time.Second)
			h.send(old)
			synctest.Wait()
			if r := h.one(t); h.bank.count() != calls || calls == 0 && r.Outcome != edda.TimedOut {
				t.Errorf("%s after %d calls", r.Outcome, h.bank.count())
			}
		})
	}
}

func TestCompileCheckProblems(t *testing.T) {
	for text, want := range map[string]string{
		"check: {ok: status == 200}":                                     "nowhere how to ask",
		"check: {http: {url: x}}":                                        "check needs ok",
		"check: {http: {url: x}, sql: {query: x}, ok: status == 200}":    "in one way",
		"check: {sql: {query: x}, ok: status == 200}":                    "not built in",
		"check: {http: {url: x}, ok: statas == 200}":                     "statas",
		"check: {http: {url: \"${oops}\"}, ok: status == 200}":           "oops",
		"check: {http: {url: x}, ok: status == 200, agian: status == 1}": "agian",
	} {
		_, problems := compileText(t, charge+text+"\n")
		if text := problemText(problems); !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q in it", want, text, want)
		}
	}
}

// TestCheckThatIsNoMap is a complaint of the parser, and providers are not asked
// about what is not there.
func TestCheckThatIsNoMap(t *testing.T) {
	f, problems := manifests.Parse("effects.yaml", []byte("effect: a\nhttp: {url: x}\ncheck: {http: 5, ok: 'true'}\n"))
	if !problems.Failed() || len(f.Effects) != 1 {
		t.Fatalf("%d effects, problems %v", len(f.Effects), problems)
	}
	looks := &kindspec.Fields{Name: "http", Fields: []kindspec.Field{{Name: "url"}}, Check: func(c *kindspec.Checker, m *manifests.Value) {
		c.Warnf(m.Pos, "seen")
	}}
	if _, problems := Compile(f.Effects[0], map[string]ProviderKind{"http": {Spec: looks}}); len(problems) != 1 {
		t.Errorf("problems %v", problems)
	}
}

// TestACheckThatIsCutOffSaysNothing of the other side, to the breaker neither.
func TestACheckThatIsCutOffSaysNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, checked+"breaker: {failures: 1}\n")
		h.found(t, "c1")
		h.bank.answers(hang)
		h.send(cmd("c1"))
		synctest.Wait()
		h.stop()
		if _, shut := h.w.breakers.named["charge"].shut(); shut || h.bank.count() != 1 {
			t.Errorf("open: %v, after %d calls", shut, h.bank.count())
		}
		if len(h.got()) != 0 {
			t.Errorf("results %+v", h.got())
		}
	})
}

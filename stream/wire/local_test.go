package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"edda"
	"edda/effects"
	"edda/engine"
)

// OfferedWork returns commands as sagas emit them, plain and strange.
func OfferedWork() []edda.Work {
	from := edda.Key{Tenant: "acme", Saga: "order", Correlation: "O1"}
	plain := edda.Work{ID: "01a2-c", Kind: edda.WorkEffect, From: from, Name: "charge", Payload: json.RawMessage(`{"amount":25,"who":"<é>"}`),
		Step: "charge", Attempt: 1, Time: noon, Correlation: "corr", Trace: "tr", Causation: "cause"}
	all := []edda.Work{plain}
	for _, change := range []func(*edda.Work){
		func(w *edda.Work) { w.Payload = nil },
		func(w *edda.Work) { w.Payload = json.RawMessage("null") },
		func(w *edda.Work) { w.Payload = json.RawMessage(`"text with  and </script>"`) },
		func(w *edda.Work) { w.EffectVersion, w.High, w.IdempotencyKey = 3, true, "key-1" },
		func(w *edda.Work) { w.NotAfter = noon.Add(time.Hour) },
		func(w *edda.Work) { w.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" },
		func(w *edda.Work) { w.ID, w.From.Correlation = "a.b * > %", `quote " and é` },
		func(w *edda.Work) { w.ID = strings.Repeat("long", 100) },
		func(w *edda.Work) { w.From.Tenant = "" },
		func(w *edda.Work) { w.Correlation, w.Causation, w.Step, w.Attempt = "", "", "", 0 },
		func(w *edda.Work) { w.From.Correlation, w.Causation = "no text \xff\xfe", "\xff" },
	} {
		w := plain
		change(&w)
		all = append(all, w)
	}
	return all
}

// through is a value as the store keeps it.
func through[T any](t *testing.T, v T) (out T) {
	t.Helper()
	text, err := encode(v)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestOfferedEqualsTheDeliveredCommand(t *testing.T) {
	for i, w := range OfferedWork() {
		c := Codec{}
		c.NoTenancy = w.From.Tenant == ""
		w = through(t, w)
		m, err := c.Work(w)
		if err != nil {
			t.Fatal(err)
		}
		want := c.Command(Message{Subject: m.Subject, Header: m.Header, Data: m.Data, Time: noon})
		want.Offered = true
		got, fits := c.Offered(&w)
		if !fits || want.Malformed != "" || !reflect.DeepEqual(got, want) {
			t.Errorf("%d:\n got %+v\nwant %+v", i, got, want)
		}
	}
}

// TestAppliedEqualsTheDeliveredResult: and its echo is the message that a worker publishes.
func TestAppliedEqualsTheDeliveredResult(t *testing.T) {
	for i, w := range OfferedWork() {
		for _, payload := range []string{`{"id":"P1","<":[1.5,2]}`, "null", `{"code":"network","message":"no\u0000 \u2028","attempts":2,"duration":"1s"}`} {
			c := Codec{}
			c.NoTenancy = w.From.Tenant == ""
			stored := through(t, w)
			cmd, _ := c.Offered(&stored)
			r := effects.Result{Tenant: cmd.Tenant, CommandID: cmd.ID, Effect: cmd.Effect, Outcome: edda.Failed, Payload: json.RawMessage(payload),
				Metadata: cmd.Metadata, Attempts: 2, Time: time.Now().UTC(), Trace: cmd.Trace}
			m, err := c.Result(r)
			if err != nil {
				t.Fatal(err)
			}
			want := c.Event(Message{Subject: m.Subject, Header: m.Header, Data: m.Data})
			got, copied, err := c.Applied(r, nil)
			if err != nil || want.Malformed != "" || !reflect.DeepEqual(got, want) {
				t.Errorf("%d %s: %v\n got %+v\nwant %+v", i, payload, err, got, want)
			}
			for _, fresh := range []*edda.Work{&stored, &w} {
				if known, same, err := c.Applied(r, fresh); err != nil || !reflect.DeepEqual(known, got) || !reflect.DeepEqual(same, copied) {
					t.Errorf("%d %s: %v\nwhere the work is known %+v\nwhere it is not %+v", i, payload, err, known, got)
				}
			}
			sent, err := c.Work(through(t, copied))
			if err != nil || !reflect.DeepEqual(resultOfEcho(t, sent), m) {
				t.Errorf("%d %s: the copy is %v %s, and published was %s", i, payload, err, sent.Data, m.Data)
			}
		}
	}
}

// resultOfEcho returns the message of an echo under the subject of a result.
func resultOfEcho(t *testing.T, echo *nats.Msg) *nats.Msg {
	t.Helper()
	subject, is := strings.CutSuffix(echo.Subject, ".echo")
	if !is {
		t.Fatalf("%s is not the subject of an echo", echo.Subject)
	}
	return &nats.Msg{Subject: subject, Header: echo.Header, Data: echo.Data}
}

// handedIn returns a result as the engine applies it: the event, the claim and the echo.
func handedIn(t *testing.T, c Codec, w edda.Work, at time.Time) (edda.Event, edda.Claim, edda.Work) {
	t.Helper()
	stored := through(t, w)
	cmd, _ := c.Offered(&stored)
	ev, copied, err := c.Applied(effects.Result{Tenant: cmd.Tenant, CommandID: cmd.ID, Effect: cmd.Effect, Outcome: edda.Succeeded,
		Payload: json.RawMessage(`{"id":1}`), Metadata: cmd.Metadata, Attempts: 2, Time: noon.Add(-time.Minute), Trace: cmd.Trace}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ev.Time, copied.Time = at, at
	claim := edda.Claim{Tenant: cmd.Tenant, CommandID: cmd.ID, Effect: cmd.Effect, Done: true, Outcome: edda.Succeeded, Result: []byte(`{"id":1}`),
		Attempts: 2, Finished: noon.Add(-time.Minute), Taken: at}
	return ev, claim, copied
}

// TestAnEchoDecodesToTheAppliedResult: to the nanosecond, whenever it was stored. The result in the
// ledger does, too.
func TestAnEchoDecodesToTheAppliedResult(t *testing.T) {
	for i, w := range OfferedWork() {
		for _, late := range []time.Duration{-engine.MaxSkew, -time.Nanosecond, 0, time.Nanosecond, time.Hour, 365 * 24 * time.Hour} {
			c := Codec{}
			c.NoTenancy = w.From.Tenant == ""
			ev, claim, copied := handedIn(t, c, w, noon)
			sent, err := c.Work(through(t, copied))
			if err != nil {
				t.Fatal(err)
			}
			got := c.Event(Message{Subject: sent.Subject, Header: sent.Header, Data: sent.Data, Stream: WorkflowEvents, Seq: 7, Time: noon.Add(late)})
			if !got.StoredAt().Equal(noon.Add(late)) || got.Stream != WorkflowEvents || got.Seq != 7 || !reflect.DeepEqual(got.Taken(), ev) {
				t.Errorf("%d, %v later:\n got %+v\nwant %+v", i, late, got, ev)
			}
			claim = through(t, claim)
			stored := through(t, w)
			cmd, _ := c.Offered(&stored)
			again, err := c.Result(effects.Result{Tenant: claim.Tenant, CommandID: claim.CommandID, Effect: claim.Effect, Outcome: claim.Outcome,
				Payload: claim.Result, Metadata: cmd.Metadata, Attempts: claim.Attempts, Time: claim.Finished, Taken: claim.Taken, Trace: cmd.Trace})
			if err != nil || !reflect.DeepEqual(again, resultOfEcho(t, sent)) {
				t.Errorf("%d: by the ledger %v %+v, by the copy %+v", i, err, again, sent)
			}
		}
	}
}

// TestAnImpossibleTakenTimeIsIgnored: the result then has its store time.
func TestAnImpossibleTakenTimeIsIgnored(t *testing.T) {
	_, _, copied := handedIn(t, Codec{}, OfferedWork()[0], noon)
	m, err := Codec{}.Work(copied)
	if err != nil {
		t.Fatal(err)
	}
	for _, forged := range []string{
		"", " ", "now", "0", "-1", noon.Add(engine.MaxSkew + time.Nanosecond).Format(time.RFC3339Nano), "9999-12-31T23:59:59Z", "10000-01-01T00:00:00Z",
		"1969-12-31T23:59:59.999Z", "0001-01-01T00:00:00Z", "-0001-01-01T00:00:00Z", "2026-01-02", noon.Format(time.RFC1123), strings.Repeat("2", 1<<16),
	} {
		m.Header[headerTaken] = []string{forged}
		ev := Codec{}.Event(stored(m))
		if ev.Malformed != "" || !ev.Time.Equal(noon) || !ev.Stored.IsZero() || ev.Seq != 7 || ev.Taken().Seq != 7 {
			t.Errorf("%.40q: %+v", forged, ev)
		}
	}
	for _, likely := range []string{noon.Format(time.RFC3339Nano), "1970-01-01T00:00:00Z", "2026-01-02T13:00:00+02:00"} {
		m.Header[headerTaken] = []string{likely}
		want, _ := time.Parse(time.RFC3339Nano, likely)
		if ev := (Codec{}).Event(stored(m)); !ev.Time.Equal(want) || ev.Time.Location() != time.UTC || !ev.Stored.Equal(noon) {
			t.Errorf("%q: %+v", likely, ev)
		}
	}
}

func TestOnlyResultsHaveATakenTime(t *testing.T) {
	for name, w := range works() {
		m, err := Codec{}.Work(w)
		if err != nil {
			t.Fatal(err)
		}
		m.Header[headerTaken] = []string{noon.Add(-time.Hour).Format(time.RFC3339Nano)}
		if ev := (Codec{}).Event(stored(m)); !ev.Time.Equal(noon) || !ev.Stored.IsZero() {
			t.Errorf("%s: %+v", name, ev)
		}
	}
}

func TestOfferedRefusesWhatMayNotFitAMessage(t *testing.T) {
	w := OfferedWork()[0]
	if _, fits := (Codec{MaxPayload: envelopeRoom + 100}).Offered(&w); fits {
		t.Error("a command that fills half a message was handed over")
	}
	w.From.Tenant = strings.Repeat("x", MaxSubject)
	if _, fits := (Codec{}).Offered(&w); fits {
		t.Error("a command that has no subject was handed over")
	}
}

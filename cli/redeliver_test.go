package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/server"
	"edda/stream/kv"
)

// sums adds amounts, and breaks where an event has none: a text is no number.
const sums = `saga: sums
key: event.k
state: {n: 0, log: ""}
on:
  Begin: {start: true}
  Add: {set: {n: "=state.n + event.amount", log: "=state.log + event.id"}}
  End: {do: [{done: =state}]}
`

// mended takes what has no amount as nothing.
var mended = strings.Replace(sums, "state.n + event.amount", "state.n + (event.amount ?? 0)", 1)

// letters lists the dead letters of a running one.
func (r *running) letters(t *testing.T, args ...string) (out []edda.DeadLetter) {
	t.Helper()
	code, text := r.edda(t, append([]string{"deadletter", "list", "-o", "json"}, args...)...)
	if code != 0 {
		t.Fatalf("list: %d %s", code, text)
	}
	var list server.DeadLetterList
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return list.DeadLetters
}

func (r *running) add(t *testing.T, key, id, payload string) {
	t.Helper()
	if code, out := r.edda(t, "send", "Sum.Add", "--id", key, "--event-id", id, "--data", payload); code != 0 {
		t.Fatalf("send: %s", out)
	}
}

// poisoned begins a sum and breaks it, with two events behind.
func (r *running) poisoned(t *testing.T, key string) string {
	t.Helper()
	r.edda(t, "send", "Sum.Begin", "--id", key, "--data", `{"k":"`+key+`"}`)
	r.add(t, key, key+"1", `{"k":"`+key+`","id":"a","amount":1}`)
	r.add(t, key, key+"2", `{"k":"`+key+`","id":"b"}`)
	r.add(t, key, key+"3", `{"k":"`+key+`","id":"c","amount":10}`)
	r.add(t, key, key+"4", `{"k":"`+key+`","id":"d","amount":100}`)
	r.until(t, "2 events behind it", "instance", "describe", "sums", key)
	for _, d := range r.letters(t, "--reason", "poison") {
		if d.Key.Correlation == key {
			return d.ID
		}
	}
	t.Fatal("no dead letter")
	return ""
}

func TestRedriveAfterAMendedManifestAppliesTheHeldEventsInOrder(t *testing.T) {
	dir := folder(t, map[string]string{"sums.yaml": sums})
	d := startDev(t, dir, "--data", t.TempDir())
	id := d.poisoned(t, "A")
	code, out := d.edda(t, "deadletter", "show", id)
	for _, want := range []string{"where       Add\n", "state.n + event.amount", `"state":{"log":"a","n":1}`, `{"k":"A","id":"b"}`, "2 events wait behind it", "A3", "A4", "edda deadletter redrive " + id, "Sum.Add"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("show lacks %q: %d\n%s", want, code, out)
		}
	}
	if code, out := d.edda(t, "deadletter", "redrive", id, "--why", "too early"); code != 1 || !strings.Contains(out, "cannot be applied this time either (poison)") {
		t.Errorf("redrive before the manifest is mended: %d %s", code, out)
	}
	if out := d.until(t, "2 events behind it", "instance", "describe", "sums", "A"); !strings.Contains(out, `"log":"a"`) {
		t.Errorf("it is held still, but\n%s", out)
	}
	write(t, filepath.Join(dir, "sums.yaml"), mended)
	d.out.wait(t, `Reloaded: sagas sums v1\+dev`)
	code, out = d.edda(t, "deadletter", "redrive", id, "--why", "mended", "--by", "ann")
	if code != 0 || !strings.Contains(out, "handled; 2 with it; now running") || !strings.Contains(out, "upgraded") {
		t.Errorf("redrive: %d %s", code, out)
	}
	if out := d.until(t, `"n":111`, "instance", "describe", "sums", "A"); !strings.Contains(out, `"log":"abcd"`) {
		t.Errorf("not in order:\n%s", out)
	}
	if left := d.letters(t); len(left) != 0 {
		t.Errorf("left %+v", left)
	}
	code, out = d.edda(t, "audit", "list")
	if code != 0 || !strings.Contains(out, "ann") || !strings.Contains(out, "mended") || !strings.Contains(out, "too early") || !strings.Contains(out, "dead letter "+id) {
		t.Errorf("audit: %d\n%s", code, out)
	}
	if !strings.Contains(out, "died again: poison, dead letter "+id) || strings.Count(out, "#3); handled") != 1 {
		t.Errorf("the audit takes the verb's fate for the event's:\n%s", out)
	}
	if code, out := d.edda(t, "deadletter", "redrive", id, "--why", "again"); code != 1 || !strings.Contains(out, "no dead letter "+id) {
		t.Errorf("redrive of what is gone: %d %s", code, out)
	}
}

func TestRedriveWithAnotherPayloadDropAndSkip(t *testing.T) {
	d := startDev(t, folder(t, map[string]string{"sums.yaml": sums}), "--data", t.TempDir())
	edited, dropped, skipped := d.poisoned(t, "A"), d.poisoned(t, "B"), d.poisoned(t, "C")
	if out := d.until(t, "C", "instance", "list", "--status", "held"); strings.Count(out, "held") != 3 {
		t.Errorf("held instances:\n%s", out)
	}
	if code, out := d.edda(t, "instance", "held", "--saga", "sums"); code != 0 || strings.Count(out, "redrive or skip dead letter") != 3 {
		t.Errorf("held: %d\n%s", code, out)
	}
	file := filepath.Join(t.TempDir(), "data.json")
	write(t, file, `{"k":"A","id":"x","amount":1000}`)
	if code, out := d.edda(t, "deadletter", "redrive", edited, "--data", "@"+file, "--why", "the amount was missing"); code != 0 || !strings.Contains(out, "handled") {
		t.Errorf("edit and redrive: %d %s", code, out)
	}
	if code, out := d.edda(t, "deadletter", "drop", dropped, "--why", "a mistake"); code != 0 || !strings.Contains(out, "dropped; 2 with it") {
		t.Errorf("drop: %d %s", code, out)
	}
	if code, out := d.edda(t, "deadletter", "skip", skipped, "--why", "a mistake"); code != 0 || !strings.Contains(out, "dropped; 2 with it") {
		t.Errorf("skip: %d %s", code, out)
	}
	d.until(t, `"log":"axcd","n":1111`, "instance", "describe", "sums", "A")
	d.until(t, `"log":"acd","n":111`, "instance", "describe", "sums", "B")
	d.until(t, `"log":"acd","n":111`, "instance", "describe", "sums", "C")
	if left := d.letters(t); len(left) != 0 {
		t.Errorf("left %+v", left)
	}
	code, out := d.edda(t, "audit", "list", "--since", "1h", "-o", "json")
	for _, want := range []string{`"verb": "redrive"`, `"verb": "drop"`, `"verb": "skip"`, `"reason": "the amount was missing"`} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("the audit lacks %s: %d\n%s", want, code, out)
		}
	}
	if code, out := d.edda(t, "audit", "list", "--since", "2100-01-01T00:00:00Z"); code != 0 || strings.Contains(out, "drop") {
		t.Errorf("the audit of a day to come: %d %s", code, out)
	}
	for letter, want := range map[string]string{
		edited: "; event Add A2 (AGGREGATE_EVENTS#3); edited payload; handled", dropped: "; event Add B2 (AGGREGATE_EVENTS#8); dropped", skipped: "; event Add C2 (AGGREGATE_EVENTS#13); dropped",
	} {
		if !strings.Contains(out, "dead letter "+letter+want+`"`) {
			t.Errorf("the audit lacks %s:\n%s", want, out)
		}
	}
	if strings.Contains(out, "1000") {
		t.Errorf("a payload is in the audit\n%s", out)
	}
	if strings.Count(out, "; dropped") != 2 || strings.Count(out, "payload; handled") != 1 {
		t.Errorf("what became of the events is not in the audit\n%s", out)
	}
	metrics := d.metrics(t)
	for _, want := range []string{
		`edda_dead_letters_settled_total{reason="poison",verb="redrive"} 1`, `edda_dead_letters_settled_total{reason="poison",verb="drop"} 1`,
		`edda_dead_letters_settled_total{reason="poison",verb="skip"} 1`, `edda_operator_acts_total{verb="skip"} 1`, "edda_held_keys 0", "edda_held_events 0", "edda_parked_events 0",
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("no %s in the metrics", want)
		}
	}
	if log := d.err.String(); strings.Contains(log, "1000") {
		t.Errorf("a payload is in the log\n%s", log)
	}
}

func (r *running) metrics(t *testing.T) string {
	t.Helper()
	resp, err := http.Get("http://" + r.addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRedriveAllGoesOnPastFailures(t *testing.T) {
	dir := folder(t, map[string]string{"sums.yaml": sums})
	d := startDev(t, dir, "--data", t.TempDir())
	for _, k := range []string{"A", "B", "C"} {
		d.poisoned(t, k)
	}
	if code, out := d.edda(t, "deadletter", "redrive", "--all", "--why", "a try"); code != 1 || !strings.Contains(out, "0 redriven, 3 failed") || strings.Count(out, "this time either") != 3 {
		t.Errorf("%d %s", code, out)
	}
	write(t, filepath.Join(dir, "sums.yaml"), mended)
	d.out.wait(t, `Reloaded: sagas sums v1\+dev`)
	if code, out := d.edda(t, "deadletter", "redrive", "--all", "--saga", "sums", "--reason-of", "poison", "--max", "2", "--why", "mended"); code != 0 || !strings.Contains(out, "2 redriven, 0 failed") || !strings.Contains(out, "there are more") {
		t.Errorf("%d %s", code, out)
	}
	if code, out := d.edda(t, "deadletter", "redrive", "--all", "--why", "mended", "-o", "json"); code != 0 || !strings.Contains(out, `"redriven": 1`) {
		t.Errorf("%d %s", code, out)
	}
	for _, k := range []string{"A", "B", "C"} {
		d.until(t, `"log":"abcd","n":111`, "instance", "describe", "sums", k)
	}
	if code, out := d.edda(t, "audit", "list"); code != 0 || !strings.Contains(out, "all dead letters of saga sums that died of poison: 2 done, 0 failed; more to come") || !strings.Contains(out, "all dead letters: 1 done, 0 failed") {
		t.Errorf("the audit has no word of all: %d\n%s", code, out)
	}
	for _, wrong := range [][]string{{"--why", "x"}, {"ID", "--all", "--why", "x"}, {"--all"}, {"--all", "--data", "{}", "--why", "x"}, {"--all", "--reason-of", "boredom", "--why", "x"}, {"--all", "--max", "0", "--why", "x"}} {
		if code, out := d.edda(t, append([]string{"deadletter", "redrive"}, wrong...)...); code != exitUsage {
			t.Errorf("%v: %d %s", wrong, code, out)
		}
	}
}

// publish stores a message under a subject, as any client of NATS may.
func (r *running) publish(t *testing.T, subject, body string) {
	t.Helper()
	conn, js, err := connectNow(t.Context(), kv.Connection{URL: r.nats})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := js.Publish(t.Context(), subject, []byte(body)); err != nil {
		t.Fatal(err)
	}
}

// oneLetter waits for the only dead letter that died of a reason.
func (r *running) oneLetter(t *testing.T, reason string) edda.DeadLetter {
	t.Helper()
	r.until(t, reason, "deadletter", "list", "--reason", reason)
	all := r.letters(t, "--reason", reason, "--all")
	if len(all) != 1 {
		t.Fatalf("%d letters of %s", len(all), reason)
	}
	return all[0]
}

func TestDeadLettersOfNoInstanceGoBackToTheirStream(t *testing.T) {
	shop := newShop(t)
	dir := folder(t, map[string]string{"sums.yaml": sums, "order.yaml": orderSaga, "effects.yaml": shop.effects()})
	d := startDev(t, dir, "--data", t.TempDir())
	d.edda(t, "send", "Sum.Begin", "--id", "A", "--data", `{"k":"A"}`)
	d.publish(t, "tenant.default.aggregate.Sum.A", `{"event_type":"Add","payload":{"k":"A","id":"x","amount":3`)
	unread := d.oneLetter(t, edda.DeadUndecodable)
	if code, out := d.edda(t, "deadletter", "show", unread.ID); code != 0 || !strings.Contains(out, "subject     tenant.default.aggregate.Sum.A") || !strings.Contains(out, "--data @FILE") {
		t.Errorf("%d %s", code, out)
	}
	// As it was it dies again, as another letter.
	if code, out := d.edda(t, "deadletter", "redrive", unread.ID, "--why", "a try"); code != 0 || !strings.Contains(out, "sent to tenant.default.aggregate.Sum.A") {
		t.Errorf("%d %s", code, out)
	}
	d.until(t, "Sum", "deadletter", "list", "--reason", edda.DeadUndecodable)
	unread = d.oneLetter(t, edda.DeadUndecodable)
	if code, out := d.edda(t, "deadletter", "redrive", unread.ID, "--data", `{"event_type":"Add","payload":{"k":"A","id":"x","amount":3}}`, "--why", "mended by hand"); code != 0 {
		t.Errorf("%d %s", code, out)
	}
	d.until(t, `"log":"x","n":3`, "instance", "describe", "sums", "A")

	// A command that is none: answered as failed under its id, called under a new one.
	d.publish(t, "tenant.default.effect.ship.c1", `{"command_id":"c1","effect_name":"sink"}`)
	command := d.oneLetter(t, edda.DeadMalformed)
	if code, out := d.edda(t, "deadletter", "redrive", command.ID, "--data", `{"command_id":"c1","effect_name":"ship","payload":{"order":"O1"}}`, "--why", "a typing error"); code != 0 || !strings.Contains(out, "sent to tenant.default.effect.ship.redrive-") {
		t.Errorf("%d %s", code, out)
	}
	shop.called(t, "/ship redrive-")
	if left := d.letters(t); len(left) != 0 {
		t.Errorf("left %+v", left)
	}
	if code, out := d.edda(t, "audit", "list"); code != 0 || strings.Count(out, "dead letter") != 3 || strings.Count(out, "; sent to tenant.default.") != 3 {
		t.Errorf("audit: %d\n%s", code, out)
	}
}

// called waits for a call whose path and key begin so.
func (s *shop) called(t *testing.T, prefix string) {
	t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		s.mu.Lock()
		for k := range s.keys {
			if strings.HasPrefix(k, prefix) {
				s.mu.Unlock()
				return
			}
		}
		s.mu.Unlock()
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("nobody called %s: %v", prefix, s.keys)
		}
	}
}

func TestTwoRedrivesOfOneLetterAtOnce(t *testing.T) {
	d := startDev(t, folder(t, map[string]string{"sums.yaml": sums}), "--data", t.TempDir())
	id := d.poisoned(t, "A")
	d.publish(t, "tenant.default.aggregate.Sum.B", `{`)
	raw := d.oneLetter(t, edda.DeadUndecodable)
	for letter, data := range map[string]string{id: `{"k":"A","id":"x","amount":5}`, raw.ID: `{"event_type":"Begin","payload":{"k":"B"}}`} {
		const callers = 8
		codes := make(chan int, callers)
		for range callers {
			go func() {
				code, _ := d.edda(t, "deadletter", "redrive", letter, "--data", data, "--why", "at once")
				codes <- code
			}()
		}
		done := 0
		for range callers {
			if <-codes == 0 {
				done++
			}
		}
		if done != 1 {
			t.Errorf("%d of %d callers redrove it", done, callers)
		}
	}
	d.until(t, `"log":"axcd","n":116`, "instance", "describe", "sums", "A")
	d.until(t, "running", "instance", "describe", "sums", "B")
	if left := d.letters(t); len(left) != 0 {
		t.Errorf("left %+v", left)
	}
}

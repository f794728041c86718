package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"edda"
	"edda/stream/kv"
	"edda/stream/wire"
)

func TestBigEventsWithoutAKeyFillTheDiskAsDeadLetters(t *testing.T) {
	const events, size = 12, 100 << 10
	nats := startNATS(t, "127.0.0.1:0")
	config := filepath.Join(t.TempDir(), "edda.yaml")
	write(t, config, fmt.Sprintf("dead_letters: {max_bytes: %d}\n", 3*size))
	r := startRun(t, nats.URL(), folder(t, map[string]string{"sums.yaml": sums}), "--config", config, "--data", t.TempDir())
	r.err.wait(t, started)
	do := func(args ...string) (int, string) { return r.edda(t, append(args, "--tenant", "acme")...) }
	payload := func(key string) string { return `{"k":` + key + `,"pad":"` + strings.Repeat("x", size) + `"}` }
	for n := range events {
		file := filepath.Join(t.TempDir(), "data.json")
		write(t, file, payload("null"))
		if code, out := do("send", "Sum.Begin", "--id", fmt.Sprint("S", n), "--data", "@"+file); code != 0 {
			t.Fatalf("send: %s", out)
		}
	}
	r.until(t, fmt.Sprint("S", events-1), "deadletter", "list", "-o", "json", "--tenant", "acme")
	letters := r.letters(t, "--tenant", "acme")
	whole, cut := 0, edda.DeadLetter{}
	for _, d := range letters {
		if d.Cut == 0 {
			whole++
		} else {
			cut = d
		}
	}
	if len(letters) != events || whole != 2 {
		t.Fatalf("%d of %d letters are whole, want 2 of %d", whole, len(letters), events)
	}
	metrics := r.metrics(t)
	for _, want := range []string{fmt.Sprintf("edda_dead_letters_cut %d", events-whole), fmt.Sprintf("edda_dead_letters_bytes_limit %d", 3*size)} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("no %s in the metrics", want)
		}
	}
	message := fmt.Sprintf("message %d of stream AGGREGATE_EVENTS", cut.Event.Seq)
	if code, out := do("deadletter", "list"); code != 0 || strings.Count(out, fmt.Sprintf("(cut: %d bytes)", cut.Cut)) != events-whole {
		t.Errorf("list: %d\n%s", code, out)
	}
	if code, out := do("deadletter", "show", cut.ID); code != 0 || !strings.Contains(out, fmt.Sprintf("cut         %d bytes of payload left out here; shown from %s", cut.Cut, message)) || !strings.Contains(out, `"k":null`) {
		t.Errorf("show: %d\n%s", code, out)
	}
	if code, out := do("deadletter", "redrive", cut.ID, "--why", "x"); code != 1 || !strings.Contains(out, "cannot be applied this time either (no-key)") {
		t.Errorf("redrive: %d\n%s", code, out)
	}
	if text := r.metrics(t); !strings.Contains(text, fmt.Sprintf("edda_dead_letters_cut %d\n", events-whole)) {
		t.Error("the letter that died again is whole: redriving them all fills the disk")
	}
	file := filepath.Join(t.TempDir(), "whole.json")
	write(t, file, payload(`"A"`))
	if code, out := do("deadletter", "redrive", cut.ID, "--data", "@"+file, "--why", "its payload, with a key"); code != 0 || !strings.Contains(out, "handled") {
		t.Errorf("redrive with its payload: %d\n%s", code, out)
	}
	if left := r.letters(t, "--tenant", "acme"); len(left) != events-1 {
		t.Errorf("%d letters are left, not %d", len(left), events-1)
	}
}

// withoutPayloads is a running Edda whose dead letters all lack their payloads.
func withoutPayloads(t *testing.T, manifest string) (d *running, mend func(text string)) {
	t.Helper()
	nats, config := startNATS(t, "127.0.0.1:0"), filepath.Join(t.TempDir(), "edda.yaml")
	write(t, config, "dead_letters: {max_bytes: 1}\n")
	dir := folder(t, map[string]string{"sums.yaml": manifest})
	d = startRun(t, nats.URL(), dir, "--config", config, "--data", t.TempDir())
	d.err.wait(t, started)
	d.tenant = "acme"
	return d, func(text string) {
		t.Helper()
		write(t, filepath.Join(dir, "sums.yaml"), text)
		if code, out := d.edda(t, "reload", "--why", "mended"); code != 0 {
			t.Fatalf("reload: %d %s", code, out)
		}
	}
}

// shows looks at a letter.
func (r *running) shows(t *testing.T, id string, want ...string) {
	t.Helper()
	code, out := r.edda(t, "deadletter", "show", id)
	for _, want := range want {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("show lacks %q: %d\n%s", want, code, out)
		}
	}
}

func TestALetterThatHoldsItsKeyIsRedrivenWithoutItsPayload(t *testing.T) {
	d, mend := withoutPayloads(t, sums)
	id := d.poisoned(t, "A")
	if all := d.letters(t); len(all) != 1 || all[0].Cut == 0 || all[0].Event.Payload != nil {
		t.Fatalf("%+v", all)
	}
	// Its stream does not have it any more either: the held event is whole.
	d.purge(t)
	d.shows(t, id, `payload     {"k":"A","id":"b"}`, "shown from the held event", "2 events wait behind it")
	mend("version: 2\n" + mended)
	if code, out := d.edda(t, "deadletter", "redrive", id, "--why", "mended"); code != 0 || !strings.Contains(out, "handled; 2 with it") {
		t.Errorf("redrive: %d %s", code, out)
	}
	d.until(t, `"log":"abcd","n":111`, "instance", "describe", "sums", "A")
}

// purge takes all messages from the stream of events.
func (r *running) purge(t *testing.T) {
	t.Helper()
	conn, js, err := connectNow(t.Context(), kv.Connection{URL: r.nats})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s, err := js.Stream(t.Context(), wire.AggregateEvents)
	if err == nil {
		err = s.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestRedriveOfALetterWithoutItsPayloadAsksForWhatTheStreamHas(t *testing.T) {
	d, mend := withoutPayloads(t, sums)
	for _, k := range []string{"A", "B", "C", "D"} {
		d.add(t, k, k+"1", `{"k":null,"id":"`+k+`","amount":7}`)
	}
	d.until(t, "D1", "deadletter", "list", "-o", "json")
	letters := d.letters(t)
	if len(letters) != 4 || letters[0].Cut == 0 {
		t.Fatalf("%+v", letters)
	}
	d.shows(t, letters[0].ID, `payload     {"k":null,"id":"A","amount":7}`, "shown from message 1 of stream AGGREGATE_EVENTS")
	// They die again, as long as the manifest is what it was, and are no bigger than before.
	if code, out := d.edda(t, "deadletter", "redrive", "--all", "--why", "a try"); code != 1 || !strings.Contains(out, "0 redriven, 4 failed") {
		t.Errorf("%d %s", code, out)
	}
	for _, l := range d.letters(t) {
		if l.Cut == 0 || l.Event.Payload != nil || l.Event.Redrives != 1 {
			t.Errorf("%+v", l)
		}
	}
	mend("version: 2\n" + strings.Replace(strings.Replace(sums, "key: event.k", "key: event.k ?? event.id", 1), "Add: {", "Add: {start: true, ", 1))
	const callers = 8
	codes := make(chan int, callers)
	for range callers {
		go func() {
			code, _ := d.edda(t, "deadletter", "redrive", letters[0].ID, "--why", "at once")
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
	d.until(t, `"log":"A","n":7`, "instance", "describe", "sums", "A")
	if code, out := d.edda(t, "audit", "list"); code != 0 || !strings.Contains(out, "payload from its stream; handled") || strings.Contains(out, "edited") {
		t.Errorf("audit: %d\n%s", code, out)
	}
	if code, out := d.edda(t, "deadletter", "redrive", "--all", "--max", "2", "--why", "mended"); code != 0 || !strings.Contains(out, "2 redriven, 0 failed") {
		t.Errorf("%d %s", code, out)
	}
	d.until(t, `"log":"C","n":7`, "instance", "describe", "sums", "C")
	d.purge(t)
	last := letters[3].ID
	d.shows(t, last, "not shown: message 4 of stream AGGREGATE_EVENTS is gone", "--data '{…}': applied with the payload that you give")
	if code, out := d.edda(t, "deadletter", "redrive", last, "--why", "x"); code != 1 || !strings.Contains(out, "message 4 of stream AGGREGATE_EVENTS is gone; give its payload with --data") {
		t.Errorf("%d %s", code, out)
	}
	if code, out := d.edda(t, "deadletter", "redrive", last, "--data", `{"id":"D","amount":1}`, "--why", "by hand"); code != 0 {
		t.Errorf("%d %s", code, out)
	}
	d.until(t, `"log":"D","n":1`, "instance", "describe", "sums", "D")
}

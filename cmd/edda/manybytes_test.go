package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"edda"
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
	message := fmt.Sprintf("nats stream get AGGREGATE_EVENTS %d", cut.Event.Seq)
	if code, out := do("deadletter", "list"); code != 0 || strings.Count(out, fmt.Sprintf("(cut: %d bytes)", cut.Cut)) != events-whole {
		t.Errorf("list: %d\n%s", code, out)
	}
	if code, out := do("deadletter", "show", cut.ID); code != 0 || !strings.Contains(out, fmt.Sprintf("cut         %d bytes", cut.Cut)) || !strings.Contains(out, message) {
		t.Errorf("show: %d\n%s", code, out)
	}
	if code, out := do("deadletter", "redrive", cut.ID, "--why", "x"); code != 1 || !strings.Contains(out, message) || !strings.Contains(out, "--data") {
		t.Errorf("redrive: %d\n%s", code, out)
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

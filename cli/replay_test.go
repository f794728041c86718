package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const replayManifest = `saga: order
version: 1
key: event.id
state: {n: 0}
on:
  Placed: {start: true, do: [{event: Began}]}
  Noted: {set: {n: "=state.n + event.by * 2"}}
  Closed: {do: [{done: true}]}
`

// corrected is the next version, which also sends something that the first did not.
func corrected() string {
	text := strings.NewReplacer("version: 1", "version: 2", "event.by * 2", "event.by", "{event: Began}", "{event: Began}, {event: Welcomed}")
	return text.Replace(replayManifest)
}

func TestReplayFromTheCommandLine(t *testing.T) {
	dir := folder(t, map[string]string{"order.yaml": replayManifest})
	d := startDev(t, dir, "--data", filepath.Join(t.TempDir(), "data"))
	for _, args := range [][]string{
		{"send", "Order.Placed", "--id", "O1", "--data", `{"id":"O1"}`}, {"send", "Order.Noted", "--id", "O1", "--data", `{"id":"O1","by":3}`},
	} {
		if code, out := d.edda(t, args...); code != 0 {
			t.Fatalf("%d %s", code, out)
		}
	}
	d.until(t, `"n":6`, "instance", "describe", "order", "O1")
	run := func(want int, parts ...string) func(args ...string) {
		return func(args ...string) {
			t.Helper()
			code, out := d.edda(t, append([]string{"replay"}, args...)...)
			for _, part := range parts {
				if code != want || !strings.Contains(out, part) {
					t.Errorf("replay %v: code %d, without %q:\n%s", args, code, part, out)
				}
			}
		}
	}
	run(2, "replay: say why, for the audit: --why TEXT")("order")
	run(0, "1 came out the same, 0 differ, 0 were exchanged")("order", "--why", "a look")
	if err := os.WriteFile(filepath.Join(dir, "order.yaml"), []byte(corrected()), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := d.edda(t, "reload"); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	run(3, "order O1\n", "  state.n\n    was 6\n    is  3\n", "new work of O1: fact Welcomed\n", "nothing was changed")("order", "--newest", "--dry-run")
	run(2, "--yes")("order", "--newest", "--emit", "new", "--why", "x")
	run(2, "--yes")("order", "--emit", "all", "--why", "x")
	run(2, "give one of them")("order", "--from-seq", "1", "--from-time", "2026-03-01T10:00:00Z")
	run(2, "want a time")("order", "--from-time", "yesterday")
	run(2, "want none, new or all")("order", "--emit", "some")
	run(1, "no saga other was ever loaded here")("other", "--why", "x")
	run(1, "no stream AGREGATE_EVENTS was read here")("order", "--from-seq", "1", "--stream", "AGREGATE_EVENTS", "--dry-run")
	run(0, "fact Welcomed, sent", "1 were exchanged; 1 pieces of new work, 1 sent")("order", "--newest", "--emit", "new", "--yes", "--why", "corrected")
	run(0, "1 came out the same", "0 sent")("order", "--instance", "O1", "--emit", "new", "--yes", "--why", "again")
	run(0, "--key names one instance no more", "say --instance O1", "1 came out the same", "0 sent")("order", "--key", "O1", "--emit", "new", "--yes", "--why", "again")
	// With a certificate it is its key, whatever else is said.
	run(2, "no-such-key.pem")("order", "--instance", "O1", "--cert", filepath.Join(dir, "order.yaml"), "--key", "no-such-key.pem", "--why", "again")
	run(1, `no instance "O2" of saga order was built again: edda instance list --saga order`)("order", "--instance", "O2", "--why", "of nobody")
	run(0, `"progress"`, `"same": 1`)("order", "-o", "json", "--why", "again")
	run(0, "ID ", "STATE  BEGUN", "dry run: 0 the same, 1 differ", "0 the same, 1 exchanged, 1 sent", "1 the same, 0 exchanged, 0 sent")("list")
	run(0, `"replays"`, `"same": 1`)("list", "-o", "json")
	run(0, "ID ", "STATE  BEGUN")("ls")
	run(1, "no saga list was ever loaded here")("--dry-run", "--", "list")
	run(1, "no saga ls was ever loaded here")("--dry-run", "--", "ls")
	if _, ids := d.edda(t, "replay", "list", "-o", "ids"); len(strings.Fields(ids)) < 5 {
		t.Errorf("the ids are %q", ids)
	}
	d.until(t, `"n":3`, "instance", "describe", "order", "O1")
	if code := d.stop(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}

// Whoever waits for a replay when its server dies must not believe that it is over.
func TestAReplayWhoseServerDiesIsSaidToGoOn(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer s.Close()
	c := &client{term: &terminal{out: io.Discard, err: io.Discard}, addr: s.URL}
	_, _, err := c.awaitReplay(t.Context(), "R1", time.Millisecond, 0)
	if want := "the replay R1 had begun"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("without %q: %v", want, err)
	}
}

// A node that takes over, or starts again, does not answer for some seconds. A refusal is final.
func TestAReplayIsAwaitedOverAnswersThatFail(t *testing.T) {
	const over = 1 // stands for the answer that the replay has ended
	answers := make(chan int, 5)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.WriteString(w, `{"id":"R1","state":"running"}`)
			return
		}
		status := http.StatusGone // it asks once more than it is answered
		select {
		case status = <-answers:
		default:
		}
		switch status {
		case 0:
			panic(http.ErrAbortHandler)
		case over:
			_, _ = io.WriteString(w, `{"replays":[{"id":"R1","state":"done"}]}`)
		case 200:
			_, _ = io.WriteString(w, `{"replays":[{"id":"R1","state":"running"}]}`)
		default:
			w.WriteHeader(status)
		}
	}))
	defer s.Close()
	for _, status := range []int{200, 503, 502, 0, over} {
		answers <- status
	}
	if code, out, said := shell(t, nil, "replay", "order", "--why", "x", "--addr", s.URL); code != exitDone || len(answers) > 0 {
		t.Errorf("code %d, %d answers are left: %s%s", code, len(answers), out, said)
	}
	answers <- 404
	answers <- over
	c := &client{term: &terminal{out: io.Discard, err: io.Discard}, addr: s.URL}
	if _, _, err := c.awaitReplay(t.Context(), "R1", time.Millisecond, time.Hour); err == nil || len(answers) != 1 {
		t.Errorf("%d answers are left after a refusal: %v", len(answers), err)
	}
}

// Without an answer, or after a failure, nobody knows whether the replay has begun, so the command names the id that
// repeats it. A refusal that names it is enough. A dry run changes nothing.
func TestAReplayOfWhichNothingIsKnownNamesItsID(t *testing.T) {
	none := func(http.ResponseWriter, string) { panic(http.ErrAbortHandler) }
	for name, tt := range map[string]struct {
		answer func(w http.ResponseWriter, id string)
		names  int // how often the id is named
		args   []string
	}{
		"no answer":            {none, 1, nil},
		"an answer of a proxy": {func(w http.ResponseWriter, _ string) { _, _ = io.WriteString(w, "<html>") }, 1, nil},
		"a failure": {func(w http.ResponseWriter, _ string) {
			refuseCall(w, http.StatusInternalServerError, "the log says why")
		}, 1, nil},
		"a failure of a shard": {func(w http.ResponseWriter, id string) {
			refuseCall(w, http.StatusBadGateway, "repeat the call with the id "+id)
		}, 1, nil},
		"a refusal of the call": {func(w http.ResponseWriter, _ string) { refuseCall(w, http.StatusUnprocessableEntity, "no such saga") }, 0, nil},
		"a dry run":             {none, 0, []string{"--dry-run"}},
	} {
		t.Run(name, func(t *testing.T) {
			ids := make(chan string, 1)
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var sent struct{ ID string }
				_ = json.NewDecoder(r.Body).Decode(&sent)
				ids <- sent.ID
				tt.answer(w, sent.ID)
			}))
			defer s.Close()
			code, out, said := shell(t, nil, append([]string{"replay", "order", "--why", "x", "--addr", s.URL}, tt.args...)...)
			if len(ids) == 0 {
				t.Fatalf("code %d, nothing was sent: %s%s", code, out, said)
			}
			if id := <-ids; code != exitFailed || len(id) != 26 || strings.Count(out+said, id) != tt.names {
				t.Errorf("code %d, %s is not named %d times: %s%s", code, id, tt.names, out, said)
			}
		})
	}
}

// What was not sent has not begun.
func TestAReplayWithoutAServerNamesNoID(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	if code, out, said := shell(t, nil, "replay", "order", "--why", "x", "--addr", s.URL); code != exitFailed || out != "" || strings.Contains(said, "--id") {
		t.Errorf("code %d: %s%s", code, out, said)
	}
}

//go:build !race

package systemtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// bankBooks is an upstream whose first answer to each effect never comes, since
// the caller is killed meanwhile.
type bankBooks struct {
	mu    sync.Mutex          // guards below
	calls map[string][]string // by path: the idempotency keys
	asked map[string]int
}

func (b *bankBooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, check := strings.CutPrefix(r.URL.Path, "/check")
	b.mu.Lock()
	if check {
		b.asked[name]++
	} else {
		b.calls[name] = append(b.calls[name], r.Header.Get("Idempotency-Key"))
	}
	nth := len(b.calls[name])
	b.mu.Unlock()
	switch {
	case check && name == "/again":
		w.WriteHeader(http.StatusNotFound)
	case check:
		fmt.Fprint(w, `{"id":"found"}`)
	case nth == 1:
		<-r.Context().Done()
	default:
		fmt.Fprint(w, `{"id":"called"}`)
	}
}

func (b *bankBooks) count() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, keys := range b.calls {
		n += len(keys)
	}
	return n
}

const unknownSaga = `
saga: small
version: 1
key: event.k
on:
  Begin:
    start: true
    do:
      - {effect: happened, with: {k: =key}}
      - {effect: again, with: {k: =key}}
      - {effect: least, with: {k: =key}}
      - {effect: most, with: {k: =key}}
  happened.ok: {set: {happened: =event.id}}
  again.ok: {set: {again: =event.id}}
  least.ok: {set: {least: =event.id}}
  most.timeout: {set: {most: =event.code}}
`

func unknownEffects(url string) string {
	check := fmt.Sprintf(`check: {http: {method: GET, url: "%s/check/NAME?key=${id}"}, ok: status == 200, again: status == 404}`, url)
	more := map[string]string{"happened": check, "again": check, "least": "", "most": "delivery: at_most_once"}
	var b strings.Builder
	for _, name := range []string{"happened", "again", "least", "most"} {
		fmt.Fprintf(&b, "---\neffect: %[1]s\nhttp: {url: \"%[2]s/%[1]s\"}\nok: status == 200\ntimeout: 1h\n%[3]s\n", name, url, strings.ReplaceAll(more[name], "NAME", name))
	}
	return b.String()
}

// TestKilledBetweenClaimAndResult: what came of the calls under way is unknown.
// A check is asked first; without one the effect's delivery decides.
func TestKilledBetweenClaimAndResult(t *testing.T) {
	books := &bankBooks{calls: map[string][]string{}, asked: map[string]int{}}
	upstream := httptest.NewServer(books)
	defer upstream.Close()
	defer upstream.CloseClientConnections()
	data, manifest := t.TempDir(), write(t, t.TempDir(), "small.yaml", unknownSaga+unknownEffects(upstream.URL))
	c := dev(t, data, manifest)
	_, js := client(t, c.nats)
	begin(t, js, "A")
	until(t, "all four are called", func() bool { return books.count() == 4 })
	c.kill()
	c = dev(t, data, manifest)
	state := map[string]any{}
	until(t, "all four have settled", func() bool {
		text, _ := json.Marshal(c.describe("small", "A").Instance.State)
		state = map[string]any{}
		decode(t, text, &state)
		return len(state) == 4
	})
	if fmt.Sprint(state) != "map[again:called happened:found least:called most:unknown]" {
		t.Errorf("state %v", state)
	}
	books.mu.Lock()
	defer books.mu.Unlock()
	for name, want := range map[string]int{"/happened": 1, "/again": 2, "/least": 2, "/most": 1} {
		keys := books.calls[name]
		if len(keys) != want || len(slices.Compact(slices.Clone(keys))) != 1 {
			t.Errorf("%s was called with the keys %v, want %d calls with one key", name, keys, want)
		}
	}
	if books.asked["/happened"] != 1 || books.asked["/again"] != 1 {
		t.Errorf("checks %v", books.asked)
	}
}

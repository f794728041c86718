//go:build !race

package systemtest

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"edda"
	"edda/server"
)

// TestEveryKeyThatIsAcceptedIsListedPagedAndEnded: those that grow most where they are
// written into an address, or a cursor.
func TestEveryKeyThatIsAcceptedIsListedPagedAndEnded(t *testing.T) {
	c := dev(t, t.TempDir(), write(t, t.TempDir(), "small.yaml", smallSaga))
	_, js := client(t, c.nats)
	var keys []string
	for _, r := range []string{"%", "\x01", "é", "/", "a", "\"", "\U0001F600", "<"} {
		keys = append(keys, strings.Repeat(r, edda.MaxKey/len(r)))
	}
	keys = append(keys, ".", "..", " ", "z")
	slices.Sort(keys)
	for i, key := range append(slices.Clone(keys), strings.Repeat("k", edda.MaxKey+1), strings.Repeat("%", 30<<10)) {
		body, _ := json.Marshal(map[string]string{"k": key})
		publish(t, js, message(i, "agg", "Begin", string(body)))
	}
	until(t, "the keys that are too long are dead letters", func() bool {
		out, _ := c.cli("deadletter", "list")
		return strings.Count(out, "no-key") == 2
	})
	var listed []string
	for after, pages := "", 0; ; pages++ {
		var page server.InstanceList
		c.get("/v1/instances?limit=1&saga=small&after="+after, &page)
		for _, in := range page.Instances {
			listed = append(listed, in.Key)
		}
		if after = page.Next; after == "" || pages > len(keys) {
			break
		}
	}
	slices.Sort(listed)
	if !slices.Equal(listed, keys) {
		t.Fatalf("%d keys are listed, want %d", len(listed), len(keys))
	}
	for _, key := range keys {
		if v := c.describe("small", escaped(key)); v.Instance == nil || v.Instance.Key.Correlation != key {
			t.Errorf("%.20q is not described", key)
		}
		if out, code := c.cli("instance", "terminate", "small", key, "--why", "test", "--yes"); code != 0 {
			t.Errorf("%.20q is not terminated: %.500s", key, out)
		}
	}
}

// escaped writes each byte of a key that an address may mean otherwise.
func escaped(key string) string {
	if strings.Trim(key, ".") == "" {
		return strings.ReplaceAll(key, ".", "%2E")
	}
	return url.PathEscape(key)
}

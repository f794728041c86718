package stream

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"edda/stream/kv"
	"edda/stream/wire"
)

// TestTheNATSPageListsStreamsAndBuckets compares the tables of docs/NATS.md with what Edda makes.
func TestTheNATSPageListsStreamsAndBuckets(t *testing.T) {
	page, err := os.ReadFile("../docs/NATS.md")
	if err != nil {
		t.Fatal(err)
	}
	inBackticks := regexp.MustCompile("`([^`\n]+)`")
	cells := func(head string) [][]string { // of each row: what its first two cells have in backticks
		_, table, found := strings.Cut(string(page), "\n"+head)
		if !found {
			t.Fatalf("the page has no table %q", head)
		}
		table, _, _ = strings.Cut(table, "\n\n")
		var out [][]string
		for line := range strings.Lines(table) {
			var names []string
			if columns := strings.Split(line, "|"); strings.HasPrefix(line, "| ") {
				for _, m := range inBackticks.FindAllStringSubmatch(columns[1]+columns[2], -1) {
					names = append(names, m[1])
				}
				out = append(out, names)
			}
		}
		return out
	}
	listed := cells("| stream | subjects |")
	if len(listed) != len(plans()) {
		t.Errorf("the page lists %d streams", len(listed))
	}
	for i, p := range plans() {
		cfg := StreamOptions{}.config(p)
		want := append([]string{cfg.Name}, cfg.Subjects...)
		if i < len(listed) && !slices.Equal(listed[i], want) {
			t.Errorf("the page has the stream %v, want %v", listed[i], want)
		}
	}
	var buckets []string
	for _, row := range cells("| KV bucket |") {
		buckets = append(buckets, row[0])
	}
	if want := []string{kv.LeaseBucket, kv.OwnersBucket, kv.LedgerBucket}; !slices.Equal(buckets, want) {
		t.Errorf("the page has the buckets %v, want %v", buckets, want)
	}
	consumers := map[string]bool{}
	for _, row := range cells("| consumer | on |") {
		consumers[row[0]] = true
	}
	for _, form := range []string{
		wire.ConsumerPrefix("saga") + "<hash>", wire.ConsumerPrefix("catchup") + "<saga>_<hash>", wire.ConsumerPrefix("effect") + "<effect>_<hash>",
	} {
		if !consumers[form] {
			t.Errorf("the page lacks the consumer %s", form)
		}
	}
}

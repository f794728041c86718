package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"edda/internal/testkit"
	"edda/node"
	"edda/stream/wire"
)

// TestTheNATSPageShowsHowASourceReads: the page's block is a configuration, its message is read as the
// page says, and its tables list the keys and the names.
func TestTheNATSPageShowsHowASourceReads(t *testing.T) {
	page := string(testkit.Value[[]byte](t)(os.ReadFile("../docs/NATS.md")))
	_, section, _ := strings.Cut(page, "\n## Use an existing stream\n")
	section, _, _ = strings.Cut(section, "\n## ")
	block := func(info string) string {
		t.Helper()
		m := regexp.MustCompile("(?ms)^```" + info + "\n(.*?)^```$").FindStringSubmatch(section)
		if m == nil {
			t.Fatalf("the page has no block %s", info)
		}
		return m[1]
	}
	file := filepath.Join(t.TempDir(), "edda.yaml")
	write(t, file, block("yaml sources"))
	config := testkit.Value[node.Config](t)(node.Load(node.Sources{File: file}))
	codec := testkit.Value[wire.Codec](t)(config.Codec())
	subject, body, _ := strings.Cut(block("text mapped"), "\n\n")
	ev := codec.Event(wire.Message{Subject: subject, Data: []byte(body), Stream: "SHOP", Seq: 9})
	says := fmt.Sprintf("Read as the event `%s` of `%s` `%s`, id `%s`.", ev.Type, ev.AggregateType, ev.AggregateID, ev.ID)
	if !strings.Contains(section, says) || ev.Timestamp.IsZero() || !strings.Contains(string(ev.Payload), `"total": 30`) {
		t.Errorf("the message is read otherwise: %s %+v", says, ev)
	}
	column := func(head string) (names []string) {
		_, table, _ := strings.Cut(section, "\n"+head)
		table, _, _ = strings.Cut(table, "\n\n")
		for line := range strings.Lines(table) {
			if cell := strings.Split(line, "|"); strings.HasPrefix(line, "| `") {
				for _, m := range regexp.MustCompile("`([a-z_.]+)`").FindAllStringSubmatch(cell[1], -1) {
					names = append(names, m[1])
				}
			}
		}
		slices.Sort(names)
		return names
	}
	if got, want := column("| key | default |"), node.SourceKeys(); !slices.Equal(got, want) {
		t.Errorf("the page has the keys %v, want %v", got, want)
	}
	names := wire.MappingNames()
	slices.Sort(names)
	if got := column("| name | value |"); !slices.Equal(got, names) {
		t.Errorf("the page has the names %v, want %v", got, names)
	}
}

//go:build !race

package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"edda/internal/testkit"
)

// blockKinds are the kinds of blocks, by the words behind their fence, with the test that runs
// them: its file and its name.
var blockKinds = map[string][2]string{
	"sh":              {"docsession_test.go", "TestTheCommandsOfTheDocsRun"},
	"console":         {"docsession_test.go", "TestTheCommandsOfTheDocsRun"},
	"yaml":            {"docblocks_test.go", "TestTheManifestsOfTheDocsHold"},
	"yaml config":     {"docblocks_test.go", "TestTheConfigurationsOfTheDocsAreTaken"},
	"yaml sources":    {"source_doc_test.go", "TestTheNATSPageShowsHowASourceReads"},
	"text mapped":     {"source_doc_test.go", "TestTheNATSPageShowsHowASourceReads"},
	"text output":     {"docblocks_test.go", "TestTheOutputOfTheDocsIsPrinted"},
	"text mock":       {"docsession_test.go", "TestTheMockPrintsWhatTheManualShows"},
	"text message":    {"../stream/wire/manual_test.go", "TestTheNATSPageShowsMessagesAsTheyAreRead"},
	"text request":    {"../server/cloudevents_test.go", "TestTheManualShowsAnEventAsItIsStored"},
	"sql":             {"../effects/sqleffect/answer_test.go", "TestThePageHasTheTables"},
	"sh session":      {"../hero/coordinator/openrpc_test.go", "TestTheSessionOfTheDocsRuns"},
	"text redis.acl":  {"../hero/redisdb/rights_test.go", "TestACoordinatorNeedsItsRightsAndNoMore"},
	"text redis.conf": {"../hero/redisdb/rights_test.go", "TestTheSettingsOfTheDocsAreThoseOfRedis"},
	"text picture":    {"docblocks_test.go", "TestEveryBlockOfTheDocsIsOfAKindThatIsRun"}, // nothing to run
}

func TestEveryBlockOfTheDocsIsOfAKindThatIsRun(t *testing.T) {
	used := map[string]bool{}
	for _, b := range docBlocks(t) {
		if filepath.Base(b.page) == "ARCHITECTURE.md" {
			continue
		}
		if used[b.info] = true; blockKinds[b.info][0] == "" {
			t.Errorf("%s: nobody runs a block of the kind %q:\n%s", b.page, b.info, b.text)
		}
	}
	for kind, test := range blockKinds {
		if !used[kind] {
			t.Errorf("no block is of the kind %q", kind)
		}
		if text := testkit.Value[[]byte](t)(os.ReadFile(test[0])); !strings.Contains(string(text), "\nfunc "+test[1]+"(t *testing.T)") {
			t.Errorf("%s has no %s, which runs blocks of the kind %q", test[0], test[1], kind)
		}
	}
}

// docSection is a part of a page below one heading, with the headings below it.
type docSection struct {
	title  string
	blocks []docBlock
}

// docSections returns the sections of a page that have blocks.
func docSections(t *testing.T, page string) (out []docSection) {
	t.Helper()
	text := testkit.Value[[]byte](t)(os.ReadFile(page))
	for _, part := range strings.Split(string(text), "\n## ") {
		title, _, _ := strings.Cut(part, "\n")
		s := docSection{title: title}
		for _, m := range docFence.FindAllStringSubmatch(part, -1) {
			s.blocks = append(s.blocks, docBlock{page, m[1], m[2]})
		}
		if len(s.blocks) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// TestTheManifestsOfTheDocsHold: the manifests of each section compile and lint together, and pass
// their tests.
func TestTheManifestsOfTheDocsHold(t *testing.T) {
	n, tested := 0, 0
	for _, page := range docPages(t) {
		for _, section := range docSections(t, page) {
			var all []string
			for _, b := range section.blocks {
				if b.info == "yaml" {
					all = append(all, b.text)
				}
			}
			if len(all) == 0 {
				continue
			}
			n += len(all)
			dir := folder(t, map[string]string{"section.yaml": strings.Join(all, "---\n")})
			for name, text := range besideManifests {
				testkit.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
				write(t, filepath.Join(dir, name), text)
			}
			code, out := (&running{}).edda(t, "lint", dir)
			for line := range strings.Lines(out) {
				if strings.Contains(line, "warning: ") && !lacksSurroundings.MatchString(line) {
					t.Errorf("%s: %s: %s", page, section.title, out)
				}
			}
			if code != exitDone {
				t.Errorf("%s: %s: %s", page, section.title, out)
			}
			if !strings.Contains(strings.Join(all, ""), "\ntests:") {
				continue
			}
			tested++
			if code, out := (&running{}).edda(t, "test", dir); code != exitDone {
				t.Errorf("%s: %s: %s", page, section.title, out)
			}
		}
	}
	if n < 18 || tested < 6 {
		t.Errorf("only %d manifests are in the docs, and %d sections have tests: the test does not find them", n, tested)
	}
}

// lacksSurroundings are the warnings of a manifest that is shown without what it calls.
var lacksSurroundings = regexp.MustCompile(`is defined in none of these files|a message goes out through Redis, and none is configured`)

// besideManifests are files that manifests of the docs name.
var besideManifests = map[string]string{
	"count.py": "print(1)\n",
	"protos/shop/v1/pay.proto": `syntax = "proto3";
package shop.v1;
message Order { string order = 1; int64 amount_cents = 2; }
message Receipt { string id = 1; }
service Payments { rpc Charge(Order) returns (Receipt); }
`,
}

// TestTheConfigurationsOfTheDocsAreTaken as they are.
func TestTheConfigurationsOfTheDocsAreTaken(t *testing.T) {
	n := 0
	for _, b := range docBlocks(t) {
		if b.info != "yaml config" {
			continue
		}
		n++
		file := filepath.Join(t.TempDir(), "edda.yaml")
		write(t, file, b.text)
		if code, out := (&running{}).edda(t, "config", "view", "--config", file); code != exitDone {
			t.Errorf("%s: %s", b.page, out)
		}
	}
	if n == 0 {
		t.Error("the docs show no configuration: the test does not find it")
	}
}

var number = regexp.MustCompile(`\d[\d,.]*`)

// TestTheOutputOfTheDocsIsPrinted: a test of this package demands each line, but for its numbers.
func TestTheOutputOfTheDocsIsPrinted(t *testing.T) {
	var tests strings.Builder
	for _, pattern := range []string{"*_test.go", "testdata/*/*"} {
		for _, name := range testkit.Value[[]string](t)(filepath.Glob(pattern)) {
			tests.Write(testkit.Value[[]byte](t)(os.ReadFile(name)))
		}
	}
	demanded := number.ReplaceAllString(tests.String(), "0")
	for _, b := range docBlocks(t) {
		if b.info != "text output" {
			continue
		}
		for line := range strings.Lines(b.text) {
			if line = number.ReplaceAllString(strings.TrimSpace(line), "0"); !strings.Contains(demanded, line) {
				t.Errorf("%s: no test demands the output %s", b.page, line)
			}
		}
	}
}

package cli

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"edda/internal/testkit"
	"edda/manifests"
)

// docBlock is a fenced block of a page.
type docBlock struct{ page, info, text string }

var docFence = regexp.MustCompile("(?ms)^ *```([^\n]*)\n(.*?)^ *```$")

// docBlocks returns the blocks of the README and of all pages of docs.
func docBlocks(t *testing.T) (out []docBlock) {
	t.Helper()
	pages := testkit.Value[[]string](t)(filepath.Glob("../docs/*.md"))
	for _, page := range append(pages, "../README.md", "../ARCHITECTURE.md") {
		text := testkit.Value[[]byte](t)(os.ReadFile(page))
		for _, m := range docFence.FindAllStringSubmatch(string(text), -1) {
			out = append(out, docBlock{page, m[1], m[2]})
		}
	}
	return out
}

var (
	shellWord    = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
	shellComment = regexp.MustCompile(`(^|\s)#.*`)
	shellEnd     = regexp.MustCompile(`;| (\||&&|>|2>|&|\\)( |$)`)
)

// TestEveryCommandOfTheDocsExists: each edda command in a block of the docs has a command, flags and a
// number of arguments that the program takes.
func TestEveryCommandOfTheDocsExists(t *testing.T) {
	n := 0
	for _, b := range docBlocks(t) {
		for line := range strings.Lines(b.text) {
			line = shellComment.ReplaceAllString(strings.TrimPrefix(strings.TrimSpace(line), "$ "), "")
			for _, part := range shellEnd.Split(line, -1) {
				words := shellWord.FindAllString(strings.TrimSpace(part), -1)
				if len(words) < 2 || words[0] != "edda" && words[0] != "bin/edda" || words[1] == "…" {
					continue
				}
				for _, one := range alternatives(words[1:]) {
					n++
					if err := accepted(t, one); err != nil {
						t.Errorf("%s: edda %s: %v", b.page, strings.Join(one, " "), err)
					}
				}
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d commands are in the docs: the test does not find them", n)
	}
}

// alternatives expands signal|answer, of a usage, into two commands.
func alternatives(words []string) (out [][]string) {
	for i, word := range words {
		if strings.HasPrefix(word, "'") || !strings.Contains(word, "|") {
			continue
		}
		for _, one := range strings.Split(word, "|") {
			out = append(out, alternatives(slices.Concat(words[:i], []string{one}, words[i+1:]))...)
		}
		return out
	}
	return [][]string{words}
}

// accepted reports whether the program would begin to run the command.
func accepted(t *testing.T, words []string) error {
	t.Helper()
	for i := range words {
		words[i] = strings.Trim(words[i], `'"`)
		words[i] = strings.NewReplacer("[", "", "]", "", "...", "").Replace(words[i]) // of a usage: [PATH...]
	}
	term := &terminal{in: strings.NewReader(""), out: io.Discard, err: io.Discard}
	c, rest, err := term.root().Find(words)
	if err != nil {
		return err
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	if slices.Contains(words, "…") {
		return nil
	}
	return c.ValidateArgs(c.Flags().Args())
}

// TestEveryManifestOfTheDocsIsOne: each block of YAML in the docs that begins a saga or an effect parses.
func TestEveryManifestOfTheDocsIsOne(t *testing.T) {
	n := 0
	for _, b := range docBlocks(t) {
		if b.info != "yaml" || !strings.HasPrefix(b.text, "saga: ") && !strings.HasPrefix(b.text, "effect: ") {
			continue
		}
		n++
		if _, problems := manifests.Parse(filepath.Base(b.page), []byte(b.text)); problems.Failed() {
			t.Errorf("%s: %v", b.page, problems[0])
		}
	}
	if n < 6 {
		t.Errorf("only %d manifests are in the docs: the test does not find them", n)
	}
}

//go:build !race

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
)

// docBlock is a fenced block of a page.
type docBlock struct{ page, info, text string }

var docFence = regexp.MustCompile("(?ms)^ *```([^\n]*)\n(.*?)^ *```$")

// docPages are the README and the pages of docs.
func docPages(t *testing.T) []string {
	t.Helper()
	return append(testkit.Value[[]string](t)(filepath.Glob("../docs/*.md")), "../README.md", "../ARCHITECTURE.md")
}

// docBlocks returns the blocks of all pages.
func docBlocks(t *testing.T) (out []docBlock) {
	t.Helper()
	for _, page := range docPages(t) {
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

var (
	docLink    = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)
	docHeading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notAnchor  = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// TestEveryLinkOfTheDocsLeadsSomewhere: to a file that is there, and to a heading in it.
func TestEveryLinkOfTheDocsLeadsSomewhere(t *testing.T) {
	anchors := func(page string) (out []string) {
		for _, m := range docHeading.FindAllStringSubmatch(string(testkit.Value[[]byte](t)(os.ReadFile(page))), -1) {
			out = append(out, "#"+strings.ReplaceAll(notAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
		}
		return out
	}
	n := 0
	for _, page := range docPages(t) {
		text := docFence.ReplaceAllString(string(testkit.Value[[]byte](t)(os.ReadFile(page))), "")
		for _, m := range docLink.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			n++
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s: %v", page, m[0], err)
			} else if m[2] != "" && strings.HasSuffix(target, ".md") && !slices.Contains(anchors(target), m[2]) {
				t.Errorf("%s: %s has no heading %s", page, target, m[2])
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d links are in the docs: the test does not find them", n)
	}
}

const mostWords = 25

var (
	docCode     = regexp.MustCompile("`[^`]*`")
	docTarget   = regexp.MustCompile(`\]\([^)]*\)`)
	listItem    = regexp.MustCompile(`^ *([-*]|\d+\.) `)
	sentenceEnd = regexp.MustCompile(`[.?!]["*)]*(\s+|$)|:$`)
	codes       = regexp.MustCompile(`\bcode([ ,→()/]+code\b)+`) // a list of codes is read as one word
	abbreviated = regexp.MustCompile(`\b(e\.g|i\.e|etc)\.`)
	docWord     = regexp.MustCompile(`[\p{L}\p{N}]`)
)

// sentences returns the sentences of a page's prose: of its paragraphs, items of lists and cells of
// tables. A code is one word.
func sentences(page string) (out []string) {
	page = docFence.ReplaceAllString(page, "\n\n")
	var part []string
	end := func() {
		text := docTarget.ReplaceAllString(docCode.ReplaceAllString(strings.Join(part, " "), "code"), "]")
		text = codes.ReplaceAllString(text, "code")
		for _, s := range sentenceEnd.Split(abbreviated.ReplaceAllString(text, "$1"), -1) {
			if s = strings.TrimSpace(s); s != "" {
				out = append(out, s)
			}
		}
		part = nil
	}
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			end()
			continue
		}
		if strings.HasPrefix(line, "|") {
			end()
			for _, cell := range strings.Split(docCode.ReplaceAllString(strings.ReplaceAll(line, `\|`, ""), "code"), "|") {
				for _, s := range strings.Split(cell, "; ") { // a cell holds notes
					part = []string{s}
					end()
				}
			}
			continue
		}
		if listItem.MatchString(line) {
			end()
		}
		part = append(part, listItem.ReplaceAllString(line, ""))
	}
	end()
	return out
}

// TestTheSentencesOfTheDocsAreShort: 25 words at most.
func TestTheSentencesOfTheDocsAreShort(t *testing.T) {
	n := 0
	for _, page := range docPages(t) {
		if filepath.Base(page) == "ARCHITECTURE.md" {
			continue // has lists of packages
		}
		for _, s := range sentences(string(testkit.Value[[]byte](t)(os.ReadFile(page)))) {
			n++
			words := 0
			for _, word := range strings.Fields(s) {
				if docWord.MatchString(word) {
					words++
				}
			}
			if words > mostWords {
				t.Errorf("%s: %d words: %s", page, words, s)
			}
		}
	}
	if n < 2000 {
		t.Errorf("only %d sentences are in the docs: the test does not find them", n)
	}
}

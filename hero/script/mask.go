package script

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf16"

	"edda/hero"
)

// minSecret is the length of the shortest value that is masked. A mask of every "1" would
// make a log unreadable.
const minSecret = 4

// mask replaces the values of secret variables, in their usual encodings too.
type mask struct {
	replace *strings.Replacer
	longest int
}

func newMask(s Script, patterns []string) mask {
	var forms []string
	for name, value := range s.Env {
		if slices.Contains(s.Secret, name) || hero.IsSecret(patterns, name) {
			forms = append(forms, spellings(value)...)
		}
	}
	forms = slices.DeleteFunc(forms, func(f string) bool { return len(f) < minSecret })
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) }) // the longest first
	m := mask{}
	var pairs []string
	for _, f := range forms {
		m.longest = max(m.longest, len(f))
		pairs = append(pairs, f, hero.Masked)
	}
	m.replace = strings.NewReplacer(pairs...)
	return m
}

// spellings lists a value, each of its lines, and its encodings in JSON, URLs and base64.
func spellings(value string) []string {
	out := []string{value, strings.TrimSpace(value), url.QueryEscape(value), base64.StdEncoding.EncodeToString([]byte(value))}
	for line := range strings.SplitSeq(value, "\n") {
		out = append(out, strings.TrimRight(line, "\r"))
	}
	return append(out, inJSON(value, true), inJSON(value, false), inASCII(inJSON(value, false)))
}

// inJSON encodes the value as a JSON string, without the quotes.
func inJSON(value string, html bool) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	if e.Encode(value) != nil {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(b.String(), `"`), "\"\n")
}

// inASCII escapes all characters outside of ASCII, as Python's JSON does.
func inASCII(s string) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(s)) {
		if unit < 0x80 {
			b.WriteByte(byte(unit))
			continue
		}
		fmt.Fprintf(&b, `\u%04x`, unit)
	}
	return b.String()
}

// text masks a complete text, and makes it valid UTF-8.
func (m mask) text(s string) string {
	return strings.ToValidUTF8(m.replace.Replace(s), "\uFFFD")
}

// cut masks a text that was cut off. It drops the end, which may be half a secret.
func (m mask) cut(s string) string {
	s = m.replace.Replace(s)
	return strings.ToValidUTF8(s[:max(0, len(s)-max(0, m.longest-1))], "\uFFFD")
}

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

// minSecret is the shortest value that is masked: replacing every "1" would leave
// nothing to read.
const minSecret = 4

// mask replaces the values of secret variables, and what encodings make of them.
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

// spellings of a value: itself, each line of one that has several, and how JSON,
// URLs and base64 write it.
func spellings(value string) []string {
	out := []string{value, strings.TrimSpace(value), url.QueryEscape(value), base64.StdEncoding.EncodeToString([]byte(value))}
	for line := range strings.SplitSeq(value, "\n") {
		out = append(out, strings.TrimRight(line, "\r"))
	}
	return append(out, inJSON(value, true), inJSON(value, false), inASCII(inJSON(value, false)))
}

// inJSON is the value as it stands between the quotes of a JSON string.
func inJSON(value string, html bool) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	if e.Encode(value) != nil {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(b.String(), `"`), "\"\n")
}

// inASCII writes what is not ASCII as Python's JSON does.
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

// text masks what is whole, and makes it valid UTF-8.
func (m mask) text(s string) string {
	return strings.ToValidUTF8(m.replace.Replace(s), "\uFFFD")
}

// cut masks what was cut off at its end, where half a secret may be left.
func (m mask) cut(s string) string {
	s = m.replace.Replace(s)
	return strings.ToValidUTF8(s[:max(0, len(s)-max(0, m.longest-1))], "\uFFFD")
}

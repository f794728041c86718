package effects

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"edda/internal/jsonvalue"
)

// minSecret is the shortest secret that is masked. A shorter one occurs in unrelated texts.
const minSecret = 4

// redactor masks the secrets of a command in all that leaves the worker, also where the other side
// repeats them. The zero value masks nothing.
type redactor struct {
	replacer *strings.Replacer
	numeric  bool // a secret is an integer, which an answer may repeat as a number
}

func newRedactor(secrets map[string]any) redactor {
	type spelling struct{ text, name string }
	var all []spelling
	numeric := false
	for name, v := range secrets {
		s, _ := v.(string)
		_, err := strconv.Atoi(s)
		numeric = numeric || err == nil
		for _, text := range spellings(s) {
			all = append(all, spelling{text, name})
		}
	}
	if len(all) == 0 {
		return redactor{}
	}
	// The longest first, because one may contain another; then in a fixed order.
	slices.SortFunc(all, func(a, b spelling) int {
		return cmp.Or(cmp.Compare(len(b.text), len(a.text)), cmp.Compare(a.text, b.text), cmp.Compare(a.name, b.name))
	})
	var pairs []string
	for _, s := range all {
		pairs = append(pairs, s.text, "[secret "+s.name+"]")
	}
	return redactor{strings.NewReplacer(pairs...), numeric}
}

// mask is the redactor of one set of secrets.
type mask struct {
	secrets map[string]any
	redactor
}

// redactor returns the redactor for secrets. It keeps the latest one, because secrets seldom
// change.
func (e *Effect) redactor(secrets map[string]any) redactor {
	if len(secrets) == 0 {
		return redactor{}
	}
	m := e.mask.Load()
	if m == nil || !maps.Equal(m.secrets, secrets) {
		m = &mask{secrets, newRedactor(secrets)}
		e.mask.Store(m)
	}
	return m.redactor
}

// spellings lists the forms of a secret: as it is, in a URL, in base64, in hex, in JSON, in JSON
// within JSON, in HTML, and each of its lines, because PEM is shown by lines.
func spellings(secret string) []string {
	var out []string
	for _, s := range append(strings.FieldsFunc(secret, lineEnd), secret) {
		if len(s) < minSecret {
			continue
		}
		out = append(out, s, base64.StdEncoding.EncodeToString([]byte(s)), base64.URLEncoding.EncodeToString([]byte(s)))
		inHex := hex.EncodeToString([]byte(s))
		out = append(out, inHex, strings.ToUpper(inHex))
		for _, escaped := range []string{url.QueryEscape(s), url.PathEscape(s)} {
			out = append(out, escaped, escapes.ReplaceAllStringFunc(escaped, strings.ToLower))
		}
		for _, asHTML := range []bool{true, false} {
			once := inJSON(s, asHTML)
			out = append(out, once, inJSON(once, true), inJSON(once, false))
		}
		for _, quotes := range htmlQuotes {
			out = append(out, quotes.Replace(html.EscapeString(s)))
		}
		out = append(out, inBase64(s)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// escapes are those of a URL. Their hex digits may be in lower case.
var escapes = regexp.MustCompile("%[0-9A-F]{2}")

// htmlQuotes are the ways in which other libraries than Go's escape quotes in HTML.
var htmlQuotes = []*strings.Replacer{
	strings.NewReplacer(), strings.NewReplacer("&#34;", "&quot;", "&#39;", "&#x27;"), strings.NewReplacer("&#34;", "&quot;", "&#39;", "&#039;"),
	strings.NewReplacer("&#34;", "&quot;", "&#39;", "&apos;"), strings.NewReplacer("&#34;", "&quot;"), strings.NewReplacer("&#34;", `"`, "&#39;", "'"),
}

// minBase64 is the shortest part of a base64 text that is masked.
const minBase64 = 6

// inBase64 returns a text as part of a longer base64 text, such as that of user and password, at
// each alignment. It leaves out the characters that also encode neighbouring bytes.
func inBase64(s string) (out []string) {
	for before := range 3 {
		whole := append(make([]byte, before), s...)
		from, to := (before*8+5)/6, len(whole)*8/6
		if to-from < minBase64 {
			continue
		}
		out = append(out, base64.StdEncoding.EncodeToString(whole)[from:to], base64.URLEncoding.EncodeToString(whole)[from:to])
	}
	return out
}

// inJSON returns a text as it is inside a JSON string, with or without <, > and & escaped.
func inJSON(s string, html bool) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(html)
	_ = enc.Encode(s) // a string always encodes
	return strings.TrimSuffix(b.String()[1:], "\"\n")
}

func lineEnd(r rune) bool { return r == '\n' || r == '\r' }

func (r redactor) text(s string) string {
	if r.replacer == nil || len(s) < minSecret {
		return s
	}
	return r.replacer.Replace(s)
}

// value masks the secrets in a canonical value.
func (r redactor) value(v any) any {
	switch v := v.(type) {
	case string:
		return r.text(v)
	case int:
		if !r.numeric {
			return v
		}
		if digits := r.text(strconv.Itoa(v)); digits != strconv.Itoa(v) {
			return digits
		}
		return v
	case json.Number:
		if digits := r.text(string(v)); digits != string(v) {
			return digits
		}
		return v
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = r.value(item)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, item := range v {
			out[r.text(name)] = r.value(item)
		}
		return out
	}
	return v
}

// outcome masks the secrets in an outcome.
func (r redactor) outcome(o outcome) outcome {
	if r.replacer == nil {
		return o
	}
	o.payload = r.value(o.payload)
	o.failure.Code, o.failure.Message = r.text(o.failure.Code), r.text(o.failure.Message)
	o.failure.Body = r.json(o.failure.Body)
	return o
}

// json masks the secrets in an encoded value. It drops what cannot be decoded.
func (r redactor) json(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return raw
	}
	v, err := jsonvalue.Decode(raw)
	if err != nil {
		return nil
	}
	out, err := jsonvalue.Encode(r.value(v))
	if err != nil {
		return nil
	}
	return out
}

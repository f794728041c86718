package jsonvalue

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// write encodes a canonical value without reflection. It reports false for any other value.
func write(v any) (json.RawMessage, bool) {
	c := pooled()
	b, ok := appendValue(c.room, v, 0)
	defer c.release(b)
	if !ok {
		return nil, false
	}
	return slices.Clone(b), true
}

// Append writes a canonical value as [Encode] does, behind b. The value lies so many levels
// further in: what is too deep there is [ErrTooDeep].
func Append(b []byte, v any, level int) ([]byte, error) {
	if out, ok := appendValue(b, v, level); ok {
		return out, nil
	}
	out, err := encodeAny(v, level)
	return append(b, out...), err
}

func appendValue(b []byte, v any, depth int) ([]byte, bool) {
	if depth > MaxDepth {
		return b, false
	}
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), true
	case bool:
		return strconv.AppendBool(b, v), true
	case int:
		return strconv.AppendInt(b, int64(v), 10), true
	case float64:
		return appendFloat(b, v)
	case string:
		b, err := AppendText(b, v)
		return b, err == nil
	case json.Number:
		return append(b, v...), isNumeral(string(v))
	case []any:
		return appendList(b, v, depth)
	case map[string]any:
		return appendMap(b, v, depth)
	}
	return b, false
}

func appendFloat(b []byte, f float64) ([]byte, bool) {
	if large(f) {
		return strconv.AppendFloat(b, f, 'e', -1, 64), true
	}
	text, err := json.Marshal(f)
	return append(b, text...), err == nil
}

// AppendText writes a text as Encode does, behind b: as it is where nothing of it
// needs an escape.
func AppendText(b []byte, s string) ([]byte, error) {
	begin := len(b)
	b = append(append(b, '"'), s...)
	if !plain(b[begin+1:]) {
		return appendEscaped(b[:begin], s)
	}
	return append(b, '"'), nil
}

// appendEscaped leaves what needs more than escapes of ASCII to encoding/json.
func appendEscaped(b []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) || strings.ContainsAny(s, "\u2028\u2029") {
		text, err := encodeAny(s, 0)
		return append(b, text...), err
	}
	b = append(b, '"')
	from := 0
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			b = appendEscape(append(b, s[from:i]...), c)
			from = i + 1
		}
	}
	return append(append(b, s[from:]...), '"'), nil
}

func appendEscape(b []byte, c byte) []byte {
	if i := strings.IndexByte("\"\\\b\f\n\r\t", c); i >= 0 {
		return append(b, '\\', `"\bfnrt`[i])
	}
	const hex = "0123456789abcdef"
	return append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
}

// plain reports whether a text is written as it is: encoding/json escapes the separators of
// lines and paragraphs, too.
func plain(s []byte) bool {
	return ordinary(s) == len(s) && utf8.Valid(s) && !bytes.Contains(s, []byte("\u2028")) && !bytes.Contains(s, []byte("\u2029"))
}

func appendList(b []byte, v []any, depth int) (_ []byte, ok bool) {
	if v == nil {
		return append(b, "null"...), true
	}
	b = append(b, '[')
	for i, item := range v {
		if i > 0 {
			b = append(b, ',')
		}
		if b, ok = appendValue(b, item, depth+1); !ok {
			return b, false
		}
	}
	return append(b, ']'), true
}

func appendMap(b []byte, v map[string]any, depth int) (_ []byte, ok bool) {
	if v == nil {
		return append(b, "null"...), true
	}
	var few [16]string // most maps have no more: no allocation
	keys := few[:0]
	for key := range v {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	b = append(b, '{')
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = AppendText(b, key); err != nil {
			return b, false
		}
		if b, ok = appendValue(append(b, ':'), v[key], depth+1); !ok {
			return b, false
		}
	}
	return append(b, '}'), true
}

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
	b, ok := appendValue(make([]byte, 0, usualSize), v, 0)
	return fitted(b), ok
}

// Append appends a canonical value to b, encoded as by [Encode]. level is the depth of the value
// within its document; a value that is too deep there is [ErrTooDeep].
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
		if large(v) {
			return strconv.AppendFloat(b, v, 'e', -1, 64), true
		}
		text, err := json.Marshal(v)
		return append(b, text...), err == nil
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

// AppendText appends a text to b, encoded as by [Encode].
func AppendText(b []byte, s string) ([]byte, error) {
	begin := len(b)
	b = append(append(b, '"'), s...)
	if !plain(b[begin+1:]) {
		return appendEscaped(b[:begin], s)
	}
	return append(b, '"'), nil
}

// appendEscaped appends a text whose ASCII needs escapes. encoding/json encodes any other.
func appendEscaped(b []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) || strings.ContainsAny(s, "\u2028\u2029") {
		text, err := encodeAny(s, 0)
		return append(b, text...), err
	}
	b = append(b, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		if short := strings.IndexByte("\"\\\b\f\n\r\t", c); short >= 0 {
			b = append(b, '\\', `"\bfnrt`[short])
		} else {
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		}
	}
	return append(append(b, s[from:]...), '"'), nil
}

const hexDigits = "0123456789abcdef"

// plain reports whether a text needs no escape. encoding/json escapes the separators of lines and
// paragraphs, too.
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

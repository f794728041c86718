package sqleffect

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"edda"
	"edda/internal/jsonvalue"
)

// canonical makes of what a driver gave one of the values that expressions
// know, and loses nothing: what fits no number is text.
func canonical(v any) (any, error) {
	switch v := v.(type) {
	case []byte:
		return base64.StdEncoding.EncodeToString(v), nil
	case string:
		if !utf8.ValidString(v) {
			return base64.StdEncoding.EncodeToString([]byte(v)), nil
		}
		return v, nil
	case time.Time:
		return timeText(v), nil
	case uint64:
		if v > math.MaxInt64 {
			return strconv.FormatUint(v, 10), nil
		}
		return int(v), nil
	case float32:
		return shortest(float64(v))
	case float64:
		return float(v)
	}
	return jsonvalue.Canonical(v)
}

// timeText is RFC 3339 in UTC, with as many digits as there are.
func timeText(t time.Time) string {
	if t = t.UTC(); t.Nanosecond()%int(time.Millisecond) == 0 {
		return edda.FormatTime(t)
	}
	return t.Format(time.RFC3339Nano)
}

// float is a number, or text where there is no such number.
func float(f float64) (any, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.FormatFloat(f, 'g', -1, 64), nil
	}
	return jsonvalue.Canonical(f)
}

// shortest is the number that a float of 32 bits is written as: 0.1, not
// 0.10000000149011612.
func shortest(f float64) (any, error) {
	short, err := strconv.ParseFloat(strconv.FormatFloat(f, 'g', -1, 32), 64)
	if err != nil {
		return float(f)
	}
	return float(short)
}

// decoded is a JSON column's value; text where it is none that is canonical,
// such as a number that would be rounded.
func decoded(text string) any {
	v, err := jsonvalue.Decode([]byte(text))
	if err != nil {
		return text
	}
	return v
}

// calendar is the day of a date.
func calendar(t time.Time) string { return t.Format(time.DateOnly) }

// without cuts what stands in quotes out of a message, which may be a row's value.
func without(message, quote string) string {
	first, last := strings.Index(message, quote), strings.LastIndex(message, quote)
	if first < 0 || last == first {
		return message
	}
	return message[:first] + quote + "…" + quote + message[last+len(quote):]
}

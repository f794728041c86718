package httpeffect

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"edda"
	"edda/effects"
)

// The bounds of an answer.
const (
	// maxAnswer bytes of an answer are read: what one NATS message holds.
	maxAnswer = 1 << 20
	// maxRetryAfter seconds are believed: longer than any step waits.
	maxRetryAfter = 7 * 24 * 60 * 60
)

// response reads the answer. One that is too long is an outcome that nobody
// can tell; of a failure only its body is left out.
func response(resp *http.Response, now time.Time) (effects.Response, error) {
	read, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil {
		err = cutOff(resp, read)
	}
	if err != nil {
		return effects.Response{}, edda.Classify(edda.Temporary, "answer broke off: %w", err)
	}
	if len(read) > maxAnswer {
		if resp.StatusCode < http.StatusMultipleChoices {
			return effects.Response{}, edda.Classify(edda.Permanent, "answer is larger than 1 MiB")
		}
		read = nil
	}
	s := resp.StatusCode
	return effects.Response{
		Status: s, Headers: flat(resp.Header), Body: decode(read),
		Retry:   s == http.StatusRequestTimeout || s == http.StatusTooManyRequests || s >= http.StatusInternalServerError,
		Refused: s == http.StatusTooManyRequests,
		Unknown: s == http.StatusBadGateway || s == http.StatusGatewayTimeout,
		After:   retryAfter(resp.Header, now),
	}, nil
}

// cutOff looks at an answer whose end is only told by that of the connection:
// JSON that is not whole has broken off. Of another text nobody can know.
func cutOff(resp *http.Response, read []byte) error {
	told := resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0 || resp.Uncompressed || resp.ProtoMajor > 1
	told = told || resp.Request != nil && resp.Request.Method == http.MethodHead
	text := bytes.TrimSpace(read)
	isJSON := strings.Contains(resp.Header.Get("Content-Type"), "json") || len(text) > 0 && (text[0] == '{' || text[0] == '[')
	if !told && isJSON && len(read) <= maxAnswer && !json.Valid(text) {
		return io.ErrUnexpectedEOF
	}
	return nil
}

func flat(h http.Header) map[string]string {
	out := make(map[string]string, len(h))
	for name, values := range h {
		out[strings.ToLower(name)] = strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
	}
	return out
}

// decode reads JSON; what is none is a text, and nothing is null.
func decode(raw []byte) any {
	if v, err := edda.Decode(raw); err == nil {
		return v
	}
	return strings.ToValidUTF8(string(raw), "\uFFFD")
}

// retryAfter is the longest wait that an answer asks for, and 0 when it asks for
// none. A date is told by the other side's clock, which Date shows: ours may be
// another.
func retryAfter(h http.Header, now time.Time) time.Duration {
	asked := h.Values("Retry-After")
	if len(asked) == 0 {
		return 0
	}
	if theirs, err := http.ParseTime(h.Get("Date")); err == nil {
		now = theirs
	}
	longest := time.Duration(0)
	for _, v := range asked {
		if wait := seconds.FindString(v); wait != "" {
			longest = max(longest, wholeSeconds(wait))
		} else if at, err := http.ParseTime(v); err == nil {
			longest = max(longest, at.Sub(now))
		}
	}
	return min(longest, maxRetryAfter*time.Second)
}

// seconds may have a fraction, although the RFC knows none.
var seconds = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

// wholeSeconds rounds up: never earlier than asked.
func wholeSeconds(text string) time.Duration {
	s, _ := strconv.ParseFloat(text, 64) // too many digits are +Inf
	return time.Duration(math.Ceil(min(s, maxRetryAfter))) * time.Second
}

package httpeffect

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"edda"
	"edda/effects"
	"edda/internal/jsonvalue"
)

// The bounds of an answer.
const (
	// maxAnswer bytes of an answer are read: what one NATS message holds.
	maxAnswer = 1 << 20
	// The room that is made for an answer at first: for one that does not say its
	// length, and at most for one that does and may not keep its word.
	unsaidAnswer   = 512
	believedAnswer = 64 << 10
	// maxRetryAfter seconds are believed: longer than any step waits.
	maxRetryAfter = 7 * 24 * 60 * 60
)

// response reads the answer, its headers unless it shall be bare. One that is too long
// is an outcome that nobody can tell; of a failure only its body is left out.
func response(resp *http.Response, bare bool, now time.Time) (effects.Response, error) {
	read, err := readAnswer(resp)
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
	s, headers := resp.StatusCode, map[string]string(nil)
	if !bare {
		headers = flat(resp.Header)
	}
	// A handler may have done its work before it crashed, was cut off or ran out of
	// time, and a proxy answers for a server that it lost: nobody says nothing was done.
	unknown := s == http.StatusRequestTimeout || s >= http.StatusInternalServerError
	return effects.Response{
		Status: s, Headers: headers, Body: decode(read),
		Retry:   unknown || s == http.StatusTooManyRequests,
		Refused: s == http.StatusTooManyRequests,
		Unknown: unknown,
		Apart:   slices.Contains(apart(), s),
		After:   retryAfter(resp.Header, now),
	}, nil
}

// apart are answers about one call alone: it was not let in, or it met what an
// earlier call may have made. They say nothing of what the earlier one did.
func apart() []int {
	return []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusConflict}
}

// readAnswer reads up to the end, which lets the connection be used again, or to one
// byte at least more than an answer may have.
func readAnswer(resp *http.Response) ([]byte, error) {
	size := int64(unsaidAnswer)
	if resp.ContentLength >= 0 {
		size = min(resp.ContentLength, believedAnswer) + 1 // the end is read, too
	}
	read := make([]byte, 0, size)
	for len(read) <= maxAnswer {
		n, err := resp.Body.Read(read[len(read):cap(read)])
		read = read[:len(read)+n]
		if errors.Is(err, io.EOF) {
			return read, nil
		}
		if err != nil {
			return read, err
		}
		read = slices.Grow(read, 1)
	}
	return read, nil
}

// cutOff looks at an answer whose end is only told by that of the connection:
// JSON that is not whole has broken off. Of another text nobody can know.
func cutOff(resp *http.Response, read []byte) error {
	told := resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0 || resp.Uncompressed || resp.ProtoMajor > 1
	told = told || resp.Request != nil && resp.Request.Method == http.MethodHead
	if told || len(read) > maxAnswer {
		return nil
	}
	text := bytes.TrimSpace(read)
	isJSON := strings.Contains(resp.Header.Get("Content-Type"), "json") || len(text) > 0 && (text[0] == '{' || text[0] == '[')
	if isJSON && !json.Valid(text) {
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

// byteOrder is what some write before a text, and no part of the JSON behind it.
var byteOrder = []byte("\ufeff")

// decode reads JSON; what is none is a text, and nothing is null.
func decode(raw []byte) any {
	if v, err := jsonvalue.Decode(bytes.TrimPrefix(raw, byteOrder)); err == nil {
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

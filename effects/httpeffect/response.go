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
	// maxAnswer bounds an answer, as NATS bounds a message.
	maxAnswer = 1 << 20
	// unsaidAnswer is the first buffer for an answer without a length, believedAnswer the largest
	// one for an answer with a length, which may be wrong.
	unsaidAnswer   = 512
	believedAnswer = 64 << 10
	// maxRetryAfter bounds the seconds that a server may ask to wait. No step waits longer.
	maxRetryAfter = 7 * 24 * 60 * 60
)

// response reads the answer, and its headers unless bare. A success that is too long has an unknown
// outcome; of a failure only the body is dropped.
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
	// A handler may have done its work before it crashed or timed out, and a proxy may answer for
	// a server that did it.
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

// apart lists the answers that are about this call only: it was not authorised, or it met what an
// earlier call created. They say nothing about an earlier call.
func apart() []int {
	return []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusConflict}
}

// readAnswer reads to the end, so that the connection can be reused, or past maxAnswer.
func readAnswer(resp *http.Response) ([]byte, error) {
	size := int64(unsaidAnswer)
	if resp.ContentLength >= 0 {
		size = min(resp.ContentLength, believedAnswer) + 1 // room to find the end
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

// cutOff returns an error for incomplete JSON whose end is only that of the connection. Other texts
// may be incomplete unnoticed.
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

// byteOrder is the mark that some servers write before JSON.
var byteOrder = []byte("\ufeff")

// decode decodes JSON. Other bytes are a text, and no bytes are null.
func decode(raw []byte) any {
	if v, err := jsonvalue.Decode(bytes.TrimPrefix(raw, byteOrder)); err == nil {
		return v
	}
	return strings.ToValidUTF8(string(raw), "\uFFFD")
}

// retryAfter returns the longest wait that an answer asks for, 0 if none. It compares a date with
// the server's clock in Date, because ours may differ.
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

// seconds may have a fraction, beyond the RFC.
var seconds = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

// wholeSeconds rounds up.
func wholeSeconds(text string) time.Duration {
	s, _ := strconv.ParseFloat(text, 64) // +Inf for too many digits
	return time.Duration(math.Ceil(min(s, maxRetryAfter))) * time.Second
}

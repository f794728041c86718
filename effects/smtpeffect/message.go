package smtpeffect

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	gomail "github.com/wneessen/go-mail"
)

// maxLine bounds a line of a mail without its end (RFC 5322).
const maxLine = 998

// headerName is the form of a name in headers: X-…, List-…, or one of the names that say nothing of
// sender, recipients and content.
var headerName = regexp.MustCompile(`(?i)^((X|List)-[A-Za-z0-9-]{1,60}|In-Reply-To|References|Auto-Submitted|Precedence|Importance|Priority|Sensitivity|Organization|Keywords|Comments|Feedback-ID)$`)

// errHeaderName completes a message about a name of headers.
const errHeaderName = "is X-…, List-…, or one of In-Reply-To, References, Auto-Submitted, Precedence, Importance, Priority, Sensitivity, Organization, Keywords, Comments, Feedback-ID"

// headers reads the map headers, sorted by name.
func headers(v any) ([][2]string, error) {
	given, isMap := v.(map[string]any)
	if !isMap && v != nil {
		return nil, errors.New("headers is a map of names and texts")
	}
	if len(given) > maxHeaders {
		return nil, fmt.Errorf("headers has %d names, more than %d", len(given), maxHeaders)
	}
	var out [][2]string
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !headerName.MatchString(name) {
			return nil, errors.New("a name of headers " + errHeaderName)
		}
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		value, err := line("headers."+name, given[name])
		if err != nil {
			return nil, err
		}
		if seen[canonical] {
			return nil, errors.New("headers." + name + " is there twice")
		}
		if seen[canonical] = true; value != "" {
			out = append(out, [2]string{name, value})
		}
	}
	return out, nil
}

// compose writes the mail. The fields were checked before; sound checks the result again.
func (p parts) compose(id string, now time.Time) ([]byte, error) {
	m := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	m.SetMessageIDWithValue(strings.Trim(id, "<>"))
	m.SetDateWithValue(now)
	for name, list := range map[gomail.Header][]address{"From": {p.from}, "To": p.to, "Cc": p.cc, "Reply-To": p.replyTo} {
		if len(list) > 0 {
			m.SetGenHeaderPreformatted(name, inHeader(list))
		}
	}
	m.SetGenHeader(gomail.HeaderSubject, encoded(p.subject))
	for _, h := range p.headers {
		m.SetGenHeader(gomail.Header(h[0]), encoded(h[1]))
	}
	if err := p.fill(m); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if _, err := m.WriteTo(&out); err != nil {
		return nil, fmt.Errorf("the mail cannot be written: %w", err)
	}
	return out.Bytes(), sound(out.Bytes())
}

// fill adds text, html and files. Readers show the last alternative that they know, so html is
// after text.
func (p parts) fill(m *gomail.Msg) error {
	if p.text != "" {
		m.SetBodyString(gomail.TypeTextPlain, p.text)
	}
	if p.html != "" {
		m.AddAlternativeString(gomail.TypeTextHTML, p.html)
	}
	for _, f := range p.files {
		if err := f.attach(m); err != nil {
			return err
		}
	}
	return nil
}

// inHeader writes addresses, one on a line. The library would use net/mail, which writes some names
// so that it cannot read them.
func inHeader(list []address) string {
	out := make([]string, len(list))
	for i, a := range list {
		out[i] = a.header()
	}
	return strings.Join(out, ",\r\n ")
}

// wordBytes is how much text an encoded word holds, whose length RFC 2047 bounds by 75.
const wordBytes = 42

// encoded writes a text as encoded words if it is not ASCII or looks encoded, so that the library
// changes nothing.
func encoded(s string) string {
	if isASCII(s) && !strings.Contains(s, "=?") {
		return s
	}
	var words []string
	for s != "" {
		n := min(len(s), wordBytes)
		for n < len(s) && !utf8.RuneStart(s[n]) {
			n--
		}
		words = append(words, "=?UTF-8?b?"+base64.StdEncoding.EncodeToString([]byte(s[:n]))+"?=")
		s = s[n:]
	}
	return strings.Join(words, " ")
}

// sound refuses a mail that a server could read in another way.
func sound(message []byte) error {
	if len(message) > maxMessage {
		return fmt.Errorf("the mail has %d bytes, more than %d", len(message), maxMessage)
	}
	for text := range bytes.Lines(message) {
		text = bytes.TrimSuffix(text, []byte("\r\n"))
		if len(text) > maxLine {
			return fmt.Errorf("a header has %d characters without a blank, more than fit a line of %d", len(text), maxLine)
		}
		if bytes.ContainsAny(text, "\r\n\x00") {
			return errors.New("the mail has a line end or a NUL where none may be")
		}
	}
	return nil
}

package smtpeffect

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"edda/effects"
	"edda/expression"
)

// The bounds of a mail. A manifest may make more of a payload, which is below 1 MiB.
const (
	// maxMessage bounds the bytes of a mail. Most servers accept as many.
	maxMessage = 10 << 20
	// maxRecipients is what RFC 5321 requires a server to accept.
	maxRecipients = 100
	// maxFiles and maxHeaders bound the attachments and the manifest's own headers.
	maxFiles   = 50
	maxHeaders = 50
	// maxHeader bounds the bytes of a header's value.
	maxHeader = 4 << 10
)

// email is a mail that is ready to be sent.
type email struct {
	id      string // the Message-ID, in angle brackets
	from    address
	to      []address // the envelope: to, cc and bcc, each once
	utf8    bool      // an address needs SMTPUTF8
	message []byte
}

// parts are the checked fields of a manifest's map.
type parts struct {
	from                 address
	replyTo, to, cc, bcc []address
	subject, text, html  string
	headers              [][2]string
	files                []file
}

// emailOf makes the mail of the manifest's evaluated map.
func emailOf(c effects.Call, now time.Time) (email, error) {
	p, err := partsOf(c.Config)
	if err != nil {
		return email{}, err
	}
	l := email{id: messageID(c, p.from.domain), from: p.from, to: p.recipients()}
	if len(l.to) > maxRecipients {
		return email{}, fmt.Errorf("a mail has at most %d recipients, and this has %d", maxRecipients, len(l.to))
	}
	l.utf8 = slices.ContainsFunc(slices.Concat([]address{p.from}, p.replyTo, p.to, p.cc, p.bcc), func(a address) bool { return !a.ascii() })
	l.message, err = p.compose(l.id, now)
	return l, err
}

// recipients lists the addresses of to, cc and bcc, each once.
func (p parts) recipients() []address {
	seen, out := map[string]bool{}, []address(nil)
	for _, a := range slices.Concat(p.to, p.cc, p.bcc) {
		if !seen[a.String()] {
			seen[a.String()] = true
			out = append(out, a)
		}
	}
	return out
}

// plainID is a text that a Message-ID holds unchanged.
var plainID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// messageID derives the same id for every attempt: <key.tenant@domain>, so that mail logs can be
// searched, or a hash if the two do not fit.
func messageID(c effects.Call, domain string) string {
	key := cmp.Or(c.Key, c.ID)
	if plainID.MatchString(key) && plainID.MatchString(c.Tenant) {
		return "<" + key + "." + c.Tenant + "@" + domain + ">"
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", key, c.Tenant))
	return "<" + hex.EncodeToString(sum[:20]) + "@" + domain + ">"
}

func partsOf(config map[string]any) (p parts, err error) {
	if p.from, err = addressOf(config["from"]); err != nil {
		return p, fmt.Errorf("from %w", err)
	}
	for _, list := range []struct {
		name string
		into *[]address
	}{{"to", &p.to}, {"cc", &p.cc}, {"bcc", &p.bcc}, {"reply_to", &p.replyTo}} {
		if *list.into, err = addresses(list.name, config[list.name]); err != nil {
			return p, err
		}
		if list.name == "to" && len(p.to) == 0 {
			return p, errors.New("to is empty: a mail needs a recipient")
		}
	}
	if p.subject, err = line("subject", config["subject"]); err != nil {
		return p, err
	}
	if p.text, p.html = expression.Text(config["text"]), expression.Text(config["html"]); p.text == "" && p.html == "" {
		return p, errors.New("text and html are both empty")
	}
	if p.headers, err = headers(config["headers"]); err != nil {
		return p, err
	}
	p.files, err = files(config["attachments"])
	return p, err
}

// addresses reads no address, one, or a list.
func addresses(field string, v any) ([]address, error) {
	list, isList := v.([]any)
	if !isList && v != nil {
		list = []any{v}
	}
	if len(list) > maxRecipients {
		return nil, fmt.Errorf("%s has %d addresses, more than %d", field, len(list), maxRecipients)
	}
	var out []address
	for i, item := range list {
		a, err := addressOf(item)
		if err != nil && isList {
			return nil, fmt.Errorf("%s[%d] %w", field, i, err)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %w", field, err)
		}
		out = append(out, a)
	}
	return out, nil
}

// line reads a header's value, which is one line. Each run of blanks becomes one, because a mail
// server may break the line there, and a line of blanks would end the header.
func line(field string, v any) (string, error) {
	switch v.(type) {
	case []any, map[string]any:
		return "", fmt.Errorf("%s is a text", field)
	}
	s := expression.Text(v)
	if !clean(s) {
		return "", fmt.Errorf("%s holds a line end or another control character: it is one line", field)
	}
	if len(s) > maxHeader {
		return "", fmt.Errorf("%s is longer than %d bytes", field, maxHeader)
	}
	return single(s), nil
}

// single replaces each run of blanks by one blank.
func single(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '\t' }), " ")
}

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

// The bounds of a mail. A command's payload is below 1 MiB; what a manifest
// makes of it may be more.
const (
	// maxMessage bytes are sent: what most servers take at least.
	maxMessage = 10 << 20
	// maxRecipients of a mail: what RFC 5321 asks every server to take.
	maxRecipients = 100
	// maxFiles attached, and maxHeaders of the manifest's own: a mail with more
	// has a loop in it.
	maxFiles   = 50
	maxHeaders = 50
	// maxHeader bytes of a subject or of another header's value.
	maxHeader = 4 << 10
)

// letter is a mail ready to be sent.
type letter struct {
	id      string // the Message-ID, in angles
	from    address
	to      []address // the envelope: to, cc and bcc, each once
	utf8    bool      // an address needs SMTPUTF8
	message []byte
}

// paper is what the manifest says of a mail, checked.
type paper struct {
	from                 address
	replyTo, to, cc, bcc []address
	subject, text, html  string
	headers              [][2]string
	files                []file
}

// letterOf reads the evaluated map of the manifest.
func letterOf(c effects.Call, now time.Time) (letter, error) {
	p, err := paperOf(c.Config)
	if err != nil {
		return letter{}, err
	}
	l := letter{id: messageID(c, p.from.domain), from: p.from, to: p.recipients()}
	if len(l.to) > maxRecipients {
		return letter{}, fmt.Errorf("a mail has at most %d recipients, and this has %d", maxRecipients, len(l.to))
	}
	l.utf8 = slices.ContainsFunc(p.everybody(), func(a address) bool { return !a.ascii() })
	l.message, err = p.compose(l.id, now)
	return l, err
}

// recipients are all of them, each once.
func (p paper) recipients() []address {
	seen, out := map[string]bool{}, []address(nil)
	for _, a := range slices.Concat(p.to, p.cc, p.bcc) {
		if !seen[a.String()] {
			seen[a.String()] = true
			out = append(out, a)
		}
	}
	return out
}

func (p paper) everybody() []address {
	return slices.Concat([]address{p.from}, p.replyTo, p.to, p.cc, p.bcc)
}

// plainID is what a Message-ID may hold as it is.
var plainID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// messageID is the same at every attempt: <key.tenant@domain>, so that a log of
// mails can be searched for it, or a hash of both where they do not fit.
func messageID(c effects.Call, domain string) string {
	key := cmp.Or(c.Key, c.ID)
	if plainID.MatchString(key) && plainID.MatchString(c.Tenant) {
		return "<" + key + "." + c.Tenant + "@" + domain + ">"
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", key, c.Tenant))
	return "<" + hex.EncodeToString(sum[:20]) + "@" + domain + ">"
}

func paperOf(config map[string]any) (p paper, err error) {
	if p.from, err = addressOf(config["from"]); err != nil {
		return p, fmt.Errorf("from %w", err)
	}
	if err := p.address(config); err != nil {
		return p, err
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

// address reads who gets the mail, and who its answers.
func (p *paper) address(config map[string]any) (err error) {
	if p.to, err = addresses("to", config["to"]); err != nil {
		return err
	}
	if len(p.to) == 0 {
		return errors.New("to is empty: a mail needs a recipient")
	}
	if p.cc, err = addresses("cc", config["cc"]); err != nil {
		return err
	}
	if p.bcc, err = addresses("bcc", config["bcc"]); err != nil {
		return err
	}
	p.replyTo, err = addresses("reply_to", config["reply_to"])
	return err
}

// addresses reads none, one, or a list.
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

// line is a header's value on one line. Runs of blanks become one: a mail
// server may break the line there, and one of blanks alone would end the header.
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

// single makes each run of blanks one blank.
func single(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '\t' }), " ")
}

// Package smtpeffect calls effects over SMTP: one mail for each command, sent to one mail server.
//
// It promises that the mail has the same Message-ID at every attempt. It is accepted for all its
// recipients or for none: if the server refuses one, the mail is not sent to the others. A refusal
// is an answer, and its status is the reply code. After an error before the last line of the mail,
// the mail was not sent. If the connection is lost between that line and its reply, the outcome is
// unknown.
//
// It refuses plain text if encryption was asked for, credentials on an unencrypted connection to
// another machine, and values that would add a line to a header or a recipient.
package smtpeffect

import (
	"context"
	"errors"
	"time"

	"edda"
	"edda/effects"
	"edda/effects/dial"
)

// Options of the provider. Guard is required.
type Options struct{ Guard *dial.Guard }

// Provider sends mails. It keeps no connection between calls.
type Provider struct{ guard *dial.Guard }

// New makes a provider. It connects to nothing yet.
func New(o Options) *Provider { return &Provider{o.Guard} }

// Close does nothing: a connection ends with its call.
func (p *Provider) Close() {}

// Call sends one mail; see effects.Provider.
func (p *Provider) Call(ctx context.Context, c effects.Call) (effects.Response, error) {
	l, err := emailOf(c, time.Now())
	if err != nil {
		return effects.Response{}, impossible(err)
	}
	r, err := serverOf(c.Config, l.from.domain)
	if err != nil {
		return effects.Response{}, impossible(err)
	}
	s, err := p.connect(ctx, r)
	if err != nil {
		return answer(reply{}, err, l.id)
	}
	taken, err := s.converse(ctx, l)
	s.end(replied(err))
	return answer(taken, err, l.id)
}

// replied reports whether a session ended with a reply, so that none is due.
func replied(err error) bool {
	var no *refusal
	return err == nil || errors.As(err, &no)
}

// answer makes the response of a reply. A refusal is an answer too.
func answer(taken reply, err error, id string) (effects.Response, error) {
	var no *refusal
	switch {
	case errors.As(err, &no):
		return no.response(id), nil
	case err != nil:
		return effects.Response{}, err
	}
	return taken.response(id), nil
}

// impossible is the error of a mail that no attempt can send.
func impossible(err error) error {
	return edda.Classify(edda.Permanent, "%w: %w", effects.ErrNotSent, err)
}

// notSent is the error of a mail that was not sent and may be tried again. An untrusted certificate
// and a missing STARTTLS are among them: an operator can repair these, and the mail can wait.
func notSent(stage, text string) error {
	return edda.Classify(edda.Temporary, "%w: %s: %s", effects.ErrNotSent, stage, text)
}

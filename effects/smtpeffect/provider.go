// Package smtpeffect calls effects over SMTP: one mail a command, handed to one
// mail server.
//
// What it promises: the mail has the same Message-ID at every attempt. It is
// taken for all of its recipients or for none: when the server refuses one, the
// others are not sent to either. A refusal is an answer, whose status is the
// reply code; what goes wrong before the mail's last line is surely not sent,
// and a connection that is lost between that line and its reply is an outcome
// that nobody can tell. What it refuses: plain text where encryption was asked
// for, credentials over a connection that is not encrypted unless it stays on
// this machine, and any value that would add a line to a header or a recipient.
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

// Provider sends mails. It holds no connection between calls.
type Provider struct{ guard *dial.Guard }

// New makes a provider; nothing is called yet.
func New(o Options) *Provider { return &Provider{o.Guard} }

// Close is there as other providers have it: a connection ends with its call.
func (p *Provider) Close() {}

// Call sends one mail; see effects.Provider.
func (p *Provider) Call(ctx context.Context, c effects.Call) (effects.Response, error) {
	l, err := letterOf(c, time.Now())
	if err != nil {
		return effects.Response{}, impossible(err)
	}
	r, err := relayOf(c.Config, l.from.domain)
	if err != nil {
		return effects.Response{}, impossible(err)
	}
	taken, err := p.send(ctx, r, l)
	var no *refusal
	switch {
	case errors.As(err, &no):
		return no.response(l.id), nil
	case err != nil:
		return effects.Response{}, err
	}
	return taken.response(l.id), nil
}

// send opens a connection, hands the mail over and ends the connection.
func (p *Provider) send(ctx context.Context, r relay, l letter) (reply, error) {
	s, err := p.connect(ctx, r)
	if err != nil {
		return reply{}, err
	}
	taken, err := s.converse(ctx, l)
	s.end(understood(err))
	return taken, err
}

// understood reports whether a conversation ended with a reply.
func understood(err error) bool {
	var no *refusal
	return err == nil || errors.As(err, &no)
}

// impossible is the error of a mail that cannot be sent, however often it is tried.
func impossible(err error) error {
	return edda.Classify(edda.Permanent, "%w: %w", effects.ErrNotSent, err)
}

// notSent is the error of a mail that was not sent and may be tried again. A
// certificate that is not trusted and a server that has forgotten its STARTTLS
// are among them: an operator repairs these, and the mail can wait.
func notSent(stage, text string) error {
	return edda.Classify(edda.Temporary, "%w: %s: %s", effects.ErrNotSent, stage, text)
}

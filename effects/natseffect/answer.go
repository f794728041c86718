package natseffect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda/effects"
)

const (
	// apiWithin bounds one request to JetStream, whose reply a reconnect may lose.
	apiWithin = 5 * time.Second
	// lookAgain is how often a waiting call looks into the stream. A reconnect may lose the answer
	// on the subscription, and a sourced stream may get it on another subject.
	lookAgain = 5 * time.Second
)

// places are the streams of a call: where the request is stored, and where the answer comes. Empty
// texts are none.
type places struct {
	request       string
	answer        string
	answerSubject string // with the key as its last token
}

// places reads stream and answer of the manifest's evaluated map.
func placesOf(c effects.Call) (places, error) {
	var p places
	p.request, _ = c.Config["stream"].(string)
	answer, given := c.Config["answer"].(map[string]any)
	if !given {
		return p, nil
	}
	p.answer, _ = answer["stream"].(string)
	subject, _ := answer["subject"].(string)
	if p.answerSubject = subject + "." + c.Key; strings.Contains(c.Key, ".") {
		return p, errors.New("the idempotency key has a dot, and cannot be the last token of the answer's subject")
	}
	return p, checkSubject(p.answerSubject)
}

// stored makes a call whose request is stored in a stream, and returns the stream's acknowledgement
// or the answer. An answer is final: it is there before another call, too.
func (l link) stored(ctx context.Context, c effects.Call, m *nats.Msg, at places) (effects.Response, error) {
	if at.answer == "" {
		return l.publish(ctx, m, at.request)
	}
	answers, err := l.answers(ctx, at)
	if err != nil {
		return effects.Response{}, unsent(err)
	}
	// The subscription begins before the look, so that no answer comes between them.
	heard, err := l.conn.SubscribeSync(at.answerSubject)
	if err != nil {
		return effects.Response{}, unsent(err)
	}
	defer func() { _ = heard.Unsubscribe() }() // it fails only if the connection is closed
	reply, err := look(ctx, answers, at.answerSubject)
	if err != nil {
		return effects.Response{}, unsent(err)
	}
	if reply == nil && !c.Asks {
		if _, err := l.publish(ctx, m, at.request); err != nil {
			return effects.Response{}, err
		}
	}
	if reply == nil {
		if reply, err = await(ctx, heard, answers, at.answerSubject); err != nil {
			return effects.Response{}, lost(at.answerSubject, err)
		}
	}
	r, err := response(reply, c.Bare)
	r.Retry = false // another call would find the same answer
	return r, err
}

// publish stores the request in the stream.
func (l link) publish(ctx context.Context, m *nats.Msg, stream string) (effects.Response, error) {
	// A service may subscribe to a subject that the stream does not have, and must not get the
	// request then.
	if _, err := l.stream(ctx, stream, m.Subject); err != nil {
		return effects.Response{}, unsent(err)
	}
	ctx, cancel := context.WithTimeout(ctx, apiWithin)
	defer cancel()
	ack, err := l.js.PublishMsg(ctx, m, jetstream.WithExpectStream(stream), jetstream.WithRetryAttempts(0))
	var refused *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return effects.Response{}, unsent(fmt.Errorf("the stream %.80q does not answer for the subject %s", stream, m.Subject))
	case errors.As(err, &refused):
		return effects.Response{}, unsent(fmt.Errorf("the stream %.80q does not store %s: %w", stream, m.Subject, err))
	case err != nil:
		return effects.Response{}, lost(m.Subject, err)
	}
	body := map[string]any{"stream": ack.Stream, "seq": int(ack.Sequence), "duplicate": ack.Duplicate}
	return effects.Response{Status: statusOK, Body: body}, nil
}

// answers returns the stream of the answers, if it keeps them.
func (l link) answers(ctx context.Context, at places) (jetstream.Stream, error) {
	s, err := l.stream(ctx, at.answer, at.answerSubject)
	if err != nil {
		return nil, err
	}
	if kept := s.CachedInfo().Config.Retention; kept != jetstream.LimitsPolicy {
		return nil, fmt.Errorf("the stream %.80q has the retention %s and may lose answers: give answer.stream one with limits", at.answer, kept)
	}
	return s, nil
}

// stream returns a stream, if it has the subject.
func (l link) stream(ctx context.Context, name, subject string) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, apiWithin)
	defer cancel()
	s, err := l.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("there is no stream %.80q: make it, with the subject %s", name, subject)
	}
	if err != nil {
		return nil, fmt.Errorf("look up the stream %.80q: %w", name, err)
	}
	o := s.CachedInfo().Config
	listed := o.Mirror == nil && len(o.Sources) == 0 // others may store subjects that they do not list
	if listed && !slices.ContainsFunc(o.Subjects, func(pattern string) bool { return matches(pattern, subject) }) {
		return nil, fmt.Errorf("the stream %.80q does not have the subject %s: add it to the stream", name, subject)
	}
	return s, nil
}

// look returns the answer that the stream has; nil if there is none.
func look(ctx context.Context, answers jetstream.Stream, subject string) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, apiWithin)
	defer cancel()
	m, err := answers.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the answer on %s: %w", subject, err)
	}
	return &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}, nil
}

// await waits for the answer until ctx ends or the connection is closed. While NATS is away it goes
// on.
func await(ctx context.Context, heard *nats.Subscription, answers jetstream.Stream, subject string) (*nats.Msg, error) {
	for {
		next, cancel := context.WithTimeout(ctx, lookAgain)
		m, err := heard.NextMsgWithContext(next)
		if err != nil && heard.IsValid() {
			<-next.Done() // also after an error that comes at once
			m, _ = look(ctx, answers, subject)
		}
		cancel()
		switch {
		case m != nil:
			return m, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !heard.IsValid():
			return nil, err
		}
	}
}

// matches reports whether a pattern of a stream has a subject.
func matches(pattern, subject string) bool {
	want, got := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range want {
		switch {
		case token == ">":
			return len(got) > i
		case i >= len(got) || token != "*" && token != got[i]:
			return false
		}
	}
	return len(want) == len(got)
}

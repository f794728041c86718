package wire

import (
	"unicode/utf8"

	"edda"
	"edda/effects"
)

// envelopeRoom is more than a command's names, numbers and punctuation need.
const envelopeRoom = 4 << 10

// Offered returns a command as the stream would deliver it. fits is false if its message may be too
// large; then publishing decides.
func (c Codec) Offered(w *edda.Work) (cmd effects.Command, fits bool) {
	md, err := effectMetadata(w)
	if err != nil || 2*(len(w.Payload)+len(md))+envelopeRoom > c.maxPayload() {
		return cmd, false
	}
	subject, err := c.Build(Subject{Tenant: w.From.Tenant, Family: FamilyEffect, Name: w.Name, ID: w.ID})
	return effects.Command{
		Tenant: w.From.Tenant, ID: w.ID, Effect: w.Name, Subject: subject, Payload: payload(w.Payload), Metadata: md,
		Version: w.EffectVersion, IdempotencyKey: w.IdempotencyKey, NotAfter: w.NotAfter, Sent: w.Time, Trace: w.Trace,
		High: w.High, Offered: true,
	}, err == nil
}

// Applied returns a result as the stream would deliver it, and its echo as work. The engine sets
// the time of both. w is the work of the command; nil if it is not known.
func (c Codec) Applied(r effects.Result, w *edda.Work) (edda.Event, edda.Work, error) {
	body, err := resultBody(r)
	if err == nil {
		err = c.carries(Subject{Tenant: r.Tenant, Family: FamilyEcho, Name: r.Effect, ID: r.CommandID}, body) // the echo must fit a message
	}
	if err != nil {
		return edda.Event{}, edda.Work{}, err
	}
	md, known := knownMetadata(w)
	if !known {
		if md, err = readMetadata(r.Metadata); err != nil {
			return edda.Event{}, edda.Work{}, err
		}
	}
	id := ResultID(r.CommandID)
	ev := edda.Event{
		Kind: edda.KindResult, ID: id, Tenant: r.Tenant, Type: r.Effect, CommandID: r.CommandID, Step: string(md.Step),
		Key: edda.Key{Tenant: r.Tenant}, Outcome: r.Outcome, Attempts: r.Attempts, Timestamp: r.Time.UTC().Round(0), Payload: payload(r.Payload),
		Correlation: string(md.Correlation), Causation: string(md.Causation), Trace: string(md.Trace),
	}
	if isTraceparent(r.Trace) {
		ev.Trace = headerText(r.Trace)
	}
	if md.Saga != "" && md.Key != "" {
		ev.Key.Saga, ev.Key.Correlation = string(md.Saga), string(md.Key)
	}
	return ev, edda.Work{
		ID: id, Kind: edda.WorkResult, From: ev.Key, Name: r.Effect, CommandID: r.CommandID, Payload: body, Trace: r.Trace,
	}, nil
}

// knownMetadata returns the metadata of a command's result without decoding it. It reports false if
// a text is not valid UTF-8, because encoding would change it.
func knownMetadata(w *edda.Work) (md metadata, known bool) {
	if w == nil {
		return md, false
	}
	for _, s := range []string{w.From.Saga, w.From.Correlation, w.Step, w.Correlation, w.Causation, w.Trace} {
		if !utf8.ValidString(s) {
			return md, false
		}
	}
	md = workMetadata(w)
	md.Saga, md.Key, md.Step = text(w.From.Saga), text(w.From.Correlation), text(w.Step)
	return md, true
}

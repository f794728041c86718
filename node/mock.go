package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"edda"
	"edda/effects"
	"edda/effects/mockeffect"
	"edda/internal/jsonvalue"
	"edda/server"
	"edda/store"
)

// openMock makes the mock and the guide, if the settings ask for them.
func (p *process) openMock(l loaded) {
	if !p.settings.Mock {
		return
	}
	p.guide = &guide{
		queue: make(chan noticed, maxHints), set: p.loadedSagas.Load, gateway: p.settings.Gateway.URL != "", log: p.log.Named("mock"),
		history: func(k edda.Key, limit int) ([]store.Record, error) { return p.db.History(k, limit) },
		show:    func(Hint) {},
	}
	p.mock = mockeffect.New(p.guide.called)
	p.mock.Learn(l.sagas(), l.effectManifests())
}

// mocksServed is what the HTTP server asks for mocks; nil without a mock.
func (p *process) mocksServed() server.Mocks {
	if p.mock == nil {
		return nil
	}
	return p
}

// mockEffects replaces the effects by those that the mock answers: see [mockeffect.StandIn].
func (l *loaded) mockEffects() {
	kinds := map[string]effects.ProviderKind{mockeffect.Word: mockeffect.Kind()}
	l.effects = slices.Clone(l.effects)
	for i, m := range l.compiled {
		e, problems := effects.Compile(mockeffect.StandIn(m), kinds)
		if e == nil {
			l.problems = append(l.problems, problems...) // its own problems are known already
			continue
		}
		l.effects[i] = e
	}
}

// Mocks lists how the effects are answered.
func (p *process) Mocks() []server.Mock {
	out := []server.Mock{}
	for _, effect := range p.mock.Effects() {
		order, result, from := p.mock.Said(effect)
		m := server.Mock{Effect: effect, MockAnswer: server.MockAnswer{Answer: order.Answer, Code: order.Code, Times: order.Times}, From: from}
		if order.Answer == mockeffect.OK {
			m.Result = encoded(result)
		}
		out = append(out, m)
	}
	return out
}

// SetMock has an effect give another answer.
func (p *process) SetMock(effect string, a server.MockAnswer) error {
	if len(a.Result) > 0 {
		if _, err := jsonvalue.Decode(a.Result); err != nil {
			return fmt.Errorf("result: %w", err)
		}
	}
	if a.Answer != mockeffect.OK && len(a.Result) > 0 {
		return fmt.Errorf("result: only the answer ok has one, not %s", a.Answer)
	}
	if a.Answer != mockeffect.Failed && a.Code != "" {
		return fmt.Errorf("code: only the answer failed has one, not %s", a.Answer)
	}
	if !p.mock.Tell(effect, mockeffect.Override{Answer: a.Answer, Code: a.Code, Result: a.Result, Times: a.Times}) {
		return fmt.Errorf("there is no effect %s: there are %s", effect, strings.Join(p.mock.Effects(), ", "))
	}
	return nil
}

// encoded encodes a result for people; a text that cannot be encoded is null.
func encoded(v any) json.RawMessage {
	raw, err := jsonvalue.Encode(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return bytes.TrimSpace(raw)
}

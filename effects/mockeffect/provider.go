// Package mockeffect answers effect commands without calling anybody. Its answers are the
// results that the tests of the manifests give, unless it is told another answer.
//
// The worker runs as always: ledger, limiter, breaker and retries are the real ones. Only the
// call itself, and the manifest's judgement of its answer, are replaced: see [StandIn].
package mockeffect

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"edda"
	"edda/effects"
	"edda/manifests"
)

// Word names the provider. It replaces http, grpc and the other words in the compiled effects.
const Word = "mock"

// The statuses of an answer, as the expressions of a [StandIn] see them.
const (
	statusOK      = 200
	statusFailed  = 422
	statusTimeout = 504
)

// Kind describes the provider to the compiler. Its map is empty.
func Kind() effects.ProviderKind {
	return effects.ProviderKind{OK: fmt.Sprintf("status == %d", statusOK)}
}

// StandIn returns the manifest of an effect that this provider answers. It keeps the name, the
// version, the schema, the upcasts and the whole policy of m. Nothing of the call stays: neither
// its address and secrets nor what judges its answer, because a test gives the result itself.
func StandIn(m *manifests.Effect) *manifests.Effect {
	out := *m
	out.Provider, out.Config, out.OK, out.Fail, out.Result, out.Check = Word, nil, nil, nil, nil, nil
	return &out
}

// Kinds of an answer.
const (
	OK      = "ok"      // succeeded
	Failed  = "failed"  // failed for good, as a business failure does
	Timeout = "timeout" // unknown outcome
	Down    = "down"    // not reached: the worker tries again, and the breaker counts it
)

// Answers lists the kinds.
func Answers() []string { return []string{OK, Failed, Timeout, Down} }

// Override is an answer that an effect was told to give.
type Override struct {
	Answer string
	Code   string          // of a failed one; "mock" if empty
	Result json.RawMessage // of ok; nil: as the tests say
	// Times is how many calls have this answer; 0 means all, until another order.
	Times int
}

// Called is one answered call.
type Called struct {
	Key    edda.Key // of the instance; empty if the command names none
	Effect string
	Step   string
	Answer string
	Result any    // of ok
	From   string // where the answer is from, in words
}

// Provider is the provider. It is safe for concurrent use.
type Provider struct {
	told func(Called)

	mu      sync.Mutex // guards below
	learned testAnswers
	orders  map[string]Override
}

// New makes a provider that knows no answers yet. told is called once for each call, and may be
// called concurrently.
func New(told func(Called)) *Provider { return &Provider{told: told, orders: map[string]Override{}} }

// Learn replaces the answers by those of other manifests. Overrides stay.
func (p *Provider) Learn(sagas []*manifests.Saga, list []*manifests.Effect) {
	learned := learn(sagas, list)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.learned = learned
}

// Effects lists the effects that it answers, by name.
func (p *Provider) Effects() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.learned.effects))
}

// Tell replaces the override of an effect. It returns false for an unknown effect.
func (p *Provider) Tell(effect string, o Override) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.learned.effects[effect]; !known {
		return false
	}
	if p.orders[effect] = o; o.Answer == OK && o.Result == nil && o.Times == 0 {
		delete(p.orders, effect) // this is what it does without an order
	}
	return true
}

// Said is what an effect answers next: its order, or the first answer of the tests.
func (p *Provider) Said(effect string) (o Override, result any, from string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o, ordered := p.orders[effect]
	if ordered && (o.Answer != OK || o.Result != nil) {
		return o, decoded(o.Result), fromOrder
	}
	result, from = p.learned.of(edda.Key{}, "", effect)
	return Override{Answer: OK, Times: o.Times}, result, from
}

const fromOrder = "edda mock" // the command that gives orders

// order returns the order for one call, and counts it.
func (p *Provider) order(effect string) (Override, bool) {
	o, ordered := p.orders[effect]
	if !ordered || o.Times == 0 {
		return o, ordered
	}
	if o.Times--; o.Times == 0 {
		delete(p.orders, effect)
	} else {
		p.orders[effect] = o
	}
	return o, true
}

// Call implements [effects.Provider].
func (p *Provider) Call(ctx context.Context, c effects.Call) (effects.Response, error) {
	if err := ctx.Err(); err != nil {
		return effects.Response{}, fmt.Errorf("%w: %w", effects.ErrNotSent, err)
	}
	called := p.answer(c)
	p.told(called)
	switch called.Answer {
	case Down:
		return effects.Response{}, fmt.Errorf("%w: %s is down, as edda mock says", effects.ErrNotSent, c.Effect)
	case Timeout:
		return effects.Response{Status: statusTimeout, Unknown: true, Body: map[string]any{"code": "timeout", "message": "no answer, as edda mock says"}}, nil
	case Failed:
		return effects.Response{Status: statusFailed, Body: called.Result}, nil
	}
	return effects.Response{Status: statusOK, Body: called.Result}, nil
}

// answer chooses the answer to a call.
func (p *Provider) answer(c effects.Call) Called {
	var meta struct{ Saga, Key, Step string }
	if c.Command != nil {
		_ = json.Unmarshal(c.Command.Metadata, &meta) // a command of another producer has none
	}
	out := Called{Key: edda.Key{Tenant: c.Tenant, Saga: meta.Saga, Correlation: meta.Key}, Effect: c.Effect, Step: meta.Step, Answer: OK}
	p.mu.Lock()
	defer p.mu.Unlock()
	o, ordered := p.order(c.Effect)
	if ordered && o.Answer != OK {
		out.Answer, out.From = o.Answer, fromOrder
		if code := o.Code; o.Answer == Failed {
			if code == "" {
				code = Word
			}
			out.Result = map[string]any{"code": code, "message": c.Effect + " failed, as edda mock says"}
		}
		return out
	}
	if o.Result != nil {
		out.Result, out.From = decoded(o.Result), fromOrder
		return out
	}
	out.Result, out.From = p.learned.of(out.Key, meta.Step, c.Effect)
	return out
}

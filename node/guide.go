package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"edda"
	"edda/effects/mockeffect"
	"edda/manifests"
	"edda/saga"
	"edda/store"
)

// Hint is what happened in a process with mocked effects, for the person who tries a saga.
// Either Mocked is set, or Instance.
type Hint struct {
	Mocked *MockedCall
	// Instance has ended, is stuck, or waits for what Next says.
	Instance *edda.Instance
	// Next is an input that brings the instance on: an event, a signal or an answer. Its Kind is
	// empty if no test has one.
	Next  edda.Event
	Test  string   // where Next is from
	Waits []string // what the instance waits for, in words
	// Commands were sent to aggregates, which nobody takes here.
	Commands []string
}

// MockedCall is the call of an effect that the mock answered.
type MockedCall struct {
	Key          edda.Key
	Effect, Step string
	Answer       string
	Result       []byte // JSON; of ok
	From         string // where the answer is from
}

const (
	// maxHints wait for the terminal. More are dropped, because neither the engine nor a call may
	// wait for a terminal.
	maxHints = 256
	// maxGuided is how much of an instance's history the guide compares with the tests.
	maxGuided = 200
)

// guide makes the hints of a process with mocked effects. [guide.run] owns it; the other methods
// may be called concurrently and do not block.
type guide struct {
	queue   chan noticed
	set     func() *saga.Set
	history func(edda.Key, int) ([]store.Record, error)
	gateway bool // commands of aggregates reach somebody
	log     *zap.Logger
	show    func(Hint) // set before run
}

// noticed is a transition, or a call.
type noticed struct {
	transition edda.Transition
	call       *mockeffect.Called
}

// observe takes durable transitions.
func (g *guide) observe(ts []edda.Transition) {
	for _, t := range ts {
		if t.Instance != nil {
			g.offer(noticed{transition: t})
		}
	}
}

// called takes an answered call.
func (g *guide) called(c mockeffect.Called) { g.offer(noticed{call: &c}) }

func (g *guide) offer(n noticed) {
	select {
	case g.queue <- n:
	default:
	}
}

// run shows hints until ctx ends.
func (g *guide) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-g.queue:
			if h, ok := g.hint(n); ok {
				g.show(h)
			}
		}
	}
}

// hint is what to tell of one transition or call, if anything.
func (g *guide) hint(n noticed) (Hint, bool) {
	if c := n.call; c != nil {
		return Hint{Mocked: &MockedCall{Key: c.Key, Effect: c.Effect, Step: c.Step, Answer: c.Answer, Result: encoded(c.Result), From: c.From}}, true
	}
	in := n.transition.Instance
	h := Hint{Instance: in, Commands: g.unheard(n.transition.Work)}
	came := func(word string) bool {
		return slices.ContainsFunc(n.transition.Outputs, func(o edda.Output) bool { return o.Word == word })
	}
	switch {
	case in.Status.Finished():
		return h, came("end") || len(h.Commands) > 0
	case in.Status == edda.StatusStuck:
		return h, came("incident") || len(h.Commands) > 0
	case in.Status != edda.StatusRunning || busy(in):
		return h, len(h.Commands) > 0
	}
	h.Waits = saga.Why(edda.Cell{Key: in.Key, Instance: in})
	h.Next, h.Test = g.next(in)
	return h, true
}

// unheard lists the commands that no service takes.
func (g *guide) unheard(work []edda.Work) (out []string) {
	for _, w := range work {
		if w.Kind == edda.WorkCommand && !g.gateway {
			out = append(out, w.Name)
		}
	}
	return out
}

// busy reports whether an instance goes on by itself, because an effect, a child or an undo is
// under way.
func busy(in *edda.Instance) bool {
	return len(in.Undos) > 0 || slices.ContainsFunc(in.Steps, func(s edda.Step) bool {
		return s.Status == edda.StepPending && (s.Kind == edda.StepEffect || s.Kind == edda.StepStart)
	})
}

// next finds the input that follows in a test whose earlier inputs are those of the instance.
func (g *guide) next(in *edda.Instance) (edda.Event, string) {
	set := g.set()
	newest := set.Newest(in.Key.Saga)
	if newest == nil {
		return edda.Event{}, ""
	}
	history, err := g.history(in.Key, maxGuided)
	if err != nil {
		g.log.Warn("what comes next is not known", zap.String("saga", in.Key.Saga), zap.Error(err))
		return edda.Event{}, ""
	}
	past := inputs(history, in.Generation)
	for _, test := range mockeffect.Preferred(newest.Manifest()) {
		if ev, ok := follows(inputsOf(set, newest.Manifest(), test, in.Key), past); ok {
			return ev, test.Name
		}
	}
	return edda.Event{}, ""
}

// inputs lists the inputs from outside that a generation of an instance has had, oldest first.
// A timer is an input without a name.
func inputs(history []store.Record, generation int) (out []edda.Event) {
	for _, r := range slices.Backward(history) {
		switch {
		case r.Generation != 0 && r.Generation != generation || r.Fate == edda.FateDuplicate:
		case r.Event.Kind == edda.KindTimer:
			out = append(out, edda.Event{Kind: edda.KindTimer})
		case slices.Contains([]edda.Kind{edda.KindEvent, edda.KindSignal, edda.KindAnswer}, r.Event.Kind):
			out = append(out, r.Event)
		}
	}
	return out
}

// follows returns the input of a script that comes after the past ones, if it begins with these.
func follows(script, past []edda.Event) (edda.Event, bool) {
	for _, was := range past {
		switch {
		case was.Kind == edda.KindTimer && (len(script) == 0 || script[0].Kind != edda.KindTimer):
			continue // a reminder that the test does not mention
		case len(script) == 0 || !alike(script[0], was):
			return edda.Event{}, false
		}
		script = script[1:]
	}
	if len(script) == 0 || script[0].Kind == edda.KindTimer {
		return edda.Event{}, false
	}
	return script[0], true
}

// alike reports whether two inputs are the same one, whatever their data.
func alike(a, b edda.Event) bool {
	return a.Kind == b.Kind && (a.Kind == edda.KindTimer || a.Type == b.Type && a.Step == b.Step)
}

// inputsOf lists the inputs of a test for one instance. The instance's key replaces the test's. Time that
// passes is a timer, unless the test expects that nothing comes of it.
func inputsOf(set *saga.Set, m *manifests.Saga, test *manifests.Test, key edda.Key) (out []edda.Event) {
	named := keyOfTest(set, m, test)
	for _, s := range test.Steps {
		other := s.Key != "" && s.Key != named
		switch s.Input {
		case "advance":
			if !s.HasExpect || len(s.Expect) > 0 {
				out = append(out, edda.Event{Kind: edda.KindTimer})
			}
		case "event":
			if ev, ok := eventFor(set, m, s, named, key); ok {
				out = append(out, ev)
			}
		case "signal":
			if !other {
				out = append(out, edda.Event{Kind: edda.KindSignal, Key: key, Type: s.Name, Payload: renamed(s.Data, named, key.Correlation)})
			}
		case "answer":
			if !other {
				out = append(out, edda.Event{Kind: edda.KindAnswer, Key: key, Step: s.Name, Type: s.With, Payload: renamed(s.Data, named, key.Correlation)})
			}
		}
	}
	return out
}

// Walkthrough lists the inputs of the first test of the first saga at the paths, as a person gives
// them, and the key of its instance. They bring a process with mocked effects to the test's end.
func Walkthrough(paths ...string) (edda.Key, []edda.Event, error) {
	l, err := load(paths)
	if err != nil {
		return edda.Key{}, nil, err
	}
	if l.problems.Failed() || len(l.programs) == 0 {
		return edda.Key{}, nil, fmt.Errorf("the manifests in %s have errors: edda lint shows them", strings.Join(paths, ", "))
	}
	set, err := saga.NewSet(l.programs...)
	if err != nil {
		return edda.Key{}, nil, fmt.Errorf("load the manifests: %w", err)
	}
	m := l.programs[0].Manifest()
	key := edda.Key{Tenant: DevTenant, Saga: m.Name.Text}
	for _, test := range mockeffect.Preferred(m) {
		key.Correlation = keyOfTest(set, m, test)
		return key, slices.DeleteFunc(inputsOf(set, m, test, key), func(ev edda.Event) bool { return ev.Kind == edda.KindTimer }), nil
	}
	return key, nil, nil
}

// keyOfTest is the key of the first instance of a test; empty if its events name none.
func keyOfTest(set *saga.Set, m *manifests.Saga, test *manifests.Test) string {
	for _, s := range test.Steps {
		if s.Input != "event" {
			continue
		}
		for _, target := range set.Route(sampleEvent(m, s)) {
			if target.Dead == nil && target.Key.Saga == m.Name.Text {
				return target.Key.Correlation
			}
		}
	}
	return ""
}

// eventFor returns the event of a test's step for an instance, if it is routed there.
func eventFor(set *saga.Set, m *manifests.Saga, s *manifests.TestStep, named string, key edda.Key) (edda.Event, bool) {
	ev := sampleEvent(m, s)
	ev.Tenant = key.Tenant
	ev.Payload = renamed(s.Data, named, key.Correlation)
	if ev.AggregateID = key.Correlation; s.AggregateID != "" && s.AggregateID != named {
		ev.AggregateID = s.AggregateID
	}
	for _, correlation := range []string{"", key.Correlation} {
		ev.Correlation = correlation
		for _, target := range set.Route(ev) {
			if target.Dead == nil && target.Key == key {
				ev.Key = key
				return ev, true
			}
		}
	}
	return ev, false
}

// renamed encodes a test's data and replaces the test's key by another one.
func renamed(data any, from, to string) []byte {
	if data == nil {
		return nil
	}
	if from != "" && from != to {
		data = replaced(data, from, to)
	}
	return encoded(data)
}

func replaced(v any, from, to string) any {
	switch v := v.(type) {
	case string:
		if v == from {
			return to
		}
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = replaced(item, from, to)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, item := range v {
			out[name] = replaced(item, from, to)
		}
		return out
	}
	return v
}

// sampleEvent is the event of a test's step, as a person would send it.
func sampleEvent(m *manifests.Saga, s *manifests.TestStep) edda.Event {
	ev := edda.NamedEvent(s.Name)
	id := cmp.Or(s.AggregateID, strings.ToUpper(m.Name.Text[:1])+"1")
	ev.AggregateType = cmp.Or(s.AggregateType, ev.AggregateType, strings.ToUpper(m.Name.Text[:1])+m.Name.Text[1:])
	ev.ID, ev.Tenant, ev.AggregateID, ev.Version = "sample", DevTenant, id, cmp.Or(s.Version, ev.Version, 1)
	ev.Payload, ev.Correlation = encoded(s.Data), cmp.Or(s.Correlation, id)
	return ev
}

package node

import (
	"context"
	"slices"
	"strings"

	"go.uber.org/zap"

	"edda"
	"edda/effects/mockeffect"
	"edda/hero/mycelium/standin"
	"edda/manifests"
	"edda/saga"
	"edda/server"
)

// Running is a process whose parts have all started. It is safe for concurrent use.
type Running struct {
	p *process
	l loaded
}

// Log returns the logger of the process.
func (r Running) Log() *zap.Logger { return r.p.log }

// Addr returns the address of the HTTP server.
func (r Running) Addr() string { return r.p.server.Addr() }

// NATS returns the URL of the embedded NATS.
func (r Running) NATS() string { return r.p.pipeline.Load().embedded.URL() }

// Notes lists which sagas catch up since the start.
func (r Running) Notes() []string { return r.p.said }

// Names lists the sagas and effects that run.
func (r Running) Names() (sagas, effects []string) {
	for _, s := range r.p.sagaInfo() {
		if s.Newest {
			sagas = append(sagas, s.Saga+" v"+s.VersionName)
		}
	}
	for _, e := range r.p.effectInfo() {
		effects = append(effects, e.Effect)
	}
	return sagas, effects
}

// Reload reloads the manifests, the tokens and the certificates. A failing test is a warning,
// because a saga is often saved before its tests. kept says which file of the tokens and
// certificates stays in use, and why.
func (r Running) Reload(ctx context.Context, who server.Operator) (problems manifests.Problems, kept, err error) {
	return r.p.reload(ctx, who, testsWarn)
}

// HeroRunning is where the Hero systems of a process are.
type HeroRunning struct {
	Coordinator, WebSocket string        // addresses of the coordinator
	Redis                  string        // for people
	Mycelium               string        // URL; empty without Mycelium
	StandIn                *standin.Node // node of the stand-in that is this process; may be nil
	Runner                 uint32        // number; 0 without a runner
	Scripts                []string      // types that the runner runs
}

// Hero returns where the Hero systems are; nil without the role coordinator.
func (r Running) Hero() *HeroRunning {
	h := r.p.hero
	if h.coordinator == nil {
		return nil
	}
	out := &HeroRunning{Coordinator: h.coordinator.HTTPAddr(), WebSocket: h.coordinator.WSAddr(), Redis: r.p.redisAt()}
	if h.mesh != nil || h.standIn != nil {
		out.Mycelium = r.p.settings.Hero.Mycelium.address()
	}
	if h.standIn != nil {
		out.StandIn = h.standIn.Node(standInName)
	}
	if h.works != nil {
		out.Runner, out.Scripts = r.p.settings.Hero.Runner.ID, h.works.scripts.Types()
	}
	return out
}

// Sample returns the first event in the tests of the sagas that starts an instance, with the
// key of that instance. Correlation is empty unless the key depends on it.
func (r Running) Sample() (edda.Event, bool) {
	r.p.reloading.Lock()
	set := r.p.set
	r.p.reloading.Unlock()
	for _, m := range r.l.sagas() {
		if ev, ok := sample(set, m); ok {
			return ev, true
		}
	}
	return edda.Event{}, false
}

// sample returns the first starting event of a saga's tests, and its key.
func sample(set *saga.Set, m *manifests.Saga) (edda.Event, bool) {
	for _, test := range mockeffect.Preferred(m) {
		i := slices.IndexFunc(test.Steps, func(s *manifests.TestStep) bool { return s.Input == "event" && starts(m, s.Name) })
		if i < 0 {
			continue
		}
		ev := sampleEvent(m, test.Steps[i])
		for _, correlation := range []string{test.Steps[i].Correlation, ev.Correlation} {
			ev.Correlation = correlation
			for _, target := range set.Route(ev) {
				if target.Dead == nil && target.Key.Saga == m.Name.Text {
					ev.Key = target.Key
					return ev, true
				}
			}
		}
	}
	return edda.Event{}, false
}

// starts reports whether a handler of that event starts an instance.
func starts(m *manifests.Saga, event string) bool {
	return slices.ContainsFunc(m.Handlers, func(h *manifests.Handler) bool {
		return h.Start && (h.Trigger.Text == event || strings.HasSuffix(h.Trigger.Text, "."+event))
	})
}

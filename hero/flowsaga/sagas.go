// Package flowsaga runs a flow of jobs as a saga. To the engine a flow is an instance: its
// graph is the instance's state, reports are signals, and the acts of a step are one
// piece of work in the outbox, which commits with the state. hero/flow decides; this
// package translates its values for the engine.
//
// It is pure, except [Client], which sends to flows through the streams.
package flowsaga

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"edda"
	"edda/hero/flow"
	"edda/saga"
)

const (
	// Saga is the name of the saga whose instances are flows. No manifest may use it.
	Saga = flow.Saga
	// version and hash of the program are recorded in instances.
	version = 1
	hash    = "hero_flow/1"
)

// The signals that a flow takes.
const (
	signalStart  = "start"  // payload: flow.Definition
	signalReport = "report" // payload: hero.Report
	signalMet    = "met"    // payload: {name}
	signalCancel = "cancel"
)

// Decider decides for the engine. [saga.Set] is the other implementation.
type Decider interface {
	Route(ev edda.Event) []saga.Target
	Apply(cell edda.Cell, t saga.Target, ev edda.Event) (edda.Cell, []edda.Transition)
	Wake(cell edda.Cell, row, horizon time.Time) (edda.Cell, []edda.Transition)
	Unheard(ev edda.Event) (near string, suspicious bool)
}

// Sagas decides for flows, and leaves other sagas to another Decider.
type Sagas struct{ others Decider }

// With adds flows to the sagas of another Decider.
func With(others Decider) Sagas { return Sagas{others} }

// Route routes an event with a flow's key to that flow.
func (s Sagas) Route(ev edda.Event) []saga.Target {
	if ev.Key.Saga != Saga || ev.Malformed != "" || ev.Kind == edda.KindEvent || ev.Kind == edda.KindSchedule {
		return s.others.Route(ev)
	}
	return []saga.Target{{Key: ev.Key, Versions: []int{version}}}
}

// Unheard asks the other Decider, because flows hear no events.
func (s Sagas) Unheard(ev edda.Event) (near string, suspicious bool) { return s.others.Unheard(ev) }

// Apply applies one event to a flow, or has the other Decider apply it.
func (s Sagas) Apply(cell edda.Cell, t saga.Target, ev edda.Event) (edda.Cell, []edda.Transition) {
	if t.Key.Saga != Saga || t.Dead != nil {
		return s.others.Apply(cell, t, ev)
	}
	cell.Key = t.Key
	a := &application{cell: cell}
	a.apply(ev)
	a.rearm()
	return a.cell, a.out
}

// Wake handles the deadlines of a flow, or has the other Decider handle them.
func (s Sagas) Wake(cell edda.Cell, row, horizon time.Time) (edda.Cell, []edda.Transition) {
	if cell.Key.Saga != Saga {
		return s.others.Wake(cell, row, horizon)
	}
	a := &application{cell: cell}
	a.wake(row, horizon)
	return a.cell, a.out
}

// Key returns the key of a flow's instance.
func Key(tenant string, context, id uint32) edda.Key {
	return edda.Key{Tenant: tenant, Saga: Saga, Correlation: fmt.Sprintf("%d-%d", context, id)}
}

// FlowOf reads the context and the id of a flow from its key.
func FlowOf(k edda.Key) (context, id uint32, err error) {
	first, second, ok := strings.Cut(k.Correlation, "-")
	c, err1 := strconv.ParseUint(first, 10, 32)
	f, err2 := strconv.ParseUint(second, 10, 32)
	if k.Saga != Saga || !ok || err1 != nil || err2 != nil {
		return 0, 0, fmt.Errorf("%s is no key of a flow", k)
	}
	return uint32(c), uint32(f), nil
}

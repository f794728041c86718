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
	// Saga is the name under which flows are instances; no manifest may have it.
	Saga = flow.Saga
	// version and hash of the program, as instances remember them.
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

// Decider is what the engine asks; [saga.Set] is the other one.
type Decider interface {
	Route(ev edda.Event) []saga.Target
	Apply(cell edda.Cell, t saga.Target, ev edda.Event) (edda.Cell, []edda.Transition)
	Wake(cell edda.Cell, row, horizon time.Time) (edda.Cell, []edda.Transition)
}

// Sagas decides for flows, and passes other sagas on.
type Sagas struct{ rest Decider }

// With adds flows to what another decides.
func With(rest Decider) Sagas { return Sagas{rest} }

// Route sends what is addressed to a flow to that flow.
func (s Sagas) Route(ev edda.Event) []saga.Target {
	if ev.Key.Saga != Saga || ev.Malformed != "" || ev.Kind == edda.KindEvent || ev.Kind == edda.KindSchedule {
		return s.rest.Route(ev)
	}
	return []saga.Target{{Key: ev.Key, Versions: []int{version}}}
}

// Apply gives one event to a flow, or to the other's instance.
func (s Sagas) Apply(cell edda.Cell, t saga.Target, ev edda.Event) (edda.Cell, []edda.Transition) {
	if t.Key.Saga != Saga || t.Dead != nil {
		return s.rest.Apply(cell, t, ev)
	}
	cell.Key = t.Key
	a := &application{cell: cell}
	a.apply(ev)
	a.rearm()
	return a.cell, a.out
}

// Wake does what is due in a flow, or in the other's instance.
func (s Sagas) Wake(cell edda.Cell, row, horizon time.Time) (edda.Cell, []edda.Transition) {
	if cell.Key.Saga != Saga {
		return s.rest.Wake(cell, row, horizon)
	}
	a := &application{cell: cell}
	a.wake(row, horizon)
	return a.cell, a.out
}

// Key names a flow's instance.
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
